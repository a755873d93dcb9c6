// Events and changes that are not reported yet: the next result of a Step has them.
// Single-threaded.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "adapters/adapter.h"
#include "adapters/ledger/state/state.h"
#include "adapters/ledger/state/transaction.h"
#include "adapters/watched_names.h"

namespace semaphored::ledger {

// Appends events, changes and delays of `part`, in their order; not its outcomes.
void AppendReports(StepResult* part, StepResult* all);

class Outbox {
 public:
  // `watched` may be null: then no changes are reported.
  explicit Outbox(std::shared_ptr<const WatchedNames> watched);
  ~Outbox();
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  // The lane has read the results of the last Step: the texts that their events point to are dropped.
  void BeginStep();
  // True: changes of the semaphore are reported, too.
  bool watches(std::string_view semaphore) const {
    return watched_ != nullptr && watched_->Matches(semaphore);
  }

  const std::vector<Event>& waiting_events() const { return waiting_.events; }
  void Add(Event event) { waiting_.events.push_back(std::move(event)); }
  // REQUIRES: watches() its semaphore.
  void Add(SemaphoreChange change) { waiting_.changes.push_back(std::move(change)); }
  // A change by other daemons, as its difference to the state. `events`: those of the difference.
  void AddDifference(Transaction difference, const std::vector<Event>& events,
                     const LedgerState& state);
  // Keeps the reports of a commit without commands for the next Send.
  void Keep(StepResult* result) { AppendReports(result, &waiting_); }
  // Moves all kept reports into `result`, and then those of this transaction, which has won.
  void Send(Transaction won, bool with_delays, const LedgerState& state, StepResult* result);

 private:
  std::shared_ptr<const WatchedNames> watched_;
  StepResult waiting_;
  // The texts that views in events point to, until the next Step.
  std::vector<Transaction> last_;
};

}  // namespace semaphored::ledger
