// Workers whose tickets come through another daemon, and workers that go on at another one.
#include "catch2/catch_test_macros.hpp"
#include "tests/contract/shared_engine.h"
#include "tests/unit/sessions_world.h"

namespace semaphored {
namespace {

using How = FinishCommand::Result;

struct TwoDaemons {
  std::unique_ptr<contract::Fixture> fixture = contract::MakeSharedFixture(/*lossy=*/false);
  std::unique_ptr<SessionsWorld> a = Start("a");
  std::unique_ptr<SessionsWorld> b = Start("b");

  std::unique_ptr<SessionsWorld> Start(const std::string& node_id) const {
    return std::make_unique<SessionsWorld>(SessionsOptions(), fixture->Open().value(), node_id);
  }
  // kill -9, seen by b.
  void KillA() {
    const NodeRef dead = a->self();
    a = nullptr;
    for (const NodeStore::Node& node : b->nodes().Observe().value()) {
      if (node.ref == dead) REQUIRE(b->nodes().DeclareDead(node).value());
    }
    b->TakeOver(dead);
  }
};

TEST_CASE("work, two daemons: a ticket that came through the other one is pushed") {
  TwoDaemons daemons;
  daemons.a->Enqueue("x", "first");
  WorkerStream stream;
  daemons.b->Work(&stream, {{"x"}, {}, 1});
  REQUIRE(stream.assigned.size() == 1);
  REQUIRE(daemons.b->Finish(&stream, stream.assigned[0], How::kDone).ok());
  daemons.a->Hear();
  daemons.a->Enqueue("x", "second");
  daemons.b->Hear();
  REQUIRE(stream.assigned.size() == 2);
  CHECK(stream.Payload(1) == "second");
  REQUIRE(daemons.b->Finish(&stream, stream.assigned[1], How::kDone).ok());
}

TEST_CASE("work, two daemons: what came through the other one is found under a prefix") {
  TwoDaemons daemons;
  WorkerStream stream;
  daemons.b->Work(&stream, {{}, {"t/"}, 1});
  daemons.a->Enqueue("t/1", "x");
  daemons.b->Pass(Milliseconds(1100));
  REQUIRE(stream.assigned.size() == 1);
  CHECK(stream.Payload(0) == "x");
}

TEST_CASE("work, two daemons: a worker goes on at the other one, and its first one hears of it") {
  TwoDaemons daemons;
  daemons.a->Enqueue("x", "payload");
  WorkerStream at_a;
  daemons.a->Work(&at_a, {{"x"}, {}, 2});
  REQUIRE(at_a.assigned.size() == 1);
  WorkerStream at_b;
  daemons.b->Work(&at_b, {{"x"}, {}, 2}, at_a.session);
  REQUIRE(at_b.assigned.size() == 1);
  CHECK(at_b.resumed);
  CHECK(at_b.listed == 1);
  CHECK(at_b.Payload(0) == "payload");
  CHECK(at_b.assigned[0].lease->token == at_a.assigned[0].lease->token);
  CHECK(at_b.assigned[0].ticket->attempt == 1);
  daemons.a->Hear();
  CHECK(at_a.refused.size() == 1);
  REQUIRE(daemons.b->Finish(&at_b, at_b.assigned[0], How::kDone).ok());
  daemons.b->Enqueue("x", "next");
  CHECK(at_b.assigned.size() == 2);
  CHECK(at_a.assigned.size() == 1);
}

TEST_CASE("work, two daemons: a worker goes on when its daemon has died") {
  TwoDaemons daemons;
  daemons.a->Enqueue("x", "payload", 0, 1);
  WorkerStream at_a;
  daemons.a->Work(&at_a, {{"x"}, {}, 1});
  REQUIRE(at_a.assigned.size() == 1);
  daemons.KillA();
  WorkerStream at_b;
  daemons.b->Work(&at_b, {{"x"}, {}, 1}, at_a.session);
  REQUIRE(at_b.assigned.size() == 1);
  CHECK(at_b.assigned[0].lease->id == at_a.assigned[0].lease->id);
  REQUIRE(daemons.b->Finish(&at_b, at_b.assigned[0], How::kDone).ok());
  CHECK(daemons.b->Describe("x")->tickets.living() == 0);
}

TEST_CASE("work, two daemons: a worker that dies with its daemon loses its ticket after the TTL") {
  TwoDaemons daemons;
  daemons.a->Enqueue("x", "payload");
  WorkerStream at_a;
  daemons.a->Work(&at_a, {{"x"}, {}, 3});
  REQUIRE(at_a.assigned.size() == 1);
  daemons.KillA();
  WorkerStream at_b;
  daemons.b->Work(&at_b, {{"x"}, {}, 1});
  CHECK(at_b.assigned.empty());
  daemons.b->Pass(Milliseconds(8000));
  daemons.b->sessions().TouchSession(at_b.session);
  CHECK(at_b.assigned.empty());
  daemons.b->Pass(Milliseconds(4000));
  REQUIRE(at_b.assigned.size() == 1);
  CHECK(at_b.assigned[0].ticket->attempt == 2);
  CHECK(daemons.b->Describe("x")->offers == 0);  // Those of the dead worker are gone, too.
}

TEST_CASE("work, two daemons: a delay that a dead daemon counted begins anew") {
  TwoDaemons daemons;
  daemons.a->Enqueue("x", "later", 3000);
  WorkerStream at_b;
  daemons.b->Work(&at_b, {{"x"}, {}, 1});
  daemons.KillA();
  daemons.b->Pass(Milliseconds(2900));
  CHECK(at_b.assigned.empty());
  daemons.b->sessions().TouchSession(at_b.session);
  daemons.b->Pass(Milliseconds(200));
  CHECK(at_b.assigned.size() == 1);
}

}  // namespace
}  // namespace semaphored
