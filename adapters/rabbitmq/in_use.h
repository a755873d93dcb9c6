// The semaphores of the broker that are in use here: their rows, what other daemons and people have done
// to them, and which permits the broker has taken back. Used by one lane; calls may block in the store.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "adapters/ledger/core.h"
#include "adapters/rabbitmq/permit_store.h"

namespace semaphored::rabbitmq {

class InUse {
 public:
  // Both outlive it.
  InUse(ledger::Core* core, PermitStore* store);

  bool Has(const std::string& name) const { return loaded_.contains(name); }
  // Reads the row again; what it says new of the semaphore is carried out by the next batch.
  absl::Status Load(const std::string& name);
  absl::Status LoadAll(const std::vector<std::string>& names);
  // Reads the rows that have changed, and notes where there may be permits for waiters.
  absl::Status Hear(const absl::StatusOr<std::vector<ledger::ChangeNotice>>& notices);
  // How many permits others have, for commands that show the semaphore.
  absl::Status CountElsewhere(ledger::Semaphore* semaphore);
  // Once in a while: other daemons may have changed what is in use here without a notice that arrived;
  // what is not in use is forgotten. Blocks for about kTurn; what is left is done by later calls, so that
  // most of the time is for commands.
  absl::Status Sweep();
  // When Sweep() has something to do.
  SteadyTime next_sweep() const { return next_sweep_; }

  static constexpr std::chrono::milliseconds kTurn{50};

  // Takes from the store which permits were lost, and what other daemons have asked for.
  void Collect();
  bool HasLost() const { return !lost_.empty(); }
  // The next batch has something to carry out, whether or not it has commands.
  bool HasNews() const;
  // Ends the claims whose permits or semaphores are gone, and recalls what other daemons have asked for.
  void CarryOut(ledger::Editor& editor);
  // The batch that carried it out stands.
  void Won(const ledger::Transaction& transaction);

  // Fewer rows than there are, and `more`, when it has taken about kTurn.
  absl::StatusOr<Outcome> List(const ListCommand& command);

  // ---- what the broker has to be asked for, or cannot do ----
  // Of a semaphore that the command would make, or make so; empty: nothing is against it.
  std::string WhyNoSuchLimit(const Command& command) const;
  // While the broker does not answer for a semaphore that is known, claims can wait, and end.
  bool NeedsBroker(const Command& command, const absl::Status& why) const;

 private:
  void Replace(ledger::Semaphore* semaphore, SemaphoreRow row);
  void ReportChange(const ledger::Semaphore& semaphore);
  // Where requests wait there may be room now.
  void ServeLater(const std::string& name);
  void EndLost(ledger::Editor& editor);
  void RecallAsked(ledger::Editor& editor);
  absl::Status SweepOne(const std::string& name);
  // nullopt: it is not there, or cannot be used.
  absl::StatusOr<std::optional<SemaphoreInfo>> Show(const std::string& name);

  ledger::Core* const core_;
  PermitStore* const store_;
  absl::flat_hash_set<std::string> loaded_;  // Names of semaphores that exist.
  std::vector<LostPermit> lost_;
  std::vector<ledger::AskedRecall> asked_;
  std::vector<std::string> vanished_;  // Semaphores that are not in the broker any more.
  std::vector<std::string> lowered_;   // Other daemons have lowered the limit, or destroy it.
  std::vector<std::string> to_sweep_;  // By the sweep under way; the last ones first.
  SteadyTime begun_at_{};              // When it began.
  SteadyTime next_sweep_{};
};

}  // namespace semaphored::rabbitmq
