// A lane in its thread: what is submitted from anywhere comes back once, in whatever way the thread
// is reached.
#include "server/lanes/lane.h"

#include <atomic>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "adapters/open.h"
#include "catch2/catch_test_macros.hpp"

namespace semaphored {
namespace {

using std::chrono::microseconds;

TEST_CASE("a short wait: only when little is under way and the last one was short") {
  ShortWait wait;
  CHECK_FALSE(wait.PaysFor(1));  // None has been seen yet.
  wait.Took(microseconds(100));
  const bool many_processors = std::thread::hardware_concurrency() > 1;
  CHECK(wait.PaysFor(1) == many_processors);
  CHECK(wait.PaysFor(ShortWait::kJobsMax) == many_processors);
  CHECK_FALSE(wait.PaysFor(ShortWait::kJobsMax + 1));
  wait.Took(ShortWait::kLongest);
  CHECK_FALSE(wait.PaysFor(1));
}

struct LaneWorld {
  LaneWorld() {
    engine = OpenEngine("sqlite::memory:").value();
    ledger::LedgerOptions options;
    options.self = engine->nodes().Join("test").value();
    options.now_unix_ms = [] { return SystemClock().NowUnixMs(); };
    options.now = [] { return SystemClock().Now(); };
    lane = std::make_unique<Lane>(engine->OpenLane(options).value(), &SystemClock(), LaneOptions(),
                                  [](LaneResults results) {
                                    for (Finished& finished : results.finished) {
                                      std::move(finished.done)(std::move(finished.outcome));
                                    }
                                  });
  }

  Job AcquireJob(uint64_t number, Completion done) {
    AcquireCommand command;
    command.semaphore = "s";
    command.claim = command.session = Id{1, number};
    command.limit = 1'000'000;
    command.ttl_ms = 1000;
    return {std::move(command), std::move(done)};
  }

  std::unique_ptr<Engine> engine;
  std::unique_ptr<Lane> lane;
};

// Loses the answer of each commit, and does not find out what became of it until it is told to.
class Forgetful : public Adapter {
 public:
  const Guarantees& guarantees() const override { return guarantees_; }
  absl::StatusOr<StepResult> Step(absl::Span<const Submission> batch, SteadyTime) override {
    StepResult result;
    result.outcomes.resize(batch.size());
    for (size_t i = 0; i < batch.size(); ++i) {
      result.outcomes[i].kind = OutcomeKind::kUnknown;
      numbers_.push_back(batch[i].number);
    }
    if (!batch.empty() || !found_out) return result;
    for (uint64_t number : std::exchange(numbers_, {}))
      result.settled.push_back({number, Outcome()});
    return result;
  }
  void Wake() override {}
  bool found_out = false;

 private:
  Guarantees guarantees_;
  std::vector<uint64_t> numbers_;
};

TEST_CASE("a lane does not ask again at once what became of a batch") {
  auto adapter = std::make_unique<Forgetful>();
  Forgetful* forgetful = adapter.get();
  LaneCore core(std::move(adapter), &SystemClock(), LaneOptions());
  std::vector<Job> jobs;
  jobs.push_back({AcquireCommand(), [](absl::StatusOr<Outcome>) {}});
  LaneResults results;
  core.RunOnce(std::move(jobs), SteadyTime::min(), &results);
  REQUIRE(core.unsettled());
  SteadyTime before = SystemClock().Now();
  core.RunOnce({}, SteadyTime::min(), &results);
  CHECK(core.not_before() - before >= std::chrono::milliseconds(25));
  core.RunOnce({}, SteadyTime::min(), &results);
  core.RunOnce({}, SteadyTime::min(), &results);
  before = SystemClock().Now();
  core.RunOnce({}, SteadyTime::min(), &results);
  CHECK(core.not_before() - before >= std::chrono::milliseconds(200));  // Longer each time.
  forgetful->found_out = true;
  core.RunOnce({}, SteadyTime::min(), &results);
  CHECK_FALSE(core.unsettled());
  CHECK(results.finished.size() == 1);
}

TEST_CASE("a lane: one job after the other, each as soon as the last is answered") {
  LaneWorld world;
  for (uint64_t number = 1; number <= 2000; ++number) {
    std::promise<OutcomeKind> promise;
    world.lane->Submit(world.AcquireJob(
        number, [&](absl::StatusOr<Outcome> outcome) { promise.set_value(outcome.value().kind); }));
    REQUIRE(promise.get_future().get() == OutcomeKind::kGranted);
    // Now and then the thread has gone to sleep meanwhile.
    if (number % 400 == 0) std::this_thread::sleep_for(2 * ShortWait::kLongest);
  }
}

TEST_CASE("a lane: jobs of many threads, and an end in the middle") {
  constexpr uint64_t kThreads = 4;
  constexpr uint64_t kJobs = 2000;
  std::atomic<uint64_t> granted = 0;
  {
    LaneWorld world;
    std::vector<std::thread> threads;
    for (uint64_t thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&world, &granted, thread] {
        for (uint64_t number = 1; number <= kJobs; ++number) {
          world.lane->Submit(
              world.AcquireJob(thread * kJobs + number, [&](absl::StatusOr<Outcome> outcome) {
                if (outcome.ok() && outcome->kind == OutcomeKind::kGranted) ++granted;
              }));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    // What was submitted is carried out before the lane goes.
    world.lane = nullptr;
  }
  CHECK(granted == kThreads * kJobs);
}

}  // namespace
}  // namespace semaphored
