// Workers whose tickets come through another daemon, and workers that go on at another one.
#include <map>

#include "catch2/catch_test_macros.hpp"
#include "tests/contract/shared_engine.h"
#include "tests/unit/sessions/sessions_world.h"

namespace semaphored {
namespace {

using How = FinishCommand::Result;

struct TwoDaemons {
  explicit TwoDaemons(bool lossy = false) : fixture(contract::MakeSharedFixture(lossy)) {}

  std::unique_ptr<contract::Fixture> fixture;
  std::unique_ptr<SessionsWorld> a = Start("a");
  std::unique_ptr<SessionsWorld> b = Start("b");

  // The worker goes on at b, of which a does not hear. Asked for, and not yet answered.
  static OpenParams Resuming(const WorkerStream& stream) {
    OpenParams params;
    params.client_id = "worker";
    params.ttl_ms = 10'000;
    params.resume = stream.session;
    params.work = std::make_shared<const WorkParams>(WorkParams{{"x"}, {}, 1});
    return params;
  }
  std::unique_ptr<SessionsWorld> Start(const std::string& node_id) const {
    return std::make_unique<SessionsWorld>(SessionsOptions(), fixture->Open().value(), node_id);
  }
  // kill -9, seen by b.
  void KillA() {
    const NodeRef dead = a->self();
    a = nullptr;
    const std::vector<NodeStore::Node> nodes = b->nodes().Observe().value();
    for (const NodeStore::Node& node : nodes) {
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

TEST_CASE("work, two daemons: of two tickets that come to one hand together one goes back") {
  TwoDaemons daemons;
  for (const char* name : {"x", "y"}) {
    AdminCommand create;
    create.semaphore = name;
    create.act = AdminCreate{1, {}};
    daemons.a->sessions().Administer(create, 0, [](const Result<AdminAnswer>&) {});
    daemons.a->Settle();
  }
  WorkerStream stream;
  daemons.b->Work(&stream, {{"x", "y"}, {}, 1});
  REQUIRE(daemons.b->Describe("x")->offers == 1);
  REQUIRE(daemons.b->Describe("y")->offers == 1);
  daemons.a->Hear();
  daemons.a->Enqueue("x", "1");
  daemons.a->Enqueue("y", "2");
  daemons.b->Hear();  // Both offers have been given a ticket.
  REQUIRE(stream.assigned.size() == 1);
  const std::string other = stream.assigned[0].semaphore == "x" ? "y" : "x";
  const SemaphoreInfo info = *daemons.b->Describe(other);
  CHECK(info.tickets.queued == 1);
  CHECK(info.held == 0);
  CHECK(info.offers == 0);
  REQUIRE(daemons.b->Finish(&stream, stream.assigned[0], How::kDone).ok());
  REQUIRE(stream.assigned.size() == 2);
  CHECK(stream.assigned[1].semaphore == other);
  CHECK(stream.assigned[1].ticket->attempt == 1);
  CHECK(stream.ended.empty());
}

TEST_CASE("work, two daemons: an offer that a session's last host made too late is put back") {
  TwoDaemons daemons;
  daemons.b->Enqueue("x", "1", /*delay_ms=*/100'000);  // It is there, and b knows it.
  WorkerStream stream;
  daemons.b->Work(&stream, {{"y"}, {}, 1});
  TakeCommand late;
  late.semaphore = "x";
  late.claim = {7, 7};
  late.session = stream.session;
  late.ttl_ms = 10'000;
  late.keep = OfferKept::kAlways;
  daemons.a->Submit(0, {late, [](const absl::StatusOr<Outcome>&) {}});
  daemons.a->Settle();
  daemons.b->Hear();
  daemons.a->Enqueue("x", "2");  // The offer takes it, in b's name.
  REQUIRE(daemons.a->Describe("x")->tickets.assigned == 1);
  daemons.b->Hear();
  const SemaphoreInfo info = *daemons.b->Describe("x");
  CHECK(info.tickets.queued == 1);
  CHECK(info.tickets.assigned == 0);
  CHECK(info.held == 0);
  CHECK(stream.assigned.empty());
  // It still works.
  daemons.a->Enqueue("y", "3");
  daemons.b->Pass(Milliseconds(1100));
  CHECK(stream.assigned.size() == 1);
}

// The client knows the lease from its first stream. It ends before the second one has the payload.
TEST_CASE("work, two daemons: a lease that ends as its worker comes back is reported") {
  TwoDaemons daemons;
  daemons.a->Enqueue("x", "payload");
  WorkerStream first;
  OpenParams params = TwoDaemons::Resuming(first);
  params.resume = Id{};
  daemons.a->sessions().Open(params, &first);
  daemons.a->Settle();
  REQUIRE(first.assigned.size() == 1);
  daemons.a->sessions().DetachSession(&first);
  WorkerStream again;
  daemons.a->sessions().Open(TwoDaemons::Resuming(first), &again);
  AdminCommand revoke;
  revoke.semaphore = "x";
  revoke.act = AdminRevoke{};
  daemons.a->sessions().Administer(std::move(revoke), 0, [](const Result<AdminAnswer>&) {});
  daemons.a->Settle();
  CHECK(again.listed == 1);
  REQUIRE(again.ended.size() == 1);
  CHECK(again.ended[0].first == first.assigned[0].lease->id);
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

TEST_CASE("work, two daemons: of streams that come for one session the last has it") {
  TwoDaemons daemons;
  WorkerStream at_a;
  daemons.a->Work(&at_a, {{"x"}, {}, 1});
  // The engine is slow: the client gives the first up, and both are answered together.
  WorkerStream first;
  WorkerStream second;
  daemons.b->sessions().Open(TwoDaemons::Resuming(at_a), &first);
  daemons.b->sessions().Open(TwoDaemons::Resuming(at_a), &second);
  daemons.b->Settle();
  CHECK(second.resumed);
  CHECK(second.refused.empty());
  REQUIRE(first.refused.size() == 1);
  CHECK(first.refused[0].reason == Reason::kNotVouched);
  daemons.b->sessions().DetachSession(&first);  // Its end is noticed only now.
  daemons.b->Settle();
  daemons.b->Enqueue("x", "payload");
  REQUIRE(second.assigned.size() == 1);
  CHECK(first.assigned.empty());
  REQUIRE(daemons.b->Finish(&second, second.assigned[0], How::kDone).ok());
  daemons.b->Enqueue("x", "next");
  CHECK(second.assigned.size() == 2);
}

TEST_CASE("work, two daemons: the first of two streams that come for one session goes at once") {
  TwoDaemons daemons;
  WorkerStream at_a;
  daemons.a->Work(&at_a, {{"x"}, {}, 1});
  WorkerStream first;
  WorkerStream second;
  daemons.b->sessions().Open(TwoDaemons::Resuming(at_a), &first);
  daemons.b->sessions().Open(TwoDaemons::Resuming(at_a), &second);
  daemons.b->sessions().DetachSession(&first);
  daemons.b->Settle();
  CHECK(first.refused.empty());
  CHECK(second.resumed);
  daemons.b->Enqueue("x", "payload");
  CHECK(second.assigned.size() == 1);
}

TEST_CASE("work, two daemons: what has left unheard, and whose new host has died, still ends") {
  TwoDaemons daemons;
  daemons.a->Enqueue("x", "payload");
  WorkerStream at_b;
  daemons.b->Work(&at_b, {{"x"}, {}, 1});
  REQUIRE(at_b.assigned.size() == 1);
  WorkerStream at_a;
  daemons.a->Work(&at_a, {{"x"}, {}, 1}, at_b.session);
  REQUIRE(at_a.resumed);
  // b has not heard that the session had left it, and its worker never comes back.
  daemons.KillA();
  CHECK(at_b.refused.size() == 1);
  WorkerStream other;
  daemons.b->Work(&other, {{"x"}, {}, 1});
  const auto pass = [&](int seconds) {
    for (int i = 0; i < seconds; ++i) {
      daemons.b->sessions().TouchSession(other.session);
      daemons.b->Pass(Milliseconds(1000));
    }
  };
  // The TTL, and for how long a third daemon may not have heard of the move either.
  pass(24);
  CHECK(other.assigned.empty());
  pass(4);
  REQUIRE(other.assigned.size() == 1);
  CHECK(other.assigned[0].ticket->attempt == 2);
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

TEST_CASE("work, two daemons: answers of the engine are lost, and no ticket is, nor done twice") {
  TwoDaemons daemons(/*lossy=*/true);
  constexpr size_t kTickets = 60;
  WorkerStream at_a;
  WorkerStream at_b;
  daemons.a->Work(&at_a, {{"x"}, {}, 2});
  daemons.b->Work(&at_b, {{"y"}, {"x"}, 2});
  for (size_t i = 0; i < kTickets; ++i) {
    SessionsWorld& through = i % 2 == 0 ? *daemons.a : *daemons.b;
    REQUIRE_FALSE(through.Enqueue(i % 3 == 0 ? "y" : "x", std::to_string(i)).has_value());
  }
  std::map<Id, int> done;
  size_t seen_a = 0;
  size_t seen_b = 0;
  const auto finish_all = [&](SessionsWorld& world, WorkerStream* stream, size_t* seen) {
    for (; *seen < stream->assigned.size(); ++*seen) {
      const Assignment assignment = stream->assigned[*seen];
      REQUIRE(world.Finish(stream, assignment, How::kDone).ok());
      ++done[assignment.ticket->id];
    }
  };
  for (int round = 0; round < 200 && done.size() < kTickets; ++round) {
    finish_all(*daemons.a, &at_a, &seen_a);
    finish_all(*daemons.b, &at_b, &seen_b);
    daemons.a->Hear();
    daemons.b->Hear();
    for (SessionsWorld* world : {daemons.a.get(), daemons.b.get()}) world->Pass(Milliseconds(200));
    daemons.a->sessions().TouchSession(at_a.session);
    daemons.b->sessions().TouchSession(at_b.session);
  }
  CHECK(done.size() == kTickets);
  for (const auto& [id, times] : done) CHECK(times == 1);
  CHECK(at_a.refused.empty());
  CHECK(at_b.refused.empty());
  CHECK(daemons.a->Describe("x")->tickets.living() == 0);
  CHECK(daemons.a->Describe("y")->tickets.living() == 0);
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
