#include "server/sessions/claim_ends.h"

#include <memory>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/sessions/rooms_world.h"

namespace semaphored {
namespace {

constexpr Id kEndingClaim{2, 1};

TEST_CASE("claim ends: the listener hears of a lost lease, or of a refused wait", "[unit]") {
  RoomsWorld world;
  world.ends.TellEnded(world.Held(kEndingClaim, world.session), EndCause::kExpired);
  CHECK(world.listener.ended == std::vector<EndCause>{EndCause::kExpired});
  CHECK(world.session->claims.empty());
  world.ends.TellGone(world.Held(kEndingClaim, nullptr), EndCause::kNone);
  CHECK(world.listener.ended.back() == EndCause::kUnknown);
  world.ends.TellGone(world.Waiting(kEndingClaim, nullptr), EndCause::kNone);
  CHECK(world.listener.refused == std::vector<Reason>{Reason::kNotHeld});
  CHECK(world.claims.Find(kEndingClaim) == nullptr);
}

TEST_CASE("claim ends: no client hears of the end of a lease that moves", "[unit]") {
  RoomsWorld world;
  ClaimRecord* claim = world.Held(kEndingClaim, nullptr);
  claim->state = ClaimRecord::State::kMoving;
  world.moves.Begin(claim, world.host.time.Now());
  world.ends.TellEnded(claim, EndCause::kExpired);
  world.ends.Drop(world.Held(kEndingClaim, nullptr));
  CHECK(world.listener.ended.empty());
}

TEST_CASE("claim ends: what leaves is lost to its listener, if its owner and epoch are older",
          "[unit]") {
  RoomsWorld world;
  world.Held(Id{2, 1}, world.session);
  world.Waiting(Id{2, 2}, nullptr);
  std::vector<ClaimInfo> claims(2);
  for (uint64_t i = 0; i < 2; ++i) {
    claims[i].lease = std::make_shared<Lease>();
    claims[i].lease->id = Id{2, i + 1};
    claims[i].lease->epoch = 1;
  }
  world.ends.LeaveOthers(Id{1, 9}, claims);
  CHECK(world.claims.records().size() == 2);
  for (ClaimInfo& info : claims) info.lease->epoch = 2;
  world.ends.LeaveOthers(world.session->id, claims);
  CHECK(world.claims.Find(Id{2, 1}) != nullptr);
  CHECK(world.listener.refused == std::vector<Reason>{Reason::kNotVouched});
  world.ends.LeaveOthers(Id{1, 9}, claims);
  CHECK(world.listener.ended == std::vector<EndCause>{EndCause::kMoved});
}

TEST_CASE("claim ends: an end that is not carried out is tried again as long as it is due",
          "[unit]") {
  RoomsWorld world;
  SECTION("a wait that is over") {
    ClaimRecord* claim = world.Waiting(kEndingClaim, world.session);
    claim->wait_until = world.host.time.Now() + Milliseconds(100);
    world.deadlines.ArmWait(claim);
    world.deadlines.ArmWait(claim);
    CHECK(world.DueAfter(Milliseconds(100)) == TimerKind::kWait);
    world.ends.OnWaitOver(claim);
    CHECK(world.host.Oldest<EndCommand>().cause == EndCause::kWaitExpired);
    CHECK(world.host.Oldest<EndCommand>().only_waiting);
    world.host.Answer(OutcomeKind::kDamaged);
    CHECK(world.DueAfter(Milliseconds(5000)) == TimerKind::kWait);
  }
  SECTION("a recall that is over") {
    ClaimRecord* claim = world.Held(kEndingClaim, world.session);
    claim->recall.end_at = world.host.time.Now();
    world.ends.End(claim, EndCause::kRevoked, false);
    world.host.Answer(absl::UnavailableError("away"));
    CHECK(Recalls::IsArmedFor(*claim, world.host.time.Now() + Milliseconds(500)));
    CHECK(world.DueAfter(Milliseconds(500)) == TimerKind::kRecall);
  }
  SECTION("a recall that is over, and was forgotten meanwhile") {
    ClaimRecord* claim = world.Held(kEndingClaim, world.session);
    claim->recall.end_at = world.host.time.Now();
    world.ends.End(claim, EndCause::kRevoked, false);
    Recalls::Forget(claim);
    claim->lease->recall = {Recall::Reason::kAdministrator, 9000};
    world.recalls.Arm(claim);
    world.host.Answer(absl::UnavailableError("away"));
    CHECK(Recalls::IsArmedFor(*claim, world.host.time.Now() + Milliseconds(9000)));
    CHECK(world.DueAfter(Milliseconds(9000)) == TimerKind::kRecall);
  }
  SECTION("a detached wait has its TTL") {
    ClaimRecord* claim = world.Waiting(kEndingClaim, nullptr);
    world.ends.End(claim, EndCause::kCancelled, true);
    world.host.Answer(absl::UnavailableError("away"));
    CHECK(world.DueAfter(Milliseconds(30'000)) == TimerKind::kTtl);
    world.ends.OnTtl(claim);
    CHECK(world.host.Oldest<EndCommand>().cause == EndCause::kExpired);
    world.host.Answer(OutcomeKind::kStale);
    CHECK(world.listener.refused == std::vector<Reason>{Reason::kNotVouched});
  }
  SECTION("after a stop a lost lease is not ended") {
    ClaimRecord* claim = world.Held(kEndingClaim, world.session);
    world.ends.EndLost(claim);
    claim->lost = true;
    world.ends.Stop();
    world.ends.EndLost(claim);
    CHECK(world.host.jobs.empty());
  }
}

TEST_CASE("claim ends: a TTL that began again while its end was under way runs on", "[unit]") {
  RoomsWorld world;
  ClaimRecord* claim = world.Held(kEndingClaim, nullptr);
  claim->life.expires_at = world.host.time.Now();
  world.ends.OnTtl(claim);
  CHECK(claim->life.expiring);
  claim->life.epoch = 2;
  world.host.Answer(OutcomeKind::kStale);
  CHECK_FALSE(claim->life.expiring);
  CHECK(world.DueAfter(Milliseconds(30'000)) == TimerKind::kTtl);
}

TEST_CASE("claim ends: a lease that no client knows of binds its session to nothing", "[unit]") {
  RoomsWorld world;
  ClaimRecord* claim = world.Held(kEndingClaim, world.session);
  world.unread.Add("a", world.host.time.Now());
  world.vouching.Bound(world.session);
  REQUIRE(world.session->life.vouch_max != SteadyTime::max());
  world.ends.EndUntold(claim);
  CHECK(world.session->life.vouch_max == SteadyTime::max());
}

TEST_CASE("claim ends: a client that went away keeps only what it can ask for again", "[unit]") {
  RoomsWorld world;
  ClaimRecord* claim = world.Held(kEndingClaim, nullptr);
  claim->abandoned = true;
  SECTION("with a request id") {
    world.ends.EndAbandoned(claim);
    CHECK_FALSE(claim->abandoned);
    CHECK(world.host.jobs.empty());
  }
  SECTION("without") {
    claim->remembered = false;
    world.ends.EndAbandoned(claim);
    CHECK(world.host.Oldest<EndCommand>().cause == EndCause::kDisconnected);
    CHECK_FALSE(world.host.Oldest<EndCommand>().only_waiting);
  }
  SECTION("it waits") {
    claim->state = ClaimRecord::State::kWaiting;
    world.ends.EndAbandoned(claim);
    CHECK(world.host.Oldest<EndCommand>().only_waiting);
  }
}

TEST_CASE("claim ends: a session without a stream gives up its waits after the grace", "[unit]") {
  RoomsWorld world;
  ClaimRecord* claim = world.Waiting(kEndingClaim, world.session);
  world.sessions.StopListening(world.session);
  world.session->grace_until = world.host.time.Now() + Milliseconds(1000);
  CHECK_FALSE(world.ends.EndUnwanted(claim));
  world.host.Pass(Milliseconds(1000));
  CHECK(world.ends.EndUnwanted(claim));
  CHECK(claim->given_up);
  world.host.Answer(OutcomeKind::kNotHeld);
  CHECK(world.listener.refused.empty());
  CHECK(world.claims.Find(kEndingClaim) == nullptr);
}

TEST_CASE("claim ends: leases of a semaphore that is unread are lost to their holders", "[unit]") {
  RoomsWorld world;
  ClaimRecord* held = world.Held(Id{2, 1}, world.session);
  ClaimRecord* detached = world.Held(Id{2, 2}, nullptr);
  world.Waiting(Id{2, 3}, world.session);
  world.unread.Add("a", world.host.time.Now());
  world.ends.DisownDue();
  CHECK(world.listener.ended.empty());
  world.host.Pass(Milliseconds(4500));
  world.ends.DisownDue();
  world.ends.DisownDue();
  CHECK(held->lost);
  CHECK(world.listener.ended == std::vector<EndCause>{EndCause::kEngineLost});
  CHECK_FALSE(detached->lost);
  CHECK(world.listener.refused == std::vector<Reason>{Reason::kNotVouched});
  world.ends.EndLost(held);
  world.host.Answer(absl::UnavailableError("away"));
  CHECK(world.DueAfter(Milliseconds(500)) == TimerKind::kEndLost);
}

}  // namespace
}  // namespace semaphored
