// Puts what an adapter tells into an order that does not hang on the addresses of hash tables, so
// that a seed replays.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "adapters/adapter.h"

namespace semaphored::simulation {

class OrderedAdapter : public Adapter {
 public:
  explicit OrderedAdapter(std::unique_ptr<Adapter> adapter) : adapter_(std::move(adapter)) {}

  const Guarantees& guarantees() const override { return adapter_->guarantees(); }
  void Wake() override { adapter_->Wake(); }

  absl::StatusOr<StepResult> Step(absl::Span<const Submission> batch,
                                  SteadyTime deadline) override {
    absl::StatusOr<StepResult> result = adapter_->Step(batch, deadline);
    if (!result.ok()) return result;
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
};

}  // namespace semaphored::simulation
