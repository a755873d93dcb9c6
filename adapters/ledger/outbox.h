// What has happened in the engine and is not reported yet: it goes out with the next result of a Step.
// Single-threaded.
#pragma once

#include <vector>

#include "adapters/adapter.h"
#include "adapters/ledger/state/state.h"
#include "adapters/ledger/state/transaction.h"

namespace semaphored::ledger {

// Appends events, changes and delays of `part`, in their order; not its outcomes.
void AppendReports(StepResult* part, StepResult* all);

class Outbox {
 public:
  // The lane has read the results of the Step before: names in their events are needed no more.
  void BeginStep() {
    if (waiting_.events.empty()) last_.clear();
  }
  // A Watch is on: changes are reported, too.
  void set_watching(bool on) { watching_ = on; }
  bool watching() const { return watching_; }

  const std::vector<Event>& waiting_events() const { return waiting_.events; }
  void Add(Event event) { waiting_.events.push_back(std::move(event)); }
  // If a Watch is on.
  void Add(SemaphoreChange change) {
    if (watching_) waiting_.changes.push_back(std::move(change));
  }
  // What other daemons have done, as the difference that it made here. `events`: those of the
  // difference.
  void AddDifference(Transaction difference, const std::vector<Event>& events,
                     const LedgerState& state);
  // What a commit without commands did, which no client waits for.
  void Keep(StepResult* result) { AppendReports(result, &waiting_); }
  // Moves all that waits into `result`, and then what this transaction means, which has won.
  void Send(Transaction won, bool with_delays, const LedgerState& state, StepResult* result);

 private:
  bool watching_ = false;
  StepResult waiting_;
  // The texts that views in events point to, until the next Step.
  std::vector<Transaction> last_;
};

}  // namespace semaphored::ledger
