// Promise 10: everything has a limit, and a clear answer at it that changes nothing.
#include "tests/contract/world.h"

namespace semaphored::contract {
namespace {

void CheckLimitReached(const Outcome& outcome) {
  CHECK(outcome.kind == OutcomeKind::kLimitReached);
  CHECK_FALSE(outcome.message.empty());
}

}  // namespace

CONTRACT_CASE("semaphores have a limit") {
  world.options().limits.semaphores_max = 2;
  Daemon& daemon = world.daemon();
  daemon.Create("a", 1);
  daemon.Grant("b", {.limit = 1});
  CheckLimitReached(daemon.Administer("c", AdminCreate{1, {}}));
  CheckLimitReached(daemon.Acquire("c", {.limit = 1}));
  CHECK_FALSE(daemon.Exists("c"));
  CHECK(daemon.Acquire("a", {.limit = 1}).kind == OutcomeKind::kGranted);
  REQUIRE(daemon.Administer("a", AdminDestroy{DestroyPolicy::kForce}).kind == OutcomeKind::kDone);
  CHECK(daemon.Acquire("c", {.limit = 1}).kind == OutcomeKind::kGranted);
}

CONTRACT_CASE("leases and waiters together have a limit") {
  world.options().limits.leases_max = 3;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  const LeasePtr lease = daemon.Grant("s");
  daemon.Grant("s");
  daemon.Queue("s");
  CheckLimitReached(daemon.Acquire("s", {.wait = true}));
  CheckLimitReached(daemon.Acquire("t", {.limit = 1}));
  CHECK_FALSE(daemon.Exists("t"));
  CHECK(daemon.Describe("s").waiting == 1);
  daemon.GiveBack("s", lease->id);
  CHECK(daemon.Acquire("t", {.limit = 1}).kind == OutcomeKind::kGranted);
}

CONTRACT_CASE("waiters of all semaphores have a limit") {
  world.options().limits.waiters_max = 2;
  Daemon& daemon = world.daemon();
  for (const char* name : {"a", "b"}) {
    daemon.Grant(name, {.limit = 1});
    daemon.Queue(name);
  }
  CheckLimitReached(daemon.Acquire("a", {.wait = true}));
  CHECK(daemon.Acquire("a", {}).kind == OutcomeKind::kFull);
  CHECK(daemon.Describe("a").waiting == 1);
}

CONTRACT_CASE("waiters of one semaphore have a limit") {
  world.options().limits.waiters_per_semaphore_max = 1;
  Daemon& daemon = world.daemon();
  daemon.Grant("a", {.limit = 1});
  daemon.Grant("b", {.limit = 1});
  const Id waiter = daemon.Queue("a");
  CheckLimitReached(daemon.Acquire("a", {.wait = true}));
  daemon.Queue("b");
  REQUIRE(daemon.EndWait("a", waiter, EndCause::kCancelled).kind == OutcomeKind::kDone);
  daemon.Queue("a");
}

CONTRACT_CASE("a semaphore may set a lower limit of waiters, not a higher one") {
  world.options().limits.waiters_per_semaphore_max = 2;
  if (!world.guarantees().settings) return;
  Daemon& daemon = world.daemon();
  daemon.Create("low", 1, {.waiters_max = 1});
  daemon.Create("high", 1, {.waiters_max = 5});
  daemon.Grant("low");
  daemon.Grant("high");
  daemon.Queue("low");
  CheckLimitReached(daemon.Acquire("low", {.wait = true}));
  daemon.Queue("high");
  daemon.Queue("high");
  CheckLimitReached(daemon.Acquire("high", {.wait = true}));
}

CONTRACT_CASE("a request that waits already is found at the limit too") {
  world.options().limits.waiters_per_semaphore_max = 1;
  Daemon& daemon = world.daemon();
  daemon.Grant("s", {.limit = 1});
  const Id waiter = daemon.Queue("s", {.client = "c", .sequence = 1});
  const Outcome again = daemon.Acquire("s", {.wait = true, .client = "c", .sequence = 1});
  CHECK(again.kind == OutcomeKind::kQueued);
  CHECK(again.claim == waiter);
}

CONTRACT_CASE("a wait that is repeated in a session, or by a call, is found at the limits too") {
  world.options().limits.waiters_per_semaphore_max = 1;
  world.options().limits.waiters_max = 1;
  world.options().limits.leases_max = 2;
  Daemon& daemon = world.daemon();
  const LeasePtr holds = daemon.Grant("s", {.limit = 1});
  const Id session = world.NewId();
  REQUIRE(daemon.OpenSession(session, "c").kind == OutcomeKind::kDone);
  const Id waiter = daemon.Queue("s", {.client = "c", .sequence = 1});
  for (const Id& asks : {session, Id()}) {
    const Ask repeated{.wait = true, .session = asks, .client = "c", .sequence = 1};
    const Outcome again = daemon.Acquire("s", repeated);
    REQUIRE(again.kind == OutcomeKind::kQueued);
    CHECK(again.claim == waiter);
    CHECK(daemon.Describe("s").waiting == 1);
  }
  CheckLimitReached(daemon.Acquire("s", {.wait = true, .client = "c", .sequence = 2}));
  daemon.GiveBack("s", holds->id);
  daemon.PollUntil([&] { return Saw(daemon.events(), Event::Kind::kGranted, waiter); });
  CHECK(daemon.Verify("s", waiter).lease->detached());
  daemon.CheckHeld("s", 1);
}

CONTRACT_CASE("sessions have a limit") {
  world.options().limits.sessions_max = 2;
  Daemon& daemon = world.daemon();
  const Id first = world.NewId();
  REQUIRE(daemon.OpenSession(first).kind == OutcomeKind::kDone);
  REQUIRE(daemon.OpenSession(world.NewId()).kind == OutcomeKind::kDone);
  CheckLimitReached(daemon.OpenSession(world.NewId()));
  CHECK(daemon.OpenSession(first).kind == OutcomeKind::kDone);
  REQUIRE(daemon.Do(CloseSessionCommand{first, 0, EndCause::kReleased}).kind == OutcomeKind::kDone);
  CHECK(daemon.OpenSession(world.NewId()).kind == OutcomeKind::kDone);
}

CONTRACT_CASE("clients that are remembered have a limit") {
  world.options().clients_max = 2;
  world.options().client_retention = std::chrono::minutes(1);
  Daemon& daemon = world.daemon();
  daemon.Create("s", 9);
  const LeasePtr a = daemon.Grant("s", {.client = "a", .sequence = 1});
  const LeasePtr b = daemon.Grant("s", {.client = "b", .sequence = 1});
  CheckLimitReached(daemon.Acquire("s", {.client = "c", .sequence = 1}));
  CheckLimitReached(daemon.OpenSession(world.NewId(), "d"));
  CHECK(daemon.Acquire("s", {.client = "a", .sequence = 1}).lease->id == a->id);
  CHECK(daemon.Acquire("s", {}).kind == OutcomeKind::kGranted);
  daemon.GiveBack("s", b->id);
  world.Advance(61'000);
  daemon.Grant("s", {.client = "a", .sequence = 2});  // Any write lets the silent go.
  CHECK(daemon.Acquire("s", {.client = "c", .sequence = 1}).kind == OutcomeKind::kGranted);
}

CONTRACT_CASE(
    "a client whose requests are refused takes no place among those that are remembered") {
  world.options().clients_max = 2;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  daemon.Create("t", 1);
  daemon.Grant("s", {.client = "holder", .sequence = 1});
  for (const char* refused : {"x", "y", "z"})
    CHECK(daemon.Acquire("s", {.client = refused, .sequence = 1}).kind == OutcomeKind::kFull);
  CHECK(daemon.Acquire("t", {.client = "new", .sequence = 1}).kind == OutcomeKind::kGranted);
}

CONTRACT_CASE("at the limit of clients the silent make room for new ones") {
  world.options().clients_max = 1;
  world.options().client_retention = std::chrono::minutes(1);
  Daemon& daemon = world.daemon();
  daemon.Create("s", 9);
  daemon.GiveBack("s", daemon.Grant("s", {.client = "silent", .sequence = 1})->id);
  world.Advance(61'000);
  // The first try may still meet the limit, but it makes room.
  daemon.Acquire("s", {.client = "new", .sequence = 1});
  CHECK(daemon.Acquire("s", {.client = "new", .sequence = 1}).kind == OutcomeKind::kGranted);
}

CONTRACT_CASE("a client that got nothing for long and then opens a session is known") {
  world.options().client_retention = std::chrono::minutes(1);
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  daemon.Grant("s");
  CHECK(daemon.Acquire("s", {.client = "c", .sequence = 1}).kind == OutcomeKind::kFull);
  world.Advance(61'000);
  CHECK(daemon.OpenSession(world.NewId(), "c").kind == OutcomeKind::kDone);
  CHECK(daemon.Acquire("s", {.client = "c", .sequence = 2}).kind == OutcomeKind::kFull);
}

CONTRACT_CASE("the limit of clients is kept within one batch") {
  world.options().clients_max = 1;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 9);
  std::vector<Command> batch;
  for (const char* client : {"a", "b", "a"}) {
    batch.push_back(
        AdminCommand{{client, 1}, "s", 0, AdminResize{AdminResize::Change::kSet, 8, 100, {}, {}}});
  }
  const std::vector<Outcome> outcomes = daemon.DoAll(std::move(batch));
  CHECK(outcomes[0].kind == OutcomeKind::kDone);
  CheckLimitReached(outcomes[1]);
  CHECK(outcomes[2].kind == OutcomeKind::kDone);
  CHECK(outcomes[2].changed);
}

}  // namespace semaphored::contract
