#include "tests/contract/shared_engine.h"

#include <utility>

#include "adapters/ledger/ledger.h"
#include "tests/simulation/memory_engine.h"
#include "tests/simulation/memory_store.h"
#include "tests/simulation/world.h"

namespace semaphored::contract {
namespace {

// Longer than a notification is under way.
constexpr int64_t kBetweenSteps_us = 10 * simulation::kMillisecond;

// What all daemons share.
struct Shared {
  explicit Shared(bool lossy)
      : world(/*seed=*/1, /*tracing=*/false), notifier(&world, &lane_faults) {
    if (!lossy) return;
    lane_faults.rates.answer_lost = 0.3;
    lane_faults.rates.lost_race = 0.3;
  }

  simulation::World world;
  simulation::Faults lane_faults;
  simulation::Faults node_faults;  // None.
  simulation::MemoryEngine engine;
  simulation::Notifier notifier;
};

// Lets what is under way arrive before each Step.
class SteppedAdapter : public Adapter {
 public:
  SteppedAdapter(Shared* shared, Guarantees guarantees, std::unique_ptr<Adapter> adapter)
      : shared_(shared), guarantees_(std::move(guarantees)), adapter_(std::move(adapter)) {}

  const Guarantees& guarantees() const override { return guarantees_; }
  absl::StatusOr<StepResult> Step(absl::Span<const Submission> batch,
                                  SteadyTime deadline) override {
    shared_->world.RunUntil(shared_->world.now() + kBetweenSteps_us);
    return adapter_->Step(batch, deadline);
  }
  void Wake() override { adapter_->Wake(); }

 private:
  Shared* shared_;
  const Guarantees guarantees_;
  std::unique_ptr<Adapter> adapter_;
};

class SharedEngine : public Engine {
 public:
  explicit SharedEngine(Shared* shared)
      : shared_(shared),
        lane_link_(std::make_shared<simulation::EngineLink>(&shared->world, &shared->lane_faults)),
        nodes_(&shared->engine,
               std::make_shared<simulation::EngineLink>(&shared->world, &shared->node_faults)),
        guarantees_(NewStore()->guarantees()) {
    guarantees_.push = !shared->notifier.silent;
  }

  const Guarantees& guarantees() const override { return guarantees_; }
  NodeStore& nodes() override { return nodes_; }
  absl::StatusOr<std::unique_ptr<Adapter>> OpenLane(const ledger::LedgerOptions& options) override {
    if (lanes_ == guarantees_.lanes_max) return absl::FailedPreconditionError("no more lanes");
    ++lanes_;
    absl::StatusOr<std::unique_ptr<Adapter>> lane = ledger::MakeLedgerAdapter(NewStore(), options);
    if (!lane.ok()) return lane.status();
    return std::make_unique<SteppedAdapter>(shared_, guarantees_, *std::move(lane));
  }

 private:
  std::unique_ptr<simulation::MemoryStore> NewStore() {
    const simulation::EngineHandle handle{&shared_->engine, &shared_->notifier};
    return std::make_unique<simulation::MemoryStore>(handle, lane_link_, nullptr);
  }

  Shared* shared_;
  std::shared_ptr<simulation::EngineLink> lane_link_;
  simulation::MemoryNodeStore nodes_;
  Guarantees guarantees_;
  uint32_t lanes_ = 0;
};

class SharedFixture : public Fixture {
 public:
  explicit SharedFixture(bool lossy, bool silent = false) : shared_(lossy) {
    shared_.notifier.silent = silent;
  }
  absl::StatusOr<std::unique_ptr<Engine>> Open() override {
    return std::make_unique<SharedEngine>(&shared_);
  }
  // The fixture is the engine: it outlives its daemons.
  bool can_restart() const override { return true; }
  bool AddToCounter(const std::string& node_id, int by) override {
    shared_.engine.AddToCounter(node_id, by);
    return true;
  }

 private:
  Shared shared_;
};

}  // namespace

std::unique_ptr<Fixture> MakeSharedFixture(bool lossy) {
  return std::make_unique<SharedFixture>(lossy);
}

std::unique_ptr<Fixture> MakeSilentFixture() {
  return std::make_unique<SharedFixture>(/*lossy=*/false, /*silent=*/true);
}

}  // namespace semaphored::contract
