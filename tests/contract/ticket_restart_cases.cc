// Tickets outlive their clients, their workers and their daemons.
#include <algorithm>

#include "tests/contract/tickets.h"

namespace semaphored::contract {
namespace {

bool CanRestart(World& world) { return KeepsTickets(world) && world.CanRestart(); }

// Two daemons on one engine, each of which sees what the other does.
bool SharesTickets(World& world) { return KeepsTickets(world) && IsShared(world); }

void Carry(Daemon& daemon, const Id& offer) {
  daemon.PollUntil([&] { return AssignmentOf(daemon.events(), offer) != nullptr; });
}

}  // namespace

CONTRACT_CASE("ticket restart: tickets stand in all their states, with payloads and places") {
  if (!CanRestart(world)) return;
  world.daemon().Create("s", 9);
  const Tickets before(&world, &world.daemon());
  const Id dead = before.Put({.payload = "dead"});
  REQUIRE(before.Finish(before.Get().ticket->lease, Result::kReject, "bad").kind ==
          OutcomeKind::kReleased);
  const Id assigned = before.Put({.payload = "assigned", .priority = 2, .max_attempts = 3});
  before.Get();
  const Id delayed = before.Put({.payload = "delayed", .delay_ms = 4'000, .back_off = {1, 101, 2}});
  const Id first = before.Put({.payload = "first", .content_type = "", .trace = "t"});
  const Id high = before.Put({.payload = "high", .priority = 1});
  std::vector<Ticket> were;
  for (const Id& id : before.List()) were.push_back(*before.Show(id).ticket);
  Daemon& daemon = world.Restart();
  const Tickets tickets(&world, &daemon);
  CHECK(tickets.List() == std::vector{dead, assigned, delayed, first, high});
  for (const Ticket& was : were) CHECK(*tickets.Show(was.id).ticket == was);
  CHECK(*tickets.Show(dead).payload == "dead");
  CHECK(*tickets.Show(assigned).payload == "assigned");
  CHECK(*tickets.Show(delayed).payload == "delayed");
  const Id late = tickets.Put({.priority = 1});
  CHECK(tickets.Drain() == std::vector{high, late, first});
  CHECK(tickets.Counts() == TicketCounts{0, 1, 1, 1});
}

CONTRACT_CASE("ticket restart: a worker goes on with its ticket, slot and token") {
  if (!CanRestart(world)) return;
  const Id session = world.NewId();
  world.daemon().OpenSession(session);
  world.daemon().Create("s", 2);
  const Tickets before(&world, &world.daemon());
  const Id id = before.Put({.payload = "work"});
  const Id claim = before.Get({.session = session}).ticket->lease;
  const uint64_t token = world.daemon().Verify("s", claim).lease->token;
  Daemon& daemon = world.Restart();
  const Tickets tickets(&world, &daemon);
  const Outcome adopted = daemon.Do(AdoptSessionCommand{session});
  REQUIRE(adopted.kind == OutcomeKind::kDone);
  REQUIRE(adopted.report->claims.size() == 1);
  const ClaimInfo& info = adopted.report->claims[0];
  CHECK(info.lease->id == claim);
  CHECK(info.lease->token == token);
  CHECK(info.lease->ticket == id);
  CHECK(info.lease->attempt == 1);
  REQUIRE(info.ticket != nullptr);
  CHECK(info.ticket->id == id);
  CHECK(*tickets.Show(id).payload == "work");
  tickets.Done(claim);
  CHECK_FALSE(tickets.Has(id));
}

CONTRACT_CASE("ticket restart: a worker that does not come back loses its ticket to another") {
  if (!CanRestart(world)) return;
  world.daemon().Create("s", 1);
  const Tickets before(&world, &world.daemon());
  const Id id = before.Put();
  const Id claim = before.Get().ticket->lease;
  Daemon& daemon = world.Restart();
  const Tickets tickets(&world, &daemon);
  const Outcome orphans = daemon.Do(OrphansCommand{});
  REQUIRE(orphans.report->orphans.size() == 1);
  CHECK(orphans.report->orphans[0].claims.at(0).ticket->id == id);
  REQUIRE(daemon.End("s", claim, EndCause::kExpired, 1).kind == OutcomeKind::kDone);
  const TicketInfo again = tickets.Get();
  CHECK(again.ticket->id == id);
  CHECK(again.ticket->attempt == 2);
  CHECK(tickets.Finish(claim).kind == OutcomeKind::kNotHeld);
  tickets.Done(again.ticket->lease);
}

CONTRACT_CASE(
    "ticket restart: delays are counted anew by whoever comes after, until they are over") {
  if (!CanRestart(world)) return;
  world.daemon().Create("s", 1);
  const Tickets before(&world, &world.daemon());
  const Id id = before.Put({.delay_ms = 3'000});
  before.Put();
  for (int life = 0; life < 2; ++life) {
    Daemon& daemon = world.Restart();
    const Outcome orphans = daemon.Do(OrphansCommand{});
    REQUIRE(orphans.report->delayed.size() == 1);
    CHECK(orphans.report->delayed[0].semaphore == "s");
    CHECK(orphans.report->delayed[0].ticket->id == id);
    CHECK(orphans.report->delayed[0].ticket->delay_ms == 3'000);
  }
  Daemon& daemon = world.daemon();
  const Tickets tickets(&world, &daemon);
  CHECK(tickets.Ripen(id, 1).kind == OutcomeKind::kDone);
  CHECK(daemon.Do(OrphansCommand{}).report->delayed.empty());
  // A delay that this life began is its own to count.
  tickets.Put({.delay_ms = 10});
  CHECK(daemon.Do(OrphansCommand{}).report->delayed.empty());
  CHECK(tickets.Drain().front() == id);
}

CONTRACT_CASE("ticket restart: an offer keeps its place, and is served") {
  if (!CanRestart(world)) return;
  world.daemon().Create("s", 2);
  const Tickets before(&world, &world.daemon());
  const Id first = before.Offer();
  const Id second = before.Offer();
  Daemon& daemon = world.Restart();
  const Tickets tickets(&world, &daemon);
  CHECK(daemon.Describe("s").offers == 2);
  CHECK(daemon.Describe("s").waiting == 0);
  CHECK(daemon.Do(OrphansCommand{}).report->orphans.size() == 2);
  CHECK(daemon.Do(AdoptCommand{"s", first}).kind == OutcomeKind::kStillWaiting);
  tickets.Put();
  tickets.Put();
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted) == std::vector{first, second});
}

CONTRACT_CASE("ticket restart: repeated requests get the answers of before") {
  if (!CanRestart(world)) return;
  world.daemon().Create("s", 2);
  const Tickets before(&world, &world.daemon());
  const Id id = before.Put({.client = "c", .sequence = 1});
  const Id done = before.Put({.priority = 1});
  FinishCommand finish = before.MakeFinish(before.Get().ticket->lease);
  finish.requester = {"c", 2};
  REQUIRE(world.daemon().Do(finish).kind == OutcomeKind::kReleased);
  Daemon& daemon = world.Restart();
  const Tickets tickets(&world, &daemon);
  const Outcome again = tickets.Enqueue({.client = "c", .sequence = 1});
  CHECK(again.kind == OutcomeKind::kEnqueued);
  CHECK(again.claim == id);
  CHECK(again.position() == 1);
  CHECK(daemon.Do(finish).kind == OutcomeKind::kReleased);
  CHECK_FALSE(tickets.Has(done));
  CHECK(tickets.Counts().queued == 1);
}

CONTRACT_CASE("ticket restart: made on use, it is so after") {
  if (!CanRestart(world)) return;
  Tickets(&world, &world.daemon(), "used").Put({.limit = 1});
  world.daemon().Create("meant", 1);
  Daemon& daemon = world.Restart();
  CHECK(daemon.Describe("used").row.made_on_use);
  CHECK_FALSE(daemon.Describe("meant").row.made_on_use);
}

// ---- Several daemons ----

CONTRACT_CASE("ticket shared: what is enqueued here comes to the offer there, by push") {
  if (!SharesTickets(world)) return;
  Daemon& a = world.daemon();
  Daemon& b = world.OpenAnother("b");
  a.Create("s", 2);
  const Tickets here(&world, &a);
  const Tickets there(&world, &b);
  const Id offer = there.Offer({.keep = OfferKept::kAlways, .holder = "there"});
  const Id id = here.Put({.payload = "far"});
  Carry(b, offer);
  const SeenEvent given = *AssignmentOf(b.events(), offer);
  CHECK(given.lease->ticket == id);
  CHECK(given.lease->holder == "there");
  REQUIRE(given.ticket != nullptr);
  CHECK(given.ticket->id == id);
  REQUIRE(given.payload != nullptr);
  CHECK(*given.payload == "far");
  CHECK(here.Show(id).ticket->lease == offer);
  there.Done(offer);
  CHECK_FALSE(here.Has(id));
}

CONTRACT_CASE("ticket shared: one queue over all daemons, each ticket to one worker") {
  if (!SharesTickets(world)) return;
  Daemon& a = world.daemon();
  Daemon& b = world.OpenAnother("b");
  a.Create("s", 1);
  const Tickets at_a(&world, &a);
  const Tickets at_b(&world, &b);
  const Id holds = b.Grant("s")->id;
  std::vector<Id> ids;
  for (int i = 0; i < 6; ++i) ids.push_back((i % 2 == 0 ? at_a : at_b).Put());
  const Id waiter = a.Queue("s", {.priority = 1});
  b.GiveBack("s", holds);
  CHECK(b.Verify("s", waiter).kind == OutcomeKind::kHeld);
  CHECK(at_b.Take().kind == OutcomeKind::kFull);
  a.GiveBack("s", waiter);
  std::vector<Id> taken;
  for (int i = 0; i < 6; ++i) {
    const Tickets& taker = i % 3 == 0 ? at_a : at_b;
    const TicketInfo info = taker.Get();
    const OutcomeKind other = (i % 3 == 0 ? at_b : at_a).Take().kind;
    CHECK(other == (i == 5 ? OutcomeKind::kNothing : OutcomeKind::kFull));
    taken.push_back(info.ticket->id);
    // By whichever daemon: the lease names what is done.
    (i % 2 == 0 ? at_a : at_b).Done(info.ticket->lease);
  }
  CHECK(taken == ids);
  CHECK(at_a.Counts() == TicketCounts());
}

CONTRACT_CASE("ticket shared: a ticket that comes back here goes to the offer there") {
  if (!SharesTickets(world)) return;
  Daemon& a = world.daemon();
  Daemon& b = world.OpenAnother("b");
  a.Create("s", 1);
  const Tickets here(&world, &a);
  const Tickets there(&world, &b);
  const Id id = here.Put();
  const Id claim = here.Get().ticket->lease;
  const Id offer = there.Offer({.keep = OfferKept::kWhileTickets});
  REQUIRE(a.End("s", claim, EndCause::kExpired).kind == OutcomeKind::kDone);
  Carry(b, offer);
  CHECK(AssignmentOf(b.events(), offer)->lease->attempt == 2);
  CHECK(here.Finish(claim).kind == OutcomeKind::kNotHeld);
  there.Done(offer);
  CHECK_FALSE(here.Has(id));
}

CONTRACT_CASE("ticket shared: a delay is counted by the daemon that began it, or its successor") {
  if (!SharesTickets(world)) return;
  Daemon& a = world.daemon();
  Daemon& b = world.OpenAnother("b");
  a.Create("s", 1);
  const Tickets here(&world, &a);
  const Tickets there(&world, &b);
  const Id id = here.Put();
  there.Finish(there.Get().ticket->lease, Result::kFailed, "", 500);
  REQUIRE(b.TakeDelayed().size() == 1);
  CHECK(here.Show(id).ticket->host == b.self());
  CHECK(a.TakeDelayed().empty());
  CHECK(a.Do(OrphansCommand{}).report->delayed.empty());
  const Outcome orphans = a.Do(OrphansCommand{{b.self()}});
  REQUIRE(orphans.report->delayed.size() == 1);
  CHECK(orphans.report->delayed[0].ticket->id == id);
  CHECK(here.Ripen(id, 1).kind == OutcomeKind::kDone);
  // On some engines who is taken for dead does nothing more: another one.
  const Tickets elsewhere(&world, &world.OpenAnother("c"));
  CHECK(elsewhere.Ripen(id, 1).kind == OutcomeKind::kStale);
  CHECK(elsewhere.Get().ticket->attempt == 2);
}

CONTRACT_CASE("ticket shared: a worker moves to another daemon, and goes on") {
  if (!SharesTickets(world)) return;
  Daemon& a = world.daemon();
  Daemon& b = world.OpenAnother("b");
  a.Create("s", 2);
  const Tickets here(&world, &a);
  const Tickets there(&world, &b);
  const Id session = world.NewId();
  REQUIRE(a.OpenSession(session).kind == OutcomeKind::kDone);
  const Id id = here.Put({.payload = "moved"});
  const Id claim = here.Get({.session = session}).ticket->lease;
  const Id offer = here.Offer({.keep = OfferKept::kAlways, .session = session});
  const Outcome adopted = b.Do(AdoptSessionCommand{session});
  REQUIRE(adopted.kind == OutcomeKind::kDone);
  REQUIRE(adopted.report->claims.size() == 2);
  CHECK(adopted.report->claims[0].ticket->id == id);
  CHECK(adopted.report->claims[1].waiter->works);
  there.Done(claim);
  here.Put({.payload = "next"});
  Carry(b, offer);
  CHECK(*AssignmentOf(b.events(), offer)->payload == "next");
}

CONTRACT_CASE("ticket shared: a repeated enqueue is answered by every daemon") {
  if (!SharesTickets(world)) return;
  Daemon& a = world.daemon();
  Daemon& b = world.OpenAnother("b");
  a.Create("s", 1);
  const Tickets here(&world, &a);
  const Tickets there(&world, &b);
  const Id id = here.Put({.client = "c", .sequence = 1});
  CHECK(there.Enqueue({.client = "c", .sequence = 1}).claim == id);
  CHECK(there.Counts().queued == 1);
}

}  // namespace semaphored::contract
