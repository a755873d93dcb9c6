#include "server/sessions/moves.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/sessions/room_host.h"

namespace semaphored {
namespace {

struct MovesWorld {
  ManualClock clock;
  ClaimBook claims;
  Moves moves{&clock, &claims};
  SessionRecord session;
  ClaimRecord* claim = claims.Add(Id{2, 1}, "a", &session);

  Requester RequestOf(uint64_t sequence) {
    Requester requester;
    requester.client_id = "client";
    requester.sequence = sequence;
    return requester;
  }
  AcquireCommand Repeated(uint64_t sequence) {
    AcquireCommand command;
    command.requester = RequestOf(sequence);
    moves.FillIn(*claim, &command);
    return command;
  }
};

TEST_CASE("moves: a repeated request says whether its lease's move is over", "[unit]") {
  MovesWorld world;
  world.claim->life.epoch = 3;
  CHECK(world.moves.Begin(world.claim, world.clock.Now() + Milliseconds(1000)));
  CHECK_FALSE(world.moves.Begin(world.claim, world.clock.Now() + Milliseconds(9000)));
  world.moves.SetRequester(world.claim, world.RequestOf(5));
  CHECK(world.Repeated(6).moved_epoch == 0);
  CHECK(world.Repeated(5).moved_epoch == 3);
  CHECK_FALSE(world.Repeated(5).moved_is_over);
  CHECK(world.moves.RefusalOf(*world.claim).reason == Reason::kMoving);
  world.clock.Advance(Milliseconds(1000));
  CHECK(world.Repeated(5).moved_is_over);
  world.moves.End(world.claim);
  CHECK(world.claim->move == nullptr);
  CHECK(world.Repeated(5).moved_epoch == 0);
  world.moves.End(world.claim);
}

// The session was resumed under another client id meanwhile.
TEST_CASE("moves: a lease moves for the request that was named last", "[unit]") {
  MovesWorld world;
  world.claim->life.epoch = 3;
  world.moves.Begin(world.claim, world.clock.Now());
  world.moves.SetRequester(world.claim, world.RequestOf(5));
  world.moves.SetRequester(world.claim, world.RequestOf(6));
  CHECK(world.Repeated(5).moved_epoch == 0);
  CHECK(world.Repeated(6).moved_epoch == 3);
  world.moves.End(world.claim);
  CHECK(world.Repeated(5).moved_epoch == 0);
  CHECK(world.Repeated(6).moved_epoch == 0);
}

TEST_CASE("moves: another owner's request, or one at another semaphore, is no repeat", "[unit]") {
  MovesWorld world;
  world.moves.Begin(world.claim, world.clock.Now());
  world.moves.SetRequester(world.claim, world.RequestOf(5));
  AcquireCommand command;
  command.requester = world.RequestOf(5);
  world.moves.FillIn(*world.claims.Add(Id{2, 2}, "a", nullptr), &command);
  world.moves.FillIn(*world.claims.Add(Id{2, 3}, "b", &world.session), &command);
  CHECK(command.moved_epoch == 0);
}

TEST_CASE("moves: a session's last move says when all of them are over", "[unit]") {
  MovesWorld world;
  CHECK(world.moves.OverAt(world.session) == SteadyTime::min());
  const SteadyTime later = world.clock.Now() + Milliseconds(2000);
  world.moves.Begin(world.claim, world.clock.Now());
  world.moves.Begin(world.claims.Add(Id{2, 2}, "a", &world.session), later);
  world.claims.Add(Id{2, 3}, "a", &world.session);
  CHECK(world.moves.OverAt(world.session) == later);
}

}  // namespace
}  // namespace semaphored
