// A daemon with one lane on RabbitMQ tokens, driven by hand, for the tests of the adapter.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "adapters/open.h"
#include "adapters/rabbitmq/connection.h"
#include "adapters/rabbitmq/engine.h"
#include "adapters/rabbitmq/token_broker.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/rabbitmq/fixture.h"

namespace semaphored::rabbitmq {

// Any thread.
inline Id NewClaim() {
  static std::atomic<uint64_t> count = 0;
  return {7, ++count};
}

// A name without spaces whose queues go away with the test.
struct Name {
  std::string text;
  Name() {
    static int count = 0;
    text = "unit/" + std::to_string(getpid()) + "/" + std::to_string(++count);
  }
  std::string queue() const { return text + ".semaphore"; }
  ~Name() {
    // On a broker that has no time just now they stay: no other test uses their names.
    Connection connection(ReadUrl(TestUrl()).value(), "unit test");
    if (!connection.Open().ok()) return;
    const absl::StatusOr<Channel> channel = connection.OpenChannel();
    if (!channel.ok()) return;
    for (const char* suffix : {"", ".settings"})
      connection.Delete(*channel, queue() + suffix).IgnoreError();
  }
};

// One daemon with one lane, driven by hand, by one thread. (What a thread of a test's own calls
// must assert nothing while all is well: Catch2 counts assertions without a lock.)
class Daemon {
 public:
  explicit Daemon(
      std::chrono::milliseconds sweep_interval = std::chrono::milliseconds(100),
      const std::string& url = TestUrl(),
      std::function<SteadyTime()> now = [] { return SteadyClock::now(); }) {
    engine_ = OpenRabbit(url).value();
    ledger::LedgerOptions options;
    options.self = engine_->nodes().Join(NewName()).value();
    options.now_unix_ms = [] { return int64_t{1'700'000'000'000}; };
    options.now = std::move(now);
    options.sweep_interval = sweep_interval;
    lane_ = engine_->OpenLane(options).value();
  }

  absl::Status Heartbeat() { return engine_->nodes().Heartbeat(); }
  const Upkeep& upkeep() const { return *engine_->upkeep(); }

  // Again, as a lane does it, while nothing is done: tests beside this one use the same broker.
  Outcome Do(const Command& command) {
    const auto until = SteadyClock::now() + std::chrono::seconds(30);
    absl::StatusOr<Outcome> outcome;
    do {
      outcome = DoOnce({++numbers_, command}, until);
    } while (absl::IsUnavailable(outcome.status()) && SteadyClock::now() < until);
    if (!outcome.ok()) FAIL(outcome.status());
    return *std::move(outcome);
  }
  // In one batch. What was done, and what failed after it had begun.
  std::vector<absl::StatusOr<Outcome>> DoAll(std::vector<Command> commands) {
    std::vector<Submission> batch;
    batch.reserve(commands.size());
    for (Command& command : commands) batch.push_back({++numbers_, std::move(command)});
    std::vector<absl::StatusOr<Outcome>> results(batch.size());
    const auto deadline = SteadyClock::now() + std::chrono::seconds(60);
    absl::StatusOr<StepResult> step = lane_->Step(batch, deadline);
    for (size_t i = 0; i < batch.size(); ++i) {
      if (!step.ok()) results[i] = step.status();
    }
    if (!step.ok()) return results;
    Take(&*step);
    size_t unknown = 0;
    for (size_t i = 0; i < batch.size(); ++i) {
      if (step->outcomes[i].kind == OutcomeKind::kUnknown) ++unknown;
      results[i] = std::move(step->outcomes[i]);
    }
    while (unknown > 0 && SteadyClock::now() < deadline) {
      step = lane_->Step({}, SteadyClock::now());
      if (!step.ok()) FAIL(step.status());
      for (Settled& settled : step->settled) {
        results.at(settled.number - batch.front().number) = std::move(settled.outcome);
        --unknown;
      }
    }
    if (unknown > 0) FAIL_CHECK("never settled");
    return results;
  }
  Outcome Acquire(const std::string& name, bool wait = false, uint32_t limit = 0,
                  int32_t priority = 0) {
    AcquireCommand acquire;
    acquire.semaphore = name;
    acquire.claim = acquire.session = NewClaim();
    acquire.limit = limit;
    acquire.wait = wait;
    acquire.priority = priority;
    acquire.ttl_ms = 30'000;
    acquire.holder = "unit test";
    return Do(acquire);
  }
  LeasePtr Grant(const std::string& name) {
    Outcome outcome = Acquire(name);
    // What was given back elsewhere takes a moment.
    for (int i = 0; i < 100 && outcome.kind == OutcomeKind::kFull; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      outcome = Acquire(name);
    }
    CAPTURE(name, static_cast<int>(outcome.kind), outcome.message);
    REQUIRE(outcome.kind == OutcomeKind::kGranted);
    return outcome.lease;
  }
  Id Queue(const std::string& name, int32_t priority = 0) {
    const Outcome outcome = Acquire(name, /*wait=*/true, 0, priority);
    REQUIRE(outcome.kind == OutcomeKind::kQueued);
    return outcome.claim;
  }
  void Release(const std::string& name, const Id& claim) {
    ReleaseCommand release;
    release.semaphore = name;
    release.claim = claim;
    REQUIRE(Do(release).kind == OutcomeKind::kReleased);
  }
  Outcome Verify(const std::string& name, const Id& claim) {
    VerifyCommand verify;
    verify.semaphore = name;
    verify.claim = claim;
    return Do(verify);
  }
  bool Holds(const std::string& name, const Id& claim) {
    return Verify(name, claim).kind == OutcomeKind::kHeld;
  }
  template <typename Act>
  Outcome Administer(const std::string& name, Act act) {
    return Do(AdminCommand{{}, name, 0, std::move(act)});
  }
  void Create(const std::string& name, uint32_t limit) {
    AdminCreate create;
    create.limit = limit;
    REQUIRE(Administer(name, create).kind == OutcomeKind::kDone);
  }
  void Resize(const std::string& name, uint32_t limit) {
    AdminResize resize;
    resize.amount = limit;
    resize.limit_max = 1000;
    REQUIRE(Administer(name, resize).kind == OutcomeKind::kDone);
  }
  // The lease that this claim was granted; waits for it.
  LeasePtr Granted(const Id& claim) {
    REQUIRE(Until([&] { return granted_.contains(claim); }));
    return granted_[claim];
  }
  bool Ended(const Id& claim) {
    return Until([&] { return ended_.contains(claim); });
  }
  // While another daemon goes on, too: what it could not announce at once it announces later.
  bool Ended(const Id& claim, Daemon* other) {
    return Until([&] {
      other->Poll();
      return ended_.contains(claim);
    });
  }
  bool IsGranted(const Id& claim) {
    Poll();
    return granted_.contains(claim);
  }
  void Poll(std::chrono::milliseconds wait = std::chrono::milliseconds(0)) {
    absl::StatusOr<StepResult> step = lane_->Step({}, SteadyClock::now() + wait);
    if (step.ok()) Take(&*step);
  }
  bool Until(const std::function<bool()>& condition) {
    const auto deadline = SteadyClock::now() + std::chrono::seconds(30);
    while (!condition() && SteadyClock::now() < deadline) Poll(std::chrono::milliseconds(20));
    return condition();
  }

 private:
  // An outcome that is unknown is waited for.
  absl::StatusOr<Outcome> DoOnce(const Submission& submission, SteadyTime until) {
    const auto deadline = SteadyClock::now() + std::chrono::seconds(5);
    absl::StatusOr<StepResult> step = lane_->Step({&submission, 1}, deadline);
    if (!step.ok()) return step.status();
    Take(&*step);
    if (step->outcomes[0].kind != OutcomeKind::kUnknown) return std::move(step->outcomes[0]);
    while (SteadyClock::now() < until) {
      step = lane_->Step({}, SteadyClock::now() + std::chrono::milliseconds(20));
      if (!step.ok()) continue;
      Take(&*step);
      for (Settled& settled : step->settled)
        if (settled.number == submission.number) return std::move(settled.outcome);
    }
    return absl::DeadlineExceededError("never settled");
  }
  void Take(StepResult* result) {
    for (const Event& event : result->events) {
      if (event.kind == Event::Kind::kGranted) granted_[event.claim] = event.lease;
      if (event.kind == Event::Kind::kEnded) ended_[event.claim] = event.cause;
    }
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Adapter> lane_;
  uint64_t numbers_ = 0;
  std::map<Id, LeasePtr> granted_;
  std::map<Id, EndCause> ended_;
};

// Tokens that nobody has, as soon as there are that many.
inline bool ReadyBecome(const std::string& name, uint32_t count) {
  const auto connection = Connect();
  const Channel channel = connection->OpenChannel().value();
  const auto deadline = SteadyClock::now() + std::chrono::seconds(30);
  while (SteadyClock::now() < deadline) {
    if (connection->DeclarePassively(channel, name + ".semaphore").value().ready == count)
      return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

}  // namespace semaphored::rabbitmq
