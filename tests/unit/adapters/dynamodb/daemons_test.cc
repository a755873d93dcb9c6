// Daemons of several lanes on one table, at the same time: never over the limit, tokens that rise,
// and everybody gets through.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/open.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/dynamodb/fixture.h"

namespace semaphored::dynamodb {
namespace {

constexpr int kDaemons = 3;
constexpr int kCycles = 40;
constexpr uint32_t kLimit = 2;
constexpr std::chrono::seconds kPatience{30};

// What everybody sees of the permits.
class Witness {
 public:
  void Enter(const Lease& lease) {
    const std::lock_guard lock(mutex_);
    inside_ += lease.permits;
    most_ = std::max(most_, inside_);
    for (const uint32_t slot : lease.slots) {
      uint64_t& highest = tokens_.at(slot - 1);
      rising_ = rising_ && lease.token > highest;
      highest = lease.token;
    }
  }
  void Leave(const Lease& lease) {
    const std::lock_guard lock(mutex_);
    inside_ -= lease.permits;
  }
  uint32_t most() const { return most_; }
  bool rising() const { return rising_; }

 private:
  std::mutex mutex_;
  uint32_t inside_ = 0;
  uint32_t most_ = 0;
  std::vector<uint64_t> tokens_ = std::vector<uint64_t>(kLimit);
  bool rising_ = true;
};

// One that takes a permit again and again, waiting for it, and gives it back. In a thread of its
// own, so it only tells whether all was well.
class Worker {
 public:
  Worker(const StoreTable& table, int number)
      : engine_(OpenEngine(absl::StrCat("dynamodb://local/", table.url().table, "?endpoint=",
                                        table.url().endpoint, "&poll_min_ms=5&poll_max_ms=50"))
                    .value()),
        number_(number) {
    options_.self = engine_->nodes().Join(absl::StrCat("node-", number)).value();
    options_.now = [] { return SteadyClock::now(); };
    options_.now_unix_ms = [] { return int64_t{1'800'000'000'000}; };
    lane_ = engine_->OpenLane(options_).value();
  }

  int Work(Witness* witness) {
    int done = 0;
    for (int cycle = 0; cycle < kCycles; ++cycle) {
      const LeasePtr lease = Take(cycle);
      if (!lease) return done;
      witness->Enter(*lease);
      witness->Leave(*lease);
      ReleaseCommand release;
      release.requester = {absl::StrCat("client-", number_), ++sequence_};
      release.semaphore = "s";
      release.claim = lease->id;
      const std::optional<Outcome> outcome = Run(release);
      if (!outcome || outcome->kind != OutcomeKind::kReleased) return done;
      ++done;
    }
    return done;
  }

 private:
  // nullopt: the lane failed, or others were first each time.
  std::optional<Outcome> Run(Command command) {
    const SteadyTime until = SteadyClock::now() + kPatience;
    while (SteadyClock::now() < until) {
      const Submission submission{++submissions_, command};
      absl::StatusOr<StepResult> result = lane_->Step({&submission, 1}, until);
      if (absl::IsAborted(result.status())) continue;
      if (!result.ok()) return std::nullopt;
      See(*result);
      return std::move(result->outcomes.front());
    }
    return std::nullopt;
  }

  LeasePtr Take(int cycle) {
    AcquireCommand acquire;
    acquire.requester = {absl::StrCat("client-", number_), ++sequence_};
    acquire.semaphore = "s";
    acquire.claim = acquire.session = MakeId(static_cast<uint64_t>(number_ * 1000 + cycle));
    acquire.limit = kLimit;
    acquire.ttl_ms = 60'000;
    acquire.wait = true;
    granted_.reset();
    std::optional<Outcome> outcome = Run(acquire);
    if (!outcome) return nullptr;
    if (outcome->kind == OutcomeKind::kGranted) return outcome->lease;
    const SteadyTime until = SteadyClock::now() + kPatience;
    while (!granted_ && SteadyClock::now() < until) {
      const absl::StatusOr<StepResult> result = lane_->Step({}, until);
      if (!result.ok()) return nullptr;
      See(*result);
    }
    return granted_;
  }

  void See(const StepResult& result) {
    for (const Event& event : result.events) {
      const bool is_own = event.lease && event.lease->host == options_.self;
      if (event.kind == Event::Kind::kGranted && is_own) granted_ = event.lease;
    }
  }

  std::unique_ptr<Engine> engine_;
  ledger::LedgerOptions options_;
  std::unique_ptr<Adapter> lane_;
  const int number_;
  uint64_t sequence_ = 0;
  uint64_t submissions_ = 0;
  LeasePtr granted_;
};

TEST_CASE("dynamodb daemons: all get through, and never more than the limit", "[dynamodb]") {
  StoreTable table;
  Witness witness;
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 1; i <= kDaemons; ++i) workers.push_back(std::make_unique<Worker>(table, i));
  std::vector<int> done(kDaemons);
  std::vector<std::thread> threads;
  for (int i = 0; i < kDaemons; ++i)
    threads.emplace_back([&, i] { done[i] = workers[i]->Work(&witness); });
  for (std::thread& thread : threads) thread.join();
  CHECK(done == std::vector<int>(kDaemons, kCycles));
  CHECK(witness.most() <= kLimit);
  CHECK(witness.rising());
  OpenStore look = Open(table, {.node_id = "look"});
  const ledger::LoadedSemaphore loaded = LoadOne(look, "s");
  CHECK(loaded.leases.empty());
  CHECK(loaded.waiters.empty());
  CHECK(look.store->ReadHistory("s", 0, 1000)->size() == kDaemons * kCycles);
}

}  // namespace
}  // namespace semaphored::dynamodb
