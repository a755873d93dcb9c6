// Who waits, and in which order they are served.
#include <algorithm>

#include "tests/contract/world.h"

namespace semaphored::contract {

CONTRACT_CASE("a full semaphore queues who waits, and says where") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  daemon.Grant("s");
  for (uint64_t position = 1; position <= 3; ++position) {
    const AcquireCommand command = world.MakeAcquire("s", {.wait = true});
    const Outcome outcome = daemon.Do(command);
    CHECK(outcome.kind == OutcomeKind::kQueued);
    CHECK(outcome.position() == position);
    CHECK(outcome.claim == command.claim);
  }
  CHECK(daemon.Describe("s").waiting == 3);
}

CONTRACT_CASE("first come, first served") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  Id holds = daemon.Grant("s")->id;
  std::vector<Id> waiters;
  for (int i = 0; i < 5; ++i) waiters.push_back(daemon.Queue("s"));
  for (const Id& next : waiters) {
    daemon.GiveBack("s", holds);
    CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted) == std::vector{next});
    holds = next;
  }
}

CONTRACT_CASE("a higher priority is served first, within one first come first served") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr first = daemon.Grant("s");
  const Id low = daemon.Queue("s", {.priority = -1000});
  const Id normal_1 = daemon.Queue("s");
  const Id high_1 = daemon.Queue("s", {.priority = 1000});
  const Id normal_2 = daemon.Queue("s");
  const Id high_2 = daemon.Queue("s", {.priority = 1000});
  const std::vector<Id> order = {high_1, high_2, normal_1, normal_2, low};
  CHECK(WaitersIn(daemon.Describe("s")) == order);
  Id holds = first->id;
  for (const Id& next : order) {
    daemon.GiveBack("s", holds);
    CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted) == std::vector{next});
    holds = next;
  }
}

CONTRACT_CASE("a position counts from 1 and knows priorities") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  daemon.Grant("s");
  daemon.Queue("s");
  daemon.Queue("s");
  const Outcome urgent = daemon.Acquire("s", {.wait = true, .priority = 5});
  CHECK(urgent.position() == 1);
  const Outcome patient = daemon.Acquire("s", {.wait = true, .priority = -5});
  CHECK(patient.position() == 4);
  const SemaphoreInfo info = daemon.Describe("s");
  REQUIRE(info.waiters.size() == 4);
  for (uint64_t i = 0; i < 4; ++i) CHECK(info.waiters[i].position == i + 1);
  CHECK(info.waiters.front().waiter->id == urgent.claim);
}

CONTRACT_CASE("a large waiter is not starved by small requests after it") {
  if (!world.guarantees().weighted) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3);
  const LeasePtr a = daemon.Grant("s", {.permits = 2});
  const LeasePtr b = daemon.Grant("s");
  const Id large = daemon.Queue("s", {.permits = 3});
  const Id small = daemon.Queue("s");
  daemon.GiveBack("s", b->id);  // There is room for the small one.
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted).empty());
  CHECK(daemon.Acquire("s", {}).kind == OutcomeKind::kFull);
  CHECK(daemon.Describe("s").held == 2);
  daemon.GiveBack("s", a->id);
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted) == std::vector{large});
  daemon.GiveBack("s", large);
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted) == std::vector{small});
}

CONTRACT_CASE("a higher priority passes a large waiter of a lower one") {
  if (!world.guarantees().weighted) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3);
  daemon.Grant("s", {.permits = 2});
  daemon.Queue("s", {.permits = 3});
  CHECK(daemon.Acquire("s", {.priority = 1}).kind == OutcomeKind::kGranted);
}

CONTRACT_CASE("a large waiter of a higher priority holds up those of a lower one") {
  if (!world.guarantees().weighted) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3);
  const LeasePtr a = daemon.Grant("s", {.permits = 2});
  const LeasePtr b = daemon.Grant("s");
  const Id small = daemon.Queue("s");
  const Id large = daemon.Queue("s", {.permits = 2, .priority = 1});
  daemon.GiveBack("s", b->id);
  CHECK(daemon.TakeEvents().size() == 1);  // Only that b has ended.
  daemon.GiveBack("s", a->id);
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted) == std::vector{large, small});
}

CONTRACT_CASE("with backfill a smaller request passes a larger one that does not fit") {
  if (!world.guarantees().weighted) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3, {.backfill = true});
  const LeasePtr a = daemon.Grant("s", {.permits = 2});
  const Id large = daemon.Queue("s", {.permits = 2});
  const LeasePtr small = daemon.Grant("s");
  const Id later = daemon.Queue("s");
  daemon.GiveBack("s", small->id);
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted) == std::vector{later});
  daemon.GiveBack("s", a->id);
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted) == std::vector{large});
}

CONTRACT_CASE("backfill keeps the order among those that fit") {
  if (!world.guarantees().weighted) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2, {.backfill = true});
  const LeasePtr a = daemon.Grant("s");
  daemon.Grant("s");
  daemon.Queue("s", {.permits = 2});
  const Id first = daemon.Queue("s");
  daemon.Queue("s");
  daemon.GiveBack("s", a->id);
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted) == std::vector{first});
}

CONTRACT_CASE("backfill looks only so far, and nobody passes those further back") {
  world.options().limits.backfill_depth = 2;
  if (!world.guarantees().weighted) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2, {.backfill = true});
  const LeasePtr a = daemon.Grant("s");
  const LeasePtr b = daemon.Grant("s");
  for (int i = 0; i < 3; ++i) daemon.Queue("s", {.permits = 2});
  daemon.Queue("s");
  daemon.GiveBack("s", a->id);
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted).empty());
  CHECK(daemon.Acquire("s", {}).kind == OutcomeKind::kFull);
  CHECK(daemon.Acquire("s", {.priority = 1}).kind == OutcomeKind::kGranted);
}

CONTRACT_CASE("backfill is off at first, and works on who waits when it is set") {
  if (!world.guarantees().weighted) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3);
  daemon.Grant("s", {.permits = 2});
  daemon.Queue("s", {.permits = 2});
  const Id small = daemon.Queue("s");
  CHECK(daemon.Describe("s").held == 2);
  REQUIRE(daemon.Administer("s", AdminConfigure{{.backfill = true}}).kind == OutcomeKind::kDone);
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted) == std::vector{small});
}

CONTRACT_CASE("when the large waiter at the front gives up, those behind it are served") {
  if (!world.guarantees().weighted) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3);
  daemon.Grant("s", {.permits = 2});
  const Id large = daemon.Queue("s", {.permits = 2});
  const Id small = daemon.Queue("s");
  CHECK(daemon.EndWait("s", large, EndCause::kCancelled).kind == OutcomeKind::kDone);
  const std::vector<SeenEvent> events = daemon.TakeEvents();
  CHECK(Saw(events, Event::Kind::kWaitEnded, large, EndCause::kCancelled));
  CHECK(Saw(events, Event::Kind::kGranted, small));
}

CONTRACT_CASE("one release serves as many as there is room for") {
  if (!world.guarantees().weighted) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 4);
  const LeasePtr all = daemon.Grant("s", {.permits = 4});
  const Id a = daemon.Queue("s");
  const Id b = daemon.Queue("s", {.permits = 2});
  const Id c = daemon.Queue("s");
  const Id d = daemon.Queue("s");
  daemon.GiveBack("s", all->id);
  const std::vector<SeenEvent> events = daemon.TakeEvents();
  CHECK(ClaimsIn(events, Event::Kind::kGranted) == std::vector{a, b, c});
  for (const SeenEvent& event : events) {
    if (event.claim == a) CHECK(event.lease->slots == Slots{1});
    if (event.claim == b) CHECK(event.lease->slots == Slots{2, 3});
    if (event.claim == c) CHECK(event.lease->slots == Slots{4});
    CHECK(event.semaphore == "s");
  }
  CHECK(WaitersIn(daemon.Describe("s")) == std::vector{d});
}

CONTRACT_CASE("several releases together serve a large waiter") {
  if (!world.guarantees().weighted) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3);
  const LeasePtr a = daemon.Grant("s");
  const LeasePtr b = daemon.Grant("s");
  const LeasePtr c = daemon.Grant("s");
  const Id large = daemon.Queue("s", {.permits = 3});
  daemon.GiveBack("s", b->id);
  daemon.GiveBack("s", a->id);
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted).empty());
  daemon.GiveBack("s", c->id);
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted) == std::vector{large});
}

CONTRACT_CASE("a partial release serves the next waiter") {
  if (!world.guarantees().weighted) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3);
  const LeasePtr all = daemon.Grant("s", {.permits = 3});
  const Id waiter = daemon.Queue("s");
  CHECK(daemon.Release("s", all->id, {2}).kind == OutcomeKind::kReleased);
  const std::vector<SeenEvent> events = daemon.TakeEvents();
  REQUIRE(ClaimsIn(events, Event::Kind::kGranted) == std::vector{waiter});
  CHECK(daemon.Verify("s", waiter).lease->slots == Slots{2});
}

CONTRACT_CASE("a wait that runs out leaves the queue and says so") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr lease = daemon.Grant("s");
  const Id impatient = daemon.Queue("s");
  const Id next = daemon.Queue("s");
  CHECK(daemon.EndWait("s", impatient, EndCause::kWaitExpired).kind == OutcomeKind::kDone);
  CHECK(Saw(daemon.TakeEvents(), Event::Kind::kWaitEnded, impatient, EndCause::kWaitExpired));
  CHECK(WaitersIn(daemon.Describe("s")) == std::vector{next});
  CHECK(daemon.EndWait("s", impatient, EndCause::kWaitExpired).kind == OutcomeKind::kNotHeld);
  daemon.GiveBack("s", lease->id);
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted) == std::vector{next});
}

CONTRACT_CASE("a waiter that was granted keeps what it asked with") {
  Daemon& daemon = world.daemon();
  const uint32_t permits = world.guarantees().weighted ? 2 : 1;
  daemon.Create("s", permits);
  const LeasePtr first = daemon.Grant("s", {.permits = permits});
  const Id waiter =
      daemon.Queue("s", {.permits = permits, .priority = 7, .ttl_ms = 4'321, .holder = "patient"});
  const SemaphoreInfo info = daemon.Describe("s");
  REQUIRE(info.waiters.size() == 1);
  CHECK(info.waiters[0].waiter->queued_at_unix_ms == world.now_unix_ms());
  world.Advance(500);
  daemon.GiveBack("s", first->id);
  const LeasePtr lease = daemon.Verify("s", waiter).lease;
  REQUIRE(lease != nullptr);
  CHECK(lease->holder == "patient");
  CHECK(lease->ttl_ms == 4'321);
  CHECK(lease->priority == 7);
  CHECK(lease->permits == permits);
  CHECK(lease->granted_at_unix_ms == world.now_unix_ms());
  CHECK(lease->host == daemon.self());
}

CONTRACT_CASE("an emptied queue is in nobody's way") {
  if (!world.guarantees().weighted) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  daemon.Grant("s");
  const Id large = daemon.Queue("s", {.permits = 2});
  CHECK(daemon.Acquire("s", {}).kind == OutcomeKind::kFull);
  REQUIRE(daemon.EndWait("s", large, EndCause::kDisconnected).kind == OutcomeKind::kDone);
  CHECK(daemon.Acquire("s", {}).kind == OutcomeKind::kGranted);
}

CONTRACT_CASE("very many waiters are served in their order") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr first = daemon.Grant("s");
  std::vector<Command> asks;
  std::vector<Id> waiters;
  // As many as a limit can be raised to at once; fewer where that is not far.
  const uint32_t count = std::min(1'000u, world.guarantees().limit_max / 4);
  for (uint32_t i = 0; i < count; ++i) {
    AcquireCommand ask = world.MakeAcquire("s", {.wait = true});
    waiters.push_back(ask.claim);
    asks.push_back(std::move(ask));
  }
  const std::vector<Outcome> outcomes = daemon.DoAll(std::move(asks));
  for (size_t i = 0; i < outcomes.size(); ++i) REQUIRE(outcomes[i].position() == i + 1);
  if (!world.guarantees().grants_at_once) {
    REQUIRE(daemon.Resize("s", 1 + count).kind == OutcomeKind::kDone);
    daemon.PollUntil([&] { return daemon.events().size() >= waiters.size(); });
    CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted) == waiters);
    return;
  }
  std::vector<Command> releases;
  releases.push_back(world.MakeRelease("s", first->id));
  for (size_t i = 0; i + 1 < waiters.size(); ++i)
    releases.push_back(world.MakeRelease("s", waiters[i]));
  daemon.DoAll(std::move(releases));
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted) == waiters);
}

}  // namespace semaphored::contract
