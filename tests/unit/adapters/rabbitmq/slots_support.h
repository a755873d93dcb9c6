// What the tests of layout=slots have in common: a daemon's lane, and somebody else.
#pragma once

#include <unistd.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/rabbitmq/adapter.h"
#include "adapters/rabbitmq/connection.h"
#include "adapters/rabbitmq/slot_broker.h"
#include "adapters/rabbitmq/slot_store.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/rabbitmq/fixture.h"

namespace semaphored::rabbitmq::slots_test {

// Somebody else, who speaks to the broker directly.
struct Other {
  std::unique_ptr<Connection> connection = Connect();
  SlotBroker broker{connection.get(), connection.get()};
  bool begun = false;  // An act that may have changed something.

  absl::Status Declare(const std::string& queue, const QueueOptions& options) {
    const Channel channel = connection->OpenChannel().value();
    absl::Status status = connection->Declare(channel, queue, options).status();
    if (connection->is_open(channel)) connection->CloseChannel(channel).IgnoreError();
    return status;
  }
  absl::Status Create(const std::string& name, uint32_t size) {
    return broker.Create(name, size, &begun);
  }
  absl::Status Destroy(const std::string& name) { return broker.Destroy(name, &begun); }
  absl::Status Resize(const std::string& name, uint32_t from, uint32_t to) {
    return broker.Resize(name, from, to, &begun);
  }
  absl::Status DeclareSlot(const std::string& name, uint32_t slot) {
    return Declare(absl::StrCat(name, "-A-", slot), {.durable = true, .messages_max = 0});
  }
  absl::Status Hold(const std::string& name, uint32_t slot) {
    return Declare(absl::StrCat(name, "-B-", slot),
                   {.durable = false, .exclusive = true, .messages_max = 0});
  }
  absl::Status Delete(const std::string& queue) {
    const Channel channel = connection->OpenChannel().value();
    absl::Status status = connection->Delete(channel, queue).status();
    if (connection->is_open(channel)) connection->CloseChannel(channel).IgnoreError();
    return status;
  }
  bool Exists(const std::string& queue) {
    const Channel channel = connection->OpenChannel().value();
    const absl::Status status = connection->DeclarePassively(channel, queue).status();
    if (connection->is_open(channel)) connection->CloseChannel(channel).IgnoreError();
    return !absl::IsNotFound(status);
  }
  uint32_t Size(const std::string& name) { return broker.Look(name, 1).value().size; }
};

// A name whose queues go away with the test.
struct Name {
  std::string text;
  Name() {
    static int count = 0;
    text = absl::StrCat("slots/", getpid(), "/", ++count);
  }
  ~Name() {
    Other other;
    other.Destroy(text).IgnoreError();
  }
};

// One daemon with one lane, driven by hand, and its connection, to be meddled with.
class Daemon {
 public:
  Daemon() {
    auto holding = Connect();
    connection_ = holding.get();
    auto probing = std::make_unique<Connection>(ReadUrl(TestUrl()).value(), "unit test probes");
    Guarantees guarantees;
    guarantees.adapter = "rabbitmq";
    guarantees.permits_per_request_max = 1;
    guarantees.settings = false;
    guarantees.names = false;
    guarantees.verifies_removed_slots = false;
    ledger::LedgerOptions options;
    options.self = {1, 1};
    options.now_unix_ms = [] { return int64_t{1'700'000'000'000}; };
    options.now = [] { return SteadyClock::now(); };
    options.sweep_interval = std::chrono::milliseconds(100);
    auto store =
        std::make_unique<SlotStore>(std::move(holding), std::move(probing), "", guarantees);
    lane_ = MakeAdapter(std::move(store), options);
  }

  Connection* connection() { return connection_; }

  absl::StatusOr<Outcome> TryDo(Command command) {
    const Submission submission{++numbers_, std::move(command)};
    absl::StatusOr<StepResult> step =
        lane_->Step({&submission, 1}, SteadyClock::now() + std::chrono::seconds(5));
    if (!step.ok()) return step.status();
    Take(&*step);
    return std::move(step->outcomes[0]);
  }
  Outcome Do(Command command) {
    absl::StatusOr<Outcome> outcome = TryDo(std::move(command));
    CAPTURE(outcome.status().ToString());
    REQUIRE(outcome.ok());
    return *std::move(outcome);
  }
  Outcome Acquire(const std::string& name, bool wait = false, uint32_t limit = 0) {
    AcquireCommand acquire;
    acquire.semaphore = name;
    acquire.claim = acquire.session = NewId();
    acquire.limit = limit;
    acquire.wait = wait;
    acquire.ttl_ms = 30'000;
    acquire.holder = "unit test";
    return Do(acquire);
  }
  LeasePtr Grant(const std::string& name, uint32_t limit = 0) {
    Outcome outcome = Acquire(name, false, limit);
    CAPTURE(name, static_cast<int>(outcome.kind), outcome.message);
    REQUIRE(outcome.kind == OutcomeKind::kGranted);
    return outcome.lease;
  }
  Id Queue(const std::string& name) {
    const Outcome outcome = Acquire(name, /*wait=*/true);
    REQUIRE(outcome.kind == OutcomeKind::kQueued);
    return outcome.claim;
  }
  void Release(const std::string& name, const Id& claim) {
    ReleaseCommand release;
    release.semaphore = name;
    release.claim = claim;
    REQUIRE(Do(release).kind == OutcomeKind::kReleased);
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
  Outcome Resize(const std::string& name, uint32_t limit) {
    AdminResize resize;
    resize.amount = limit;
    resize.limit_max = 1'000'000;
    return Administer(name, resize);
  }
  SemaphoreInfo Describe(const std::string& name) {
    Outcome outcome = Administer(name, AdminDescribe{});
    REQUIRE(outcome.kind == OutcomeKind::kDone);
    return *outcome.report->info;
  }
  // Waits for it.
  LeasePtr Granted(const Id& claim) {
    REQUIRE(Until([&] { return granted_.contains(claim); }));
    return granted_[claim];
  }
  // How it ended; waits for that.
  EndCause Ended(const Id& claim) {
    REQUIRE(Until([&] { return ended_.contains(claim); }));
    return ended_[claim];
  }
  bool IsGranted(const Id& claim) { return granted_.contains(claim); }
  bool HasEnded(const Id& claim) { return ended_.contains(claim); }
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
  static Id NewId() {
    static uint64_t count = 0;
    return {9, ++count};
  }
  void Take(StepResult* result) {
    for (const Event& event : result->events) {
      if (event.kind == Event::Kind::kGranted) granted_[event.claim] = event.lease;
      if (event.kind == Event::Kind::kEnded || event.kind == Event::Kind::kWaitEnded)
        ended_[event.claim] = event.cause;
    }
  }

  Connection* connection_ = nullptr;
  std::unique_ptr<Adapter> lane_;
  uint64_t numbers_ = 0;
  std::map<Id, LeasePtr> granted_;
  std::map<Id, EndCause> ended_;
};

}  // namespace semaphored::rabbitmq::slots_test
