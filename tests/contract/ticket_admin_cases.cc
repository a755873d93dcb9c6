// What an administrator does with tickets and dead letters; and their limits.
#include <algorithm>

#include "tests/contract/tickets.h"

namespace semaphored::contract {
namespace {

// A ticket that was rejected.
Id Bury(const Tickets& tickets, Job job = {}) {
  const Id id = tickets.Put(std::move(job));
  REQUIRE(tickets.Finish(tickets.Get().ticket->lease, Result::kReject, "bad").kind ==
          OutcomeKind::kReleased);
  return id;
}

void CheckLimit(const Outcome& outcome) {
  CHECK(outcome.kind == OutcomeKind::kLimitReached);
  CHECK_FALSE(outcome.message.empty());
}

}  // namespace

CONTRACT_CASE("ticket admin: a list goes by age, in pages, and by states") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 9);
  const Tickets tickets(&world, &daemon);
  const Id dead = Bury(tickets);
  const Id assigned = tickets.Put();
  tickets.Get();
  const Id delayed = tickets.Put({.delay_ms = 1'000});
  const Id first = tickets.Put();
  const Id high = tickets.Put({.priority = 9});
  CHECK(tickets.List() == std::vector{dead, assigned, delayed, first, high});
  CHECK(tickets.List({TicketState::kDead}) == std::vector{dead});
  CHECK(tickets.List({TicketState::kQueued, TicketState::kDelayed}) ==
        std::vector{delayed, first, high});
  std::vector<Id> paged;
  uint64_t after = 0;
  bool more = true;
  while (more) {
    const Outcome page = daemon.Administer("s", AdminListTickets{after, 2, {}});
    REQUIRE(page.kind == OutcomeKind::kDone);
    REQUIRE(page.report->tickets.size() <= 2);
    for (const TicketInfo& info : page.report->tickets) {
      paged.push_back(info.ticket->id);
      after = info.ticket->order;
      CHECK(info.payload == nullptr);
      const uint64_t position = info.ticket->id == high ? 1 : info.ticket->id == first ? 2 : 0;
      CHECK(info.position == position);
    }
    more = page.report->more;
  }
  CHECK(paged == tickets.List());
  CHECK(tickets.Counts() == TicketCounts{2, 1, 1, 1});
  CHECK(daemon.Administer("t", AdminListTickets{}).kind == OutcomeKind::kNoSuchSemaphore);
  CHECK(daemon.Administer("s", AdminShowTicket{world.NewId()}).kind == OutcomeKind::kNoSuchTicket);
}

CONTRACT_CASE("ticket admin: what is cancelled goes, whatever its state; at work only by force") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  const Id dead = Bury(tickets);
  const Id queued = tickets.Put({.priority = -1});
  const Id delayed = tickets.Put({.delay_ms = 1'000});
  const Id assigned = tickets.Put();
  const Id claim = tickets.Get().ticket->lease;
  for (const Id& id : {dead, queued, delayed}) {
    const Outcome outcome = daemon.Administer("s", AdminCancelTicket{id});
    CHECK(outcome.kind == OutcomeKind::kDone);
    CHECK(outcome.changed);
    CHECK(outcome.affected() == 1);
    CHECK_FALSE(tickets.Has(id));
  }
  const Outcome refused = daemon.Administer("s", AdminCancelTicket{assigned});
  CHECK(refused.kind == OutcomeKind::kInUse);
  CHECK(refused.report->info.has_value());
  CHECK(daemon.Verify("s", claim).kind == OutcomeKind::kHeld);
  const Id waiter = daemon.Queue("s");
  CHECK(daemon.Administer("s", AdminCancelTicket{assigned, true}).kind == OutcomeKind::kDone);
  const std::vector<SeenEvent> events = daemon.TakeEvents();
  CHECK(Saw(events, Event::Kind::kEnded, claim, EndCause::kRevoked));
  CHECK(Saw(events, Event::Kind::kGranted, waiter));
  CHECK(tickets.Counts() == TicketCounts());
  CHECK(daemon.Administer("s", AdminCancelTicket{assigned, true}).kind ==
        OutcomeKind::kNoSuchTicket);
}

CONTRACT_CASE("ticket admin: another priority is another place, by age within it") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  const Id a = tickets.Put();
  const Id b = tickets.Put({.priority = 1});
  const Id c = tickets.Put();
  const Outcome outcome = daemon.Administer("s", AdminPrioritizeTicket{a, 1});
  CHECK(outcome.kind == OutcomeKind::kDone);
  CHECK(outcome.changed);
  CHECK_FALSE(daemon.Administer("s", AdminPrioritizeTicket{a, 1}).changed);
  CHECK(tickets.Show(a).position == 1);
  REQUIRE(daemon.Administer("s", AdminPrioritizeTicket{b, -1}).kind == OutcomeKind::kDone);
  CHECK(daemon.Administer("s", AdminPrioritizeTicket{world.NewId(), 1}).kind ==
        OutcomeKind::kNoSuchTicket);
  CHECK(tickets.Drain() == std::vector{a, c, b});
}

CONTRACT_CASE("ticket admin: a priority may pass a ticket by a waiter that blocked it") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  const Tickets tickets(&world, &daemon);
  daemon.Grant("s");
  daemon.Queue("s", {.permits = 2});
  const Id id = tickets.Put();
  const Id offer = tickets.Offer();
  REQUIRE(daemon.Administer("s", AdminPrioritizeTicket{id, 1}).kind == OutcomeKind::kDone);
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted) == std::vector{offer});
}

CONTRACT_CASE("ticket admin: a dead letter is requeued to its old place, as if never tried") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  const Id first = Bury(tickets, {.payload = "kept", .max_attempts = 1});
  const Id second = Bury(tickets);
  const Id third = Bury(tickets);
  const Id living = tickets.Put();
  CHECK(daemon.Administer("s", AdminRequeue{living}).kind == OutcomeKind::kNoSuchTicket);
  const Outcome one = daemon.Administer("s", AdminRequeue{second});
  CHECK(one.kind == OutcomeKind::kDone);
  CHECK(one.affected() == 1);
  CHECK(one.report->info->tickets == TicketCounts{2, 0, 0, 2});
  CHECK(tickets.Show(second).ticket->attempt == 0);
  CHECK(tickets.Show(second).ticket->reasons.size() == 1);
  CHECK(tickets.Show(second).position == 1);
  CHECK(daemon.Administer("s", AdminRequeue{}).affected() == 2);
  CHECK_FALSE(daemon.Administer("s", AdminRequeue{}).changed);
  const TicketInfo taken = tickets.Get();
  CHECK(taken.ticket->id == first);
  CHECK(taken.ticket->attempt == 1);
  CHECK(*taken.payload == "kept");
  tickets.Done(taken.ticket->lease);
  CHECK(tickets.Drain() == std::vector{second, third, living});
}

CONTRACT_CASE("ticket admin: requeued, it goes to an offer that stands") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  Bury(tickets);
  const Id offer = tickets.Offer();
  REQUIRE(daemon.Administer("s", AdminRequeue{}).kind == OutcomeKind::kDone);
  CHECK(AssignmentOf(daemon.TakeEvents(), offer) != nullptr);
}

CONTRACT_CASE("ticket admin: dead letters are purged, and nothing else") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  const Id first = Bury(tickets);
  Bury(tickets);
  Bury(tickets);
  const Id living = tickets.Put();
  CHECK(daemon.Administer("s", AdminPurge{living}).kind == OutcomeKind::kNoSuchTicket);
  CHECK(daemon.Administer("s", AdminPurge{first}).affected() == 1);
  CHECK(daemon.Administer("s", AdminPurge{first}).kind == OutcomeKind::kNoSuchTicket);
  CHECK(daemon.Administer("s", AdminPurge{}).affected() == 2);
  CHECK(tickets.List() == std::vector{living});
}

CONTRACT_CASE("ticket admin: repeated acts have one effect") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  Bury(tickets);
  const AdminCommand requeue{{"c", 1}, "s", 0, AdminRequeue{}};
  CHECK(daemon.Do(requeue).affected() == 1);
  REQUIRE(tickets.Finish(tickets.Get().ticket->lease, Result::kReject).kind ==
          OutcomeKind::kReleased);
  CHECK(daemon.Do(requeue).affected() == 1);
  CHECK(tickets.Counts().dead == 1);
}

// As many as no commit takes on the engines that bound it.
CONTRACT_CASE("ticket admin: a revision that is expected binds also an act on very many") {
  if (!KeepsTickets(world) || !world.guarantees().revisions) return;
  constexpr uint32_t kAtOnce = 10;
  constexpr uint32_t kMany = 11 * kAtOnce;
  Daemon& daemon = world.daemon();
  daemon.Create("s", kAtOnce);
  const Tickets tickets(&world, &daemon);
  const auto bury = [&] {
    for (uint32_t done = 0; done < kMany; done += kAtOnce) {
      std::vector<Command> takes;
      std::vector<Command> finishes;
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        const TakeCommand take = tickets.MakeTake({});
        takes.emplace_back(take);
        finishes.emplace_back(tickets.MakeFinish(take.claim, Result::kReject));
      }
      daemon.DoAll(std::move(takes));
      daemon.DoAll(std::move(finishes));
    }
    REQUIRE(tickets.Counts().dead == kMany);
  };
  for (uint32_t i = 0; i < kMany; ++i) tickets.Put();
  bury();
  const uint64_t old = daemon.Describe("s", 0).row.revision;
  Daemon& other = SharesClaims(world) ? world.OpenAnother("b") : daemon;
  REQUIRE(other.Resize("s", kAtOnce + 1).kind == OutcomeKind::kDone);
  const AdminCommand late{{}, "s", old, AdminRequeue{}};
  CHECK(daemon.Do(late).kind == OutcomeKind::kRevisionMismatch);
  CHECK(tickets.Counts().dead == kMany);
  const AdminCommand requeue{{}, "s", daemon.Describe("s", 0).row.revision, AdminRequeue{}};
  CHECK(daemon.Do(requeue).affected() == kMany);
  CHECK(tickets.Counts().queued == kMany);
  bury();
  const AdminCommand purge{{}, "s", daemon.Describe("s", 0).row.revision, AdminPurge{}};
  CHECK(daemon.Do(purge).affected() == kMany);
  CHECK(tickets.Counts() == TicketCounts());
}

CONTRACT_CASE("ticket admin: with tickets a semaphore is destroyed by force alone") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  const auto fill = [&](const std::string& name, int state) {
    daemon.Create(name, 1);
    const Tickets tickets(&world, &daemon, name);
    if (state == 0) tickets.Put();
    if (state == 1) tickets.Put({.delay_ms = 1'000});
    if (state == 2) Bury(tickets);
    if (state == 3) {
      tickets.Put();
      tickets.Get();
    }
  };
  for (int state = 0; state < 4; ++state) {
    INFO("state " << state);
    const std::string name = "s" + std::to_string(state);
    fill(name, state);
    for (const DestroyPolicy policy : {DestroyPolicy::kRefuse, DestroyPolicy::kWait}) {
      const Outcome refused = daemon.Administer(name, AdminDestroy{policy});
      CHECK(refused.kind == OutcomeKind::kInUse);
      CHECK_FALSE(daemon.Describe(name).row.destroying);
    }
    const Outcome gone = daemon.Administer(name, AdminDestroy{DestroyPolicy::kForce});
    CHECK(gone.kind == OutcomeKind::kDone);
    CHECK(gone.affected() == (state == 3 ? 1 : 0));
    CHECK_FALSE(daemon.Exists(name));
    fill(name, 0);
    CHECK(Tickets(&world, &daemon, name).Counts().queued == 1);
  }
}

CONTRACT_CASE("ticket admin: an offer ends when the semaphore is destroyed, and holds nothing up") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  const Id offer = tickets.Offer();
  CHECK(daemon.Administer("s", AdminDestroy{}).kind == OutcomeKind::kInUse);
  const Id lease = daemon.Grant("s")->id;
  REQUIRE(daemon.Administer("s", AdminDestroy{DestroyPolicy::kWait}).kind == OutcomeKind::kDone);
  CHECK(Saw(daemon.TakeEvents(), Event::Kind::kWaitEnded, offer, EndCause::kDestroyed));
  CHECK(tickets.Enqueue().kind == OutcomeKind::kDestroyed);
  CHECK(tickets.Take({.keep = OfferKept::kAlways}).kind == OutcomeKind::kDestroyed);
  daemon.GiveBack("s", lease);
  CHECK_FALSE(daemon.Exists("s"));
}

CONTRACT_CASE("ticket admin: lists of semaphores count tickets and offers") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  Bury(tickets);
  tickets.Put();
  tickets.Put({.delay_ms = 5});
  tickets.Get();
  tickets.Offer();
  tickets.Put();
  const Outcome list = daemon.Do(ListCommand{"", "", 10});
  REQUIRE(list.report->infos.size() == 1);
  const SemaphoreInfo& info = list.report->infos[0];
  CHECK(info.tickets == TicketCounts{1, 1, 1, 1});
  CHECK(info.offers == 1);
  CHECK(info.waiting == 0);
  CHECK(info.held == 1);
}

CONTRACT_CASE("ticket admin: watchers are told that the counts have changed") {
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const WatchedNames::Watch watch = world.watched().Add("", "s");
  const Tickets tickets(&world, &daemon);
  tickets.Put();
  const std::vector<SemaphoreChange> changes = daemon.TakeChanges();
  REQUIRE(changes.size() == 1);
  CHECK(changes[0].kind == SemaphoreChange::Kind::kChanged);
  CHECK(changes[0].info.tickets.queued == 1);
}

// ---- Limits ----

CONTRACT_CASE("ticket limits: so many tickets in all, and so many living ones of a semaphore") {
  world.options().limits.tickets_max = 3;
  world.options().limits.tickets_per_semaphore_max = 2;
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  const Tickets a(&world, &daemon, "a");
  const Tickets b(&world, &daemon, "b");
  a.Put({.limit = 1});
  a.Put({.delay_ms = 5});
  CheckLimit(a.Enqueue());
  const Id dead = Bury(b, {.limit = 1});
  CheckLimit(b.Enqueue());
  CheckLimit(Tickets(&world, &daemon, "c").Enqueue({.limit = 1}));
  CHECK_FALSE(daemon.Exists("c"));
  a.Done(a.Get().ticket->lease);
  b.Put();
  REQUIRE(daemon.Administer("a", AdminDestroy{DestroyPolicy::kForce}).kind == OutcomeKind::kDone);
  b.Put();
  CheckLimit(daemon.Administer("b", AdminRequeue{dead}));
  CHECK(b.Counts() == TicketCounts{2, 0, 0, 1});
  b.Done(b.Get().ticket->lease);
  CHECK(daemon.Administer("b", AdminRequeue{dead}).kind == OutcomeKind::kDone);
}

CONTRACT_CASE("ticket limits: with enough dead letters nothing is lost, and nothing is taken in") {
  world.options().limits.dead_letters_per_semaphore_max = 2;
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Tickets tickets(&world, &daemon);
  Bury(tickets);
  const Id id = tickets.Put();
  const Id third = tickets.Put();
  REQUIRE(tickets.Finish(tickets.Get().ticket->lease, Result::kReject).kind ==
          OutcomeKind::kReleased);
  CheckLimit(tickets.Enqueue());
  // What had been taken in may die all the same.
  REQUIRE(tickets.Finish(tickets.Get().ticket->lease, Result::kReject).kind ==
          OutcomeKind::kReleased);
  CHECK(tickets.Counts() == TicketCounts{0, 0, 0, 3});
  CHECK(daemon.Administer("s", AdminPurge{id}).kind == OutcomeKind::kDone);
  CheckLimit(tickets.Enqueue());
  CHECK(daemon.Administer("s", AdminRequeue{third}).kind == OutcomeKind::kDone);
  CHECK(tickets.Enqueue().kind == OutcomeKind::kEnqueued);
}

CONTRACT_CASE("ticket limits: payload, content type and trace are not too long") {
  world.options().limits.payload_bytes_max = 70'000;
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  const Tickets tickets(&world, &daemon);
  CheckLimit(tickets.Enqueue({.payload = std::string(70'001, 'x'), .limit = 1}));
  CheckLimit(tickets.Enqueue({.limit = 1, .content_type = std::string(256, 'x')}));
  CheckLimit(tickets.Enqueue({.limit = 1, .trace = std::string(256, 'x')}));
  CHECK_FALSE(daemon.Exists("s"));
  const Id id = tickets.Put({.payload = std::string(70'000, 'x'),
                             .limit = 1,
                             .content_type = std::string(255, 'c'),
                             .trace = std::string(255, 't')});
  const TicketInfo info = tickets.Show(id);
  CHECK(*info.payload == std::string(70'000, 'x'));
  CHECK(info.ticket->payload_bytes == 70'000);
  CHECK(info.ticket->content_type.size() == 255);
  CHECK(info.ticket->trace.size() == 255);
}

CONTRACT_CASE("ticket limits: offers count with leases and waiters") {
  world.options().limits.leases_max = 3;
  world.options().limits.waiters_per_semaphore_max = 1;
  if (!KeepsTickets(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  daemon.Create("t", 1);
  const Tickets tickets(&world, &daemon);
  daemon.Grant("s");
  tickets.Offer();
  CheckLimit(tickets.Take({.keep = OfferKept::kAlways}));
  // Offers take nobody's place in the queue.
  daemon.Queue("s");
  CheckLimit(Tickets(&world, &daemon, "t").Take({.keep = OfferKept::kAlways}));
}

}  // namespace semaphored::contract
