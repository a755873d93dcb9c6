// Sessions that are resumed while other lanes change what they have: the session's lane answers
// late, and its answer is not the last word.
#include <string>

#include "catch2/catch_test_macros.hpp"
#include "tests/contract/shared_engine.h"
#include "tests/unit/sessions/client_stream.h"
#include "tests/unit/sessions/sessions_world.h"

namespace semaphored {
namespace {

// Sessions have lane 0; the semaphore, lane 1.
struct ResumingLanes {
  std::unique_ptr<contract::Fixture> fixture;
  SessionsWorld world{SessionsOptions(), fixture->Open().value(), "a", /*lanes=*/2};
  const std::string semaphore = InLane(1);
  ClientStream first;
  ClientStream again;
  uint64_t requests = 0;

  explicit ResumingLanes(std::unique_ptr<contract::Fixture> on = contract::MakeSharedFixture(false))
      : fixture(std::move(on)) {
    Open(&first);
  }

  static std::string InLane(size_t lane) {
    std::string name = "a";
    while (std::hash<std::string>{}(name) % 2 != lane) ++name[0];
    return name;
  }
  void Open(ClientStream* stream, const Id& resume = {}) {
    OpenParams params;
    params.client_id = "client";
    params.ttl_ms = 10'000;
    params.resume = resume;
    world.sessions().Open(std::move(params), stream);
    if (resume.empty()) world.Settle();
  }
  void Ask(const ClientStream& stream, uint32_t permits = 1) {
    AcquireParams params;
    params.requester = {"client", ++requests};
    params.semaphore = semaphore;
    params.permits = permits;
    params.limit = 2;
    params.wait_ms = -1;
    world.sessions().AcquireIn(stream.session, std::move(params), requests, true);
  }
  void Revoke(const Id& claim, int64_t grace_ms) {
    AdminCommand revoke;
    revoke.semaphore = semaphore;
    revoke.act = AdminRevoke{claim, "", grace_ms};
    world.sessions().Administer(std::move(revoke), 0, [](const Result<AdminAnswer>&) {});
  }
  // Its client has lost the stream, and comes with another. Lane 0 answers; the answer is under
  // way.
  LaneResults ResumeOnItsWay() {
    world.sessions().DetachSession(&first);
    Open(&again, first.session);
    return world.Run(0);
  }
  void Tell(LaneResults answer) {
    world.Tell(0, std::move(answer));
    world.Settle();
    REQUIRE(again.resumed);
  }
};

TEST_CASE("resume: what was taken away while it was answered is not told as held") {
  ResumingLanes lanes;
  lanes.Ask(lanes.first, 2);
  lanes.world.Settle();
  REQUIRE(lanes.first.granted.size() == 1);
  ClientStream other;
  lanes.Open(&other);
  lanes.Ask(other);
  lanes.world.Settle();
  LaneResults answer = lanes.ResumeOnItsWay();
  lanes.Revoke(lanes.first.granted[0].lease->id, 0);
  lanes.world.Tell(1, lanes.world.Run(1));
  REQUIRE(other.granted.size() == 1);
  lanes.Tell(std::move(answer));
  CHECK(lanes.again.held.empty());
}

// Lane 0 has the semaphore since the first resume. Of what lane 1 does to it later, no notice comes.
TEST_CASE("resume: what ended without a notice is not told as held") {
  ResumingLanes lanes(contract::MakeSilentFixture());
  lanes.Ask(lanes.first);
  lanes.world.Settle();
  REQUIRE(lanes.first.granted.size() == 1);
  lanes.Tell(lanes.ResumeOnItsWay());
  REQUIRE(lanes.again.held.size() == 1);
  lanes.Revoke(lanes.first.granted[0].lease->id, 0);
  lanes.world.Settle();
  REQUIRE(lanes.again.ended.size() == 1);
  lanes.world.sessions().DetachSession(&lanes.again);
  ClientStream third;
  lanes.Open(&third, lanes.first.session);
  lanes.world.Settle();
  REQUIRE(third.resumed);
  CHECK(third.held.empty());
}

TEST_CASE("resume: what was granted while it was answered is told as held") {
  ResumingLanes lanes;
  ClientStream other;
  lanes.Open(&other);
  lanes.Ask(other, 2);
  lanes.world.Settle();
  REQUIRE(other.granted.size() == 1);
  lanes.Ask(lanes.first);
  lanes.world.Settle();
  LaneResults answer = lanes.ResumeOnItsWay();
  lanes.Revoke(other.granted[0].lease->id, 0);
  lanes.world.Tell(1, lanes.world.Run(1));
  lanes.Tell(std::move(answer));
  REQUIRE(lanes.again.held.size() == 1);
  CHECK(lanes.again.held[0].semaphore == lanes.semaphore);
}

TEST_CASE("resume: a wait that ended while it was answered is asked for anew") {
  ResumingLanes lanes;
  ClientStream other;
  lanes.Open(&other);
  lanes.Ask(other, 2);
  lanes.Ask(lanes.first);
  lanes.world.Settle();
  LaneResults answer = lanes.ResumeOnItsWay();
  AdminCommand destroy;
  destroy.semaphore = lanes.semaphore;
  destroy.act = AdminDestroy{DestroyPolicy::kForce};
  lanes.world.sessions().Administer(std::move(destroy), 0, [](const Result<AdminAnswer>&) {});
  lanes.world.Tell(1, lanes.world.Run(1));
  lanes.Tell(std::move(answer));
  CHECK(lanes.again.held.empty());
  CHECK(lanes.world.sessions().counts().waiters == 0);
}

TEST_CASE("resume: a recall that came while it was answered is told") {
  ResumingLanes lanes;
  lanes.Ask(lanes.first, 2);
  lanes.world.Settle();
  LaneResults answer = lanes.ResumeOnItsWay();
  lanes.Revoke(lanes.first.granted[0].lease->id, 5000);
  lanes.world.Tell(1, lanes.world.Run(1));
  lanes.Tell(std::move(answer));
  REQUIRE(lanes.again.held.size() == 1);
  CHECK(lanes.again.held[0].lease->recall.pending());
  // Its timer runs, until what was vouched for as it was opened is over.
  for (int i = 0; i < 2; ++i) {
    CHECK(lanes.again.ended.empty());
    lanes.world.Pass(Milliseconds(5'100));
    lanes.world.sessions().TouchSession(lanes.again.session);
  }
  CHECK(lanes.again.ended.size() == 1);
}

TEST_CASE("resume: permits that were given back while it was answered are not told as held") {
  ResumingLanes lanes;
  lanes.Ask(lanes.first, 2);
  lanes.world.Settle();
  const LeasePtr lease = lanes.first.granted[0].lease;
  LaneResults answer = lanes.ResumeOnItsWay();
  ReleaseCommand release;
  release.requester = {"client", ++lanes.requests};
  release.semaphore = lanes.semaphore;
  release.claim = lease->id;
  release.slots = {lease->slots.front()};
  lanes.world.sessions().Release(std::move(release), [](const Result<ReleaseAnswer>&) {});
  lanes.world.Tell(1, lanes.world.Run(1));
  lanes.Tell(std::move(answer));
  REQUIRE(lanes.again.held.size() == 1);
  CHECK(lanes.again.held[0].lease->permits == 1);
}

TEST_CASE("resume: what was asked for before, and granted while it was answered, stays") {
  ResumingLanes lanes;
  lanes.Ask(lanes.first);  // On its way to lane 1.
  LaneResults answer = lanes.ResumeOnItsWay();
  lanes.world.Tell(1, lanes.world.Run(1));
  lanes.Tell(std::move(answer));
  REQUIRE(lanes.again.held.size() == 1);
}

TEST_CASE("resume: a ticket that came while the session moved here is told at once") {
  ResumingLanes lanes;
  SessionsWorld elsewhere(SessionsOptions(), lanes.fixture->Open().value(), "b");
  elsewhere.Enqueue(lanes.semaphore, "later", /*delay_ms=*/100'000);  // So that it is there.
  const auto work = std::make_shared<const WorkParams>(WorkParams{{lanes.semaphore}, {}, 1});
  WorkerStream there;
  elsewhere.Work(&there, *work);
  REQUIRE(elsewhere.Describe(lanes.semaphore)->offers == 1);
  OpenParams params;
  params.client_id = "worker-" + std::to_string(elsewhere.self().number);
  params.ttl_ms = 10'000;
  params.resume = there.session;
  params.work = work;
  lanes.world.sessions().Open(std::move(params), &lanes.again);
  LaneResults answer = lanes.world.Run(0);
  EnqueueCommand enqueue;
  enqueue.semaphore = lanes.semaphore;
  enqueue.payload = std::make_shared<const std::string>("now");
  lanes.world.sessions().Enqueue(std::move(enqueue), [](const Result<EnqueueAnswer>&) {});
  lanes.world.Tell(1, lanes.world.Run(1));
  lanes.world.Tell(0, std::move(answer));
  REQUIRE(lanes.again.resumed);
  CHECK(lanes.again.held.size() == 1);
  lanes.world.Settle();
  REQUIRE(lanes.again.assigned.size() == 1);
  CHECK(*lanes.again.assigned[0].payload == "now");
  CHECK(lanes.again.assigned[0].ticket->attempt == 1);
}

TEST_CASE("resume: what another resume has kept serves the one that is answered last") {
  ResumingLanes lanes;
  lanes.Ask(lanes.first, 2);
  lanes.world.Settle();
  LaneResults answer = lanes.ResumeOnItsWay();
  ClientStream last;
  lanes.Open(&last, lanes.first.session);
  LaneResults answer_to_last = lanes.world.Run(0);
  lanes.Revoke(lanes.first.granted[0].lease->id, 0);
  lanes.world.Tell(1, lanes.world.Run(1));
  lanes.Tell(std::move(answer));
  CHECK(lanes.again.held.empty());
  lanes.world.Tell(0, std::move(answer_to_last));
  lanes.world.Settle();
  REQUIRE(last.resumed);
  CHECK(last.held.empty());
}

TEST_CASE("resume: a grant at another daemon is the answer to the request that is repeated") {
  const std::unique_ptr<contract::Fixture> fixture = contract::MakeSharedFixture(false);
  SessionsWorld one{SessionsOptions(), fixture->Open().value(), "one"};
  SessionsWorld two{SessionsOptions(), fixture->Open().value(), "two"};
  const auto open = [](SessionsWorld& at, const std::string& client, ClientStream* stream,
                       const Id& resume = {}) {
    OpenParams params;
    params.client_id = client;
    params.ttl_ms = 10'000;
    params.resume = resume;
    at.sessions().Open(std::move(params), stream);
    at.Settle();
  };
  const auto ask = [](SessionsWorld& at, const std::string& client, const ClientStream& stream) {
    AcquireParams params;
    params.requester = {client, 7};
    params.semaphore = "s";
    params.limit = 1;
    params.wait_ms = -1;
    at.sessions().AcquireIn(stream.session, std::move(params), 7, true);
    at.Settle();
  };
  ClientStream holder;
  open(one, "holder", &holder);
  ask(one, "holder", holder);
  REQUIRE(holder.granted.size() == 1);
  ClientStream first;
  open(one, "client", &first);
  ask(one, "client", first);
  REQUIRE(first.queued.size() == 1);

  ClientStream again;
  open(two, "client", &again, first.session);
  REQUIRE(again.resumed);
  one.sessions().CloseSession(holder.session, [] {});
  one.Settle();
  two.Hear();
  // The client would not know which of its requests a grant without a number answers.
  CHECK(again.granted.empty());
  CHECK(two.sessions().counts().leases == 1);

  ask(two, "client", again);
  REQUIRE(again.granted.size() == 1);
  CHECK(again.granted[0].tag == 7);
  CHECK(again.refused.empty());
  // The stream now receives the lease's events.
  AdminCommand revoke;
  revoke.semaphore = "s";
  revoke.act = AdminRevoke{again.granted[0].lease->id, "", 0};
  two.sessions().Administer(std::move(revoke), 0, [](const Result<AdminAnswer>&) {});
  two.Settle();
  CHECK(again.ended.size() == 1);
}

}  // namespace
}  // namespace semaphored
