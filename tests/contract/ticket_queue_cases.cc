// One queue: tickets and live waiters, by priority and age.
#include <algorithm>

#include "tests/contract/tickets.h"

namespace semaphored::contract {
namespace {

std::vector<Id> TakeGrants(Daemon& daemon) {
  return ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted);
}

}  // namespace

CONTRACT_CASE("ticket queue: whoever came first is served first, ticket or waiter") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  const Id holds = daemon.Grant("s")->id;
  const Id waiter_1 = daemon.Queue("s");
  tickets.Put();
  const Id waiter_2 = daemon.Queue("s");
  tickets.Put();
  const Id offer_1 = tickets.Offer();
  const Id offer_2 = tickets.Offer();
  daemon.GiveBack("s", holds);
  CHECK(TakeGrants(daemon) == std::vector{waiter_1});
  daemon.GiveBack("s", waiter_1);
  CHECK(TakeGrants(daemon) == std::vector{offer_1});
  tickets.Done(offer_1);
  CHECK(TakeGrants(daemon) == std::vector{waiter_2});
  daemon.GiveBack("s", waiter_2);
  CHECK(TakeGrants(daemon) == std::vector{offer_2});
}

CONTRACT_CASE("ticket queue: a higher priority goes before, ticket or waiter") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  const Id holds = daemon.Grant("s")->id;
  const Id waiter = daemon.Queue("s");
  const Id urgent = tickets.Put({.priority = 1});
  const Id lazy = tickets.Put({.priority = -1});
  const Id low = daemon.Queue("s", {.priority = -2});
  const Id offer_1 = tickets.Offer();
  const Id offer_2 = tickets.Offer();
  daemon.GiveBack("s", holds);
  CHECK(TakeGrants(daemon) == std::vector{offer_1});
  CHECK(daemon.Verify("s", offer_1).lease->ticket == urgent);
  tickets.Done(offer_1);
  CHECK(TakeGrants(daemon) == std::vector{waiter});
  daemon.GiveBack("s", waiter);
  CHECK(TakeGrants(daemon) == std::vector{offer_2});
  CHECK(daemon.Verify("s", offer_2).lease->ticket == lazy);
  tickets.Done(offer_2);
  CHECK(TakeGrants(daemon) == std::vector{low});
}

CONTRACT_CASE("ticket queue: without an offer a ticket is in nobody's way, and keeps its place") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  const Id ticket = tickets.Put();
  const Id holds = daemon.Grant("s")->id;
  const Id waiter_1 = daemon.Queue("s");
  daemon.GiveBack("s", holds);
  CHECK(TakeGrants(daemon) == std::vector{waiter_1});
  const Id waiter_2 = daemon.Queue("s");
  const Id offer = tickets.Offer();
  daemon.GiveBack("s", waiter_1);
  CHECK(TakeGrants(daemon) == std::vector{offer});
  CHECK(daemon.Verify("s", offer).lease->ticket == ticket);
  CHECK(daemon.Verify("s", waiter_2).kind == OutcomeKind::kStillWaiting);
}

CONTRACT_CASE("ticket queue: with an offer it is in the way of who comes after it") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3);
  const Tickets tickets(&world, &daemon);
  const Id two = daemon.Grant("s", {.permits = 2})->id;
  const Id large = daemon.Queue("s", {.permits = 3});
  const Id ticket = tickets.Put({.priority = -1});
  const Id offer = tickets.Offer();
  // The large one blocks the ticket, the ticket whoever asks for as little.
  CHECK(TakeGrants(daemon).empty());
  CHECK(tickets.Take().kind == OutcomeKind::kFull);
  CHECK(daemon.Acquire("s", {.priority = -2}).kind == OutcomeKind::kFull);
  CHECK(daemon.EndWait("s", large, EndCause::kCancelled).kind == OutcomeKind::kDone);
  CHECK(TakeGrants(daemon) == std::vector{offer});
  CHECK(daemon.Verify("s", offer).lease->ticket == ticket);
  daemon.GiveBack("s", two);
}

CONTRACT_CASE("ticket queue: with backfill a ticket may pass a waiter that is too large") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3, {.backfill = true});
  const Tickets tickets(&world, &daemon);
  daemon.Grant("s", {.permits = 2});
  const Id large = daemon.Queue("s", {.permits = 3});
  tickets.Put();
  CHECK(tickets.Take().kind == OutcomeKind::kGranted);
  CHECK(daemon.Verify("s", large).kind == OutcomeKind::kStillWaiting);
}

CONTRACT_CASE("ticket queue: positions count what is served before") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  daemon.Grant("s");
  tickets.Put();
  tickets.Put();
  // Nobody offers to work: both are passed over.
  CHECK(daemon.Acquire("s", {.wait = true}).position() == 1);
  tickets.Offer();
  const Outcome waiter = daemon.Acquire("s", {.wait = true});
  CHECK(waiter.position() == 3);
  CHECK(tickets.Enqueue().position() == 5);
  const SemaphoreInfo info = daemon.Describe("s");
  REQUIRE(info.waiters.size() == 2);
  CHECK(info.waiters[0].position == 2);
  CHECK(info.waiters[1].position == 3);
  CHECK(info.waiting == 2);
  CHECK(info.offers == 1);
}

CONTRACT_CASE("ticket queue: offers are served in their order") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 5);
  const Tickets tickets(&world, &daemon);
  std::vector<Id> offers;
  for (int i = 0; i < 4; ++i) offers.push_back(tickets.Offer());
  CHECK(tickets.Take({.keep = OfferKept::kAlways}).position() == 5);
  for (int i = 0; i < 4; ++i) tickets.Put({.priority = -i});
  CHECK(TakeGrants(daemon) == offers);
}

CONTRACT_CASE("ticket queue: an offer of a holder at his cap is passed over") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 5, {.permits_per_holder = 1});
  const Tickets tickets(&world, &daemon);
  const Id first = tickets.Offer({.keep = OfferKept::kAlways, .holder = "a"});
  const Id second = tickets.Offer({.keep = OfferKept::kAlways, .holder = "a"});
  const Id other = tickets.Offer({.keep = OfferKept::kAlways, .holder = "b"});
  std::vector<Command> batch;
  for (int i = 0; i < 3; ++i) batch.push_back(tickets.MakeEnqueue({}));
  daemon.DoAll(std::move(batch));
  CHECK(TakeGrants(daemon) == std::vector{first, other});
  CHECK(tickets.Take({.holder = "a"}).kind == OutcomeKind::kHolderCap);
  // Nobody who could take it stands there: it is in nobody's way.
  const Id live = daemon.Grant("s", {.holder = "c"})->id;
  tickets.Done(first);
  CHECK(TakeGrants(daemon) == std::vector{second});
  daemon.GiveBack("s", live);
}

CONTRACT_CASE("ticket queue: a limit that rises serves offers at once") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  const Id first = tickets.Offer();
  const Id second = tickets.Offer();
  const Id third = tickets.Offer();
  for (int i = 0; i < 3; ++i) tickets.Put();
  CHECK(TakeGrants(daemon) == std::vector{first});
  REQUIRE(daemon.Administer("s", AdminPause{true}).kind == OutcomeKind::kDone);
  REQUIRE(daemon.Resize("s", 3).kind == OutcomeKind::kDone);
  CHECK(TakeGrants(daemon).empty());
  REQUIRE(daemon.Administer("s", AdminPause{false}).kind == OutcomeKind::kDone);
  CHECK(TakeGrants(daemon) == std::vector{second, third});
}

CONTRACT_CASE("ticket queue: a full semaphore holds up no other's tickets") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("full", 1);
  daemon.Create("free", 1);
  daemon.Grant("full");
  const Tickets full(&world, &daemon, "full");
  const Tickets free(&world, &daemon, "free");
  full.Put();
  const Id ticket = free.Put();
  CHECK(full.Take().kind == OutcomeKind::kFull);
  CHECK(free.Get().ticket->id == ticket);
}

}  // namespace semaphored::contract
