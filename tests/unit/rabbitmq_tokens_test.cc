// layout=tokens through the ledger, on a real broker: permits that pass between daemons, what is
// lost with a connection or a queue, and fencing over all of it.
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "adapters/open.h"
#include "adapters/rabbitmq/connection.h"
#include "adapters/rabbitmq/engine.h"
#include "adapters/rabbitmq/token_broker.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/rabbitmq_fixture.h"

namespace semaphored::rabbitmq {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

Id NewId() {
  static uint64_t count = 0;
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
    const auto connection = Connect();
    const Channel channel = connection->OpenChannel().value();
    for (const char* suffix : {"", ".settings"})
      connection->Delete(channel, queue() + suffix).IgnoreError();
  }
};

// One daemon with one lane, driven by hand.
class Daemon {
 public:
  Daemon() {
    engine_ = OpenRabbit(TestUrl()).value();
    ledger::LedgerOptions options;
    options.self = engine_->nodes().Join(NewName()).value();
    options.now_unix_ms = [] { return int64_t{1'700'000'000'000}; };
    options.now = [] { return steady_clock::now(); };
    options.sweep_interval = milliseconds(100);
    lane_ = engine_->OpenLane(options).value();
  }

  Outcome Do(Command command) {
    const Submission submission{++tickets_, std::move(command)};
    absl::StatusOr<StepResult> step =
        lane_->Step({&submission, 1}, steady_clock::now() + seconds(5));
    REQUIRE(step.ok());
    Take(&*step);
    return std::move(step->outcomes[0]);
  }
  Outcome Acquire(const std::string& name, bool wait = false, uint32_t limit = 0,
                  int32_t priority = 0) {
    AcquireCommand acquire;
    acquire.semaphore = name;
    acquire.claim = acquire.session = NewId();
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
      std::this_thread::sleep_for(milliseconds(10));
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
  bool IsGranted(const Id& claim) {
    Poll();
    return granted_.contains(claim);
  }
  void Poll(milliseconds wait = milliseconds(0)) {
    absl::StatusOr<StepResult> step = lane_->Step({}, steady_clock::now() + wait);
    if (step.ok()) Take(&*step);
  }
  bool Until(const std::function<bool()>& condition) {
    const auto deadline = steady_clock::now() + seconds(10);
    while (!condition() && steady_clock::now() < deadline) Poll(milliseconds(20));
    return condition();
  }

 private:
  void Take(StepResult* result) {
    for (const Event& event : result->events) {
      if (event.kind == Event::Kind::kGranted) granted_[event.claim] = event.lease;
      if (event.kind == Event::Kind::kEnded) ended_[event.claim] = event.cause;
    }
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Adapter> lane_;
  uint64_t tickets_ = 0;
  std::map<Id, LeasePtr> granted_;
  std::map<Id, EndCause> ended_;
};

// Tokens that nobody has, as soon as there are that many.
bool ReadyBecome(const std::string& name, uint32_t count) {
  const auto connection = Connect();
  const Channel channel = connection->OpenChannel().value();
  const auto deadline = steady_clock::now() + seconds(10);
  while (steady_clock::now() < deadline) {
    if (connection->DeclarePassively(channel, name + ".semaphore").value().ready == count) return true;
    std::this_thread::sleep_for(milliseconds(20));
  }
  return false;
}

TEST_CASE("rabbitmq tokens: the tokens of a slot rise, taken and given back a hundred times",
          "[rabbitmq]") {
  const Name name;
  Daemon daemon;
  daemon.Create(name.text, 1);
  uint64_t last = 0;
  for (int i = 0; i < 100; ++i) {
    const LeasePtr lease = daemon.Grant(name.text);
    CHECK(lease->slots == Slots{1});
    CHECK(lease->token > last);
    last = lease->token;
    daemon.Release(name.text, lease->id);
  }
}

TEST_CASE("rabbitmq tokens: never more than the limit, over two daemons", "[rabbitmq]") {
  const Name name;
  Daemon a;
  Daemon b;
  a.Create(name.text, 3);
  const LeasePtr first = a.Grant(name.text);
  const LeasePtr second = b.Grant(name.text);
  const LeasePtr third = b.Grant(name.text);
  CHECK(first->slots != second->slots);
  CHECK(second->slots != third->slots);
  CHECK(a.Acquire(name.text).kind == OutcomeKind::kFull);
  CHECK(b.Acquire(name.text).kind == OutcomeKind::kFull);
  // The other learns the limit from the broker.
  const Outcome other = b.Acquire(name.text, false, 4);
  CHECK(other.kind == OutcomeKind::kLimitMismatch);
  CHECK(other.number == 3);
}

TEST_CASE("rabbitmq tokens: who waits is granted what another daemon gives back", "[rabbitmq]") {
  const Name name;
  Daemon a;
  Daemon b;
  a.Create(name.text, 1);
  const LeasePtr held = a.Grant(name.text);
  const Id waiter = b.Queue(name.text);
  CHECK_FALSE(b.IsGranted(waiter));
  a.Release(name.text, held->id);
  const LeasePtr granted = b.Granted(waiter);
  CHECK(granted->slots == held->slots);
  CHECK(granted->token > held->token);
}

TEST_CASE("rabbitmq tokens: waiters of one daemon are served in their order", "[rabbitmq]") {
  const Name name;
  Daemon daemon;
  daemon.Create(name.text, 1);
  LeasePtr held = daemon.Grant(name.text);
  const Id low = daemon.Queue(name.text);
  const Id next = daemon.Queue(name.text);
  const Id high = daemon.Queue(name.text, 5);
  for (const Id& claim : {high, low, next}) {
    daemon.Release(name.text, held->id);
    held = daemon.Granted(claim);
  }
  // Nobody waits any more: it goes back to the broker.
  daemon.Release(name.text, held->id);
  const auto connection = Connect();
  const Channel channel = connection->OpenChannel().value();
  CHECK(daemon.Until(
      [&] { return connection->DeclarePassively(channel, name.queue()).value().ready == 1; }));
}

TEST_CASE("rabbitmq tokens: a daemon takes no more than its waiters need", "[rabbitmq]") {
  const Name name;
  Daemon a;
  Daemon b;
  a.Create(name.text, 4);
  std::vector<LeasePtr> held;
  for (int i = 0; i < 4; ++i) held.push_back(a.Grant(name.text));
  const Id waiter = b.Queue(name.text);
  for (const LeasePtr& lease : held) a.Release(name.text, lease->id);
  b.Granted(waiter);
  // The broker handed it more: it gives that back.
  const auto connection = Connect();
  const Channel channel = connection->OpenChannel().value();
  CHECK(b.Until([&] {
    return connection->DeclarePassively(channel, name.queue()).value().ready == 3;
  }));
}

TEST_CASE("rabbitmq tokens: a dead daemon's permits are the others'", "[rabbitmq]") {
  const Name name;
  Daemon a;
  auto b = std::make_unique<Daemon>();
  a.Create(name.text, 1);
  const LeasePtr held = b->Grant(name.text);
  const Id waiter = a.Queue(name.text);
  b.reset();
  CHECK(a.Granted(waiter)->token > held->token);
}

TEST_CASE("rabbitmq tokens: a queue deleted by hand ends its leases at once", "[rabbitmq]") {
  const Name name;
  Daemon daemon;
  daemon.Create(name.text, 1);
  const LeasePtr held = daemon.Grant(name.text);
  // A consumer is what the broker tells of it.
  daemon.Queue(name.text);
  const auto other = Connect();
  REQUIRE(other->Delete(other->OpenChannel().value(), name.queue()).ok());
  CHECK(daemon.Ended(held->id));
}

TEST_CASE("rabbitmq tokens: a semaphore made anew has higher tokens", "[rabbitmq]") {
  const Name name;
  Daemon daemon;
  uint64_t last = 0;
  for (int i = 0; i < 3; ++i) {
    daemon.Create(name.text, 2);
    const LeasePtr lease = daemon.Grant(name.text);
    CHECK(lease->token > last);
    last = lease->token;
    daemon.Release(name.text, lease->id);
    REQUIRE(daemon.Administer(name.text, AdminDestroy{}).kind == OutcomeKind::kDone);
    CHECK(daemon.Acquire(name.text).kind == OutcomeKind::kNoSuchSemaphore);
  }
}

TEST_CASE("rabbitmq tokens: growing and shrinking", "[rabbitmq]") {
  const Name name;
  Daemon a;
  Daemon b;
  a.Create(name.text, 1);
  a.Resize(name.text, 3);
  CHECK(ReadyBecome(name.text, 3));
  const LeasePtr one = a.Grant(name.text);
  const LeasePtr two = b.Grant(name.text);
  const LeasePtr three = b.Grant(name.text);
  // Whoever has one keeps it; what comes back is taken out until only the limit is left.
  a.Resize(name.text, 1);
  b.Release(name.text, two->id);
  REQUIRE(a.Until([&] {
    const auto connection = Connect();
    return TokenBroker(connection.get()).Read(name.text).value()->slots.size() == 2;
  }));
  CHECK(b.Acquire(name.text).kind == OutcomeKind::kFull);
  a.Release(name.text, one->id);
  REQUIRE(a.Until([&] {
    const auto connection = Connect();
    return TokenBroker(connection.get()).Read(name.text).value()->slots.size() == 1;
  }));
  CHECK(a.Acquire(name.text).kind == OutcomeKind::kFull);
  const uint64_t last = three->token;
  b.Release(name.text, three->id);
  const LeasePtr again = a.Grant(name.text);
  CHECK(again->slots == three->slots);
  CHECK(again->token > last);
}

TEST_CASE("rabbitmq tokens: what is no token is taken out, and never granted", "[rabbitmq]") {
  const Name name;
  Daemon daemon;
  daemon.Create(name.text, 1);
  // A client that is no good takes the permit out, and puts something else in.
  const auto other = Connect();
  const Channel channel = other->OpenChannel().value();
  REQUIRE(other->SelectConfirms(channel).ok());
  const std::optional<Delivery> taken = other->Get(channel, name.queue()).value();
  REQUIRE(taken);
  REQUIRE(other->Acknowledge(channel, taken->delivery_tag).ok());
  REQUIRE(other->PublishAll(channel, {{name.queue(), "resource"}}).ok());
  CHECK(daemon.Acquire(name.text).kind == OutcomeKind::kFull);
  CHECK(ReadyBecome(name.text, 0));
}

TEST_CASE("rabbitmq tokens: more than one permit is refused, and the refusal says so",
          "[rabbitmq]") {
  const Name name;
  Daemon daemon;
  AcquireCommand acquire;
  acquire.semaphore = name.text;
  acquire.claim = acquire.session = NewId();
  acquire.permits = 2;
  acquire.limit = 2;
  const Outcome outcome = daemon.Do(acquire);
  CHECK(outcome.kind == OutcomeKind::kUnsupported);
  CHECK(outcome.message.find("at most 1") != std::string::npos);
}

TEST_CASE("rabbitmq: a node id is one daemon's, and free when that has gone", "[rabbitmq]") {
  const std::string id = NewName();
  auto first = OpenRabbit(TestUrl()).value();
  REQUIRE(first->nodes().Join(id).ok());
  CHECK(first->nodes().Heartbeat().ok());
  auto second = OpenRabbit(TestUrl("?heartbeat_s=1")).value();
  CHECK(absl::IsFailedPrecondition(second->nodes().Join(id).status()));
  first.reset();
  CHECK(second->nodes().Join(id).ok());
}

}  // namespace
}  // namespace semaphored::rabbitmq
