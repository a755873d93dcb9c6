// What becomes of a ticket when its lease ends otherwise than by being done.
#include <algorithm>

#include "tests/contract/tickets.h"

namespace semaphored::contract {
namespace {

// The delays that were begun, as the daemon was told.
std::vector<int64_t> TakeDelays(Daemon& daemon) {
  std::vector<int64_t> delays;
  for (const DelayedTicket& delayed : daemon.TakeDelayed())
    delays.push_back(delayed.ticket->delay_ms);
  return delays;
}

}  // namespace

CONTRACT_CASE("ticket ends: failed, it comes back after its back-off, which grows to its longest") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  const Id id = tickets.Put({.back_off = {100, 300, 1'000}});
  uint32_t attempt = 0;
  for (const int64_t expected : {100, 300, 900, 1'000, 1'000}) {
    const TicketInfo taken = tickets.Get();
    CHECK(taken.ticket->attempt == ++attempt);
    world.Advance(10);
    REQUIRE(tickets.Finish(taken.ticket->lease, Result::kFailed, "try again").kind ==
            OutcomeKind::kReleased);
    CHECK(TakeDelays(daemon) == std::vector{expected});
    const Ticket ticket = *tickets.Show(id).ticket;
    CHECK(ticket.state == TicketState::kDelayed);
    CHECK(ticket.delay_ms == expected);
    CHECK(ticket.delays == attempt);
    CHECK(ticket.host == daemon.self());
    CHECK(ticket.lease.empty());
    CHECK(ticket.reasons.back() == TicketReason{attempt, "try again", world.now_unix_ms()});
    CHECK(daemon.Describe("s").held == 0);
    CHECK(tickets.Take().kind == OutcomeKind::kNothing);
    CHECK(tickets.Ripen(id, attempt).kind == OutcomeKind::kDone);
  }
  CHECK(tickets.Show(id).ticket->reasons.size() == 5);
}

CONTRACT_CASE("ticket ends: failed, the worker may say when") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  const Id id = tickets.Put();
  REQUIRE(tickets.Finish(tickets.Get().ticket->lease, Result::kFailed, "", 7'777).kind ==
          OutcomeKind::kReleased);
  CHECK(tickets.Show(id).ticket->delay_ms == 7'777);
  REQUIRE(tickets.Ripen(id, 1).kind == OutcomeKind::kDone);
  REQUIRE(tickets.Finish(tickets.Get().ticket->lease, Result::kFailed, "", 0).kind ==
          OutcomeKind::kReleased);
  CHECK(tickets.Show(id).ticket->state == TicketState::kQueued);
  CHECK(tickets.Get().ticket->attempt == 3);
}

CONTRACT_CASE("ticket ends: what failed keeps its place for when it is ripe") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  const Id first = tickets.Put();
  const Id second = tickets.Put();
  REQUIRE(tickets.Finish(tickets.Get().ticket->lease, Result::kFailed).kind ==
          OutcomeKind::kReleased);
  const TicketInfo taken = tickets.Get();
  CHECK(taken.ticket->id == second);
  const Id third = tickets.Put();
  REQUIRE(tickets.Ripen(first, 1).kind == OutcomeKind::kDone);
  tickets.Done(taken.ticket->lease);
  CHECK(tickets.Drain() == std::vector{first, third});
}

CONTRACT_CASE("ticket ends: a delay is ended once, and by its own timer") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  const Id id = tickets.Put({.delay_ms = 50});
  CHECK(TakeDelays(daemon) == std::vector<int64_t>{50});
  CHECK(tickets.Ripen(id, 2).kind == OutcomeKind::kStale);
  CHECK(tickets.Counts() == TicketCounts{0, 1, 0, 0});
  CHECK(tickets.Ripen(id, 1).kind == OutcomeKind::kDone);
  CHECK(tickets.Ripen(id, 1).kind == OutcomeKind::kStale);
  REQUIRE(tickets.Finish(tickets.Get().ticket->lease, Result::kFailed).kind ==
          OutcomeKind::kReleased);
  CHECK(tickets.Ripen(id, 1).kind == OutcomeKind::kStale);
  CHECK(tickets.Ripen(id, 2).kind == OutcomeKind::kDone);
  CHECK(tickets.Ripen(world.NewId(), 1).kind == OutcomeKind::kNoSuchTicket);
  CHECK(daemon.Do(RipenCommand{"t", id, 1}).kind == OutcomeKind::kNoSuchTicket);
}

CONTRACT_CASE("ticket ends: after the last attempt it is a dead letter, with all reasons") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  const Id id = tickets.Put({.max_attempts = 2});
  REQUIRE(tickets.Finish(tickets.Get().ticket->lease, Result::kFailed, "one", 0).kind ==
          OutcomeKind::kReleased);
  REQUIRE(tickets.Finish(tickets.Get().ticket->lease, Result::kFailed, "two", 9'000).kind ==
          OutcomeKind::kReleased);
  const Ticket ticket = *tickets.Show(id).ticket;
  CHECK(ticket.state == TicketState::kDead);
  CHECK(ticket.attempt == 2);
  CHECK(ticket.delay_ms == 0);
  REQUIRE(ticket.reasons.size() == 2);
  CHECK(ticket.reasons[0].text == "one");
  CHECK(ticket.reasons[1].text == "two");
  CHECK(tickets.Counts() == TicketCounts{0, 0, 0, 1});
  CHECK(daemon.Describe("s").held == 0);
  CHECK(tickets.Take().kind == OutcomeKind::kNothing);
}

CONTRACT_CASE("ticket ends: rejected, it is a dead letter at once") {
  if (!KeepsTickets(world)) return;
  world.daemon().Create("s", 1);
  const Tickets tickets(&world, &world.daemon());
  const Id id = tickets.Put();
  REQUIRE(tickets.Finish(tickets.Get().ticket->lease, Result::kReject, "cannot be").kind ==
          OutcomeKind::kReleased);
  const Ticket ticket = *tickets.Show(id).ticket;
  CHECK(ticket.state == TicketState::kDead);
  CHECK(ticket.reasons.back().text == "cannot be");
}

CONTRACT_CASE("ticket ends: put back, it was not tried") {
  if (!KeepsTickets(world)) return;
  world.daemon().Create("s", 1);
  const Tickets tickets(&world, &world.daemon());
  const Id id = tickets.Put({.max_attempts = 1});
  const Id later = tickets.Put();
  for (int i = 0; i < 3; ++i) {
    const TicketInfo taken = tickets.Get();
    CHECK(taken.ticket->id == id);
    CHECK(taken.ticket->attempt == 1);
    REQUIRE(tickets.Finish(taken.ticket->lease, Result::kPutBack, "busy").kind ==
            OutcomeKind::kReleased);
    CHECK(tickets.Show(id).ticket->attempt == 0);
    CHECK(tickets.Show(id).ticket->reasons.empty());
    CHECK(tickets.Show(id).position == 1);
  }
  CHECK(tickets.Drain() == std::vector{id, later});
}

CONTRACT_CASE("ticket ends: whatever else ends the lease puts the ticket back, with a reason") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  const Id id = tickets.Put();
  const Id later = tickets.Put();
  const Id session = world.NewId();
  REQUIRE(daemon.OpenSession(session).kind == OutcomeKind::kDone);
  const auto end = [&](const Id& claim, int how) {
    switch (how) {
      case 0:
        return daemon.End("s", claim, EndCause::kExpired).kind == OutcomeKind::kDone;
      case 1:
        return daemon.End("s", claim, EndCause::kDisconnected).kind == OutcomeKind::kDone;
      case 2:
        return daemon.Administer("s", AdminRevoke{}).kind == OutcomeKind::kDone;
      case 3:
        return daemon.Do(RecallCommand{"s", claim, {Recall::Reason::kLongestHold, 0}}).kind ==
               OutcomeKind::kDone;
      case 4:
        return daemon.Release("s", claim).kind == OutcomeKind::kReleased;
      default:
        return daemon.Do(CloseSessionCommand{session, 0, EndCause::kExpired}).kind ==
               OutcomeKind::kDone;
    }
  };
  for (int how = 0; how < 6; ++how) {
    INFO("way " << how);
    const TicketInfo taken = tickets.Get({.session = how == 5 ? session : Id()});
    REQUIRE(taken.ticket->id == id);
    CHECK(taken.ticket->attempt == static_cast<uint32_t>(how) + 1);
    REQUIRE(end(taken.ticket->lease, how));
    const TicketInfo back = tickets.Show(id);
    CHECK(back.ticket->state == TicketState::kQueued);
    CHECK(back.position == 1);
    CHECK(back.ticket->lease.empty());
    REQUIRE(back.ticket->reasons.size() == static_cast<size_t>(how) + 1);
    CHECK_FALSE(back.ticket->reasons.back().text.empty());
    CHECK(back.ticket->reasons.back().attempt == static_cast<uint32_t>(how) + 1);
    CHECK(daemon.Describe("s").held == 0);
  }
  CHECK(tickets.Drain() == std::vector{id, later});
}

CONTRACT_CASE(
    "ticket ends: a destroy by force takes a worker's ticket with its lease, however that ends") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  for (int how = 0; how < 3; ++how) {
    INFO("way " << how);
    daemon.Create("s", 1);
    const Tickets tickets(&world, &daemon);
    tickets.Put();
    tickets.Put();
    const TicketInfo taken = tickets.Get();
    REQUIRE(daemon.Administer("s", AdminDestroy{DestroyPolicy::kForce, 5'000}).kind ==
            OutcomeKind::kDone);
    // The one that waited is gone already.
    CHECK(daemon.Describe("s").tickets.living() == 1);
    FinishCommand failed;
    failed.semaphore = "s";
    failed.claim = taken.ticket->lease;
    failed.result = FinishCommand::Result::kFailed;
    if (how == 0) {
      CHECK(daemon.Do(failed).kind == OutcomeKind::kReleased);
    } else if (how == 1) {
      CHECK(daemon.End("s", taken.ticket->lease, EndCause::kExpired).kind == OutcomeKind::kDone);
    } else {
      CHECK(daemon.Release("s", taken.ticket->lease).kind == OutcomeKind::kReleased);
    }
    CHECK(daemon.Administer("s", AdminDescribe{}).kind == OutcomeKind::kNoSuchSemaphore);
  }
}

CONTRACT_CASE("ticket ends: a worker that dies in its last attempt leaves a dead letter") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  const Id id = tickets.Put({.max_attempts = 1});
  const Id claim = tickets.Get().ticket->lease;
  CHECK(daemon.End("s", claim, EndCause::kExpired).kind == OutcomeKind::kDone);
  CHECK(tickets.Show(id).ticket->state == TicketState::kDead);
}

CONTRACT_CASE("ticket ends: what a session leaves behind does not come to its own offers") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  const Id session = world.NewId();
  REQUIRE(daemon.OpenSession(session).kind == OutcomeKind::kDone);
  const Id id = tickets.Put({.max_attempts = 2});
  tickets.Get({.session = session});
  tickets.Offer({.keep = OfferKept::kAlways, .session = session});
  const Id waiter = daemon.Queue("s", {.priority = -1, .session = session});
  REQUIRE(daemon.Do(CloseSessionCommand{session, 0, EndCause::kExpired}).kind ==
          OutcomeKind::kDone);
  CHECK(tickets.Show(id).ticket->state == TicketState::kQueued);
  CHECK(tickets.Show(id).ticket->attempt == 1);
  const std::vector<SeenEvent> events = daemon.TakeEvents();
  CHECK(ClaimsIn(events, Event::Kind::kGranted).empty());
  CHECK(Saw(events, Event::Kind::kWaitEnded, waiter, EndCause::kExpired));
}

CONTRACT_CASE("ticket ends: one that comes back goes to the next offer at once") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  const Id id = tickets.Put();
  const TicketInfo taken = tickets.Get();
  const uint64_t token = daemon.Verify("s", taken.ticket->lease).lease->token;
  const Id next = tickets.Offer();
  REQUIRE(daemon.End("s", taken.ticket->lease, EndCause::kExpired).kind == OutcomeKind::kDone);
  const std::vector<SeenEvent> events = daemon.TakeEvents();
  CHECK(Saw(events, Event::Kind::kEnded, taken.ticket->lease, EndCause::kExpired));
  const SeenEvent* given = AssignmentOf(events, next);
  REQUIRE(given != nullptr);
  CHECK(given->lease->ticket == id);
  CHECK(given->lease->attempt == 2);
  CHECK(given->lease->token > token);
  CHECK(*given->payload == "work");
  // The first worker was only slow: what it says does not count any more.
  CHECK(tickets.Finish(taken.ticket->lease).kind == OutcomeKind::kNotHeld);
  tickets.Done(next);
  CHECK_FALSE(tickets.Has(id));
}

CONTRACT_CASE("ticket ends: only the last reasons are kept, each cut between characters") {
  if (!KeepsTickets(world)) return;
  world.daemon().Create("s", 1);
  const Tickets tickets(&world, &world.daemon());
  const Id id = tickets.Put();
  std::string two_bytes_each = "x";
  for (int i = 0; i < 200; ++i) two_bytes_each += "\xc3\xa4";
  for (int i = 1; i <= 12; ++i) {
    const std::string reason = i == 12 ? two_bytes_each : "reason " + std::to_string(i);
    REQUIRE(tickets.Finish(tickets.Get().ticket->lease, Result::kFailed, reason, 0).kind ==
            OutcomeKind::kReleased);
  }
  const Ticket ticket = *tickets.Show(id).ticket;
  REQUIRE(ticket.reasons.size() == 10);
  CHECK(ticket.reasons.front() == TicketReason{3, "reason 3", world.now_unix_ms()});
  CHECK(ticket.reasons.back().text == two_bytes_each.substr(0, 255));
}

CONTRACT_CASE("ticket ends: a recall that is pending leaves the ticket with its worker") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  const Id id = tickets.Put();
  const Id claim = tickets.Get().ticket->lease;
  REQUIRE(daemon.Do(RecallCommand{"s", claim, {Recall::Reason::kLongestHold, 500}}).kind ==
          OutcomeKind::kDone);
  CHECK(daemon.Verify("s", claim).lease->ticket == id);
  CHECK(tickets.Show(id).ticket->state == TicketState::kAssigned);
  tickets.Done(claim);
  CHECK_FALSE(tickets.Has(id));
}

}  // namespace semaphored::contract
