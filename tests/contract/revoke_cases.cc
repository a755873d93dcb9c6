// Taking permits away from who holds them.
#include <set>

#include "tests/contract/world.h"

namespace semaphored::contract {

CONTRACT_CASE("revoke ends one lease at once and passes its permits on") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  const LeasePtr a = daemon.Grant("s");
  const LeasePtr b = daemon.Grant("s");
  const Id waiter = daemon.Queue("s");
  const Outcome outcome = daemon.Administer("s", AdminRevoke{a->id, "", 0});
  CHECK(outcome.kind == OutcomeKind::kDone);
  CHECK(outcome.affected() == 1);
  const std::vector<SeenEvent> events = daemon.TakeEvents();
  CHECK(Saw(events, Event::Kind::kEnded, a->id, EndCause::kRevoked));
  CHECK(Saw(events, Event::Kind::kGranted, waiter));
  CHECK(daemon.Verify("s", a->id).cause == EndCause::kRevoked);
  CHECK(daemon.Verify("s", b->id).kind == OutcomeKind::kHeld);
  CHECK(daemon.Release("s", a->id).cause == EndCause::kRevoked);
}

CONTRACT_CASE("revoke ends all leases of a holder") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 5);
  daemon.Grant("s", {.holder = "x"});
  const LeasePtr other = daemon.Grant("s", {.holder = "xy"});
  daemon.Grant("s", {.holder = "x"});
  const Outcome outcome = daemon.Administer("s", AdminRevoke{{}, "x", 0});
  CHECK(outcome.affected() == 2);
  CHECK(outcome.report->info->held == 1);
  CHECK(daemon.Verify("s", other->id).kind == OutcomeKind::kHeld);
}

CONTRACT_CASE("revoke ends all leases, and leaves the waiters their places") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  daemon.Grant("s");
  daemon.Grant("s");
  const Id a = daemon.Queue("s");
  const Id b = daemon.Queue("s");
  const Id c = daemon.Queue("s");
  const Outcome outcome = daemon.Administer("s", AdminRevoke{});
  CHECK(outcome.affected() == 2);
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted) == std::vector{a, b});
  CHECK(WaitersIn(daemon.Describe("s")) == std::vector{c});
}

CONTRACT_CASE("revoke with a grace recalls first") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  const LeasePtr a = daemon.Grant("s");
  const LeasePtr b = daemon.Grant("s");
  const Outcome outcome = daemon.Administer("s", AdminRevoke{{}, "", 5'000});
  CHECK(outcome.affected() == 2);
  const std::vector<SeenEvent> events = daemon.TakeEvents();
  const std::vector<Id> recalled = ClaimsIn(events, Event::Kind::kRecalled);
  CHECK(std::set<Id>(recalled.begin(), recalled.end()) == std::set<Id>{a->id, b->id});
  for (const SeenEvent& event : events) {
    CHECK(event.lease->recall == Recall{Recall::Reason::kAdministrator, 5'000});
  }
  CHECK(daemon.Verify("s", a->id).kind == OutcomeKind::kHeld);
  CHECK(daemon.Describe("s").held == 2);
}

CONTRACT_CASE("a later revoke with a longer grace changes nothing, one with a shorter does") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr lease = daemon.Grant("s");
  REQUIRE(daemon.Administer("s", AdminRevoke{{}, "", 5'000}).affected() == 1);
  daemon.TakeEvents();
  for (const int64_t longer_ms : {5'000, 60'000}) {
    CHECK(daemon.Administer("s", AdminRevoke{{}, "", longer_ms}).affected() == 1);
    CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kRecalled).empty());
    CHECK(daemon.Verify("s", lease->id).lease->recall ==
          Recall{Recall::Reason::kAdministrator, 5'000});
  }
  CHECK(daemon.Administer("s", AdminRevoke{{}, "", 2'000}).affected() == 1);
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kRecalled) == std::vector{lease->id});
  CHECK(daemon.Verify("s", lease->id).lease->recall ==
        Recall{Recall::Reason::kAdministrator, 2'000});
  CHECK(daemon.Administer("s", AdminRevoke{{}, "", 0}).affected() == 1);
  CHECK(daemon.Verify("s", lease->id).cause == EndCause::kRevoked);
}

CONTRACT_CASE("the semaphore's own grace is never none: the lease's host ends it") {
  Daemon& daemon = world.daemon();
  Settings settings;
  settings.recall_grace_ms = 0;
  if (!world.guarantees().settings) return;
  REQUIRE(daemon.Administer("s", AdminCreate{1, settings}).kind == OutcomeKind::kDone);
  const LeasePtr lease = daemon.Grant("s");
  CHECK(daemon.Administer("s", AdminRevoke{{}, "", Recall::kOwnGrace}).affected() == 1);
  const Outcome held = daemon.Verify("s", lease->id);
  REQUIRE(held.kind == OutcomeKind::kHeld);
  CHECK(held.lease->recall == Recall{Recall::Reason::kAdministrator, 1});
}

CONTRACT_CASE(
    "a destroy by force with a grace recalls, and the semaphore goes with the last lease") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  const LeasePtr a = daemon.Grant("s");
  const LeasePtr b = daemon.Grant("s");
  const Id waiter = daemon.Queue("s");
  const Outcome outcome = daemon.Administer("s", AdminDestroy{DestroyPolicy::kForce, 5'000});
  CHECK(outcome.kind == OutcomeKind::kDone);
  CHECK(outcome.affected() == 2);
  const std::vector<SeenEvent> events = daemon.TakeEvents();
  CHECK(Saw(events, Event::Kind::kWaitEnded, waiter, EndCause::kDestroyed));
  const std::vector<Id> recalled = ClaimsIn(events, Event::Kind::kRecalled);
  CHECK(std::set<Id>(recalled.begin(), recalled.end()) == std::set<Id>{a->id, b->id});
  const bool verifies = world.guarantees().verifies_removed_slots;
  const Outcome verified = daemon.Verify("s", a->id);
  CHECK((verified.kind == OutcomeKind::kHeld) == verifies);
  if (verifies) CHECK(verified.lease->recall == Recall{Recall::Reason::kDestroyed, 5'000});
  CHECK(daemon.End("s", a->id, EndCause::kDestroyed).kind == OutcomeKind::kDone);
  CHECK((daemon.Verify("s", b->id).kind == OutcomeKind::kHeld) == verifies);
  CHECK(daemon.Release("s", b->id).kind == OutcomeKind::kReleased);
  CHECK(daemon.Administer("s", AdminDescribe{}).kind == OutcomeKind::kNoSuchSemaphore);
}

CONTRACT_CASE("revoke of what nobody holds affects nothing") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  daemon.Grant("s");
  const Id waiter = daemon.Queue("s", {.holder = "waits"});
  for (const AdminRevoke& act : {AdminRevoke{world.NewId(), "", 0}, AdminRevoke{{}, "nobody", 0},
                                 AdminRevoke{waiter, "", 0}, AdminRevoke{{}, "waits", 0}}) {
    const Outcome outcome = daemon.Administer("s", act);
    CHECK(outcome.kind == OutcomeKind::kDone);
    CHECK(outcome.affected() == 0);
  }
  CHECK(daemon.Describe("s").held == 1);
  CHECK(daemon.Describe("s").waiting == 1);
}

// ---- Permits per holder ----

CONTRACT_CASE("a holder gets no more than its cap, others do") {
  if (!world.guarantees().holder_cap) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 5, {.permits_per_holder = 2});
  daemon.Grant("s", {.holder = "x"});
  const LeasePtr second = daemon.Grant("s", {.holder = "x"});
  CHECK(daemon.Acquire("s", {.holder = "x"}).kind == OutcomeKind::kHolderCap);
  CHECK(daemon.Grant("s", {.permits = 2, .holder = "y"})->slots == Slots{3, 4});
  daemon.GiveBack("s", second->id);
  CHECK(daemon.Acquire("s", {.holder = "x"}).kind == OutcomeKind::kGranted);
}

CONTRACT_CASE("a request above the holder's cap can never be served and is told so") {
  if (!world.guarantees().holder_cap) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 5, {.permits_per_holder = 2});
  for (const bool wait : {false, true}) {
    const Outcome outcome = daemon.Acquire("s", {.permits = 3, .wait = wait});
    CHECK(outcome.kind == OutcomeKind::kExceedsLimit);
    CHECK(outcome.limit() == 2);
  }
}

CONTRACT_CASE("who waits for its own cap holds nobody up") {
  if (!world.guarantees().holder_cap) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3, {.permits_per_holder = 1});
  const LeasePtr x = daemon.Grant("s", {.holder = "x"});
  const Id x_again = daemon.Queue("s", {.holder = "x"});
  const LeasePtr y = daemon.Grant("s", {.holder = "y"});
  const LeasePtr z = daemon.Grant("s", {.holder = "z"});
  const Id y_again = daemon.Queue("s", {.holder = "y"});
  const Id w = daemon.Queue("s", {.holder = "w"});
  daemon.GiveBack("s", z->id);
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted) == std::vector{w});
  daemon.GiveBack("s", y->id);
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted) == std::vector{y_again});
  daemon.GiveBack("s", x->id);
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted) == std::vector{x_again});
}

CONTRACT_CASE("one advance grants a holder no more than its cap") {
  if (!world.guarantees().holder_cap) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 4, {.permits_per_holder = 2});
  REQUIRE(daemon.Administer("s", AdminPause{true}).kind == OutcomeKind::kDone);
  const Id x1 = daemon.Queue("s", {.holder = "x"});
  const Id x2 = daemon.Queue("s", {.holder = "x"});
  const Id x3 = daemon.Queue("s", {.holder = "x"});
  const Id y = daemon.Queue("s", {.permits = 2, .holder = "y"});
  REQUIRE(daemon.Administer("s", AdminPause{false}).kind == OutcomeKind::kDone);
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted) == std::vector{x1, x2, y});
  CHECK(WaitersIn(daemon.Describe("s")) == std::vector{x3});
}

CONTRACT_CASE(
    "a raised cap serves who waited for it, a lowered one tells who can never be served") {
  if (!world.guarantees().holder_cap) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 4, {.permits_per_holder = 2});
  daemon.Grant("s", {.holder = "x"});
  const Id two = daemon.Queue("s", {.permits = 2, .holder = "x"});
  REQUIRE(daemon.Administer("s", AdminConfigure{{.permits_per_holder = 1}}).kind ==
          OutcomeKind::kDone);
  CHECK(Saw(daemon.TakeEvents(), Event::Kind::kWaitEnded, two, EndCause::kExceedsLimit));
  const Id one = daemon.Queue("s", {.holder = "x"});
  REQUIRE(daemon.Administer("s", AdminConfigure{{}}).kind == OutcomeKind::kDone);
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted) == std::vector{one});
}

}  // namespace semaphored::contract
