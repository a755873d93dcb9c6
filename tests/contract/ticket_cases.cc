// A ticket's way: enqueued, offered for, carried out.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/contract/tickets.h"

namespace semaphored::contract {

CONTRACT_CASE("tickets: kept, or refused under the adapter's name, and nothing is left behind") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  if (KeepsTickets(world)) {
    CHECK(tickets.Enqueue().kind == OutcomeKind::kEnqueued);
    return;
  }
  const Id id = world.NewId();
  CheckUnsupported(world, tickets.Enqueue());
  CheckUnsupported(world, Tickets(&world, &daemon, "new").Enqueue({.limit = 1}));
  CHECK_FALSE(daemon.Exists("new"));
  CheckUnsupported(world, tickets.Take({.keep = OfferKept::kAlways}));
  CheckUnsupported(world, tickets.Finish(id));
  CheckUnsupported(world, tickets.Ripen(id, 1));
  CheckUnsupported(world, daemon.Administer("s", AdminListTickets{}));
  CheckUnsupported(world, daemon.Administer("s", AdminShowTicket{id}));
  CheckUnsupported(world, daemon.Administer("s", AdminCancelTicket{id}));
  CheckUnsupported(world, daemon.Administer("s", AdminPrioritizeTicket{id, 1}));
  CheckUnsupported(world, daemon.Administer("s", AdminRequeue{id}));
  CheckUnsupported(world, daemon.Administer("s", AdminPurge{id}));
  const SemaphoreInfo info = daemon.Describe("s");
  CHECK(info.waiting == 0);
  CHECK(info.offers == 0);
  CHECK(info.tickets == TicketCounts());
}

CONTRACT_CASE("tickets: a ticket is kept as it was enqueued") {
  if (!KeepsTickets(world)) return;
  world.daemon().Create("s", 1);
  const Tickets tickets(&world, &world.daemon());
  const std::string payload("\0\xff binary", 9);
  const Id id = tickets.Put({.payload = payload,
                             .priority = -7,
                             .max_attempts = 4,
                             .back_off = {500, 150, 9'000},
                             .content_type = "application/json",
                             .trace = "00-0af7-b7ad-01"});
  const TicketInfo info = tickets.Show(id);
  CHECK(*info.payload == payload);
  CHECK(info.position == 1);
  const Ticket& ticket = *info.ticket;
  CHECK(ticket.state == TicketState::kQueued);
  CHECK(ticket.priority == -7);
  CHECK(ticket.attempt == 0);
  CHECK(ticket.max_attempts == 4);
  CHECK(ticket.back_off == BackOff{500, 150, 9'000});
  CHECK(ticket.content_type == "application/json");
  CHECK(ticket.payload_bytes == payload.size());
  CHECK(ticket.trace == "00-0af7-b7ad-01");
  CHECK(ticket.reasons.empty());
  CHECK(ticket.lease.empty());
  CHECK(ticket.enqueued_at_unix_ms == world.now_unix_ms());
}

CONTRACT_CASE("tickets: an empty payload is one") {
  if (!KeepsTickets(world)) return;
  world.daemon().Create("s", 1);
  const Tickets tickets(&world, &world.daemon());
  CHECK(tickets.Show(tickets.Put({.payload = ""})).payload->empty());
  EnqueueCommand none = tickets.MakeEnqueue({});
  none.payload = nullptr;
  const Id id = world.daemon().Do(none).claim;
  CHECK(tickets.Show(id).payload->empty());
  CHECK(tickets.Get().payload->empty());
}

CONTRACT_CASE("tickets: who takes one gets ticket, payload and a lease for it") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  const Tickets tickets(&world, &daemon);
  const Id id = tickets.Put({.payload = "first", .priority = 5});
  const TakeCommand command = tickets.MakeTake({.holder = "w", .ttl_ms = 5'000});
  const Outcome outcome = daemon.Do(command);
  REQUIRE(outcome.kind == OutcomeKind::kGranted);
  const Lease& lease = *outcome.lease;
  CHECK(lease.id == command.claim);
  CHECK(lease.holder == "w");
  CHECK(lease.ttl_ms == 5'000);
  CHECK(lease.permits == 1);
  CHECK(lease.slots == Slots{1});
  CHECK(lease.priority == 5);
  CHECK(lease.ticket == id);
  CHECK(lease.attempt == 1);
  CHECK(*outcome.report->tickets.at(0).payload == "first");
  CHECK(outcome.report->tickets.at(0).ticket->state == TicketState::kAssigned);
  const SemaphoreInfo info = daemon.Describe("s");
  CHECK(info.held == 1);
  CHECK(info.tickets == TicketCounts{0, 0, 1, 0});
  REQUIRE(info.leases.size() == 1);
  CHECK(info.leases[0]->ticket == id);
  CHECK(daemon.Verify("s", lease.id).kind == OutcomeKind::kHeld);
}

CONTRACT_CASE("tickets: done, the ticket and its lease are gone together") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  const Id id = tickets.Put();
  const TicketInfo taken = tickets.Get();
  const Outcome outcome = tickets.Finish(taken.ticket->lease);
  CHECK(outcome.kind == OutcomeKind::kReleased);
  CHECK(outcome.released() == 1);
  CHECK_FALSE(tickets.Has(id));
  CHECK(daemon.Describe("s").held == 0);
  CHECK(tickets.Counts() == TicketCounts());
  CHECK(Saw(daemon.TakeEvents(), Event::Kind::kEnded, taken.ticket->lease, EndCause::kReleased));
  const Outcome again = tickets.Finish(taken.ticket->lease);
  CHECK(again.kind == OutcomeKind::kNotHeld);
  CHECK(again.cause == EndCause::kReleased);
  CHECK(tickets.Take().kind == OutcomeKind::kNothing);
}

CONTRACT_CASE("tickets: first enqueued, first given out; a higher priority before") {
  if (!KeepsTickets(world)) return;
  world.daemon().Create("s", 1);
  const Tickets tickets(&world, &world.daemon());
  const Id low = tickets.Put({.priority = -1});
  const Id first = tickets.Put();
  const Id second = tickets.Put();
  const Id high = tickets.Put({.priority = 3});
  CHECK(tickets.Show(low).position == 4);
  CHECK(tickets.Show(high).position == 1);
  CHECK(tickets.Drain() == std::vector{high, first, second, low});
}

CONTRACT_CASE("tickets: enqueue says where the ticket stands") {
  if (!KeepsTickets(world)) return;
  world.daemon().Create("s", 1);
  const Tickets tickets(&world, &world.daemon());
  CHECK(tickets.Enqueue().position() == 1);
  CHECK(tickets.Enqueue().position() == 2);
  CHECK(tickets.Enqueue({.priority = 1}).position() == 1);
  CHECK(tickets.Enqueue({.priority = -1}).position() == 4);
  CHECK(tickets.Enqueue({.delay_ms = 5}).position() == 0);
}

CONTRACT_CASE("tickets: enqueue makes the semaphore, or needs it") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  const Tickets tickets(&world, &daemon);
  CHECK(tickets.Enqueue().kind == OutcomeKind::kNoSuchSemaphore);
  CHECK(tickets.Take().kind == OutcomeKind::kNoSuchSemaphore);
  CHECK(tickets.Enqueue({.limit = 3, .must_exist = true}).kind == OutcomeKind::kNoSuchSemaphore);
  CHECK_FALSE(daemon.Exists("s"));
  CHECK(tickets.Enqueue({.limit = 3}).kind == OutcomeKind::kEnqueued);
  CHECK(daemon.Describe("s").row.limit == 3);
  CHECK(daemon.Describe("s").row.made_on_use);
  const Outcome other = tickets.Enqueue({.limit = 4});
  CHECK(other.kind == OutcomeKind::kLimitMismatch);
  CHECK(other.limit() == 3);
  CHECK(tickets.Enqueue({.limit = 4, .adopt_limit = true}).kind == OutcomeKind::kEnqueued);
  CHECK(tickets.Enqueue({.limit = 3, .must_exist = true}).kind == OutcomeKind::kEnqueued);
  CHECK(daemon.Describe("s").row.limit == 3);
  CHECK(tickets.Counts().queued == 3);
}

CONTRACT_CASE("tickets: a semaphore is marked as made on use until somebody administers it") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  const auto made_on_use = [&](const std::string& name) {
    return daemon.Describe(name).row.made_on_use;
  };
  for (const char* name : {"a", "b", "c", "d"}) {
    daemon.GiveBack(name, daemon.Grant(name, {.limit = 2})->id);
    CHECK(made_on_use(name));
  }
  REQUIRE(daemon.Resize("a", 3).kind == OutcomeKind::kDone);
  REQUIRE(daemon.Administer("b", AdminConfigure{{.backfill = true}}).kind == OutcomeKind::kDone);
  REQUIRE(daemon.Administer("c", AdminPause{false}).kind == OutcomeKind::kDone);
  REQUIRE(daemon.Administer("d", AdminCreate{2, {}}).kind == OutcomeKind::kDone);
  for (const char* name : {"a", "b", "c", "d"}) CHECK_FALSE(made_on_use(name));
  daemon.Create("e", 1);
  CHECK_FALSE(made_on_use("e"));
}

CONTRACT_CASE(
    "tickets: a full, a paused, a closed semaphore takes tickets in, and gives none out") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  const LeasePtr lease = daemon.Grant("s");
  const Id id = tickets.Put();
  CHECK(tickets.Take().kind == OutcomeKind::kFull);
  REQUIRE(daemon.Administer("s", AdminPause{true}).kind == OutcomeKind::kDone);
  daemon.GiveBack("s", lease->id);
  tickets.Put();
  CHECK(tickets.Take().kind == OutcomeKind::kPaused);
  REQUIRE(daemon.Resize("s", 0).kind == OutcomeKind::kDone);
  REQUIRE(daemon.Administer("s", AdminPause{false}).kind == OutcomeKind::kDone);
  tickets.Put();
  CHECK(tickets.Take().kind == OutcomeKind::kFull);
  CHECK(tickets.Counts().queued == 3);
  REQUIRE(daemon.Resize("s", 1).kind == OutcomeKind::kDone);
  CHECK(tickets.Get().ticket->id == id);
}

CONTRACT_CASE("tickets: a take without keeping leaves nothing behind") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  const uint64_t before = daemon.Describe("s").row.revision;
  CHECK(tickets.Take().kind == OutcomeKind::kNothing);
  CHECK(tickets.Take({.keep = OfferKept::kWhileTickets}).kind == OutcomeKind::kNothing);
  CHECK(tickets.Take({.session = world.NewId()}).kind == OutcomeKind::kSessionLost);
  CHECK(daemon.Describe("s").offers == 0);
  CHECK(daemon.Describe("s").row.revision == before);
}

CONTRACT_CASE("tickets: an offer is kept while a ticket may still come") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  const Tickets tickets(&world, &daemon);
  const Worker patient{.keep = OfferKept::kWhileTickets};
  const Id delayed = tickets.Put({.delay_ms = 1'000});
  CHECK(tickets.Take().kind == OutcomeKind::kNothing);
  const Id first = tickets.Offer(patient);
  CHECK(tickets.Ripen(delayed, 1).kind == OutcomeKind::kDone);
  REQUIRE(AssignmentOf(daemon.events(), first) != nullptr);
  // It is in somebody's hands, and may come back.
  const Id second = tickets.Offer(patient);
  REQUIRE(tickets.Finish(first, Result::kFailed, "no", 0).kind == OutcomeKind::kReleased);
  REQUIRE(AssignmentOf(daemon.events(), second) != nullptr);
  REQUIRE(tickets.Finish(second, Result::kReject, "never").kind == OutcomeKind::kReleased);
  // A dead letter does not come.
  CHECK(tickets.Take(patient).kind == OutcomeKind::kNothing);
}

CONTRACT_CASE(
    "tickets: an offer gets what is enqueued later, by an event with all there is to know") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  const Tickets tickets(&world, &daemon);
  const Id first = tickets.Offer({.keep = OfferKept::kAlways, .holder = "a"});
  const Id second = tickets.Offer({.keep = OfferKept::kAlways, .holder = "b"});
  CHECK(daemon.Describe("s").offers == 2);
  CHECK(daemon.Describe("s").waiting == 0);
  CHECK(daemon.Describe("s").waiters.empty());
  const Outcome enqueued = tickets.Enqueue({.payload = "now"});
  CHECK(enqueued.position() == 0);
  std::vector<SeenEvent> events = daemon.TakeEvents();
  const SeenEvent* given = AssignmentOf(events, first);
  REQUIRE(given != nullptr);
  CHECK(AssignmentOf(events, second) == nullptr);
  CHECK(given->semaphore == "s");
  CHECK(given->lease->holder == "a");
  CHECK(given->lease->ticket == enqueued.claim);
  REQUIRE(given->ticket != nullptr);
  CHECK(given->ticket->id == enqueued.claim);
  CHECK(given->ticket->attempt == 1);
  REQUIRE(given->payload != nullptr);
  CHECK(*given->payload == "now");
  tickets.Put();
  CHECK(AssignmentOf(daemon.TakeEvents(), second) != nullptr);
  CHECK(daemon.Describe("s").offers == 0);
}

CONTRACT_CASE("tickets: several offers of one session take several tickets") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3);
  const Tickets tickets(&world, &daemon);
  const Id session = world.NewId();
  REQUIRE(daemon.OpenSession(session).kind == OutcomeKind::kDone);
  const Worker worker{.keep = OfferKept::kAlways, .session = session};
  const std::vector offers{tickets.Offer(worker), tickets.Offer(worker)};
  std::vector<Command> batch;
  for (int i = 0; i < 3; ++i) batch.push_back(tickets.MakeEnqueue({}));
  daemon.DoAll(std::move(batch));
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted) == offers);
  CHECK(tickets.Counts() == TicketCounts{1, 0, 2, 0});
  CHECK(daemon.Do(AdoptSessionCommand{session}).report->claims.size() == 2);
}

CONTRACT_CASE("tickets: all of a ticket's way in one batch") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  std::vector<Command> batch;
  batch.push_back(tickets.MakeEnqueue({.payload = "a"}));
  batch.push_back(tickets.MakeEnqueue({.payload = "b"}));
  const TakeCommand first = tickets.MakeTake({});
  const TakeCommand second = tickets.MakeTake({});
  batch.push_back(first);
  batch.push_back(tickets.MakeFinish(first.claim));
  batch.push_back(second);
  batch.push_back(tickets.MakeTake({}));
  const std::vector<Outcome> outcomes = daemon.DoAll(std::move(batch));
  CHECK(outcomes[2].kind == OutcomeKind::kGranted);
  CHECK(outcomes[3].kind == OutcomeKind::kReleased);
  REQUIRE(outcomes[4].kind == OutcomeKind::kGranted);
  CHECK(*outcomes[4].report->tickets.at(0).payload == "b");
  CHECK(outcomes[5].kind == OutcomeKind::kNothing);
  CHECK(tickets.Counts() == TicketCounts{0, 0, 1, 0});
}

CONTRACT_CASE("tickets: an offer ends as a wait does") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  const Tickets tickets(&world, &daemon);
  const Id session = world.NewId();
  REQUIRE(daemon.OpenSession(session).kind == OutcomeKind::kDone);
  const Id cancelled = tickets.Offer();
  const Id expired = tickets.Offer();
  const Id of_session = tickets.Offer({.keep = OfferKept::kAlways, .session = session});
  const Id stays = tickets.Offer();
  CHECK(daemon.Verify("s", stays).kind == OutcomeKind::kStillWaiting);
  CHECK(daemon.EndWait("s", cancelled, EndCause::kCancelled).kind == OutcomeKind::kDone);
  CHECK(daemon.End("s", expired, EndCause::kExpired).kind == OutcomeKind::kDone);
  CHECK(daemon.Do(CloseSessionCommand{session, 0, EndCause::kReleased}).kind == OutcomeKind::kDone);
  const std::vector<SeenEvent> events = daemon.TakeEvents();
  CHECK(Saw(events, Event::Kind::kWaitEnded, cancelled, EndCause::kCancelled));
  CHECK(Saw(events, Event::Kind::kWaitEnded, expired, EndCause::kExpired));
  CHECK(Saw(events, Event::Kind::kWaitEnded, of_session, EndCause::kCancelled));
  CHECK(daemon.Describe("s").offers == 1);
  tickets.Put();
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted) == std::vector{stays});
}

CONTRACT_CASE("tickets: repeated requests are answered once") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  const Id other = tickets.Put({.priority = 1});
  const Id id = tickets.Put({.client = "c", .sequence = 1});
  const Outcome again = tickets.Enqueue({.client = "c", .sequence = 1});
  CHECK(again.kind == OutcomeKind::kEnqueued);
  CHECK(again.claim == id);
  CHECK(again.position() == 2);
  CHECK(tickets.Counts().queued == 2);
  CHECK(daemon.Acquire("s", {.client = "c", .sequence = 1}).kind == OutcomeKind::kReused);
  CHECK(daemon.Release("s", id, {}, {"c", 1}).kind == OutcomeKind::kReused);
  tickets.Done(tickets.Get().ticket->lease);
  const Id claim = tickets.Get().ticket->lease;
  FinishCommand finish = tickets.MakeFinish(claim);
  finish.requester = {"c", 2};
  for (int i = 0; i < 2; ++i) {
    const Outcome finished = daemon.Do(finish);
    CHECK(finished.kind == OutcomeKind::kReleased);
    CHECK(finished.released() == 1);
  }
  finish.claim = world.NewId();
  CHECK(daemon.Do(finish).kind == OutcomeKind::kReused);
  // Done long since, it is not enqueued a second time.
  CHECK(tickets.Enqueue({.client = "c", .sequence = 1}).claim == id);
  CHECK(tickets.Counts() == TicketCounts());
  CHECK_FALSE(tickets.Has(other));
}

CONTRACT_CASE("tickets: another request under the same id is refused, and not done") {
  if (!KeepsTickets(world)) return;
  int round = 0;
  OnEachPairAndLanes(world, [&](Daemon& first, Daemon& second) {
    const std::string name = "s" + std::to_string(++round);
    const std::string client = "c" + std::to_string(round);
    first.Create(name, 1);
    const Tickets here(&world, &first, name);
    const Tickets there(&world, &second, name);
    const Job job{.client = client, .sequence = 1};
    const Id id = here.Put(job);
    std::vector<Job> jobs(4, job);
    jobs[0].payload = "other work";
    jobs[1].content_type = "text/html";
    jobs[2].priority = 1;
    jobs[3].delay_ms = 1'000;
    for (const Job& other : jobs) CHECK(there.Enqueue(other).kind == OutcomeKind::kReused);
    CHECK(there.Counts() == TicketCounts{.queued = 1});
    CHECK(*there.Show(id).payload == job.payload);
    CHECK(there.Enqueue(job).claim == id);

    FinishCommand finish = here.MakeFinish(here.Get().ticket->lease, Result::kReject);
    finish.requester = {client, 2};
    REQUIRE(first.Do(finish).kind == OutcomeKind::kReleased);
    finish.result = Result::kDone;
    CHECK(second.Do(finish).kind == OutcomeKind::kReused);
    CHECK(there.Counts() == TicketCounts{.dead = 1});

    const AdminCommand requeue{{client, 3}, name, 0, AdminRequeue{}};
    CHECK(first.Do(requeue).affected() == 1);
    REQUIRE(here.Finish(here.Get().ticket->lease, Result::kReject).kind == OutcomeKind::kReleased);
    const auto act = [&](auto other) {
      return second.Do(AdminCommand{{client, 3}, name, 0, std::move(other)}).kind;
    };
    CHECK(act(AdminRequeue{id}) == OutcomeKind::kReused);
    CHECK(act(AdminPurge{}) == OutcomeKind::kReused);
    CHECK(act(AdminCancelTicket{id, true}) == OutcomeKind::kReused);
    CHECK(act(AdminPrioritizeTicket{id, 1}) == OutcomeKind::kReused);
    CHECK(act(AdminDestroy{DestroyPolicy::kForce}) == OutcomeKind::kReused);
    CHECK(second.Do(requeue).affected() == 1);
    CHECK(there.Counts() == TicketCounts{.dead = 1});
  });
}

CONTRACT_CASE("tickets: a request below the window is refused, and not done") {
  world.options().request_window = 4;
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  tickets.Put();
  REQUIRE(tickets.Finish(tickets.Get().ticket->lease, Result::kReject).kind ==
          OutcomeKind::kReleased);
  const Id id = tickets.Put({.client = "c", .sequence = 100});
  const Id claim = tickets.Get().ticket->lease;
  const TicketCounts counts{.assigned = 1, .dead = 1};
  REQUIRE(tickets.Counts() == counts);
  CHECK(tickets.Enqueue({.client = "c", .sequence = 1}).kind == OutcomeKind::kTooOld);
  FinishCommand finish = tickets.MakeFinish(claim);
  finish.requester = {"c", 1};
  CHECK(daemon.Do(finish).kind == OutcomeKind::kTooOld);
  const auto act = [&](auto late) {
    return daemon.Do(AdminCommand{{"c", 1}, "s", 0, std::move(late)}).kind;
  };
  CHECK(act(AdminRequeue{}) == OutcomeKind::kTooOld);
  CHECK(act(AdminPurge{}) == OutcomeKind::kTooOld);
  CHECK(act(AdminCancelTicket{id, true}) == OutcomeKind::kTooOld);
  CHECK(act(AdminPrioritizeTicket{id, 1}) == OutcomeKind::kTooOld);
  CHECK(act(AdminDestroy{DestroyPolicy::kForce}) == OutcomeKind::kTooOld);
  CHECK(tickets.Counts() == counts);
}

CONTRACT_CASE("tickets: a lease that nobody took a ticket for cannot be finished") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr lease = daemon.Grant("s");
  CHECK(Tickets(&world, &daemon).Finish(lease->id).kind == OutcomeKind::kNoSuchTicket);
  CHECK(daemon.Describe("s").held == 1);
}

}  // namespace semaphored::contract
