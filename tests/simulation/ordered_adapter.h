// Puts what an adapter tells into an order that does not hang on the addresses of hash tables, so
// that a seed replays.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "adapters/adapter.h"
#include "tests/simulation/branches.h"

namespace semaphored::simulation {

class OrderedAdapter : public Adapter {
 public:
  // `branches` outlives it, and may be null.
  OrderedAdapter(std::unique_ptr<Adapter> adapter, BranchCounter* branches)
      : adapter_(std::move(adapter)), branches_(branches) {}

  const Guarantees& guarantees() const override { return adapter_->guarantees(); }
  void Wake() override { adapter_->Wake(); }

  absl::StatusOr<StepResult> Step(absl::Span<const Submission> batch,
                                  SteadyTime deadline) override {
    absl::StatusOr<StepResult> result = adapter_->Step(batch, deadline);
    if (!result.ok()) return result;
    for (size_t i = 0; branches_ != nullptr && i < result->outcomes.size(); ++i)
      branches_->Count(batch[i].command, result->outcomes[i]);
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
  BranchCounter* branches_;
};

}  // namespace semaphored::simulation
