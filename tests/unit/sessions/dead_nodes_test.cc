#include "server/sessions/dead_nodes.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/sessions/room_host.h"

namespace semaphored {
namespace {

struct DeadNodesWorld {
  explicit DeadNodesWorld(size_t lanes = 1) : host(lanes) {}

  void TakeOver(std::vector<NodeRef> dead) {
    nodes.TakeOver(std::move(dead), [this](const absl::Status& status) { ready = status; });
  }
  // A page with one orphan.
  void AnswerPage(const Id& session, const std::string& next, uint32_t claims = 1) {
    Outcome outcome;
    outcome.kind = OutcomeKind::kDone;
    outcome.detail = Outcome::Affected{claims};
    outcome.report = std::make_unique<Report>();
    outcome.report->orphans.resize(1);
    outcome.report->orphans[0].session = session;
    outcome.report->next = next;
    host.Answer(std::move(outcome));
  }

  RoomHost host;
  std::vector<Id> absorbed;
  DeadNodes nodes{&host,
                  &host.timers,
                  {[this](const Orphan& orphan) { absorbed.push_back(orphan.session); },
                   [](const DelayedTicket&) {}}};
  std::optional<absl::Status> ready;
};

TEST_CASE("dead nodes: each lane is read page by page, until all have come to their ends",
          "[unit]") {
  DeadNodesWorld world(2);
  world.TakeOver({{3, 1}});
  REQUIRE(world.host.jobs.size() == 2);
  CHECK(world.host.Oldest<OrphansCommand>().lane == 0);
  CHECK(world.host.Oldest<OrphansCommand>().dead == std::vector<NodeRef>{{3, 1}});
  world.AnswerPage(Id{1, 1}, "m");
  world.AnswerPage(Id{1, 2}, "");
  CHECK_FALSE(world.ready);
  REQUIRE(world.host.jobs.size() == 1);
  CHECK(world.host.Oldest<OrphansCommand>().after == "m");
  world.AnswerPage(Id{1, 3}, "");
  REQUIRE(world.ready);
  CHECK(world.ready->ok());
  CHECK(world.absorbed == std::vector<Id>{{1, 1}, {1, 2}, {1, 3}});
  CHECK(world.nodes.pages() == 3);
}

TEST_CASE("dead nodes: pages have fewer rows when those are wide, and more when they are narrow",
          "[unit]") {
  DeadNodesWorld world;
  world.TakeOver({{3, 1}});
  const uint32_t first = world.host.Oldest<OrphansCommand>().rows_max;
  world.AnswerPage(Id{1, 1}, "b", /*claims=*/1);
  CHECK(world.host.Oldest<OrphansCommand>().rows_max == 2 * first);
  world.AnswerPage(Id{1, 2}, "c", /*claims=*/1'000'000);
  CHECK(world.host.Oldest<OrphansCommand>().rows_max == 1);
}

TEST_CASE("dead nodes: after an error, what was learned stays, and a lane's error is the answer",
          "[unit]") {
  DeadNodesWorld world(2);
  world.TakeOver({{3, 1}});
  world.host.Answer(absl::UnavailableError("away"));
  world.AnswerPage(Id{1, 2}, "");
  REQUIRE(world.ready);
  CHECK(world.ready->code() == absl::StatusCode::kUnavailable);
  CHECK(world.absorbed.size() == 1);
}

TEST_CASE("dead nodes: once more they are taken over by their last lives, until that succeeds",
          "[unit]") {
  DeadNodesWorld world;
  world.TakeOver({{3, 1}});
  world.AnswerPage(Id{1, 1}, "");
  world.TakeOver({{4, 1}, {3, 5}});
  world.AnswerPage(Id{1, 2}, "");
  world.nodes.TakeOverAgain();
  CHECK(world.host.Oldest<OrphansCommand>().dead == std::vector<NodeRef>{{3, 5}, {4, 1}});
  world.host.Answer(absl::UnavailableError("away"));
  const auto timer = world.host.Pass(Milliseconds(500));
  REQUIRE(timer);
  CHECK(timer->kind == TimerKind::kTakeOver);
  world.nodes.TakeOverAgain();
  world.AnswerPage(Id{1, 3}, "");
  CHECK_FALSE(world.host.Pass(Milliseconds(60'000)));
}

TEST_CASE("dead nodes: after a stop no page is asked for", "[unit]") {
  DeadNodesWorld world;
  world.TakeOver({{3, 1}});
  world.nodes.Stop();
  world.AnswerPage(Id{1, 1}, "m");
  CHECK(world.host.jobs.empty());
  CHECK(world.ready);
  world.nodes.TakeOverAgain();
  CHECK(world.host.jobs.empty());
}

}  // namespace
}  // namespace semaphored
