// Impolite repeats, and costs, counted on an engine in memory.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/unit/damaged_engine.h"

namespace semaphored::ledger {
namespace {

struct Daemon {
  explicit Daemon(DamagedWorld* world, bool exclusive = false, const std::string& node = "a") {
    options.self = world->engine.Join(node);
    options.now_unix_ms = [] { return int64_t{1}; };
    options.now = [this] { return now; };
    lane = MakeLedgerAdapter(std::make_unique<DamagedStore>(world, exclusive), options).value();
  }

  StepResult Step(std::vector<Command> commands) {
    std::vector<Submission> batch;
    for (Command& command : commands) batch.push_back({++number, std::move(command)});
    StepResult result = lane->Step(batch, now + std::chrono::seconds(5)).value();
    for (const Event& event : result.events) {
      if (event.kind == Event::Kind::kGranted) granted.push_back(event.claim);
    }
    return result;
  }
  Outcome Do(Command command) {
    std::vector<Command> commands;
    commands.push_back(std::move(command));
    return std::move(Step(std::move(commands)).outcomes.at(0));
  }
  AcquireCommand Ask(const std::string& semaphore, uint32_t limit, uint64_t sequence = 0) {
    AcquireCommand acquire;
    acquire.requester = {"client", sequence};
    acquire.semaphore = semaphore;
    acquire.claim = acquire.session = Id{options.self.number, ++ids};
    acquire.limit = limit;
    acquire.wait = true;
    acquire.ttl_ms = 10'000;
    return acquire;
  }

  LedgerOptions options;
  SteadyTime now{};
  std::unique_ptr<Adapter> lane;
  std::vector<Id> granted;
  uint64_t number = 0;
  uint64_t ids = 0;
};

ReleaseCommand ReleaseOf(const std::string& semaphore, const Id& claim) {
  ReleaseCommand release;
  release.semaphore = semaphore;
  release.claim = claim;
  return release;
}

TEST_CASE(
    "fault: waits are repeated in the batch that lets them in, however many a commit grants") {
  DamagedWorld world;
  world.grants_per_commit_max = GENERATE(0u, 1u, 20u);
  const bool exclusive = GENERATE(false, true);
  CAPTURE(world.grants_per_commit_max, exclusive);
  Daemon daemon(&world, exclusive);
  constexpr uint32_t kLimit = 3;
  std::vector<Id> held;
  for (uint32_t i = 0; i < kLimit; ++i)
    held.push_back(daemon.Do(daemon.Ask("s", kLimit)).lease->id);
  std::vector<Id> waits;
  for (uint64_t sequence = 1; sequence <= 5; ++sequence)
    waits.push_back(daemon.Do(daemon.Ask("s", kLimit, sequence)).claim);
  // Everything is given back, and everything is asked for again, twice, in one batch; and so three
  // times.
  for (int round = 0; round < 3; ++round) {
    std::vector<Command> batch;
    for (const Id& claim : held) batch.emplace_back(ReleaseOf("s", claim));
    held.clear();
    for (int twice = 0; twice < 2; ++twice) {
      for (uint64_t sequence = 1; sequence <= 5; ++sequence)
        batch.emplace_back(daemon.Ask("s", kLimit, sequence));
    }
    const StepResult result = daemon.Step(std::move(batch));
    const size_t first = result.outcomes.size() - 10;
    for (size_t i = 0; i < 10; ++i) {
      const Outcome& outcome = result.outcomes[first + i];
      const bool stands =
          outcome.kind == OutcomeKind::kGranted || outcome.kind == OutcomeKind::kQueued;
      CHECK(stands);
      CHECK(outcome.claim == waits[i % 5]);
    }
    for (int i = 0; i < 5; ++i) daemon.Step({});
    const simulation::StoredSemaphore* stored = world.engine.Find("s");
    CHECK(stored->held() == kLimit);
    CHECK(stored->leases.size() + stored->waiters.size() == 5);
  }
  CHECK(daemon.granted == std::vector<Id>{waits[0], waits[1], waits[2]});
}

TEST_CASE("fault: a queue of tickets without a worker is not read again by every sweep") {
  DamagedWorld world;
  Daemon daemon(&world);
  constexpr int kTickets = 50;
  for (int i = 0; i < kTickets; ++i) {
    EnqueueCommand enqueue;
    enqueue.semaphore = "tickets-" + std::to_string(i);
    enqueue.ticket = Id{9, static_cast<uint64_t>(i) + 1};
    enqueue.limit = 1;
    enqueue.adopt_limit = true;
    REQUIRE(daemon.Do(enqueue).kind == OutcomeKind::kEnqueued);
  }
  const int loaded = world.loaded;
  for (int sweep = 0; sweep < 20; ++sweep) {
    daemon.now += std::chrono::seconds(6);
    daemon.Step({});
    // Its users look at it now and then.
    AdminCommand list;
    list.semaphore = "tickets-7";
    list.act = AdminListTickets{};
    REQUIRE(daemon.Do(list).report->tickets.size() == 1);
  }
  CHECK(world.loaded == loaded);
}

TEST_CASE("fault: a commit to a wide semaphore names each daemon once") {
  DamagedWorld world;
  Daemon a(&world);
  Daemon b(&world, false, "b");
  constexpr uint32_t kLimit = 3000;
  std::vector<Command> batch;
  for (uint32_t i = 0; i < kLimit; ++i) batch.emplace_back(b.Ask("s", kLimit));
  b.Step(std::move(batch));
  batch.clear();
  for (uint32_t i = 0; i < kLimit; ++i) batch.emplace_back(a.Ask("s", kLimit));
  world.concerns_max = 0;
  a.Step(std::move(batch));
  CHECK(world.engine.Find("s")->waiters.size() == kLimit);
  CHECK(world.concerns_max == 1);
}

TEST_CASE("fault: a take-over reads each semaphore once, and each is known by its name") {
  DamagedWorld world;
  Daemon dead(&world, false, "dead");
  Daemon heir(&world, false, "heir");
  constexpr uint32_t kMany = 5000;
  std::vector<Command> batch;
  for (uint32_t i = 0; i < kMany; ++i) batch.emplace_back(dead.Ask("s" + std::to_string(i), 1));
  dead.Step(std::move(batch));
  world.loaded = 0;
  const Outcome outcome = heir.Do(OrphansCommand{{dead.options.self}});
  CHECK(outcome.report->orphans.size() == kMany);
  CHECK(world.loaded == static_cast<int>(kMany));
}

}  // namespace
}  // namespace semaphored::ledger
