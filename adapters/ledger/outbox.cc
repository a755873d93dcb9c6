#include "adapters/ledger/outbox.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "adapters/ledger/events.h"

namespace semaphored::ledger {

void AppendReports(StepResult* part, StepResult* all) {
  std::ranges::move(part->events, std::back_inserter(all->events));
  std::ranges::move(part->changes, std::back_inserter(all->changes));
  std::ranges::move(part->delayed, std::back_inserter(all->delayed));
  part->events.clear();
  part->changes.clear();
  part->delayed.clear();
}

Outbox::Outbox(std::shared_ptr<const WatchedNames> watched) : watched_(std::move(watched)) {}
Outbox::~Outbox() = default;

void Outbox::BeginStep() {
  if (waiting_.events.empty()) last_.clear();
}

void Outbox::AddDifference(Transaction difference, const std::vector<Event>& events,
                           const LedgerState& state) {
  waiting_.events.insert(waiting_.events.end(), events.begin(), events.end());
  if (watched_ != nullptr) AppendChanges(difference, state, *watched_, &waiting_.changes);
  last_.push_back(std::move(difference));
}

void Outbox::Send(Transaction won, bool with_delays, const LedgerState& state, StepResult* result) {
  result->events = std::exchange(waiting_.events, {});
  result->delayed = std::exchange(waiting_.delayed, {});
  AppendEvents(won, &result->events);
  if (with_delays) AppendDelays(won, &result->delayed);
  result->changes = std::exchange(waiting_.changes, {});
  if (watched_ != nullptr) AppendChanges(won, state, *watched_, &result->changes);
  last_.push_back(std::move(won));
}

}  // namespace semaphored::ledger
