#include "server/sessions/grants.h"

#include <memory>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/unit/sessions/rooms_world.h"

namespace semaphored {
namespace {

constexpr Id kGrantedClaim{2, 1};

struct GrantsWorld : RoomsWorld {
  ClaimRecord* Ask(SessionRecord* owner, uint64_t sequence = 0, int64_t wait_ms = -1) {
    ClaimRecord* claim = Asked(kGrantedClaim, owner);
    AcquireParams params;
    params.semaphore = "a";
    params.permits = 2;
    params.wait_ms = wait_ms;
    params.ttl_ms = 20'000;
    params.requester.sequence = sequence;
    if (sequence != 0) params.requester.client_id = "client";
    grants.Ask(claim, std::move(params));
    return claim;
  }
  Outcome GrantOf(const ClaimRecord& claim) {
    Outcome outcome;
    outcome.kind = OutcomeKind::kGranted;
    outcome.lease = LeaseOf(claim);
    return outcome;
  }
  Outcome QueuedOf(const Id& claim, uint64_t position) {
    Outcome outcome;
    outcome.kind = OutcomeKind::kQueued;
    outcome.claim = claim;
    outcome.detail = Outcome::InQueue{position, 1, WaitReason::kNone};
    return outcome;
  }
};

TEST_CASE("grants: a claim of a session asks with the session's TTL and epoch", "[unit]") {
  GrantsWorld world;
  world.session->life.epoch = 4;
  world.session->owner = "team";
  world.Ask(world.session, 7);
  const auto command = world.host.Oldest<AcquireCommand>();
  CHECK(command.claim == kGrantedClaim);
  CHECK(command.session == world.session->id);
  CHECK(command.epoch == 4);
  CHECK(command.ttl_ms == 30'000);
  CHECK(command.owner == "team");
  CHECK(command.permits == 2);
  CHECK(command.wait);
}

TEST_CASE("grants: a claim that is granted at once is held, and its TTL runs", "[unit]") {
  GrantsWorld world;
  ClaimRecord* claim = world.Ask(nullptr, 0, 0);
  CHECK(world.host.Oldest<AcquireCommand>().session == kGrantedClaim);
  CHECK_FALSE(world.host.Oldest<AcquireCommand>().wait);
  world.host.Answer(world.GrantOf(*claim));
  CHECK(world.listener.granted == std::vector<Id>{kGrantedClaim});
  CHECK(claim->state == ClaimRecord::State::kHeld);
  CHECK(world.DueAfter(Milliseconds(30'000)) == TimerKind::kTtl);
}

TEST_CASE("grants: a claim that waits learns its place, and then its lease", "[unit]") {
  GrantsWorld world;
  ClaimRecord* claim = world.Ask(world.session, 0, 5000);
  world.host.Answer(world.QueuedOf(kGrantedClaim, 3));
  CHECK(world.listener.queued == std::vector<uint64_t>{3});
  CHECK(world.DueAfter(Milliseconds(5000)) == TimerKind::kWait);
  world.grants.BecomeHeld(claim, RoomsWorld::LeaseOf(*claim));
  CHECK(world.listener.granted.size() == 1);
}

TEST_CASE("grants: a refusal, and an error, reach the listener, and the record goes", "[unit]") {
  GrantsWorld world;
  world.Ask(world.session);
  SECTION("a refusal") { world.host.Answer(OutcomeKind::kFull); }
  SECTION("an error") { world.host.Answer(absl::UnavailableError("away")); }
  CHECK(world.listener.refused.size() == 1);
  CHECK(world.claims.Find(kGrantedClaim) == nullptr);
  CHECK(world.session->claims.empty());
}

TEST_CASE("grants: a grant whose end was reported before it is refused", "[unit]") {
  GrantsWorld world;
  ClaimRecord* claim = world.Ask(nullptr, 0, 0);
  world.marks.Add(kGrantedClaim, EndCause::kRevoked);
  world.host.Answer(world.GrantOf(*claim));
  CHECK(world.listener.granted.empty());
  CHECK(world.listener.refused == std::vector<Reason>{Reason::kNotHeld});
}

TEST_CASE("grants: while marks are missing no client learns of a grant", "[unit]") {
  GrantsWorld world;
  ClaimRecord* claim = world.Ask(nullptr, 7, 0);
  for (uint64_t i = 0; i <= EndMarks::kMarksMax; ++i)
    world.marks.Add(Id{5, i + 1}, EndCause::kRevoked);
  world.host.Answer(world.GrantOf(*claim));
  CHECK(world.listener.granted.empty());
  CHECK(world.listener.refused == std::vector<Reason>{Reason::kNotVouched});
  // If it has not ended, a repeated request finds it.
  REQUIRE(world.claims.Find(kGrantedClaim) != nullptr);
  for (int round = 0; round < 2; ++round) {
    world.host.Answer(OutcomeKind::kDone);
    world.marks.Age(true);
  }
  ClaimRecord* again = world.Asked(Id{2, 9}, nullptr);
  AcquireParams params;
  params.semaphore = "a";
  params.requester = {"client", 7};
  world.grants.Ask(again, std::move(params));
  world.host.Answer(world.GrantOf(*claim));
  CHECK(world.listener.granted == std::vector<Id>{kGrantedClaim});
}

TEST_CASE("grants: nothing is vouched for a grant without a request id while its end is under way",
          "[unit]") {
  GrantsWorld world;
  ClaimRecord* claim = world.Ask(nullptr, 0, 0);
  world.host.vouched_until = world.host.time.Now();
  world.host.Answer(world.GrantOf(*claim));
  CHECK(world.listener.refused == std::vector<Reason>{Reason::kNotVouched});
  world.host.vouched_until = SteadyTime::max();
  // A client may have its id from a list.
  CHECK(world.vouching.For(claim).none());
  CHECK(world.host.Oldest<EndCommand>().claim == kGrantedClaim);
  SECTION("the end is carried out") {
    world.host.Answer(OutcomeKind::kNotHeld);
    CHECK(world.claims.Find(kGrantedClaim) == nullptr);
    CHECK(world.listener.granted.empty());
    CHECK(world.listener.ended.empty());
  }
  SECTION("the end is not carried out, and the lease is renewed: it stays") {
    world.host.Answer(absl::UnavailableError("away"));
    world.vouching.Revive(&claim->life);
    CHECK_FALSE(world.vouching.For(claim).none());
    CHECK(world.DueAfter(Milliseconds(500)) == TimerKind::kTtl);
    world.ends.OnTtl(claim);
    CHECK(world.host.jobs.empty());
  }
  SECTION("the end is not carried out: it is tried again") {
    world.host.Answer(absl::UnavailableError("away"));
    CHECK(world.DueAfter(Milliseconds(500)) == TimerKind::kTtl);
    world.ends.OnTtl(claim);
    CHECK(world.host.Oldest<EndCommand>().claim == kGrantedClaim);
  }
}

TEST_CASE("grants: no client learns of a grant that nothing may be vouched for", "[unit]") {
  GrantsWorld world;
  ClaimRecord* claim = world.Ask(nullptr, 7, 0);
  world.host.vouched_until = world.host.time.Now();
  world.host.Answer(world.GrantOf(*claim));
  CHECK(world.listener.granted.empty());
  CHECK(world.listener.refused == std::vector<Reason>{Reason::kNotVouched});
  CHECK(world.claims.Find(kGrantedClaim) != nullptr);
}

TEST_CASE("grants: a repeated request takes the earlier claim's record over", "[unit]") {
  GrantsWorld world;
  ClaimRecord* earlier = world.Held(Id{2, 9}, nullptr);
  RoomListener former;
  earlier->listener = &former;
  ClaimRecord* claim = world.Ask(nullptr, 7);
  world.host.Answer(world.GrantOf(*earlier));
  CHECK(former.refused == std::vector<Reason>{Reason::kNotVouched});
  CHECK(world.listener.granted == std::vector<Id>{earlier->id});
  CHECK(world.claims.Find(claim->id) == earlier);
}

// The list of the resume was read from the engine; the lane that is asked has not heard of the grant.
TEST_CASE("grants: a request whose lease a resume has listed is granted, and does not wait",
          "[unit]") {
  GrantsWorld world;
  ClaimRecord* listed = world.Held(Id{2, 9}, world.session);
  listed->listener = nullptr;
  listed->lost = GENERATE(false, true);
  world.Ask(world.session, 7);
  world.host.Answer(world.QueuedOf(listed->id, 1));
  CHECK(world.listener.queued.empty());
  CHECK(listed->state == ClaimRecord::State::kHeld);
  CHECK(world.listener.granted.size() == (listed->lost ? 0 : 1));
  CHECK(world.listener.refused.size() == (listed->lost ? 1 : 0));
}

TEST_CASE("grants: a repeated request whose claim has another owner takes it from there",
          "[unit]") {
  GrantsWorld world;
  world.Waiting(Id{2, 9}, world.session);
  world.Ask(nullptr, 7);
  world.host.Answer(world.QueuedOf(Id{2, 9}, 1));
  CHECK(world.listener.refused == std::vector<Reason>{Reason::kNotVouched});  // The session's.
  REQUIRE(world.claims.Find(kGrantedClaim) != nullptr);
  CHECK(world.claims.Find(kGrantedClaim)->id == Id{2, 9});
  CHECK(world.listener.queued == std::vector<uint64_t>{1});
}

TEST_CASE("grants: a wait that is asked for again while its TTL's end is under way goes on",
          "[unit]") {
  GrantsWorld world;
  ClaimRecord* earlier = world.Waiting(Id{2, 9}, nullptr);
  earlier->listener = nullptr;
  earlier->life.expires_at = world.host.time.Now();
  world.Ask(nullptr, 7);
  world.ends.OnTtl(earlier);
  Outcome queued = world.QueuedOf(earlier->id, 1);
  queued.detail = Outcome::InQueue{1, /*epoch=*/2, WaitReason::kNone};
  world.host.Answer(std::move(queued));
  CHECK(world.host.Oldest<EndCommand>().epoch == 1);
  world.host.Answer(OutcomeKind::kStale);
  CHECK(world.listener.queued == std::vector<uint64_t>{1});
  CHECK(world.listener.refused.empty());
  // While the call stands, its client lives.
  CHECK_FALSE(earlier->life.expiring);
  CHECK(earlier->life.expires_at == SteadyTime::max());
}

TEST_CASE("grants: a lease that moves is refused until the move is over", "[unit]") {
  GrantsWorld world;
  ClaimRecord* claim = world.Ask(nullptr, 7);
  Outcome outcome = world.GrantOf(*claim);
  outcome.kind = OutcomeKind::kMoving;
  outcome.lease->id = Id{2, 9};
  world.host.Answer(std::move(outcome));
  CHECK(world.listener.refused == std::vector<Reason>{Reason::kMoving});
  ClaimRecord* moving = world.claims.Find(Id{2, 9});
  REQUIRE(moving != nullptr);
  CHECK(moving->state == ClaimRecord::State::kMoving);
  CHECK(world.claims.Find(kGrantedClaim) == nullptr);
  // Neither the move nor the repeat is over.
  CHECK(moving->life.keep_until == world.host.time.Now() + Milliseconds(60'000));
  world.Ask(nullptr, 7);
  CHECK(world.host.Oldest<AcquireCommand>().moved_epoch == moving->life.epoch);
  CHECK_FALSE(world.host.Oldest<AcquireCommand>().moved_is_over);
}

TEST_CASE("grants: a client that went away meanwhile gets no lease", "[unit]") {
  GrantsWorld world;
  ClaimRecord* claim = world.Ask(nullptr, 0, 0);
  claim->abandoned = true;
  claim->listener = nullptr;
  world.host.Answer(world.GrantOf(*claim));
  CHECK(world.host.Oldest<EndCommand>().cause == EndCause::kDisconnected);
}

}  // namespace
}  // namespace semaphored
