#include "server/sessions/recalls.h"

#include <memory>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/sessions/room_host.h"

namespace semaphored {
namespace {

struct RecallsWorld {
  RoomHost host;
  ClaimBook claims;
  std::vector<std::pair<Id, EndCause>> ended;
  Recalls recalls{&host, &host.timers, &claims, [this](ClaimRecord* record, EndCause cause) {
                    ended.emplace_back(record->id, cause);
                  }};
  ClaimRecord* claim = claims.Add(Id{2, 1}, "a", nullptr);

  RecallsWorld() {
    claim->state = ClaimRecord::State::kHeld;
    claim->lease = std::make_shared<Lease>();
  }
  void Recalled(int64_t grace_ms) {
    auto lease = std::make_shared<Lease>(*claim->lease);
    lease->recall = {Recall::Reason::kAdministrator, grace_ms};
    claim->lease = lease;
    recalls.Arm(claim);
  }
  // The time until the lease ends.
  Milliseconds Left() const {
    return std::chrono::duration_cast<Milliseconds>(claim->recall.end_at - host.time.Now());
  }
};

TEST_CASE("recalls: a lease ends with the grace, or when its client counts on it no longer",
          "[unit]") {
  RecallsWorld world;
  world.recalls.Arm(world.claim);  // It is not recalled.
  CHECK(world.claim->recall.id == 0);
  world.claim->life.vouched_until = world.host.time.Now() + Milliseconds(5000);
  world.Recalled(1000);
  CHECK(world.Left() == Milliseconds(5000));
  SECTION("without an acknowledgement") {
    CHECK_FALSE(world.host.Pass(Milliseconds(4999)));
    world.recalls.OnOver(world.claim);
    CHECK(world.ended.empty());
  }
  SECTION("with one") {
    world.recalls.Acknowledge(world.claim, world.claim->recall.id + 1);
    CHECK(world.Left() == Milliseconds(5000));
    world.recalls.Acknowledge(world.claim, world.claim->recall.id);
    CHECK(world.Left() == Milliseconds(1000));
    CHECK(world.claim->life.recalled_until == world.claim->recall.end_at);
    world.host.Pass(Milliseconds(999));
  }
  const auto timer = world.host.Pass(Milliseconds(1));
  REQUIRE(timer);
  CHECK(timer->kind == TimerKind::kRecall);
  world.recalls.OnOver(world.claim);
  REQUIRE(world.ended.size() == 1);
  CHECK(world.ended[0].second == EndCauseOf(Recall::Reason::kAdministrator));
}

TEST_CASE("recalls: of two recalls the earlier end counts, also of a session's lease", "[unit]") {
  RecallsWorld world;
  SessionRecord session;
  world.claim->session = &session;
  world.Recalled(5000);
  CHECK(session.has_recalls);
  CHECK(session.recalls_changed);
  world.Recalled(1000);
  CHECK(world.Left() == Milliseconds(1000));
  world.Recalled(9000);
  CHECK(world.Left() == Milliseconds(1000));
  Recalls::Forget(world.claim);
  world.Recalled(9000);
  CHECK(world.Left() == Milliseconds(9000));
}

TEST_CASE("recalls: of one lease only the timer of its present end counts", "[unit]") {
  RecallsWorld world;
  const auto armed_after = [&](int64_t ms) {
    return Recalls::IsArmedFor(*world.claim, world.host.time.Now() + Milliseconds(ms));
  };
  world.claim->life.vouched_until = world.host.time.Now() + Milliseconds(4000);
  CHECK_FALSE(armed_after(4000));
  world.Recalled(5000);
  CHECK(armed_after(5000));
  world.Recalled(3000);
  CHECK(armed_after(4000));
  CHECK_FALSE(armed_after(5000));
  SECTION("an end that stays as it is has one timer") {
    world.Recalled(2000);
    REQUIRE(world.host.Pass(Milliseconds(4000)));
    CHECK_FALSE(world.host.Pass(Milliseconds(0)));
    world.recalls.OnOver(world.claim);
    CHECK(world.ended.size() == 1);
  }
  SECTION("it was elsewhere since") {
    Recalls::Forget(world.claim);
    CHECK_FALSE(armed_after(4000));
    world.Recalled(9000);
    CHECK(armed_after(9000));
    CHECK_FALSE(armed_after(4000));
  }
  SECTION("it is acknowledged") {
    world.recalls.Acknowledge(world.claim, world.claim->recall.id);
    CHECK(armed_after(3000));
    CHECK_FALSE(armed_after(4000));
  }
}

TEST_CASE("recalls: a lease that was held for the longest time is recalled, until that is done",
          "[unit]") {
  RecallsWorld world;
  world.recalls.ArmLongestHold(*world.claim);
  CHECK(world.host.timers.Next() == SteadyTime::max());
  world.claim->lease->longest_hold_ms = 60'000;
  world.recalls.ArmLongestHold(*world.claim);
  auto timer = world.host.Pass(Milliseconds(60'000));
  REQUIRE(timer);
  CHECK(timer->kind == TimerKind::kLongestHold);
  world.recalls.OnLongestHold(*world.claim);
  const auto recall = world.host.Oldest<RecallCommand>();
  CHECK(recall.claim == world.claim->id);
  CHECK(recall.recall.reason == Recall::Reason::kLongestHold);
  world.host.Answer(absl::UnavailableError("away"));
  timer = world.host.Pass(Milliseconds(500));
  REQUIRE(timer);
  CHECK(timer->kind == TimerKind::kLongestHold);
  world.recalls.OnLongestHold(*world.claim);
  world.claims.Remove(world.claim);
  world.host.Answer(absl::UnavailableError("away"));
  CHECK_FALSE(world.host.Pass(Milliseconds(500)));  // There is no such lease any more.
}

// The event has the row as it was between the recall and a release of the same batch.
TEST_CASE("recalls: the event of a recall brings no permits back", "[unit]") {
  auto known = std::make_shared<Lease>();
  known->permits = 1;
  auto recalled = std::make_shared<Lease>();
  recalled->permits = 2;
  recalled->recall.reason = Recall::Reason::kAdministrator;
  recalled->recall.grace_ms = 5;
  const LeasePtr both = WithRecallOf(recalled, known);
  CHECK(both->permits == 1);
  CHECK(both->recall.grace_ms == 5);
  CHECK(WithRecallOf(recalled, nullptr) == recalled);
  recalled->permits = 1;
  CHECK(WithRecallOf(recalled, known) == recalled);
}

}  // namespace
}  // namespace semaphored
