// How many bytes the payloads of tickets may have, at one semaphore and all together.
#include <string>

#include "tests/contract/tickets.h"

namespace semaphored::contract {
namespace {

// Each semaphore takes 100 bytes, all together 150.
bool KeepsBoundedTickets(World& world) {
  world.options().limits.payload_bytes_per_semaphore_max = 100;
  world.options().limits.payload_bytes_total_max = 150;
  return KeepsTickets(world);
}

Job Of(size_t bytes) { return {.payload = std::string(bytes, 'p'), .limit = 1}; }

// The message names the setting and its value.
void CheckRefused(const Outcome& outcome, const std::string& setting) {
  CHECK(outcome.kind == OutcomeKind::kLimitReached);
  CHECK(outcome.message.find(setting) != std::string::npos);
}

void CheckFullSemaphore(const Outcome& outcome) {
  CheckRefused(outcome, "payload_bytes_per_semaphore_max (100)");
}
void CheckFullStore(const Outcome& outcome) {
  CheckRefused(outcome, "payload_bytes_total_max (150)");
}

}  // namespace

CONTRACT_CASE("ticket bytes: a semaphore has so many, and all together") {
  if (!KeepsBoundedTickets(world)) return;
  Daemon& daemon = world.daemon();
  const Tickets a(&world, &daemon, "a");
  const Tickets b(&world, &daemon, "b");
  CheckFullSemaphore(a.Enqueue(Of(101)));
  CHECK_FALSE(daemon.Exists("a"));
  a.Put(Of(60));
  CheckFullSemaphore(a.Enqueue(Of(41)));
  a.Put(Of(40));
  CheckFullSemaphore(a.Enqueue(Of(1)));
  CheckFullStore(b.Enqueue(Of(51)));
  CHECK_FALSE(daemon.Exists("b"));
  b.Put(Of(50));
  CheckFullStore(b.Enqueue(Of(1)));
  // A ticket without a payload takes no bytes.
  a.Put(Of(0));
  b.Put(Of(0));
}

CONTRACT_CASE("ticket bytes: of one batch too, no more are taken in than there may be") {
  if (!KeepsBoundedTickets(world)) return;
  Daemon& daemon = world.daemon();
  const Tickets tickets(&world, &daemon);
  std::vector<Command> batch;
  for (int i = 0; i < 4; ++i) batch.emplace_back(tickets.MakeEnqueue(Of(30)));
  const std::vector<Outcome> outcomes = daemon.DoAll(std::move(batch));
  for (size_t i = 0; i < 3; ++i) CHECK(outcomes[i].kind == OutcomeKind::kEnqueued);
  CheckFullSemaphore(outcomes[3]);
  tickets.Put(Of(10));
}

CONTRACT_CASE("ticket bytes: a ticket that goes gives them back, however it goes") {
  if (!KeepsBoundedTickets(world)) return;
  Daemon& daemon = world.daemon();
  const Tickets tickets(&world, &daemon);
  tickets.Put(Of(100));
  CheckFullSemaphore(tickets.Enqueue(Of(1)));
  tickets.Done(tickets.Get().ticket->lease);
  const Id cancelled = tickets.Put(Of(100));
  REQUIRE(daemon.Administer("s", AdminCancelTicket{cancelled}).kind == OutcomeKind::kDone);
  const Id dead = tickets.Put(Of(100));
  REQUIRE(tickets.Finish(tickets.Get().ticket->lease, Result::kReject).kind ==
          OutcomeKind::kReleased);
  REQUIRE(daemon.Administer("s", AdminPurge{dead}).kind == OutcomeKind::kDone);
  tickets.Put(Of(100));
  REQUIRE(daemon.Administer("s", AdminDestroy{DestroyPolicy::kForce}).kind == OutcomeKind::kDone);
  tickets.Put(Of(100));
  Tickets(&world, &daemon, "t").Put(Of(50));
}

CONTRACT_CASE("ticket bytes: a dead letter counts, and is requeued at the bound") {
  if (!KeepsBoundedTickets(world)) return;
  Daemon& daemon = world.daemon();
  const Tickets tickets(&world, &daemon);
  const Id dead = tickets.Put(Of(100));
  REQUIRE(tickets.Finish(tickets.Get().ticket->lease, Result::kReject).kind ==
          OutcomeKind::kReleased);
  CheckFullSemaphore(tickets.Enqueue(Of(1)));
  REQUIRE(daemon.Administer("s", AdminRequeue{dead}).kind == OutcomeKind::kDone);
  CheckFullSemaphore(tickets.Enqueue(Of(1)));
  // Each step of its way is one ticket, with the same bytes.
  REQUIRE(tickets.Finish(tickets.Get().ticket->lease, Result::kPutBack).kind ==
          OutcomeKind::kReleased);
  CheckFullSemaphore(tickets.Enqueue(Of(1)));
  tickets.Done(tickets.Get().ticket->lease);
  tickets.Put(Of(100));
}

CONTRACT_CASE("ticket bytes: a repeated request at the bound is answered with its ticket") {
  if (!KeepsBoundedTickets(world)) return;
  Daemon& daemon = world.daemon();
  const Tickets tickets(&world, &daemon);
  Job job = Of(100);
  job.client = "c";
  job.sequence = 1;
  const Id id = tickets.Put(job);
  const Outcome again = tickets.Enqueue(job);
  REQUIRE(again.kind == OutcomeKind::kEnqueued);
  CHECK(again.claim == id);
  CHECK(tickets.Counts() == TicketCounts{1, 0, 0, 0});
  // One that was refused may be repeated when there is room.
  job.sequence = 2;
  CheckFullSemaphore(tickets.Enqueue(job));
  tickets.Done(tickets.Get().ticket->lease);
  CHECK(tickets.Enqueue(job).kind == OutcomeKind::kEnqueued);
}

CONTRACT_CASE("ticket bytes: what stands stays under a lower bound, and nothing comes") {
  if (!KeepsBoundedTickets(world) || !world.CanRestart()) return;
  const Tickets before(&world, &world.daemon());
  before.Put(Of(30));
  before.Put(Of(40));
  world.options().limits.payload_bytes_per_semaphore_max = 30;
  Daemon& daemon = world.Restart();
  const Tickets tickets(&world, &daemon);
  const auto check_refused = [&] {
    CheckRefused(tickets.Enqueue(Of(1)), "payload_bytes_per_semaphore_max (30)");
  };
  check_refused();
  tickets.Put(Of(0));
  CHECK(tickets.Counts() == TicketCounts{3, 0, 0, 0});
  tickets.Done(tickets.Get().ticket->lease);
  check_refused();
  tickets.Done(tickets.Get().ticket->lease);
  tickets.Put(Of(30));
  check_refused();
}

}  // namespace semaphored::contract
