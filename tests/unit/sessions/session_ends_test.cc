#include "server/sessions/session_ends.h"

#include <memory>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/sessions/room_host.h"

namespace semaphored {
namespace {

struct SessionEndsWorld {
  RoomHost host;
  ClaimBook claims;
  SessionBook sessions;
  SessionEnds ends{&host, &claims, &sessions};
  SessionRecord* session = sessions.FindOrAdd(Id{1, 1});
  int done = 0;

  ClaimRecord* Held(uint64_t number, uint64_t token) {
    ClaimRecord* claim = claims.Add(Id{2, number}, "a", session);
    claim->state = ClaimRecord::State::kHeld;
    claim->lease = std::make_shared<Lease>();
    claim->lease->token = token;
    return claim;
  }
};

TEST_CASE("session ends: those that are submitted together are done when all are answered",
          "[unit]") {
  SessionEndsWorld world;
  world.ends.Submit({}, [&] { ++world.done; });
  CHECK(world.done == 1);
  world.ends.Submit(std::vector<EndCommand>(2), [&] { ++world.done; });
  world.host.Answer(OutcomeKind::kDone);
  CHECK(world.done == 1);
  world.host.Answer(absl::UnavailableError("away"));
  CHECK(world.done == 2);
}

TEST_CASE("session ends: a page is asked for when the one before is answered", "[unit]") {
  SessionEndsWorld world;
  for (uint64_t i = 1; i <= SessionEnds::kAtOnce + 1; ++i) world.Held(i, i);
  SessionEnds::Ending ending{
      world.session->id,    1, EndCause::kExpired, world.ends.InOrder(*world.session, 0), 0,
      [&] { ++world.done; }};
  world.ends.SubmitInPages(std::move(ending));
  REQUIRE(world.host.jobs.size() == SessionEnds::kAtOnce);
  CHECK(world.host.Oldest<EndCommand>().claim == Id{2, 1});
  SECTION("to the last") {
    while (world.host.jobs.size() > 1) world.host.Answer(OutcomeKind::kDone);
    world.host.Answer(OutcomeKind::kDone);
    REQUIRE(world.host.jobs.size() == 1);
    CHECK(world.done == 0);
    world.host.Answer(OutcomeKind::kDone);
    CHECK(world.done == 1);
  }
  SECTION("unless the session has another epoch") {
    world.session->life.epoch = 2;
    while (!world.host.jobs.empty()) world.host.Answer(OutcomeKind::kDone);
    CHECK(world.done == 1);
  }
}

TEST_CASE("session ends: waits go first, and one lane's claims can be left to its row", "[unit]") {
  SessionEndsWorld world;
  world.Held(1, 7);
  world.Held(2, 3);
  world.claims.Add(Id{2, 3}, "a", world.session)->state = ClaimRecord::State::kWaiting;
  CHECK(world.ends.InOrder(*world.session, /*lane_left_out=*/0).empty());
  CHECK(world.ends.InOrder(*world.session, /*lane_left_out=*/1) ==
        std::vector<Id>{{2, 3}, {2, 2}, {2, 1}});
}

TEST_CASE("session ends: acquires without an answer, and leases that move, are known", "[unit]") {
  SessionEndsWorld world;
  ClaimRecord* asked = world.claims.Add(Id{2, 1}, "a", world.session);
  CHECK(world.ends.OfAsked(*world.session, EndCause::kReleased).empty());
  asked->remembered = true;
  const auto of_asked = world.ends.OfAsked(*world.session, EndCause::kReleased);
  REQUIRE(of_asked.size() == 1);
  CHECK(of_asked[0].cause == EndCause::kCancelled);
  world.Held(2, 1)->move = std::make_unique<Move>();
  world.Held(3, 2);
  const auto unmoved = world.ends.OfUnmoved(*world.session, EndCause::kReleased);
  REQUIRE(unmoved.size() == 2);
  CHECK(unmoved[1].claim == Id{2, 3});
  CHECK(unmoved[1].cause == EndCause::kReleased);
}

}  // namespace
}  // namespace semaphored
