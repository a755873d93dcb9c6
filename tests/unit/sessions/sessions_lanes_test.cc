// Several lanes: each reports its own semaphores, whatever the others see of them and when.
#include <memory>
#include <string>

#include "catch2/catch_test_macros.hpp"
#include "tests/contract/shared_engine.h"
#include "tests/unit/sessions/client_stream.h"
#include "tests/unit/sessions/sessions_world.h"

namespace semaphored {
namespace {

std::string NameInLane(size_t lane, size_t lanes) {
  std::string name = "a";
  while (LaneOf(name, lanes) != lane) ++name[0];
  return name;
}

// Reports one grant, one change and one delay of each of two semaphores, and a session that moved.
class TwoSemaphores : public Adapter {
 public:
  const Guarantees& guarantees() const override { return guarantees_; }
  absl::StatusOr<StepResult> Step(absl::Span<const Submission>, SteadyTime) override {
    StepResult result;
    for (const std::string& name : names) {
      Event& event = result.events.emplace_back();
      event.kind = Event::Kind::kEnded;
      event.semaphore = name;
      result.changes.emplace_back().info.row.name = name;
      result.delayed.emplace_back().semaphore = name;
    }
    result.events.emplace_back().kind = Event::Kind::kMoved;
    return result;
  }
  void Wake() override {}

  const std::string names[2] = {NameInLane(0, 2), NameInLane(1, 2)};

 private:
  Guarantees guarantees_;
};

TEST_CASE("lanes: a lane brings what is its own") {
  for (const size_t number : {0, 1}) {
    LaneOptions options;
    options.number = number;
    options.lanes = 2;
    LaneCore lane(std::make_unique<TwoSemaphores>(), &SystemClock(), options);
    LaneResults results;
    lane.RunOnce({}, SteadyTime::min(), &results);
    CHECK(results.events.size() == 2);
    CHECK(results.events.back().kind == Event::Kind::kMoved);
    CHECK(results.elsewhere.size() == 1);
    REQUIRE(results.changes.size() == 1);
    CHECK(results.changes[0].info.row.name == NameInLane(number, 2));
    CHECK(results.delayed.size() == 2);  // No other lane reports it.
  }
}

TEST_CASE("lanes: one function maps a semaphore to its lane") {
  for (const std::string name : {"a", "team/db", ""}) {
    CHECK(LaneOf(name, 1) == 0);
    CHECK(LaneOf(name, 7) == std::hash<std::string>{}(name) % 7);
  }
}

// Sessions have lane 0; the semaphore, lane 1. Another daemon's client holds one of its two
// permits.
struct TwoLanes {
  std::unique_ptr<contract::Fixture> fixture = contract::MakeSharedFixture(false);
  SessionsWorld world{SessionsOptions(), fixture->Open().value(), "a", /*lanes=*/2};
  SessionsWorld other{SessionsOptions(), fixture->Open().value(), "b"};
  const std::string semaphore = NameInLane(1, 2);
  ClientStream stream;
  ClientStream others;
  uint64_t requests = 0;

  TwoLanes() {
    Open(world, &stream);
    Open(other, &others);
    Ask(other, others);
    other.Settle();
    REQUIRE(others.granted.size() == 1);
  }

  static void Open(SessionsWorld& at, ClientStream* stream, const Id& resume = {}) {
    OpenParams params;
    params.client_id = "client";
    params.ttl_ms = 10'000;
    params.resume = resume;
    at.sessions().Open(std::move(params), stream);
    at.Settle();
  }
  void Ask(SessionsWorld& at, const ClientStream& from, uint32_t permits = 1) {
    AcquireParams params;
    params.requester = {"client", ++requests};
    params.semaphore = semaphore;
    params.permits = permits;
    params.limit = 2;
    params.wait_ms = -1;
    at.sessions().AcquireIn(from.session, std::move(params), requests, true);
  }
  void Revoke(SessionsWorld& at, const std::string& holder) {
    AdminCommand revoke;
    revoke.semaphore = semaphore;
    revoke.act = AdminRevoke{{}, holder, 0};
    at.sessions().Administer(std::move(revoke), 0, [](const Result<AdminAnswer>&) {});
    at.Settle();
  }
  // Lane 0 loads the semaphore, as with the adoption of a session that has a claim there.
  void LoadInLane0() {
    VerifyCommand verify;
    verify.semaphore = semaphore;
    verify.claim = Id{1, 1};
    world.Submit(0, Job{std::move(verify), [](const absl::StatusOr<Outcome>&) {}});
    world.Settle();
  }
  LaneResults Hear(size_t lane) { return world.Run(lane); }
  bool Vouched(const ClientStream& of) {
    VerifyCommand verify;
    verify.semaphore = semaphore;
    verify.claim = of.granted.at(0).lease->id;
    bool held = false;
    world.sessions().Verify(std::move(verify),
                            [&](Result<VerifyAnswer> result) { held = result.value.held; });
    world.Settle();
    return held;
  }
};

TEST_CASE("lanes: lane 0 hears of an end before the lane of the grant has reported it") {
  TwoLanes lanes;
  lanes.LoadInLane0();
  lanes.Ask(lanes.world, lanes.stream);
  LaneResults grant = lanes.world.Run(1);
  REQUIRE(grant.finished.size() == 1);
  lanes.world.Tell(0, lanes.Hear(0));
  lanes.Revoke(lanes.other, "");
  LaneResults end = lanes.Hear(0);
  CHECK(end.events.empty());
  REQUIRE_FALSE(end.elsewhere.empty());
  lanes.world.Tell(0, std::move(end));
  CHECK(lanes.world.sessions().counts().leases <= 1);  // The dead daemon's.
  lanes.world.Tell(1, std::move(grant));
  CHECK(lanes.stream.granted.empty());
  CHECK(lanes.stream.reason() == Reason::kNotHeld);
  lanes.world.Settle();
  lanes.world.Hear();
  CHECK(lanes.stream.granted.empty());
  CHECK(lanes.stream.refused.size() == 1);

  // A later request is granted, and its lease stays.
  lanes.Ask(lanes.world, lanes.stream);
  lanes.world.Settle();
  REQUIRE(lanes.stream.granted.size() == 1);
  CHECK(lanes.Vouched(lanes.stream));
}

TEST_CASE("lanes: a waiter's end comes before its place in the queue") {
  TwoLanes lanes;
  lanes.LoadInLane0();
  lanes.Ask(lanes.world, lanes.stream, 2);
  LaneResults queued = lanes.world.Run(1);
  lanes.world.Tell(0, lanes.Hear(0));
  AdminCommand destroy;
  destroy.semaphore = lanes.semaphore;
  destroy.act = AdminDestroy{DestroyPolicy::kForce};
  lanes.other.sessions().Administer(std::move(destroy), 0, [](const Result<AdminAnswer>&) {});
  lanes.other.Settle();
  lanes.world.Tell(0, lanes.Hear(0));
  lanes.world.Tell(1, std::move(queued));
  lanes.world.Settle();
  lanes.world.Hear();
  CHECK(lanes.stream.queued.empty());
  CHECK(lanes.stream.refused.size() == 1);
  CHECK(lanes.world.sessions().counts().waiters == 0);
}

TEST_CASE("lanes: the holder hears once of an end that another lane sees first") {
  TwoLanes lanes;
  lanes.LoadInLane0();
  lanes.Ask(lanes.world, lanes.stream);
  lanes.world.Settle();
  REQUIRE(lanes.stream.granted.size() == 1);
  lanes.world.Hear();
  lanes.Revoke(lanes.other, "");
  lanes.world.Tell(0, lanes.Hear(0));
  lanes.world.Tell(1, lanes.Hear(1));
  lanes.world.Settle();
  CHECK(lanes.stream.ended.size() == 1);
  CHECK(lanes.stream.refused.empty());
}

TEST_CASE("lanes: a grant that only another lane has seen") {
  TwoLanes lanes;
  lanes.LoadInLane0();
  lanes.Ask(lanes.world, lanes.stream, 2);
  lanes.world.Settle();
  lanes.world.Hear();
  REQUIRE(lanes.stream.queued.size() == 1);
  lanes.Revoke(lanes.other, "");  // The same commit grants to the waiter.
  lanes.world.Tell(0, lanes.Hear(0));
  lanes.world.Settle();  // Its own lane reads it.
  CHECK(lanes.stream.granted.size() == 1);
  lanes.world.Hear();
  CHECK(lanes.stream.granted.size() == 1);
  CHECK(lanes.Vouched(lanes.stream));
}

TEST_CASE("lanes: the lane of an adopted claim reports what becomes of it") {
  TwoLanes lanes;
  ClientStream moved;
  TwoLanes::Open(lanes.world, &moved, lanes.others.session);
  REQUIRE(moved.resumed);
  REQUIRE(moved.held.size() == 1);
  lanes.Revoke(lanes.other, "");
  // Lane 0 has it loaded since the adoption; lane 1 must have loaded it too.
  lanes.world.Tell(1, lanes.Hear(1));
  lanes.world.Settle();
  CHECK(moved.ended.size() == 1);
}

TEST_CASE("lanes: what became of an adopted claim before its own lane knew it") {
  TwoLanes lanes;
  ClientStream waits;
  TwoLanes::Open(lanes.other, &waits);
  lanes.Ask(lanes.other, waits, 2);
  lanes.other.Settle();
  REQUIRE(waits.queued.size() == 1);
  ClientStream moved;
  OpenParams params;
  params.client_id = "client";
  params.resume = waits.session;
  lanes.world.sessions().Open(std::move(params), &moved);
  LaneResults adopted = lanes.world.Run(0);
  SECTION("it was granted") {
    lanes.Revoke(lanes.other, "");
    lanes.world.Tell(0, std::move(adopted));
    lanes.world.Settle();
    CHECK(moved.granted.empty());
    CHECK(lanes.world.sessions().counts().leases == 1);
    --lanes.requests;  // The client repeats its request.
    lanes.Ask(lanes.world, moved, 2);
    lanes.world.Settle();
    CHECK(moved.granted.size() == 1);
  }
  SECTION("it was dismissed") {
    AdminCommand destroy;
    destroy.semaphore = lanes.semaphore;
    destroy.act = AdminDestroy{DestroyPolicy::kForce};
    lanes.other.sessions().Administer(std::move(destroy), 0, [](const Result<AdminAnswer>&) {});
    lanes.other.Settle();
    lanes.world.Tell(0, std::move(adopted));
    lanes.world.Settle();
    CHECK(lanes.world.sessions().counts().waiters == 0);
  }
}

TEST_CASE("lanes: a claim that leaves a session while that is adopted") {
  TwoLanes lanes;
  const Id claim = lanes.others.granted[0].lease->id;
  ClientStream moved;
  OpenParams params;
  params.client_id = "client";
  params.resume = lanes.others.session;
  lanes.world.sessions().Open(std::move(params), &moved);
  LaneResults adopted = lanes.world.Run(0);
  // The same request in a session of this daemon: lane 1 reports the move first.
  AcquireParams again;
  again.requester = {"client", 1};
  again.semaphore = lanes.semaphore;
  again.limit = 2;
  again.wait_ms = -1;
  lanes.world.sessions().AcquireIn(lanes.stream.session, std::move(again), 1, true);
  lanes.world.Tell(1, lanes.world.Run(1));
  CHECK(lanes.stream.reason() == Reason::kMoving);
  lanes.world.Tell(0, std::move(adopted));
  lanes.world.Settle();
  REQUIRE(moved.resumed);
  CHECK(moved.held.empty());
  CHECK(lanes.world.sessions().OwnerOfClaim(claim).empty());
  lanes.world.sessions().CloseSession(moved.session, [] {});
  lanes.world.Settle();
  CHECK(lanes.world.Describe(lanes.semaphore)->held == 1);
}

// Lane 0 sees the grant first, and lane 1 reads the claim before it reports the move.
TEST_CASE("lanes: a wait that was granted after it moved to another daemon") {
  TwoLanes lanes;
  lanes.LoadInLane0();
  AcquireParams params;
  params.requester = {"client", ++lanes.requests};
  params.semaphore = lanes.semaphore;
  params.permits = 2;
  params.limit = 2;
  params.wait_ms = -1;
  params.ttl_ms = 2000;
  ClientStream here;
  lanes.world.sessions().Acquire(params, &here, 1);
  lanes.world.Settle();
  REQUIRE(here.queued.size() == 1);
  lanes.world.Tell(0, lanes.Hear(0));
  ClientStream there;
  lanes.other.sessions().Acquire(params, &there, 1);
  lanes.other.Settle();
  lanes.Revoke(lanes.other, "");
  REQUIRE(there.granted.size() == 1);
  lanes.world.Tell(0, lanes.Hear(0));
  lanes.world.Settle();
  CHECK(here.granted.empty());
  CHECK(here.refused.size() == 1);
  lanes.world.Pass(Milliseconds(2500));  // Only the other daemon counts its TTL.
  CHECK(lanes.other.Describe(lanes.semaphore)->held == 2);
}

// Lane 1 is slow to end the session's lease. Lane 0 would find the session's row as it was.
TEST_CASE("lanes: a session whose end is under way is not resumed") {
  TwoLanes lanes;
  lanes.Ask(lanes.world, lanes.stream);
  lanes.world.Settle();
  REQUIRE(lanes.stream.granted.size() == 1);
  OpenParams params;
  params.client_id = "client";
  params.ttl_ms = 10'000;
  params.resume = lanes.stream.session;
  ClientStream again;
  SECTION("its client has closed it") {
    lanes.world.sessions().CloseSession(lanes.stream.session, [] {});
    lanes.world.sessions().Open(params, &again);
  }
  SECTION("its TTL has passed") {
    lanes.world.sessions().DetachSession(&lanes.stream);
    lanes.world.PassIdle(Milliseconds(11'000));
    lanes.world.sessions().Open(params, &again);
  }
  SECTION("its TTL passes while the engine is asked for it") {
    lanes.world.sessions().DetachSession(&lanes.stream);
    lanes.world.sessions().Open(params, &again);
    lanes.world.PassIdle(Milliseconds(11'000));
  }
  lanes.world.Tell(0, lanes.world.Run(0));
  CHECK_FALSE(again.resumed);
  lanes.world.Settle();
  CHECK_FALSE(again.resumed);
  REQUIRE(again.over.size() == 1);
  CHECK(again.over[0].code == absl::StatusCode::kUnavailable);
  ClientStream late;
  TwoLanes::Open(lanes.world, &late, params.resume);
  REQUIRE(late.over.size() == 1);
  CHECK(late.over[0].reason == Reason::kSessionLost);
  CHECK(lanes.world.Describe(lanes.semaphore)->held == 1);  // Of the other daemon's client.
}

}  // namespace
}  // namespace semaphored
