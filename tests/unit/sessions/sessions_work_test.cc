// Workers, delays and idle semaphores, over the embedded store and on a clock of the test's own.
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/sessions/sessions_world.h"

namespace semaphored {
namespace {

using How = FinishCommand::Result;

TEST_CASE("work: a ticket that waits, and one that comes later") {
  SessionsWorld world;
  REQUIRE_FALSE(world.Enqueue("a", "first").has_value());
  WorkerStream stream;
  world.Work(&stream, {{"a"}, {}, 1});
  REQUIRE(stream.assigned.size() == 1);
  CHECK(stream.Payload(0) == "first");
  CHECK(stream.assigned[0].ticket->attempt == 1);
  CHECK(stream.assigned[0].lease->holder == "worker");
  REQUIRE_FALSE(world.Enqueue("a", "second").has_value());
  CHECK(stream.assigned.size() == 1);  // The hand is full.
  const Result<FinishAnswer> done = world.Finish(&stream, stream.assigned[0], How::kDone);
  REQUIRE(done.ok());
  CHECK_FALSE(done.value.state.has_value());
  REQUIRE(stream.assigned.size() == 2);
  CHECK(stream.Payload(1) == "second");
  CHECK(stream.assigned[1].lease->token > stream.assigned[0].lease->token);
  CHECK(stream.ended.empty());  // Its own doing is not reported.
  CHECK(world.Describe("a")->tickets.living() == 1);
}

TEST_CASE("work: named before it exists") {
  SessionsWorld world;
  WorkerStream stream;
  world.Work(&stream, {{"a"}, {}, 1});
  CHECK(stream.assigned.empty());
  world.Enqueue("a", "x");
  CHECK(stream.assigned.size() == 1);
}

TEST_CASE("work: a prefix, and semaphores that come and go under it") {
  SessionsWorld world;
  world.Enqueue("t/1", "there before");
  WorkerStream stream;
  world.Work(&stream, {{}, {"t/"}, 10});
  REQUIRE(stream.assigned.size() == 1);
  world.Enqueue("t/2", "new");
  REQUIRE(stream.assigned.size() == 2);
  world.Enqueue("u/1", "of others");
  CHECK(stream.assigned.size() == 2);
  world.Finish(&stream, stream.assigned[0], How::kDone);
  world.Finish(&stream, stream.assigned[1], How::kDone);
  world.Pass(Milliseconds(3000));
  // Nothing is to do there any more, and nothing stands there.
  CHECK(world.Describe("t/1")->offers == 0);
  CHECK(world.Describe("t/2")->offers == 0);
  world.Enqueue("t/1", "again");
  CHECK(stream.assigned.size() == 3);
}

TEST_CASE("work: hands that are full have no offers anywhere") {
  SessionsWorld world;
  for (const char* name : {"a", "b", "c"}) world.Enqueue(name, name);
  WorkerStream stream;
  world.Work(&stream, {{"a", "b", "c"}, {}, 1});
  REQUIRE(stream.assigned.size() == 1);
  for (const char* name : {"a", "b", "c"}) CHECK(world.Describe(name)->offers == 0);
  world.Finish(&stream, stream.assigned[0], How::kDone);
  world.Finish(&stream, stream.assigned[1], How::kDone);
  REQUIRE(stream.assigned.size() == 3);
  CHECK(stream.assigned[0].semaphore == "a");
  CHECK(stream.assigned[1].semaphore == "b");
  CHECK(stream.assigned[2].semaphore == "c");
}

TEST_CASE("work: what comes to a full hand is put back, and not counted") {
  SessionsWorld world;
  WorkerStream busy;
  world.Enqueue("a", "x");
  world.Enqueue("b", "y");
  world.sessions();
  world.Work(&busy, {{"a", "b"}, {}, 2});
  REQUIRE(busy.assigned.size() == 2);
  world.sessions().SetTicketsMax(busy.session, 1);
  world.Finish(&busy, busy.assigned[0], How::kDone);
  world.Enqueue("a", "z");
  CHECK(busy.assigned.size() == 2);
  world.Finish(&busy, busy.assigned[1], How::kDone);
  REQUIRE(busy.assigned.size() == 3);
  CHECK(busy.assigned[2].ticket->attempt == 1);
}

TEST_CASE(
    "work: failed, tried again after its back-off on the daemon's clock, then a dead letter") {
  SessionsWorld world;
  world.Enqueue("a", "x", 0, 2);
  WorkerStream stream;
  world.Work(&stream, {{"a"}, {}, 1});
  REQUIRE(stream.assigned.size() == 1);
  CHECK(world.Finish(&stream, stream.assigned[0], How::kFailed).value.state ==
        TicketState::kDelayed);
  world.Pass(Milliseconds(900));
  CHECK(stream.assigned.size() == 1);
  world.sessions().TouchSession(stream.session);
  world.Pass(Milliseconds(200));
  REQUIRE(stream.assigned.size() == 2);
  CHECK(stream.assigned[1].ticket->attempt == 2);
  CHECK(stream.Payload(1) == "x");
  CHECK(world.Finish(&stream, stream.assigned[1], How::kFailed).value.state == TicketState::kDead);
  CHECK(world.Describe("a")->tickets.dead == 1);
  AdminCommand requeue;
  requeue.semaphore = "a";
  requeue.act = AdminRequeue{};
  world.sessions().Administer(requeue, 0, [](const Result<AdminAnswer>&) {});
  world.Settle();
  REQUIRE(stream.assigned.size() == 3);
  CHECK(stream.assigned[2].ticket->attempt == 1);
}

TEST_CASE("work: a ticket with a delay") {
  SessionsWorld world;
  WorkerStream stream;
  world.Work(&stream, {{}, {""}, 1});
  world.Enqueue("a", "later", 5000);
  world.Pass(Milliseconds(4900));
  CHECK(stream.assigned.empty());
  world.sessions().TouchSession(stream.session);
  world.Pass(Milliseconds(200));
  CHECK(stream.assigned.size() == 1);
}

TEST_CASE("work: of a ticket that was cancelled no delay is counted any more") {
  SessionsWorld world;
  world.Enqueue("a", "later", 5000);
  world.Enqueue("a", "later, too", 5000);
  AdminCommand list;
  list.semaphore = "a";
  list.act = AdminListTickets{};
  AdminCommand cancel;
  cancel.semaphore = "a";
  world.sessions().Administer(list, 0, [&](const Result<AdminAnswer>& result) {
    REQUIRE(result.ok());
    cancel.act = AdminCancelTicket{result.value.report->tickets.at(0).ticket->id};
  });
  world.Settle();
  world.sessions().Administer(cancel, 0,
                              [](const Result<AdminAnswer>& result) { REQUIRE(result.ok()); });
  world.Settle();
  const int before = world.submitted();
  world.Pass(Milliseconds(6000));
  CHECK(world.submitted() == before + 1);  // The other's.
}

TEST_CASE("work: rejected is a dead letter, put back is not counted") {
  SessionsWorld world;
  world.Enqueue("a", "x", 0, 5);
  WorkerStream stream;
  world.Work(&stream, {{"a"}, {}, 1});
  CHECK(world.Finish(&stream, stream.assigned[0], How::kPutBack).value.state ==
        TicketState::kQueued);
  REQUIRE(stream.assigned.size() == 2);  // Nobody else is there.
  CHECK(stream.assigned[1].ticket->attempt == 1);
  CHECK(world.Finish(&stream, stream.assigned[1], How::kReject).value.state == TicketState::kDead);
}

TEST_CASE("work: a worker that dies gives its ticket to another after the TTL") {
  SessionsWorld world;
  world.Enqueue("a", "x");
  WorkerStream dies;
  world.Work(&dies, {{"a"}, {}, 1});
  REQUIRE(dies.assigned.size() == 1);
  world.sessions().DetachSession(&dies);
  WorkerStream other;
  world.Work(&other, {{"a"}, {}, 1});
  world.Pass(Milliseconds(9000));
  CHECK(other.assigned.empty());
  world.sessions().TouchSession(other.session);
  world.Pass(Milliseconds(2000));
  REQUIRE(other.assigned.size() == 1);
  CHECK(other.assigned[0].ticket->attempt == 2);
  CHECK(other.assigned[0].lease->token > dies.assigned[0].lease->token);
}

TEST_CASE("work: a stream that breaks is resumed, with the ticket and its payload") {
  SessionsWorld world;
  world.Enqueue("a", "x");
  WorkerStream first;
  world.Work(&first, {{"a"}, {}, 2});
  REQUIRE(first.assigned.size() == 1);
  world.sessions().DetachSession(&first);
  world.Settle();
  CHECK(world.Describe("a")->offers == 0);  // Nobody is there to be given anything.
  WorkerStream second;
  world.Work(&second, {{"a"}, {}, 2}, first.session);
  CHECK(second.resumed);
  CHECK(second.listed == 1);
  REQUIRE(second.assigned.size() == 1);
  CHECK(second.Payload(0) == "x");
  CHECK(second.assigned[0].lease->id == first.assigned[0].lease->id);
  CHECK(second.assigned[0].ticket->attempt == 1);
  REQUIRE(world.Finish(&second, second.assigned[0], How::kDone).ok());
}

TEST_CASE("work: a clean end puts everything back, without an attempt") {
  SessionsWorld world;
  world.Enqueue("a", "x", 0, 1);
  WorkerStream stream;
  world.Work(&stream, {{"a"}, {}, 3});
  REQUIRE(stream.assigned.size() == 1);
  bool closed = false;
  world.sessions().CloseSession(stream.session, [&] { closed = true; });
  world.Settle();
  CHECK(closed);
  const SemaphoreInfo info = *world.Describe("a");
  CHECK(info.tickets.queued == 1);  // Not a dead letter, though it had one attempt only.
  CHECK(info.offers == 0);
  CHECK(info.held == 0);
  WorkerStream other;
  world.Work(&other, {{"a"}, {}, 1});
  REQUIRE(other.assigned.size() == 1);
  CHECK(other.assigned[0].ticket->attempt == 1);
}

TEST_CASE("work: a result that is refused frees no hand") {
  SessionsWorld world;
  for (const char* payload : {"1", "2", "3", "4"}) world.Enqueue("a", payload);
  WorkerStream stream;
  world.Work(&stream, {{"a"}, {}, 1});
  REQUIRE(stream.assigned.size() == 1);
  const auto finish = [&](size_t number) {
    FinishCommand command;
    command.requester.sequence = 5;  // For each of them.
    command.semaphore = "a";
    command.claim = stream.assigned[number].lease->id;
    bool good = false;
    world.sessions().FinishIn(stream.session, command,
                              [&](const Result<FinishAnswer>& result) { good = result.ok(); });
    world.Settle();
    return good;
  };
  CHECK(finish(0));
  REQUIRE(stream.assigned.size() == 2);
  CHECK_FALSE(finish(1));
  world.Pass(Milliseconds(3000));
  CHECK(stream.assigned.size() == 2);
}

TEST_CASE("work: a result that comes twice, and one that comes too late") {
  SessionsWorld world;
  world.Enqueue("a", "x");
  WorkerStream stream;
  world.Work(&stream, {{"a"}, {}, 1});
  FinishCommand finish;
  finish.requester.sequence = 77;
  finish.semaphore = "a";
  finish.claim = stream.assigned.at(0).lease->id;
  for (int i = 0; i < 2; ++i) {
    bool good = false;
    world.sessions().FinishIn(stream.session, finish,
                              [&](const Result<FinishAnswer>& result) { good = result.ok(); });
    world.Settle();
    CHECK(good);
  }
  const Result<FinishAnswer> late = world.Finish(&stream, stream.assigned[0], How::kDone);
  REQUIRE_FALSE(late.ok());
  CHECK(late.refusal->reason == Reason::kNotHeld);
}

TEST_CASE("work: a lease that is revoked is told, and its ticket goes to the next") {
  SessionsWorld world;
  world.Enqueue("a", "x");
  WorkerStream stream;
  world.Work(&stream, {{"a"}, {}, 1});
  REQUIRE(stream.assigned.size() == 1);
  AdminCommand revoke;
  revoke.semaphore = "a";
  AdminRevoke all;
  revoke.act = all;
  world.sessions().Administer(revoke, 0, [](const Result<AdminAnswer>&) {});
  world.Settle();
  REQUIRE(stream.ended.size() == 1);
  CHECK(stream.ended[0].second == EndCause::kRevoked);
  REQUIRE(stream.assigned.size() == 2);
  CHECK(stream.assigned[1].ticket->attempt == 2);
}

TEST_CASE("work: an idle semaphore that its first use has made goes after a while") {
  SessionsOptions options;
  options.idle_destroy_after_ms = 60'000;
  SessionsWorld world(options);
  world.Enqueue("used", "x");
  AdminCommand create;
  create.semaphore = "created";
  create.act = AdminCreate{1, {}};
  world.sessions().Administer(create, 0, [](const Result<AdminAnswer>&) {});
  world.Settle();
  world.Pass(Milliseconds(120'000));
  CHECK(world.Describe("used").has_value());  // There is a ticket.
  {
    WorkerStream stream;
    world.Work(&stream, {{"used"}, {}, 1});
    REQUIRE(world.Finish(&stream, stream.assigned.at(0), How::kDone).ok());
    world.sessions().CloseSession(stream.session, [] {});
    world.Settle();
  }
  world.Pass(Milliseconds(50'000));
  CHECK(world.Describe("used").has_value());
  world.Pass(Milliseconds(40'000));
  CHECK_FALSE(world.Describe("used").has_value());
  CHECK(world.Describe("created").has_value());
}

}  // namespace
}  // namespace semaphored
