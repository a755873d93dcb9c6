// What has happened in the engine and is not reported yet: it goes out with the next result of a Step.
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

  // The lane has read the results of the Step before: names in their events are needed no more.
  void BeginStep();
  // True: changes of the semaphore are reported, too.
  bool watches(std::string_view semaphore) const {
    return watched_ != nullptr && watched_->Matches(semaphore);
  }

  const std::vector<Event>& waiting_events() const { return waiting_.events; }
  void Add(Event event) { waiting_.events.push_back(std::move(event)); }
  // REQUIRES: watches() its semaphore.
  void Add(SemaphoreChange change) { waiting_.changes.push_back(std::move(change)); }
  // What other daemons have done, as the difference that it made here. `events`: those of the
  // difference.
  void AddDifference(Transaction difference, const std::vector<Event>& events,
                     const LedgerState& state);
  // What a commit without commands did, which no client waits for.
  void Keep(StepResult* result) { AppendReports(result, &waiting_); }
  // Moves all that waits into `result`, and then what this transaction means, which has won.
  void Send(Transaction won, bool with_delays, const LedgerState& state, StepResult* result);

 private:
  std::shared_ptr<const WatchedNames> watched_;
  StepResult waiting_;
  // The texts that views in events point to, until the next Step.
  std::vector<Transaction> last_;
};

}  // namespace semaphored::ledger
