// Promise 7: the same request id twice is the same answer, and one effect.
#include "tests/contract/world.h"

namespace semaphored::contract {

CONTRACT_CASE("a repeated acquire is answered with the same lease") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3);
  const LeasePtr lease = daemon.Grant("s", {.client = "c", .sequence = 1});
  const Outcome again = daemon.Acquire("s", {.client = "c", .sequence = 1});
  REQUIRE(again.kind == OutcomeKind::kGranted);
  CHECK(again.lease->id == lease->id);
  CHECK(again.lease->slots == lease->slots);
  CHECK(again.lease->token == lease->token);
  CHECK(daemon.Describe("s").held == 1);
}

CONTRACT_CASE("a repeated acquire in the same batch too") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3);
  std::vector<Command> batch;
  for (int i = 0; i < 3; ++i)
    batch.push_back(world.MakeAcquire("s", {.client = "c", .sequence = 1}));
  const std::vector<Outcome> outcomes = daemon.DoAll(std::move(batch));
  for (const Outcome& outcome : outcomes) {
    REQUIRE(outcome.kind == OutcomeKind::kGranted);
    CHECK(outcome.lease->id == outcomes[0].lease->id);
  }
  CHECK(daemon.Describe("s").held == 1);
}

CONTRACT_CASE("an acquire that waits is repeated into the same place") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr lease = daemon.Grant("s");
  const Id waiter = daemon.Queue("s", {.client = "c", .sequence = 1});
  daemon.Queue("s");
  const Outcome again = daemon.Acquire("s", {.wait = true, .client = "c", .sequence = 1});
  CHECK(again.kind == OutcomeKind::kQueued);
  CHECK(again.claim == waiter);
  CHECK(again.position() == 1);
  CHECK(daemon.Describe("s").waiting == 2);
  daemon.GiveBack("s", lease->id);
  const Outcome granted = daemon.Acquire("s", {.wait = true, .client = "c", .sequence = 1});
  REQUIRE(granted.kind == OutcomeKind::kGranted);
  CHECK(granted.lease->id == waiter);
}

CONTRACT_CASE("an acquire that only counts if repeated does nothing new") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Ask first{.client = "c", .sequence = 1, .only_if_repeated = true};
  CHECK(daemon.Acquire("s", first).kind == OutcomeKind::kNotAskedBefore);
  const Ask made{.limit = 1, .client = "c", .sequence = 2, .only_if_repeated = true};
  CHECK(daemon.Acquire("t", made).kind == OutcomeKind::kNotAskedBefore);
  CHECK_FALSE(daemon.Exists("t"));
  CHECK(daemon.Describe("s").held == 0);
  // That it was asked so is not remembered.
  CHECK(daemon.Acquire("s", {.client = "c", .sequence = 1}).kind == OutcomeKind::kGranted);
  Ask waits{.wait = true, .client = "c", .sequence = 3, .only_if_repeated = true};
  CHECK(daemon.Acquire("s", waits).kind == OutcomeKind::kNotAskedBefore);
  CHECK(daemon.Describe("s").waiting == 0);
}

CONTRACT_CASE("an acquire that only counts if repeated finds what became of the first") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr lease = daemon.Grant("s", {.client = "c", .sequence = 1});
  const Id waiter = daemon.Queue("s", {.client = "c", .sequence = 2});
  const Id late = daemon.Queue("s", {.client = "c", .sequence = 3});
  REQUIRE(daemon.EndWait("s", late, EndCause::kWaitExpired).kind == OutcomeKind::kDone);
  const auto again = [&](uint64_t sequence) {
    return daemon.Acquire(
        "s", {.wait = true, .client = "c", .sequence = sequence, .only_if_repeated = true});
  };
  const Outcome held = again(1);
  REQUIRE(held.kind == OutcomeKind::kGranted);
  CHECK(held.lease->id == lease->id);
  const Outcome queued = again(2);
  CHECK(queued.kind == OutcomeKind::kQueued);
  CHECK(queued.claim == waiter);
  CHECK(again(3).kind == OutcomeKind::kWaitEnded);
  daemon.GiveBack("s", lease->id);
  CHECK(again(1).kind == OutcomeKind::kNotHeld);
  const Outcome granted = again(2);
  REQUIRE(granted.kind == OutcomeKind::kGranted);
  CHECK(granted.lease->id == waiter);
  CHECK(daemon.Describe("s").held == 1);
}

CONTRACT_CASE("an acquire repeated after its lease ended does not take another one") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  const LeasePtr released = daemon.Grant("s", {.client = "c", .sequence = 1});
  daemon.GiveBack("s", released->id);
  const Outcome again = daemon.Acquire("s", {.client = "c", .sequence = 1});
  CHECK(again.kind == OutcomeKind::kNotHeld);
  CHECK(again.cause == EndCause::kReleased);
  const LeasePtr expired = daemon.Grant("s", {.client = "c", .sequence = 2});
  REQUIRE(daemon.End("s", expired->id, EndCause::kExpired).kind == OutcomeKind::kDone);
  const Outcome late = daemon.Acquire("s", {.client = "c", .sequence = 2});
  CHECK(late.kind == OutcomeKind::kNotHeld);
  CHECK(late.cause == EndCause::kExpired);
  CHECK(daemon.Describe("s").held == 0);
}

CONTRACT_CASE("an acquire repeated after its semaphore is gone does not make it again") {
  Daemon& daemon = world.daemon();
  const Ask ask{.limit = 1, .client = "c", .sequence = 1};
  daemon.GiveBack("s", daemon.Grant("s", ask)->id);
  REQUIRE(daemon.Administer("s", AdminDestroy{}).kind == OutcomeKind::kDone);
  CHECK(daemon.Acquire("s", ask).kind == OutcomeKind::kNotHeld);
  CHECK_FALSE(daemon.Exists("s"));
}

CONTRACT_CASE("an acquire whose wait ran out is told so again") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr lease = daemon.Grant("s");
  const Id waiter = daemon.Queue("s", {.client = "c", .sequence = 1});
  REQUIRE(daemon.EndWait("s", waiter, EndCause::kWaitExpired).kind == OutcomeKind::kDone);
  daemon.GiveBack("s", lease->id);
  const Outcome again = daemon.Acquire("s", {.wait = true, .client = "c", .sequence = 1});
  CHECK(again.kind == OutcomeKind::kWaitEnded);
  CHECK(again.cause == EndCause::kWaitExpired);
  CHECK(daemon.Describe("s").held == 0);
}

CONTRACT_CASE("an acquire whose wait became hopeless is told so again") {
  // One permit is hopeless only without any.
  if (!world.guarantees().weighted && !world.CanBeZero()) return;
  Daemon& daemon = world.daemon();
  const uint32_t permits = world.guarantees().weighted ? 2 : 1;
  daemon.Create("s", permits);
  daemon.Grant("s");
  daemon.Queue("s", {.permits = permits, .client = "c", .sequence = 1});
  REQUIRE(daemon.Resize("s", permits - 1).kind == OutcomeKind::kDone);
  REQUIRE(daemon.Resize("s", 9).kind == OutcomeKind::kDone);
  const Outcome again =
      daemon.Acquire("s", {.permits = permits, .wait = true, .client = "c", .sequence = 1});
  CHECK(again.kind == OutcomeKind::kWaitEnded);
  CHECK(again.cause == EndCause::kExceedsLimit);
}

CONTRACT_CASE("a client that gave up its wait and comes back queues anew") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  daemon.Grant("s");
  const Id first = daemon.Queue("s", {.client = "c", .sequence = 1});
  const Id other = daemon.Queue("s");
  REQUIRE(daemon.EndWait("s", first, EndCause::kDisconnected).kind == OutcomeKind::kDone);
  const Id second = daemon.Queue("s", {.client = "c", .sequence = 1});
  CHECK(second != first);
  CHECK(WaitersIn(daemon.Describe("s")) == std::vector{other, second});
}

CONTRACT_CASE("a request that is given up and asked for again in one batch is a new one") {
  Daemon& daemon = world.daemon();
  for (const bool waits : {true, false}) {
    const std::string s = waits ? "s1" : "s2";
    const std::string t = waits ? "t1" : "t2";
    const std::string client = waits ? "c1" : "c2";
    daemon.Create(s, 1);
    daemon.Create(t, 1);
    daemon.Grant(s);
    if (waits) daemon.Grant(t);
    EndCommand gives_up;
    gives_up.semaphore = s;
    gives_up.claim = daemon.Queue(s, {.client = client, .sequence = 1});
    gives_up.cause = EndCause::kCancelled;
    gives_up.only_waiting = true;
    std::vector<Command> batch = {gives_up};
    batch.emplace_back(world.MakeAcquire(t, {.wait = true, .client = client, .sequence = 1}));
    const std::vector<Outcome> outcomes = daemon.DoAll(std::move(batch));
    CHECK(outcomes[0].kind == OutcomeKind::kDone);
    REQUIRE(outcomes[1].kind == (waits ? OutcomeKind::kQueued : OutcomeKind::kGranted));
    const Id claim = waits ? outcomes[1].claim : outcomes[1].lease->id;
    // The first one, and another client's in the same batch.
    batch = {world.MakeAcquire(s, {.wait = true, .client = client, .sequence = 1})};
    batch.emplace_back(world.MakeAcquire("other", {.limit = 9}));
    const std::vector<Outcome> again = daemon.DoAll(std::move(batch));
    CHECK(again[0].kind == OutcomeKind::kReused);
    CHECK(again[1].kind == OutcomeKind::kGranted);
    const Outcome found = daemon.Acquire(t, {.wait = true, .client = client, .sequence = 1});
    CHECK((waits ? found.claim : found.lease->id) == claim);
  }
}

CONTRACT_CASE("a repeated release is answered the same and releases nothing more") {
  Daemon& daemon = world.daemon();
  const bool weighted = world.guarantees().weighted;
  daemon.Create("s", 3);
  const LeasePtr lease = daemon.Grant("s", {.permits = weighted ? 3u : 1u});
  for (int i = 0; weighted && i < 2; ++i) {
    const Outcome part = daemon.Release("s", lease->id, {1}, {"c", 1});
    CHECK(part.kind == OutcomeKind::kReleased);
    CHECK(part.released() == 1);
    CHECK(part.remaining() == 2);
  }
  const uint32_t rest = weighted ? 2 : 1;
  CHECK(daemon.Describe("s").held == rest);
  for (int i = 0; i < 2; ++i) {
    const Outcome all = daemon.Release("s", lease->id, {}, {"c", 2});
    CHECK(all.kind == OutcomeKind::kReleased);
    CHECK(all.released() == rest);
    CHECK(all.remaining() == 0);
  }
}

CONTRACT_CASE("a repeated administrative act is done once") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const AdminCommand add{
      {"admin", 1}, "s", 0, AdminResize{AdminResize::Change::kAdd, 2, 100, {}, {}}};
  for (int i = 0; i < 3; ++i) {
    const Outcome outcome = daemon.Do(add);
    CHECK(outcome.kind == OutcomeKind::kDone);
    CHECK(outcome.changed);
    CHECK(outcome.report->info->row.limit == 3);
  }
  const AdminCommand create{{"admin", 2}, "t", 0, AdminCreate{1, {}}};
  CHECK(daemon.Do(create).changed);
  CHECK(daemon.Do(create).changed);
  const AdminCommand destroy{{"admin", 3}, "t", 0, AdminDestroy{}};
  CHECK(daemon.Do(destroy).changed);
  const Outcome gone = daemon.Do(destroy);
  CHECK(gone.kind == OutcomeKind::kDone);
  CHECK(gone.changed);
}

CONTRACT_CASE("a repeated revocation does not revoke who came later") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  daemon.Grant("s");
  const AdminCommand revoke{{"admin", 1}, "s", 0, AdminRevoke{}};
  CHECK(daemon.Do(revoke).affected() == 1);
  const LeasePtr later = daemon.Grant("s");
  CHECK(daemon.Do(revoke).affected() == 1);
  CHECK(daemon.Verify("s", later->id).kind == OutcomeKind::kHeld);
}

CONTRACT_CASE("a request id below the window is refused and does nothing") {
  world.options().request_window = 4;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 9);
  daemon.GiveBack("s", daemon.Grant("s", {.client = "c", .sequence = 1})->id);
  for (uint64_t sequence = 2; sequence <= 5; ++sequence) {
    daemon.Grant("s", {.client = "c", .sequence = sequence});
  }
  CHECK(daemon.Acquire("s", {.client = "c", .sequence = 1}).kind == OutcomeKind::kTooOld);
  const LeasePtr lease = daemon.Grant("s");
  CHECK(daemon.Release("s", lease->id, {}, {"c", 1}).kind == OutcomeKind::kTooOld);
  const AdminResize add{AdminResize::Change::kAdd, 1, 100, {}, {}};
  CHECK(daemon.Do(AdminCommand{{"c", 1}, "s", 0, add}).kind == OutcomeKind::kTooOld);
  CHECK(daemon.Acquire("s", {.client = "c", .sequence = 2}).kind == OutcomeKind::kGranted);
  CHECK(daemon.Describe("s").held == 5);
  CHECK(daemon.Describe("s").row.limit == 9);
}

CONTRACT_CASE("a request whose claim stands is answered, however far below the window it is") {
  world.options().request_window = 4;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  const LeasePtr held = daemon.Grant("s", {.client = "c", .sequence = 1});
  daemon.Grant("s");
  const Id waits = daemon.Queue("s", {.client = "c", .sequence = 2});
  daemon.Create("t", 1);
  // Enough for the floor to rise above both.
  for (uint64_t sequence = 3; sequence < 700; sequence += 2) {
    const LeasePtr lease = daemon.Grant("t", {.client = "c", .sequence = sequence});
    REQUIRE(daemon.Release("t", lease->id, {}, {"c", sequence + 1}).kind == OutcomeKind::kReleased);
  }
  CHECK(daemon.Acquire("s", {.client = "c", .sequence = 1}).lease->id == held->id);
  CHECK(daemon.Acquire("s", {.wait = true, .client = "c", .sequence = 2}).claim == waits);
  CHECK(daemon.Acquire("t", {.client = "c", .sequence = 1}).kind == OutcomeKind::kReused);
  CHECK(daemon.Acquire("t", {.client = "c", .sequence = 3}).kind == OutcomeKind::kTooOld);
  daemon.CheckHeld("s", 2);
}

CONTRACT_CASE("within the window requests may come in any order") {
  world.options().request_window = 8;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 9);
  for (const uint64_t sequence : {8, 3, 5, 1})
    daemon.Grant("s", {.client = "c", .sequence = sequence});
  CHECK(daemon.Describe("s").held == 4);
  for (const uint64_t sequence : {1, 3, 5, 8}) {
    CHECK(daemon.Acquire("s", {.client = "c", .sequence = sequence}).kind == OutcomeKind::kGranted);
  }
  CHECK(daemon.Describe("s").held == 4);
}

CONTRACT_CASE("the window goes on with thousands of requests") {
  world.options().request_window = 16;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  for (uint64_t sequence = 1; sequence < 1'000; sequence += 2) {
    const LeasePtr lease = daemon.Grant("s", {.client = "c", .sequence = sequence});
    REQUIRE(daemon.Release("s", lease->id, {}, {"c", sequence + 1}).kind == OutcomeKind::kReleased);
  }
  CHECK(daemon.Acquire("s", {.client = "c", .sequence = 999}).cause == EndCause::kReleased);
  CHECK(daemon.Acquire("s", {.client = "c", .sequence = 985}).kind == OutcomeKind::kNotHeld);
  CHECK(daemon.Acquire("s", {.client = "c", .sequence = 983}).kind == OutcomeKind::kTooOld);
}

CONTRACT_CASE("a request id used for something else is refused") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3);
  daemon.Create("t", 3);
  const LeasePtr lease = daemon.Grant("s", {.client = "c", .sequence = 1});
  CHECK(daemon.Acquire("t", {.client = "c", .sequence = 1}).kind == OutcomeKind::kReused);
  CHECK(daemon.Release("s", lease->id, {}, {"c", 1}).kind == OutcomeKind::kReused);
  CHECK(daemon.Do(AdminCommand{{"c", 1}, "s", 0, AdminRevoke{}}).kind == OutcomeKind::kReused);
  const LeasePtr other = daemon.Grant("s");
  REQUIRE(daemon.Release("s", lease->id, {}, {"c", 2}).kind == OutcomeKind::kReleased);
  CHECK(daemon.Release("s", other->id, {}, {"c", 2}).kind == OutcomeKind::kReused);
  CHECK(daemon.Acquire("s", {.client = "c", .sequence = 2}).kind == OutcomeKind::kReused);
  CHECK(daemon.Verify("s", other->id).kind == OutcomeKind::kHeld);
}

CONTRACT_CASE("a request id that waits is not free for something else") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  daemon.Create("t", 1);
  const LeasePtr lease = daemon.Grant("s");
  daemon.Queue("s", {.client = "c", .sequence = 1});
  CHECK(daemon.Acquire("t", {.client = "c", .sequence = 1}).kind == OutcomeKind::kReused);
  CHECK(daemon.Release("s", lease->id, {}, {"c", 1}).kind == OutcomeKind::kReused);
  CHECK(daemon.Describe("t").held == 0);
}

CONTRACT_CASE("clients do not see each other's request ids") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 9);
  const LeasePtr a = daemon.Grant("s", {.client = "a", .sequence = 1});
  const LeasePtr b = daemon.Grant("s", {.client = "b", .sequence = 1});
  CHECK(a->id != b->id);
  CHECK(daemon.Acquire("s", {.client = "a", .sequence = 1}).lease->id == a->id);
  CHECK(daemon.Acquire("s", {.client = "b", .sequence = 1}).lease->id == b->id);
}

CONTRACT_CASE("requests without an id are each new") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 9);
  const LeasePtr a = daemon.Grant("s", {.client = "c", .sequence = 0});
  const LeasePtr b = daemon.Grant("s", {.client = "c", .sequence = 0});
  CHECK(a->id != b->id);
  CHECK(daemon.Describe("s").held == 2);
}

CONTRACT_CASE("a repeated acquire of a session answers with its lease") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  const Id session = world.NewId();
  REQUIRE(daemon.OpenSession(session, "c").kind == OutcomeKind::kDone);
  const LeasePtr lease = daemon.Grant("s", {.session = session, .client = "c", .sequence = 1});
  const Outcome again = daemon.Acquire("s", {.session = session, .client = "c", .sequence = 1});
  REQUIRE(again.kind == OutcomeKind::kGranted);
  CHECK(again.lease->id == lease->id);
  CHECK(daemon.Describe("s").held == 1);
}

CONTRACT_CASE("a client that is silent for long and holds nothing is forgotten") {
  world.options().client_retention = std::chrono::minutes(1);
  Daemon& daemon = world.daemon();
  daemon.Create("s", 9);
  const LeasePtr gone = daemon.Grant("s", {.client = "silent", .sequence = 1});
  daemon.GiveBack("s", gone->id);
  const LeasePtr held = daemon.Grant("s", {.client = "holding", .sequence = 1});
  world.Advance(61'000);
  daemon.Grant("s", {.client = "another", .sequence = 1});
  daemon.Grant("s", {.client = "another", .sequence = 2});
  CHECK(daemon.Acquire("s", {.client = "holding", .sequence = 1}).lease->id == held->id);
  // Forgotten: the id is as new. A shared engine may know better than this daemon who is silent.
  const OutcomeKind again = daemon.Acquire("s", {.client = "silent", .sequence = 1}).kind;
  if (world.guarantees().exclusive || again != OutcomeKind::kNotHeld) {
    CHECK(again == OutcomeKind::kGranted);
  }
}

}  // namespace semaphored::contract
