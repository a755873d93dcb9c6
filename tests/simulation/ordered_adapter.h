// Puts what an adapter tells into an order that does not hang on the addresses of hash tables, so
// that a seed replays.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "adapters/adapter.h"
#include "tests/simulation/faults.h"

namespace semaphored::simulation {

// How often a kind of command had a kind of outcome while this fault was the last one.
using Tally = std::map<std::tuple<size_t, OutcomeKind, FaultKind>, uint64_t>;

class OrderedAdapter : public Adapter {
 public:
  // `faults` outlives it, and `tally`, which may be null.
  OrderedAdapter(std::unique_ptr<Adapter> adapter, const Faults* faults, Tally* tally)
      : adapter_(std::move(adapter)), faults_(faults), tally_(tally) {}

  const Guarantees& guarantees() const override { return adapter_->guarantees(); }
  void Wake() override { adapter_->Wake(); }

  absl::StatusOr<StepResult> Step(absl::Span<const Submission> batch,
                                  SteadyTime deadline) override {
    absl::StatusOr<StepResult> result = adapter_->Step(batch, deadline);
    if (!result.ok()) return result;
    for (size_t i = 0; tally_ != nullptr && i < result->outcomes.size(); ++i)
      ++(*tally_)[{batch[i].command.index(), result->outcomes[i].kind, faults_->last}];
    // What happened to one claim keeps its order.
    std::ranges::stable_sort(result->events, {}, &Event::claim);
    const auto order = [](Outcome& outcome) {
      if (outcome.report) std::ranges::sort(outcome.report->orphans, {}, &Orphan::session);
    };
    for (Outcome& outcome : result->outcomes) order(outcome);
    for (Settled& settled : result->settled) {
      if (settled.outcome.ok()) order(*settled.outcome);
    }
    return result;
  }

 private:
  std::unique_ptr<Adapter> adapter_;
  const Faults* faults_;
  Tally* tally_;
};

}  // namespace semaphored::simulation
