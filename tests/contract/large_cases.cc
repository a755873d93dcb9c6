// Acts that are larger than one commit: the act's own commit binds, and later ones carry it on, also
// after the daemon has died. Here a commit changes two rows, and a Step goes on for no longer than one.
#include <algorithm>
#include <chrono>
#include <vector>

#include "tests/contract/world.h"

namespace semaphored::contract {
namespace {

constexpr uint32_t kClaims = 44;
std::vector<Id> GrantMany(Daemon& daemon, const std::string& semaphore, uint32_t count) {
  std::vector<Id> claims;
  claims.reserve(count);
  for (uint32_t i = 0; i < count; ++i) claims.push_back(daemon.Grant(semaphore)->id);
  std::ranges::sort(claims);
  return claims;
}

std::vector<Id> QueueMany(Daemon& daemon, const std::string& semaphore, uint32_t count) {
  std::vector<Id> claims;
  claims.reserve(count);
  for (uint32_t i = 0; i < count; ++i) claims.push_back(daemon.Queue(semaphore));
  std::ranges::sort(claims);
  return claims;
}

std::vector<Id> Sorted(std::vector<Id> claims) {
  std::ranges::sort(claims);
  return claims;
}

// Takes forty permits away, and ends the leases that are in the way.
Outcome RemoveForty(Daemon& daemon, uint64_t sequence, uint64_t revision = 0) {
  AdminResize act;
  act.change = AdminResize::Change::kRemove;
  act.amount = 40;
  act.limit_max = kClaims;
  act.policy = ShrinkPolicy::kRecall;
  act.grace_ms = 0;
  return daemon.Do(AdminCommand{{"admin", sequence}, "s", revision, act});
}

void CheckFortyRemoved(const Outcome& outcome) {
  CHECK(outcome.kind == OutcomeKind::kDone);
  CHECK(outcome.affected() == 40);
  CHECK(outcome.changed);
}

void PollUntilHeld(Daemon& daemon, uint32_t held) {
  daemon.PollUntil([&] { return daemon.Describe("s").held == held; });
}

}  // namespace

CONTRACT_CASE("large: a relative resize is done once, however often it is repeated") {
  TakeSmallSteps(world);
  Daemon& daemon = world.daemon();
  daemon.Create("s", kClaims);
  GrantMany(daemon, "s", kClaims);
  CheckFortyRemoved(RemoveForty(daemon, 1));
  CHECK(daemon.Describe("s").row.limit == 4);
  CheckFortyRemoved(RemoveForty(daemon, 1));
  CHECK(daemon.Describe("s").row.limit == 4);
  PollUntilHeld(daemon, 4);
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kEnded).size() == 40);
  CheckFortyRemoved(RemoveForty(daemon, 1));
  CHECK(daemon.Describe("s").held == 4);
  CHECK(daemon.Describe("s").row.limit == 4);
  CHECK(daemon.Acquire("s", {}).kind == OutcomeKind::kFull);
}

CONTRACT_CASE("large: a resize goes on after its daemon has died, and is not done again") {
  TakeSmallSteps(world);
  if (!world.CanRestart()) return;
  world.daemon().Create("s", kClaims);
  GrantMany(world.daemon(), "s", kClaims);
  CheckFortyRemoved(RemoveForty(world.daemon(), 1));
  CHECK(world.daemon().Describe("s").held > 4);
  Daemon& daemon = world.Restart();
  CheckFortyRemoved(RemoveForty(daemon, 1));
  CHECK(daemon.Describe("s").row.limit == 4);
  PollUntilHeld(daemon, 4);
  CHECK(daemon.Describe("s").row.intentions.empty());
}

CONTRACT_CASE("large: what a daemon that stands still leaves, another daemon carries on") {
  TakeSmallSteps(world);
  if (world.guarantees().exclusive || !world.guarantees().shares_claims) return;
  Daemon& a = world.daemon();
  Daemon& b = world.OpenAnother("b");
  a.Create("s", kClaims);
  GrantMany(a, "s", kClaims);
  CheckFortyRemoved(RemoveForty(a, 1));
  CheckFortyRemoved(RemoveForty(b, 1));
  CHECK(b.Describe("s").row.limit == 4);
  for (int i = 0; i < 3; ++i) {
    world.Advance(world.options().sweep_interval.count());
    b.Poll();
  }
  PollUntilHeld(b, 4);
  CHECK(a.Describe("s").held == 4);
}

CONTRACT_CASE(
    "large: an expected revision binds an act's first commit, and none of the later ones") {
  TakeSmallSteps(world);
  if (!world.guarantees().revisions) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", kClaims);
  GrantMany(daemon, "s", kClaims);
  const auto configure = [&](int64_t grace_ms) {
    const Settings settings{.recall_grace_ms = grace_ms};
    REQUIRE(daemon.Administer("s", AdminConfigure{settings}).kind == OutcomeKind::kDone);
  };
  const uint64_t stale = daemon.Describe("s").row.revision;
  configure(40'000);
  CHECK(RemoveForty(daemon, 1, stale).kind == OutcomeKind::kRevisionMismatch);
  CHECK(daemon.Describe("s").held == kClaims);
  CHECK(daemon.Describe("s").row.limit == kClaims);
  const uint64_t revision = daemon.Describe("s").row.revision;
  CheckFortyRemoved(RemoveForty(daemon, 2, revision));
  configure(50'000);
  // The rest is under way, at other revisions. (Without shared claims an act is one commit.)
  if (world.guarantees().shares_claims) CHECK(daemon.Describe("s").held > 4);
  CheckFortyRemoved(RemoveForty(daemon, 2, revision));
  PollUntilHeld(daemon, 4);
  CHECK(daemon.Describe("s").row.limit == 4);
  CHECK(daemon.Describe("s").row.settings.recall_grace_ms == 50'000);
  CHECK(RemoveForty(daemon, 3, revision).kind == OutcomeKind::kRevisionMismatch);
}

CONTRACT_CASE("large: a raised limit stops what is left of a recall") {
  TakeSmallSteps(world);
  if (!world.guarantees().shares_claims) return;  // There an act is one commit.
  Daemon& daemon = world.daemon();
  daemon.Create("s", kClaims);
  GrantMany(daemon, "s", kClaims);
  CheckFortyRemoved(RemoveForty(daemon, 1));
  REQUIRE(daemon.Resize("s", kClaims).kind == OutcomeKind::kDone);
  const uint32_t held = daemon.Describe("s").held;
  CHECK(held > 4);
  for (int i = 0; i < 10; ++i) daemon.Poll();
  CHECK(daemon.Describe("s").held == held);
  CHECK(daemon.Describe("s").row.intentions.empty());
}

CONTRACT_CASE("large: a revoke ends the leases that stood, and none that is granted after it") {
  TakeSmallSteps(world);
  Daemon& daemon = world.daemon();
  daemon.Create("s", 6);
  const std::vector<Id> held = GrantMany(daemon, "s", 6);
  const std::vector<Id> waiting = QueueMany(daemon, "s", 6);
  const Outcome revoked = daemon.Do(AdminCommand{{"admin", 1}, "s", 0, AdminRevoke{}});
  CHECK(revoked.kind == OutcomeKind::kDone);
  CHECK(revoked.affected() == 6);
  const Outcome again = daemon.Do(AdminCommand{{"admin", 1}, "s", 0, AdminRevoke{}});
  CHECK(again.affected() == 6);
  daemon.PollUntil([&] { return ClaimsIn(daemon.events(), Event::Kind::kGranted).size() == 6; });
  for (int i = 0; i < 5; ++i) daemon.Poll();
  const std::vector<SeenEvent> events = daemon.TakeEvents();
  CHECK(Sorted(ClaimsIn(events, Event::Kind::kEnded)) == held);
  CHECK(Sorted(ClaimsIn(events, Event::Kind::kGranted)) == waiting);
  CHECK(daemon.Describe("s").held == 6);
}

CONTRACT_CASE("large: two revokes under way at once each end what they match") {
  TakeSmallSteps(world);
  Daemon& daemon = world.daemon();
  daemon.Create("s", kClaims);
  for (uint32_t i = 0; i < kClaims; ++i)
    daemon.Grant("s", {.holder = i % 4 == 0 ? "x" : i % 4 == 1 ? "y" : "z"});
  for (const char* holder : {"x", "y"}) {
    AdminRevoke revoke;
    revoke.holder = holder;
    CHECK(daemon.Administer("s", revoke).affected() == kClaims / 4);
  }
  PollUntilHeld(daemon, kClaims / 2);
  for (const LeasePtr& lease : daemon.Describe("s").leases) CHECK(lease->holder == "z");
}

CONTRACT_CASE("large: one that is destroyed grants nothing more, and ends all it has") {
  TakeSmallSteps(world);
  Daemon& daemon = world.daemon();
  daemon.Create("s", kClaims);
  const std::vector<Id> held = GrantMany(daemon, "s", kClaims);
  const std::vector<Id> waiting = QueueMany(daemon, "s", 7);
  const Outcome destroyed =
      daemon.Do(AdminCommand{{"admin", 1}, "s", 0, AdminDestroy{DestroyPolicy::kForce}});
  CHECK(destroyed.kind == OutcomeKind::kDone);
  CHECK(destroyed.affected() == kClaims);
  if (world.guarantees().shares_claims) {
    AdminCreate create;
    create.limit = 3;
    CHECK(daemon.Administer("s", create).kind == OutcomeKind::kDestroyed);
    CHECK(daemon.Acquire("s", {.limit = kClaims, .wait = true}).kind == OutcomeKind::kDestroyed);
  }
  daemon.PollUntil([&] { return !daemon.Exists("s"); });
  const std::vector<SeenEvent> events = daemon.TakeEvents();
  CHECK(ClaimsIn(events, Event::Kind::kGranted).empty());
  CHECK(Sorted(ClaimsIn(events, Event::Kind::kEnded)) == held);
  CHECK(Sorted(ClaimsIn(events, Event::Kind::kWaitEnded)) == waiting);
  daemon.Create("s", 1);
  CHECK(daemon.Do(AdminCommand{{"admin", 1}, "s", 0, AdminDestroy{DestroyPolicy::kForce}})
            .affected() == kClaims);
  CHECK(daemon.Describe("s").row.limit == 1);
}

CONTRACT_CASE("large: a destruction goes on after its daemon has died") {
  TakeSmallSteps(world);
  if (!world.CanRestart()) return;
  world.daemon().Create("s", kClaims);
  GrantMany(world.daemon(), "s", kClaims);
  QueueMany(world.daemon(), "s", 7);
  REQUIRE(world.daemon().Administer("s", AdminDestroy{DestroyPolicy::kForce}).kind ==
          OutcomeKind::kDone);
  REQUIRE(world.daemon().Exists("s"));
  Daemon& daemon = world.Restart();
  CHECK(daemon.Acquire("s", {.limit = kClaims, .wait = true}).kind == OutcomeKind::kDestroyed);
  daemon.PollUntil([&] { return !daemon.Exists("s"); });
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted).empty());
}

CONTRACT_CASE("large: many waiters leave a semaphore that waits to be destroyed") {
  TakeSmallSteps(world);
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Id holds = daemon.Grant("s")->id;
  const std::vector<Id> waiting = QueueMany(daemon, "s", 7);
  REQUIRE(daemon.Administer("s", AdminDestroy{DestroyPolicy::kWait}).kind == OutcomeKind::kDone);
  daemon.GiveBack("s", holds);
  daemon.PollUntil([&] { return !daemon.Exists("s"); });
  const std::vector<SeenEvent> events = daemon.TakeEvents();
  CHECK(ClaimsIn(events, Event::Kind::kGranted).empty());
  CHECK(Sorted(ClaimsIn(events, Event::Kind::kWaitEnded)) == waiting);
}

CONTRACT_CASE("large: many waiters that a lowered limit can never serve leave the queue") {
  if (!world.guarantees().weighted) return;
  TakeSmallSteps(world);
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  const Id holds = daemon.Grant("s", {.permits = 2})->id;
  std::vector<Id> hopeless;
  hopeless.reserve(7);
  for (int i = 0; i < 7; ++i) hopeless.push_back(daemon.Queue("s", {.permits = 2}));
  const Id small = daemon.Queue("s");
  REQUIRE(daemon.Resize("s", 1).kind == OutcomeKind::kDone);
  daemon.GiveBack("s", holds);
  daemon.PollUntil([&] { return ClaimsIn(daemon.events(), Event::Kind::kWaitEnded).size() == 7; });
  daemon.PollUntil([&] { return daemon.Describe("s").held == 1; });
  const std::vector<SeenEvent> events = daemon.TakeEvents();
  CHECK(Sorted(ClaimsIn(events, Event::Kind::kWaitEnded)) == Sorted(hopeless));
  CHECK(ClaimsIn(events, Event::Kind::kGranted) == std::vector{small});
}

}  // namespace semaphored::contract
