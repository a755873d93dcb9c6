// What a session's stream, or a call, hears of a request that waits.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "tests/unit/sessions/client_stream.h"
#include "tests/unit/sessions/damaged_engine.h"
#include "tests/unit/sessions/sessions_world.h"

namespace semaphored {

TEST_CASE("queued: a request that waits hears why") {
  SessionsWorld world;
  ClientStream stream;
  OpenParams open;
  open.client_id = "client";
  open.ttl_ms = 10'000;
  world.sessions().Open(std::move(open), &stream);
  world.Settle();
  uint64_t tag = 0;
  const auto ask = [&](uint32_t permits) {
    AcquireParams params;
    params.semaphore = "s";
    params.permits = permits;
    params.limit = 3;
    params.wait_ms = -1;
    world.sessions().AcquireIn(stream.session, std::move(params), ++tag, true);
    world.Settle();
  };
  ask(2);
  ask(2);
  ask(1);
  CHECK(stream.granted.size() == 1);
  CHECK(stream.queued == std::vector<uint64_t>{2, 3});
  CHECK(stream.queued_for == std::vector{WaitReason::kFull, WaitReason::kBehind});
  const std::optional<SemaphoreInfo> info = world.Describe("s");
  REQUIRE(info);
  REQUIRE(info->waiters.size() == 2);
  CHECK(info->waiters[0].reason == WaitReason::kFull);
  CHECK(info->waiters[1].reason == WaitReason::kBehind);
}

TEST_CASE("queued: a request that is repeated with a shorter wait has that one") {
  SessionsWorld world;
  ClientStream holder;
  OpenParams holds;
  holds.client_id = "holder";
  holds.ttl_ms = 60'000;
  world.sessions().Open(std::move(holds), &holder);
  world.Settle();
  ClientStream stream;
  OpenParams open;
  open.client_id = "client";
  open.ttl_ms = 60'000;
  world.sessions().Open(std::move(open), &stream);
  world.Settle();
  const auto ask = [&](const ClientStream& in, int64_t wait_ms) {
    AcquireParams params;
    params.requester = {"", 1};
    params.requester.client_id = &in == &holder ? "holder" : "client";
    params.semaphore = "s";
    params.limit = 1;
    params.wait_ms = wait_ms;
    world.sessions().AcquireIn(in.session, std::move(params), 1, false);
    world.Settle();
  };
  ask(holder, 0);
  ask(stream, -1);
  ask(stream, 50'000);
  int64_t last_ms = 1'000;
  SECTION("of a second") {}
  SECTION("of none") { last_ms = 0; }
  ask(stream, last_ms);
  world.Pass(Milliseconds(1'100));
  world.Settle();
  CHECK(stream.reason() == Reason::kWaitExpired);
  CHECK(world.Describe("s")->waiting == 0);
}

namespace {

// A session with a lease and a request that waits, on an engine that can go away.
struct WaitingWorld {
  WaitingWorld() {
    engine.damage = absl::UnavailableError("the engine is away");
    OpenParams open;
    open.client_id = "client";
    open.ttl_ms = 60'000;
    daemon.sessions().Open(std::move(open), &stream);
    daemon.Settle();
    for (uint64_t tag = 1; tag <= 2; ++tag) {
      AcquireParams params;
      params.semaphore = "s";
      params.limit = 1;
      params.wait_ms = -1;
      daemon.sessions().AcquireIn(stream.session, std::move(params), tag, true);
      daemon.Settle();
    }
  }
  void GoAway(bool away) {
    engine.refuses = [away](const ledger::Transaction&) { return away; };
  }
  uint32_t waiting() { return daemon.Describe("s")->waiting; }

  DamagedWorld engine;
  SessionsWorld daemon{{}, std::make_unique<DamagedEngine>(&engine, /*exclusive=*/true)};
  ClientStream stream;
};

}  // namespace

TEST_CASE(
    "queued: a cancel that the engine did not carry out is carried out later, and is not asked for "
    "again") {
  WaitingWorld world;
  REQUIRE(world.stream.queued == std::vector<uint64_t>{2});
  world.GoAway(true);
  CHECK(world.daemon.sessions().CancelIn(world.stream.session, 2));
  world.daemon.Pass(Milliseconds(2000));
  CHECK(world.stream.refused.empty());
  // While it is due, it is asked for again: that is no error, and changes nothing.
  CHECK(world.daemon.sessions().CancelIn(world.stream.session, 2));
  world.GoAway(false);
  world.daemon.Pass(Milliseconds(10'000));
  REQUIRE(world.stream.refused.size() == 1);
  CHECK(world.stream.reason() == Reason::kWaitCancelled);
  CHECK(world.waiting() == 0);
}

TEST_CASE("queued: a cancel follows an end of the wait that has failed") {
  WaitingWorld world;
  AcquireParams params;
  params.semaphore = "s";
  params.wait_ms = 1000;
  world.daemon.sessions().AcquireIn(world.stream.session, std::move(params), 3, true);
  world.daemon.Settle();
  world.GoAway(true);
  world.daemon.Pass(Milliseconds(1200));
  CHECK(world.daemon.sessions().CancelIn(world.stream.session, 3));
  world.GoAway(false);
  world.daemon.Pass(Milliseconds(10'000));
  CHECK(world.stream.refused.size() == 1);
  CHECK(world.waiting() == 1);
}

TEST_CASE(
    "queued: the waits of a client that is away end, also where the engine was away at first") {
  WaitingWorld world;
  world.GoAway(true);
  world.daemon.sessions().DetachSession(&world.stream);
  world.daemon.Pass(Milliseconds(3000));
  world.GoAway(false);
  world.daemon.Pass(Milliseconds(10'000));
  CHECK(world.waiting() == 0);
}

TEST_CASE("queued: a client that comes back keeps a wait that could not be ended") {
  WaitingWorld world;
  world.GoAway(true);
  world.daemon.sessions().DetachSession(&world.stream);
  world.daemon.Pass(Milliseconds(3000));
  OpenParams open;
  open.client_id = "client";
  open.ttl_ms = 60'000;
  open.resume = world.stream.session;
  ClientStream again;
  world.daemon.sessions().Open(std::move(open), &again);
  world.daemon.Settle();
  world.GoAway(false);
  world.daemon.Pass(Milliseconds(10'000));
  CHECK(world.waiting() == 1);
}

namespace {

// A call of its own for each request; they wait for ever, unless a time is given.
Id CallFor(SessionsWorld* world, uint64_t sequence, ClientStream* call, int64_t wait_ms = -1) {
  AcquireParams params;
  params.requester = {"client", sequence};
  params.semaphore = "s";
  params.limit = 1;
  params.ttl_ms = 600'000;
  params.wait_ms = wait_ms;
  return world->sessions().Acquire(std::move(params), call, sequence);
}

}  // namespace

TEST_CASE("queued: the end of a call does not end the wait of the call that repeats its request") {
  SessionsWorld world;
  ClientStream holder;
  ClientStream first;
  ClientStream second;
  CallFor(&world, 1, &holder);
  world.Settle();
  const Id waits = CallFor(&world, 2, &first, /*wait_ms=*/1000);
  world.Settle();
  REQUIRE(first.queued.size() == 1);
  const Id again = CallFor(&world, 2, &second);
  SECTION("cancelled while the repeated request is on its way to the lane") {
    world.sessions().Abandon(waits, /*end_lease=*/false);
  }
  SECTION("cancelled while the answer to the repeated request is on its way back") {
    LaneResults repeated = world.Run(0);
    world.sessions().Abandon(waits, /*end_lease=*/false);
    LaneResults ended = world.Run(0);
    world.Tell(0, std::move(repeated));
    world.Tell(0, std::move(ended));
  }
  SECTION("its wait is over while the repeated request is on its way to the lane") {
    world.PassIdle(Milliseconds(1000));
  }
  world.Settle();
  CHECK(second.queued.size() == 1);
  CHECK(second.refused.empty());
  CHECK(world.Describe("s")->waiting == 1);
  // Its own end does.
  world.sessions().Abandon(again, /*end_lease=*/false);
  world.Settle();
  CHECK(world.Describe("s")->waiting == 0);
}

}  // namespace semaphored
