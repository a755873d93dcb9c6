// Raising and lowering a limit, and destroying.
#include <algorithm>
#include <set>

#include "tests/contract/world.h"

namespace semaphored::contract {
namespace {

AdminResize By(AdminResize::Change change, uint32_t amount, uint32_t limit_max = 1'000'000) {
  return AdminResize{change, amount, limit_max, ShrinkPolicy::kWait};
}

AdminResize Recalling(uint32_t limit, int64_t grace_ms) {
  return AdminResize{AdminResize::Change::kSet, limit, 1'000'000, ShrinkPolicy::kRecall, grace_ms};
}

}  // namespace

CONTRACT_CASE("raising the limit serves who waits, in order") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  daemon.Grant("s");
  const Id a = daemon.Queue("s");
  const Id b = daemon.Queue("s");
  const Id c = daemon.Queue("s");
  const Outcome outcome = daemon.Resize("s", 3);
  CHECK(outcome.kind == OutcomeKind::kDone);
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted) == std::vector{a, b});
  CHECK(WaitersIn(daemon.Describe("s")) == std::vector{c});
}

CONTRACT_CASE("a limit is set, added to and taken from, within its range") {
  Daemon& daemon = world.daemon();
  using Change = AdminResize::Change;
  daemon.Create("s", 5);
  const auto limit_after = [&](const AdminResize& act) {
    REQUIRE(daemon.Administer("s", act).kind == OutcomeKind::kDone);
    return daemon.Describe("s").row.limit;
  };
  CHECK(limit_after(By(Change::kAdd, 3)) == 8);
  CHECK(limit_after(By(Change::kRemove, 6)) == 2);
  CHECK(limit_after(By(Change::kSet, 10, 10)) == 10);
  for (const AdminResize& act : {By(Change::kSet, 11, 10), By(Change::kAdd, 1, 10),
                                 By(Change::kRemove, 11), By(Change::kAdd, 4'294'967'295u)}) {
    const Outcome outcome = daemon.Administer("s", act);
    CHECK(outcome.kind == OutcomeKind::kOutOfRange);
    CHECK(outcome.report->info->row.limit == 10);
  }
  CHECK(limit_after(By(Change::kRemove, 9)) == 1);
  if (world.CanBeZero()) CHECK(limit_after(By(Change::kRemove, 1)) == 0);
}

CONTRACT_CASE("lowering with wait lets holders stay and grants nothing until there is room") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 4);
  std::vector<LeasePtr> leases;
  for (int i = 0; i < 4; ++i) leases.push_back(daemon.Grant("s"));
  const Id waiter = daemon.Queue("s");
  const Outcome outcome = daemon.Resize("s", 2);
  CHECK(outcome.kind == OutcomeKind::kDone);
  CHECK(outcome.affected() == 0);
  CHECK(daemon.Describe("s").held == 4);
  for (const LeasePtr& lease : leases) {
    const bool held = world.guarantees().verifies_removed_slots || lease->slots.front() <= 2;
    CHECK((daemon.Verify("s", lease->id).kind == OutcomeKind::kHeld) == held);
  }
  CHECK(daemon.Describe("s").held == 4);
  daemon.GiveBack("s", leases[0]->id);
  daemon.GiveBack("s", leases[1]->id);
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted).empty());
  CHECK(daemon.Acquire("s", {}).kind == OutcomeKind::kFull);
  daemon.GiveBack("s", leases[3]->id);
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted) == std::vector{waiter});
  if (world.guarantees().lowest_slot) CHECK(daemon.Verify("s", waiter).lease->slots == Slots{1});
  daemon.CheckHeld("s", 2);
}

CONTRACT_CASE("lowering with recall asks the highest slots back, as few as are needed") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 5);
  std::vector<LeasePtr> leases;
  for (int i = 0; i < 5; ++i) leases.push_back(daemon.Grant("s"));
  const Outcome outcome = daemon.Administer("s", Recalling(3, 7'000));
  CHECK(outcome.kind == OutcomeKind::kDone);
  CHECK(outcome.affected() == 2);
  const std::vector<SeenEvent> events = daemon.TakeEvents();
  const std::vector<Id> recalled = ClaimsIn(events, Event::Kind::kRecalled);
  CHECK(std::set<Id>(recalled.begin(), recalled.end()) ==
        std::set<Id>{leases[3]->id, leases[4]->id});
  for (const SeenEvent& event : events)
    CHECK(event.lease->recall == Recall{Recall::Reason::kShrunk, 7'000});
  CHECK(daemon.Describe("s").held == 5);
  CHECK(daemon.End("s", leases[4]->id, EndCause::kRecalled).kind == OutcomeKind::kDone);
  CHECK(daemon.Release("s", leases[4]->id).cause == EndCause::kRecalled);
  CHECK(daemon.Verify("s", leases[0]->id).kind == OutcomeKind::kHeld);
}

CONTRACT_CASE("a recall for shrinking counts those that are already recalled") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 4);
  for (int i = 0; i < 4; ++i) daemon.Grant("s");
  CHECK(daemon.Administer("s", Recalling(3, 7'000)).affected() == 1);
  CHECK(daemon.Administer("s", Recalling(3, 7'000)).affected() == 0);
  CHECK(daemon.Administer("s", Recalling(1, 7'000)).affected() == 2);
}

CONTRACT_CASE("the grace of a recall is the semaphore's own unless one is given") {
  Daemon& daemon = world.daemon();
  Settings settings;
  if (world.guarantees().settings) settings.recall_grace_ms = 1'234;
  daemon.Create("s", 2, settings);
  daemon.Grant("s");
  const LeasePtr second = daemon.Grant("s");
  CHECK(daemon.Administer("s", Recalling(1, Recall::kOwnGrace)).affected() == 1);
  const Outcome verified = daemon.Verify("s", second->id);
  if (world.guarantees().verifies_removed_slots)
    CHECK(verified.lease->recall.grace_ms == settings.recall_grace_ms);
  else
    CHECK(verified.kind == OutcomeKind::kNotHeld);
}

CONTRACT_CASE("lowering with recall and no grace ends leases at once") {
  Daemon& daemon = world.daemon();
  const uint32_t permits = world.guarantees().weighted ? 2 : 1;
  daemon.Create("s", 1 + permits);
  const LeasePtr a = daemon.Grant("s");
  const LeasePtr wide = daemon.Grant("s", {.permits = permits});
  CHECK(daemon.Administer("s", Recalling(permits, 0)).affected() == 1);
  CHECK(Saw(daemon.TakeEvents(), Event::Kind::kEnded, wide->id, EndCause::kRecalled));
  CHECK(daemon.Verify("s", a->id).kind == OutcomeKind::kHeld);
  daemon.CheckHeld("s", 1);
}

CONTRACT_CASE("lowering with refuse changes nothing when more is held") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 4);
  for (int i = 0; i < 3; ++i) daemon.Grant("s");
  const Outcome refused = daemon.Resize("s", 2, ShrinkPolicy::kRefuse);
  CHECK(refused.kind == OutcomeKind::kWouldOvershoot);
  CHECK(refused.report->info->held == 3);
  CHECK(daemon.Describe("s").row.limit == 4);
  CHECK(daemon.Resize("s", 3, ShrinkPolicy::kRefuse).kind == OutcomeKind::kDone);
  CHECK(daemon.Describe("s").row.limit == 3);
}

CONTRACT_CASE("a waiter that a lowered limit can never serve is told at once") {
  if (!world.guarantees().weighted) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 4);
  daemon.Grant("s");
  const Id large = daemon.Queue("s", {.permits = 4});
  const Id small = daemon.Queue("s", {.permits = 2});
  REQUIRE(daemon.Resize("s", 3).kind == OutcomeKind::kDone);
  const std::vector<SeenEvent> events = daemon.TakeEvents();
  CHECK(Saw(events, Event::Kind::kWaitEnded, large, EndCause::kExceedsLimit));
  CHECK(Saw(events, Event::Kind::kGranted, small));
  CHECK(daemon.Describe("s").waiting == 0);
}

CONTRACT_CASE("a limit lowered to zero tells all who wait") {
  if (!world.CanBeZero()) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr lease = daemon.Grant("s");
  const Id waiter = daemon.Queue("s");
  REQUIRE(daemon.Resize("s", 0).kind == OutcomeKind::kDone);
  CHECK(Saw(daemon.TakeEvents(), Event::Kind::kWaitEnded, waiter, EndCause::kExceedsLimit));
  CHECK(daemon.Verify("s", lease->id).kind == OutcomeKind::kHeld);
}

CONTRACT_CASE("a limit lowered and raised again has all its slots") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 4);
  std::vector<LeasePtr> leases;
  for (int i = 0; i < 4; ++i) leases.push_back(daemon.Grant("s"));
  REQUIRE(daemon.Resize("s", 1).kind == OutcomeKind::kDone);
  daemon.GiveBack("s", leases[0]->id);
  daemon.GiveBack("s", leases[1]->id);
  REQUIRE(daemon.Resize("s", 6).kind == OutcomeKind::kDone);
  std::vector<uint32_t> slots;
  for (int i = 0; i < 4; ++i) slots.push_back(daemon.GrantSoon("s")->slots.front());
  if (!world.guarantees().lowest_slot) std::ranges::sort(slots);
  CHECK(slots == std::vector<uint32_t>{1, 2, 5, 6});
  CHECK(daemon.Acquire("s", {}).kind == OutcomeKind::kFull);
}

CONTRACT_CASE("of a limit lowered and raised again a part of a lease is free") {
  if (!world.guarantees().weighted) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 4);
  const LeasePtr all = daemon.Grant("s", {.permits = 4});
  REQUIRE(daemon.Resize("s", 1).kind == OutcomeKind::kDone);
  REQUIRE(daemon.Release("s", all->id, {1, 2}).kind == OutcomeKind::kReleased);
  REQUIRE(daemon.Resize("s", 6).kind == OutcomeKind::kDone);
  CHECK(daemon.Grant("s", {.permits = 4})->slots == Slots{1, 2, 5, 6});
  CHECK(daemon.Acquire("s", {}).kind == OutcomeKind::kFull);
}

CONTRACT_CASE("destroy is refused while anybody holds or waits") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr lease = daemon.Grant("s");
  const Outcome held = daemon.Administer("s", AdminDestroy{});
  CHECK(held.kind == OutcomeKind::kInUse);
  CHECK(held.report->info->held == 1);
  // Nobody waits where there is room, but in a pause.
  const bool pauses = world.guarantees().settings;
  if (pauses) REQUIRE(daemon.Administer("s", AdminPause{true}).kind == OutcomeKind::kDone);
  const Id waiter = daemon.Queue("s");
  if (pauses) daemon.GiveBack("s", lease->id);
  CHECK(daemon.Administer("s", AdminDestroy{}).kind == OutcomeKind::kInUse);
  REQUIRE(daemon.EndWait("s", waiter, EndCause::kCancelled).kind == OutcomeKind::kDone);
  if (!pauses) daemon.GiveBack("s", lease->id);
  const Outcome done = daemon.Administer("s", AdminDestroy{});
  CHECK(done.kind == OutcomeKind::kDone);
  CHECK(done.changed);
  CHECK((done.report == nullptr || !done.report->info));
  CHECK_FALSE(daemon.Exists("s"));
}

CONTRACT_CASE("destroy with wait tells the waiters and goes when the last holder leaves") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  const LeasePtr a = daemon.Grant("s");
  const LeasePtr b = daemon.Grant("s");
  const Id waiter = daemon.Queue("s");
  const Outcome pending = daemon.Administer("s", AdminDestroy{DestroyPolicy::kWait});
  REQUIRE(pending.kind == OutcomeKind::kDone);
  REQUIRE(pending.report->info);
  CHECK(pending.report->info->row.destroying);
  CHECK(Saw(daemon.TakeEvents(), Event::Kind::kWaitEnded, waiter, EndCause::kDestroyed));
  daemon.GiveBack("s", a->id);
  CHECK(daemon.Acquire("s", {}).kind == OutcomeKind::kDestroyed);
  CHECK(daemon.Acquire("s", {.limit = 2, .wait = true}).kind == OutcomeKind::kDestroyed);
  CHECK(daemon.Administer("s", AdminCreate{2, {}}).kind == OutcomeKind::kDestroyed);
  CHECK((daemon.Verify("s", b->id).kind == OutcomeKind::kHeld) ==
        world.guarantees().verifies_removed_slots);
  CHECK(daemon.Exists("s"));
  daemon.GiveBack("s", b->id);
  CHECK_FALSE(daemon.Exists("s"));
  CHECK(daemon.Acquire("s", {}).kind == OutcomeKind::kNoSuchSemaphore);
}

CONTRACT_CASE("destroy with wait goes at once when nobody holds") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  CHECK(daemon.Administer("s", AdminDestroy{DestroyPolicy::kWait}).kind == OutcomeKind::kDone);
  CHECK_FALSE(daemon.Exists("s"));
}

CONTRACT_CASE("a semaphore being destroyed goes by an expiry or a revocation too") {
  Daemon& daemon = world.daemon();
  for (const bool revoke : {false, true}) {
    daemon.Create("s", 1);
    const LeasePtr lease = daemon.Grant("s");
    REQUIRE(daemon.Administer("s", AdminDestroy{DestroyPolicy::kWait}).kind == OutcomeKind::kDone);
    const Outcome ended = revoke ? daemon.Administer("s", AdminRevoke{})
                                 : daemon.End("s", lease->id, EndCause::kExpired);
    CHECK(ended.kind == OutcomeKind::kDone);
    CHECK_FALSE(daemon.Exists("s"));
  }
}

CONTRACT_CASE("destroy by force ends all leases and waits at once") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr lease = daemon.Grant("s");
  const Id waiter = daemon.Queue("s");
  const Outcome outcome = daemon.Administer("s", AdminDestroy{DestroyPolicy::kForce});
  CHECK(outcome.kind == OutcomeKind::kDone);
  CHECK(outcome.affected() == 1);
  const std::vector<SeenEvent> events = daemon.TakeEvents();
  CHECK(Saw(events, Event::Kind::kEnded, lease->id, EndCause::kDestroyed));
  CHECK(Saw(events, Event::Kind::kWaitEnded, waiter, EndCause::kDestroyed));
  CHECK_FALSE(daemon.Exists("s"));
  CHECK(daemon.Release("s", lease->id).cause == EndCause::kDestroyed);
  CHECK(daemon.Verify("s", lease->id).cause == EndCause::kDestroyed);
}

CONTRACT_CASE("what is made again under a destroyed name knows nothing of before") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3, {.backfill = world.guarantees().settings});
  const LeasePtr before = daemon.Grant("s");
  const uint64_t revision = daemon.Describe("s").row.revision;
  REQUIRE(daemon.Administer("s", AdminDestroy{DestroyPolicy::kForce}).kind == OutcomeKind::kDone);
  daemon.Create("s", 1);
  const SemaphoreInfo info = daemon.Describe("s");
  CHECK(info.held == 0);
  CHECK(info.row.settings == Settings{});
  CHECK(info.row.revision != revision);
  const LeasePtr after = daemon.Grant("s");
  CHECK(Overtakes(world.guarantees(), *after, *before));
  CHECK(daemon.Verify("s", before->id).kind == OutcomeKind::kNotHeld);
  CHECK(daemon.VerifySlot("s", 1, before->token).kind == OutcomeKind::kNotHeld);
}

}  // namespace semaphored::contract
