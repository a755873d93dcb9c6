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
#include "tests/unit/adapters/rabbitmq/daemon.h"
#include "tests/unit/adapters/rabbitmq/fixture.h"
#include "tests/unit/relay.h"

namespace semaphored::rabbitmq {
namespace {

using std::chrono::milliseconds;

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
  CHECK(other.limit() == 3);
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
  CHECK(b.Until(
      [&] { return connection->DeclarePassively(channel, name.queue()).value().ready == 3; }));
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

TEST_CASE("rabbitmq tokens: who waits is served over a new connection, too", "[rabbitmq]") {
  const Name name;
  Daemon other;
  other.Create(name.text, 1);
  other.Grant(name.text);
  Relay relay(TestPort());
  Daemon daemon(milliseconds(100), TestUrlThrough(relay.port(), ""));
  const auto connection = Connect();
  const Channel channel = connection->OpenChannel().value();
  const auto consumers = [&] {
    return connection->DeclarePassively(channel, name.queue()).value().consumers;
  };
  const uint32_t before = consumers();
  daemon.Queue(name.text);
  REQUIRE(daemon.Until([&] { return consumers() == before + 1; }));
  // The broker does not learn of it: what the former connection has stands beside the new one's.
  relay.CutClients();
  CHECK(daemon.Until([&] { return consumers() == before + 2; }));
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
  acquire.claim = acquire.session = NewClaim();
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

TEST_CASE("rabbitmq tokens: verify asks whether the queue is there", "[rabbitmq]") {
  const Name name;
  Daemon daemon(std::chrono::hours(1));  // It never looks of itself.
  daemon.Create(name.text, 1);
  const LeasePtr lease = daemon.Grant(name.text);
  CHECK(daemon.Holds(name.text, lease->id));
  const auto connection = Connect();
  const Channel channel = connection->OpenChannel().value();
  REQUIRE(connection->Delete(channel, name.queue()).ok());
  SECTION("there is none") {}
  SECTION("it is somebody's own now") {
    REQUIRE(connection->Declare(channel, name.queue(), {.durable = false, .exclusive = true}).ok());
  }
  const Outcome verified = daemon.Verify(name.text, lease->id);
  CHECK(verified.kind == OutcomeKind::kNotHeld);
  CHECK(verified.cause == EndCause::kEngineLost);
}

}  // namespace
}  // namespace semaphored::rabbitmq
