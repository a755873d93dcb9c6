#include "server/sessions/session_closings.h"

#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/sessions/rooms_world.h"

namespace semaphored {
namespace {

// The engine's row of the session is to be closed next.
void CheckCloses(const RoomsWorld& world, EndCause cause) {
  const auto close = world.host.Oldest<CloseSessionCommand>();
  CHECK(close.session == Id{1, 1});
  CHECK(close.cause == cause);
}

TEST_CASE("session closings: the row is closed when the claims of other lanes have ended",
          "[unit]") {
  RoomsWorld world;
  // (More than go with the row in one commit.)
  for (uint64_t i = 1; i <= SessionEnds::kAtOnce + 1; ++i) world.Held(Id{2, i}, world.session);
  int done = 0;
  world.closings.End(world.session, EndCause::kReleased, [&] { ++done; });
  CHECK(world.session->closing);
  for (size_t i = 0; i <= SessionEnds::kAtOnce; ++i) {
    CHECK(world.host.Oldest<EndCommand>().cause == EndCause::kReleased);
    world.host.Answer(OutcomeKind::kDone);
  }
  CheckCloses(world, EndCause::kReleased);
  world.host.Answer(OutcomeKind::kDone);
  CHECK(done == 1);
  CHECK(world.sessions.Find(Id{1, 1}) == nullptr);
  CHECK(world.claims.records().empty());
  CHECK(world.listener.session_ended == std::vector<Reason>{Reason::kSessionLost});
}

TEST_CASE("session closings: a TTL that was put off runs on; one that is over ends the session",
          "[unit]") {
  RoomsWorld world;
  world.deadlines.ArmTtl(world.session);
  world.host.time.Advance(Milliseconds(20'000));
  world.vouching.Revive(&world.session->life);
  CHECK(world.DueAfter(Milliseconds(10'000)) == TimerKind::kSessionTtl);
  world.closings.OnTtl(world.session);
  CHECK(world.DueAfter(Milliseconds(20'000)) == TimerKind::kSessionTtl);
  world.closings.OnTtl(world.session);
  CHECK(world.session->life.expiring);
  CheckCloses(world, EndCause::kExpired);
  SECTION("it could not be done") {
    world.host.Answer(absl::UnavailableError("away"));
    CHECK_FALSE(world.session->life.expiring);
    CHECK(world.DueAfter(Milliseconds(500)) == TimerKind::kSessionTtl);
  }
  SECTION("it has been adopted again meanwhile") {
    world.session->life.epoch = 2;
    world.host.Answer(OutcomeKind::kStale);
    CHECK_FALSE(world.session->life.expiring);
    CHECK(world.DueAfter(Milliseconds(30'000)) == TimerKind::kSessionTtl);
  }
  SECTION("it has moved") {
    world.Held(Id{2, 1}, world.session);
    world.host.Answer(OutcomeKind::kStale);
    CHECK(world.listener.ended.empty());
    CHECK(world.listener.session_ended == std::vector<Reason>{Reason::kNotVouched});
  }
  SECTION("a semaphore of it cannot be changed") {
    Outcome outcome;
    outcome.kind = OutcomeKind::kDamaged;
    outcome.detail = Outcome::Closing{7};
    world.host.Answer(std::move(outcome));
    CHECK(world.session->life.epoch == 7);
    CHECK(world.listener.session_ended == std::vector<Reason>{Reason::kSessionLost});
    CHECK(world.DueAfter(Milliseconds(5000)) == TimerKind::kSessionTtl);
  }
}

TEST_CASE("session closings: an acquire without an answer is ended first", "[unit]") {
  RoomsWorld world;
  ClaimRecord* asked = world.Asked(Id{2, 1}, world.session);
  world.closings.End(world.session, EndCause::kReleased, [] {});
  CHECK(world.host.Oldest<EndCommand>().claim == asked->id);
  CHECK(world.host.Oldest<EndCommand>().cause == EndCause::kCancelled);
  world.ends.Drop(asked);
  world.host.Answer(OutcomeKind::kNotHeld);
  CheckCloses(world, EndCause::kReleased);
}

TEST_CASE("session closings: leases that move keep the row until the moves are over", "[unit]") {
  RoomsWorld world;
  world.Held(Id{2, 1}, world.session);
  world.moves.Begin(world.Held(Id{2, 2}, world.session),
                    world.host.time.Now() + Milliseconds(4000));
  world.closings.End(world.session, EndCause::kReleased, [] {});
  CHECK(world.host.Oldest<EndCommand>().claim == Id{2, 1});
  world.ends.Drop(world.claims.Find(Id{2, 1}));
  world.host.Answer(OutcomeKind::kDone);
  CHECK(world.host.jobs.empty());
  CHECK(world.DueAfter(Milliseconds(4000)) == TimerKind::kSessionEnd);
  world.closings.OnMovesOver(world.session);
  CheckCloses(world, EndCause::kReleased);
  world.closings.OnMovesOver(world.session);
  CHECK(world.host.jobs.size() == 1);
}

TEST_CASE("session closings: what is dropped goes without a word to the engine", "[unit]") {
  RoomsWorld world;
  world.Held(Id{2, 1}, world.session);
  world.closings.Drop(world.session, {});
  CHECK(world.host.jobs.empty());
  CHECK(world.claims.records().empty());
  CHECK(world.listener.ended.empty());
  CHECK(world.listener.session_ended.size() == 1);
}

}  // namespace
}  // namespace semaphored
