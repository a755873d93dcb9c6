#include "server/sessions/claim_events.h"

#include <memory>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/sessions/rooms_world.h"

namespace semaphored {
namespace {

constexpr Id kReportedClaim{2, 1};
using ReportedKind = Event::Kind;

Outcome HeldOutcome(LeasePtr lease) {
  Outcome outcome;
  outcome.kind = OutcomeKind::kHeld;
  outcome.lease = std::move(lease);
  return outcome;
}

TEST_CASE("claim events: a waiter becomes a lease, and the lease ends", "[unit]") {
  RoomsWorld world;
  ClaimRecord* claim = world.Waiting(kReportedClaim, world.session);
  world.events.OnEvent(RoomsWorld::EventOf(ReportedKind::kGranted, *claim));
  CHECK(world.listener.granted == std::vector<Id>{kReportedClaim});
  Event recalled = RoomsWorld::EventOf(ReportedKind::kRecalled, *claim);
  recalled.lease->recall = {Recall::Reason::kAdministrator, 1000};
  world.events.OnEvent(recalled);
  CHECK(world.listener.recalled == std::vector<Id>{kReportedClaim});
  Event ended = RoomsWorld::EventOf(ReportedKind::kEnded, *claim);
  ended.cause = EndCause::kRevoked;
  world.events.OnEvent(ended);
  CHECK(world.listener.ended == std::vector<EndCause>{EndCause::kRevoked});
  CHECK(world.claims.Find(kReportedClaim) == nullptr);
}

TEST_CASE("claim events: a wait ends with a refusal, unless its client was given up", "[unit]") {
  RoomsWorld world;
  ClaimRecord* claim = world.Waiting(kReportedClaim, world.session);
  Event ended = RoomsWorld::EventOf(ReportedKind::kWaitEnded, *claim);
  ended.cause = EndCause::kCancelled;
  SECTION("cancelled") {
    world.events.OnEvent(ended);
    CHECK(world.listener.refused == std::vector<Reason>{Reason::kWaitCancelled});
  }
  SECTION("no longer allowed") {
    claim->denied = true;
    world.events.OnEvent(ended);
    CHECK(world.listener.refused == std::vector<Reason>{Reason::kPermissionDenied});
  }
  SECTION("given up") {
    claim->given_up = true;
    world.events.OnEvent(ended);
    CHECK(world.listener.refused.empty());
  }
  CHECK(world.claims.Find(kReportedClaim) == nullptr);
}

TEST_CASE("claim events: what is older than the claim is dropped", "[unit]") {
  RoomsWorld world;
  ClaimRecord* claim = world.Waiting(kReportedClaim, nullptr);
  Event granted = RoomsWorld::EventOf(ReportedKind::kGranted, *claim);
  Event moved = RoomsWorld::EventOf(ReportedKind::kMoved, *claim);
  moved.session = Id();
  moved.epoch = 4;
  claim->life.epoch = 4;
  world.events.OnEvent(granted);
  world.events.OnEvent(moved);
  CHECK(world.listener.granted.empty());
  CHECK(world.listener.refused.empty());
  moved.epoch = 5;
  world.events.OnEvent(moved);
  CHECK(world.listener.refused == std::vector<Reason>{Reason::kNotVouched});
}

TEST_CASE("claim events: a session that moved away goes with its claims", "[unit]") {
  RoomsWorld world;
  world.Held(kReportedClaim, world.session);
  Event moved;
  moved.kind = ReportedKind::kMoved;
  moved.claim = world.session->id;
  moved.epoch = 1;
  world.events.OnEvent(moved);
  CHECK(world.listener.session_ended.empty());
  moved.epoch = 2;
  world.events.OnEvent(moved);
  CHECK(world.listener.session_ended == std::vector<Reason>{Reason::kNotVouched});
  CHECK(world.claims.Find(kReportedClaim) == nullptr);
}

TEST_CASE("claim events: an end that another lane reports counts before the grant", "[unit]") {
  RoomsWorld world;
  ClaimRecord* claim = world.Waiting(kReportedClaim, world.session);
  Event ended = RoomsWorld::EventOf(ReportedKind::kEnded, *claim);
  ended.cause = EndCause::kExpired;
  world.events.OnElsewhere(ended);
  CHECK(world.marks.Find(kReportedClaim) != nullptr);
  world.events.OnEvent(RoomsWorld::EventOf(ReportedKind::kGranted, *claim));
  CHECK(world.listener.granted.empty());
  CHECK(world.listener.refused == std::vector<Reason>{Reason::kNotHeld});
}

TEST_CASE("claim events: an end of a lease counts before a repeated request is answered with it",
          "[unit]") {
  RoomsWorld world;
  ClaimRecord* claim = world.Held(kReportedClaim, nullptr);
  RoomListener repeats;
  ClaimRecord* again = world.Asked(Id{2, 2}, nullptr);
  again->listener = &repeats;
  AcquireParams params;
  params.semaphore = "a";
  params.requester = {"client", 7};
  world.grants.Ask(again, std::move(params));
  Outcome granted;
  granted.kind = OutcomeKind::kGranted;
  granted.lease = RoomsWorld::LeaseOf(*claim);
  world.events.OnElsewhere(RoomsWorld::EventOf(ReportedKind::kEnded, *claim));
  CHECK(world.listener.ended.size() == 1);
  world.host.Answer(std::move(granted));
  CHECK(repeats.granted.empty());
  CHECK(repeats.refused == std::vector<Reason>{Reason::kNotHeld});
}

TEST_CASE("claim events: after any other event of another lane the claim is read in its own",
          "[unit]") {
  RoomsWorld world;
  ClaimRecord* claim = world.Waiting(kReportedClaim, world.session);
  world.events.OnElsewhere(RoomsWorld::EventOf(ReportedKind::kGranted, *claim));
  CHECK(world.host.Oldest<VerifyCommand>().claim == kReportedClaim);
  SECTION("it has become a lease") {
    world.host.Answer(HeldOutcome(RoomsWorld::LeaseOf(*claim)));
    CHECK(world.listener.granted == std::vector<Id>{kReportedClaim});
  }
  SECTION("it belongs to another session") {
    LeasePtr lease = RoomsWorld::LeaseOf(*claim);
    lease->session = Id{1, 9};
    world.host.Answer(HeldOutcome(std::move(lease)));
    CHECK(world.listener.refused == std::vector<Reason>{Reason::kNotVouched});
  }
  SECTION("it is gone") {
    world.host.Answer(OutcomeKind::kNotHeld);
    CHECK(world.listener.refused == std::vector<Reason>{Reason::kNotHeld});
  }
  SECTION("it cannot be read now") {
    world.host.Answer(absl::UnavailableError("away"));
    CHECK(world.DueAfter(Milliseconds(500)) == TimerKind::kProbe);
  }
  SECTION("it cannot be read, and the daemon ends") {
    world.events.Stop();
    world.host.Answer(absl::UnavailableError("away"));
    CHECK_FALSE(world.host.Pass(Milliseconds(500)));
    world.events.OnElsewhere(RoomsWorld::EventOf(ReportedKind::kGranted, *claim));
    CHECK(world.host.jobs.empty());
  }
}

}  // namespace
}  // namespace semaphored
