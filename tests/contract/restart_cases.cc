// Promise 4: no lease is lost by a daemon's death. What was told before is true after. The engine
// is closed without a word, so that it can tell a restart from a kill as little as these cases can;
// tests/e2e kills the process.
#include <algorithm>
#include <map>

#include "tests/contract/world.h"

namespace semaphored::contract {

CONTRACT_CASE("restart: leases stand with slots, token, holder and all") {
  if (!world.CanRestart()) return;
  world.daemon().Create("s", 4);
  const LeasePtr before = world.daemon().Grant("s", {.permits = 2, .ttl_ms = 4'000, .holder = "h"});
  const Lease kept = *before;
  world.Advance(100);
  Daemon& daemon = world.Restart();
  const Outcome outcome = daemon.Verify("s", kept.id);
  REQUIRE(outcome.kind == OutcomeKind::kHeld);
  CHECK(outcome.lease->slots == kept.slots);
  CHECK(outcome.lease->token == kept.token);
  CHECK(outcome.lease->holder == "h");
  CHECK(outcome.lease->ttl_ms == 4'000);
  CHECK(outcome.lease->permits == 2);
  CHECK(outcome.lease->granted_at_unix_ms == kept.granted_at_unix_ms);
  CHECK(daemon.VerifySlot("s", 2, kept.token).kind == OutcomeKind::kHeld);
  CHECK(daemon.Describe("s").held == 2);
  CHECK(daemon.Release("s", kept.id).released() == 2);
}

CONTRACT_CASE("restart: waiters keep their places and are served in order") {
  if (!world.CanRestart()) return;
  world.daemon().Create("s", 2);
  Id holds = world.daemon().Grant("s", {.permits = 2})->id;
  const Id low = world.daemon().Queue("s", {.permits = 2, .priority = -1});
  const Id first = world.daemon().Queue("s", {.permits = 2});
  const Id second = world.daemon().Queue("s", {.permits = 2, .ttl_ms = 777, .holder = "w"});
  const Id high = world.daemon().Queue("s", {.permits = 2, .priority = 1});
  Daemon& daemon = world.Restart();
  const Id late = daemon.Queue("s", {.permits = 2});
  const std::vector<Id> order = {high, first, second, late, low};
  CHECK(WaitersIn(daemon.Describe("s")) == order);
  for (const Id& next : order) {
    daemon.GiveBack("s", holds);
    CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted) == std::vector{next});
    if (next == second) {
      const LeasePtr lease = daemon.Verify("s", next).lease;
      CHECK(lease->holder == "w");
      CHECK(lease->ttl_ms == 777);
    }
    holds = next;
  }
}

CONTRACT_CASE("restart: tokens go on rising, also for slots that were free") {
  if (!world.guarantees().fencing) return;
  if (!world.KeepsSemaphores()) return;
  const uint32_t permits = world.guarantees().weighted ? 2 : 1;
  uint64_t highest = 0;
  for (int round = 0; round < 3; ++round) {
    Daemon& daemon = world.Restart();
    const LeasePtr lease = daemon.Grant("s", {.permits = permits, .limit = permits});
    CHECK(lease->token > highest);
    highest = lease->token;
    daemon.GiveBack("s", lease->id);
    if (round == 1) daemon.Administer("s", AdminDestroy{});
  }
}

CONTRACT_CASE("restart: limit, settings, pause and destroying stand") {
  if (!world.KeepsSemaphores()) return;
  const bool all = world.guarantees().settings;  // Otherwise the limit is all that is kept.
  const Settings settings{.backfill = true,
                          .longest_hold_ms = 5'000,
                          .recall_grace_ms = 7,
                          .permits_per_holder = world.guarantees().holder_cap ? 3u : 0u,
                          .waiters_max = 9};
  world.daemon().Create("paused", 5, all ? settings : Settings{});
  if (all) world.daemon().Administer("paused", AdminPause{true});
  world.daemon().Create("going", 1);
  const Id last = world.daemon().Grant("going")->id;
  world.daemon().Administer("going", AdminDestroy{DestroyPolicy::kWait});
  const SemaphoreRow before = world.daemon().Describe("paused").row;
  Daemon& daemon = world.Restart();
  const SemaphoreRow after = daemon.Describe("paused").row;
  CHECK(after.limit == 5);
  if (all) CHECK(after == before);
  CHECK(daemon.Acquire("paused", {}).kind == (all ? OutcomeKind::kPaused : OutcomeKind::kGranted));
  if (world.guarantees().leases_survive_daemon) {
    CHECK(daemon.Acquire("going", {}).kind == OutcomeKind::kDestroyed);
    daemon.GiveBack("going", last);
  } else {
    // Whoever comes next finds that nobody holds it any more.
    daemon.PollUntil([&] { return !daemon.Exists("going"); });
  }
  CHECK_FALSE(daemon.Exists("going"));
}

CONTRACT_CASE("restart: the cap of a holder counts what it held before") {
  if (!world.CanRestart()) return;
  world.daemon().Create("s", 5, {.permits_per_holder = 2});
  world.daemon().Grant("s", {.permits = 2, .holder = "x"});
  Daemon& daemon = world.Restart();
  CHECK(daemon.Acquire("s", {.holder = "x"}).kind == OutcomeKind::kHolderCap);
  CHECK(daemon.Acquire("s", {.holder = "y"}).kind == OutcomeKind::kGranted);
}

CONTRACT_CASE("restart: a pending recall is still pending") {
  if (!world.CanRestart()) return;
  world.daemon().Create("s", 1);
  const Id lease = world.daemon().Grant("s")->id;
  const Recall recall{Recall::Reason::kLongestHold, 3'000};
  world.daemon().Do(RecallCommand{"s", lease, recall});
  CHECK(world.Restart().Verify("s", lease).lease->recall == recall);
}

CONTRACT_CASE("restart: what acts have recalled is still recalled, for the same reason") {
  if (!world.CanRestart() || !world.guarantees().settings) return;
  const auto held = [&](const std::string& name) {
    world.daemon().Create(name, 1);
    return world.daemon().Grant(name)->id;
  };
  const Id shrunk = held("shrunk");
  const Id revoked = held("revoked");
  const Id destroyed = held("destroyed");
  const AdminResize lowered{
      .amount = 0, .limit_max = 10, .policy = ShrinkPolicy::kRecall, .grace_ms = 1'000};
  world.daemon().Administer("shrunk", lowered);
  world.daemon().Administer("revoked", AdminRevoke{revoked, "", 2'000});
  world.daemon().Administer("destroyed", AdminDestroy{DestroyPolicy::kForce, 3'000});
  Daemon& daemon = world.Restart();
  CHECK(daemon.Verify("shrunk", shrunk).lease->recall == Recall{Recall::Reason::kShrunk, 1'000});
  CHECK(daemon.Verify("revoked", revoked).lease->recall ==
        Recall{Recall::Reason::kAdministrator, 2'000});
  CHECK(daemon.Verify("destroyed", destroyed).lease->recall ==
        Recall{Recall::Reason::kDestroyed, 3'000});
  daemon.End("destroyed", destroyed, EndCause::kDestroyed);
  CHECK_FALSE(daemon.Exists("destroyed"));
}

CONTRACT_CASE("restart: a session goes on with its claims and a new epoch") {
  if (!world.CanRestart()) return;
  const Id session = world.NewId();
  world.daemon().Do(OpenSessionCommand{session, "c", 8'000, "worker", true});
  world.daemon().Create("s", 1);
  const LeasePtr lease = world.daemon().Grant("s", {.session = session});
  const Id waiter = world.daemon().Queue("s", {.session = session});
  const Id lease_id = lease->id;
  const uint64_t token = lease->token;
  Daemon& daemon = world.Restart();
  const Outcome adopted = daemon.Do(AdoptSessionCommand{session});
  REQUIRE(adopted.kind == OutcomeKind::kDone);
  CHECK(adopted.report->session->epoch == 2);
  CHECK(adopted.report->session->host == daemon.self());
  CHECK(adopted.report->session->ttl_ms == 8'000);
  CHECK(adopted.report->session->holder == "worker");
  CHECK(adopted.report->session->release_on_disconnect);
  REQUIRE(adopted.report->claims.size() == 2);
  CHECK(adopted.report->claims[0].lease->id == lease_id);
  CHECK(adopted.report->claims[0].lease->token == token);
  CHECK(adopted.report->claims[1].waiter->id == waiter);
  daemon.GiveBack("s", lease_id);
  CHECK(daemon.Verify("s", waiter).kind == OutcomeKind::kHeld);
  CHECK(daemon.Acquire("s", {.wait = true, .session = session}).kind == OutcomeKind::kQueued);
}

CONTRACT_CASE("restart: an end decided before a session moved cannot land after") {
  if (!world.CanRestart()) return;
  const Id session = world.NewId();
  world.daemon().OpenSession(session);
  world.daemon().Create("s", 2);
  const Id under_session = world.daemon().Grant("s", {.session = session})->id;
  const Id detached = world.daemon().Grant("s")->id;
  Daemon& daemon = world.Restart();
  REQUIRE(daemon.Do(AdoptSessionCommand{session}).kind == OutcomeKind::kDone);
  REQUIRE(daemon.Do(AdoptCommand{"s", detached}).kind == OutcomeKind::kHeld);
  CHECK(daemon.End("s", under_session, EndCause::kExpired, 1).kind == OutcomeKind::kStale);
  CHECK(daemon.End("s", detached, EndCause::kExpired, 1).kind == OutcomeKind::kStale);
  CHECK(daemon.Do(CloseSessionCommand{session, 1, EndCause::kExpired}).kind == OutcomeKind::kStale);
  CHECK(daemon.Describe("s").held == 2);
  CHECK(daemon.End("s", detached, EndCause::kExpired, 2).kind == OutcomeKind::kDone);
}

CONTRACT_CASE("restart: a detached claim is adopted with a new epoch, once") {
  if (!world.CanRestart()) return;
  world.daemon().Create("s", 1);
  const LeasePtr before = world.daemon().Grant("s");
  const Id lease = before->id;
  const uint64_t token = before->token;
  const Id waiter = world.daemon().Queue("s");
  Daemon& daemon = world.Restart();
  for (int i = 0; i < 2; ++i) {
    const Outcome outcome = daemon.Do(AdoptCommand{"s", lease});
    REQUIRE(outcome.kind == OutcomeKind::kHeld);
    CHECK(outcome.lease->epoch == 2);
    CHECK(outcome.lease->host == daemon.self());
    CHECK(outcome.lease->token == token);
    CHECK(daemon.Do(AdoptCommand{"s", waiter}).kind == OutcomeKind::kStillWaiting);
  }
  const SemaphoreInfo info = daemon.Describe("s");
  CHECK(info.waiters.at(0).waiter->epoch == 2);
  CHECK(info.waiters.at(0).waiter->host == daemon.self());
}

CONTRACT_CASE("restart: all that the dead life left is named as orphans, and nothing is moved") {
  if (!world.CanRestart()) return;
  const Id busy = world.NewId();
  const Id idle = world.NewId();
  world.daemon().OpenSession(busy, "c", 5'000);
  world.daemon().OpenSession(idle, "c", 6'000);
  world.daemon().Create("s", 2);
  const Id leased = world.daemon().Grant("s", {.session = busy})->id;
  const Id detached = world.daemon().Grant("s", {.ttl_ms = 7'000})->id;
  const Id waiter = world.daemon().Queue("s", {.ttl_ms = 8'000});
  Daemon& daemon = world.Restart();
  const Id own = daemon.Queue("s");
  const auto read = [&] {
    std::map<Id, Orphan> orphans;
    const Outcome outcome = daemon.Do(OrphansCommand{});
    for (const Orphan& orphan : outcome.report->orphans) orphans[orphan.session] = orphan;
    return orphans;
  };
  std::map<Id, Orphan> orphans = read();
  REQUIRE(orphans.size() == 4);
  CHECK_FALSE(orphans.contains(own));
  CHECK(orphans.at(busy).ttl_ms == 5'000);
  CHECK(orphans.at(busy).epoch == 1);
  REQUIRE(orphans.at(busy).claims.size() == 1);
  CHECK(orphans.at(busy).claims[0].lease->id == leased);
  CHECK(orphans.at(idle).claims.empty());
  CHECK(orphans.at(detached).claims.at(0).lease->id == detached);
  CHECK(orphans.at(detached).ttl_ms == 7'000);
  CHECK(orphans.at(waiter).claims.at(0).waiter->id == waiter);
  CHECK(orphans.at(waiter).claims.at(0).semaphore == "s");
  CHECK(read().size() == 4);
  daemon.Do(AdoptSessionCommand{busy});
  daemon.Do(AdoptCommand{"s", detached});
  orphans = read();
  CHECK(orphans.size() == 2);
  CHECK(orphans.contains(idle));
  CHECK(orphans.contains(waiter));
  CHECK(daemon.Do(CloseSessionCommand{idle, 1, EndCause::kExpired}).kind == OutcomeKind::kDone);
  CHECK(daemon.End("s", waiter, EndCause::kExpired, 1).kind == OutcomeKind::kDone);
  CHECK(read().empty());
}

CONTRACT_CASE("restart: under another node id what the first left is orphaned too") {
  if (!world.CanRestart()) return;
  if (!world.guarantees().exclusive) return;  // Others decide who is dead: see shared_cases.cc.
  world.daemon().Create("s", 1);
  const Id lease = world.daemon().Grant("s")->id;
  Daemon& daemon = world.Restart("b");
  const Outcome outcome = daemon.Do(OrphansCommand{});
  REQUIRE(outcome.report->orphans.size() == 1);
  CHECK(outcome.report->orphans[0].session == lease);
  CHECK(daemon.Do(AdoptCommand{"s", lease}).lease->epoch == 2);
}

CONTRACT_CASE("restart: repeated requests get the answers of before") {
  if (!world.CanRestart()) return;
  world.daemon().Create("s", 2);
  const Id held = world.daemon().Grant("s", {.client = "c", .sequence = 1})->id;
  const Id ended = world.daemon().Grant("s", {.client = "c", .sequence = 2})->id;
  REQUIRE(world.daemon().Release("s", ended, {}, {"c", 3}).kind == OutcomeKind::kReleased);
  world.daemon().Do(
      AdminCommand{{"c", 4}, "s", 0, AdminResize{AdminResize::Change::kAdd, 1, 100, {}, {}}});
  const Id filler = world.daemon().Grant("s", {.permits = 2})->id;
  const Id waits = world.daemon().Queue("s", {.client = "c", .sequence = 5});
  const Id expired = world.daemon().Queue("s", {.client = "c", .sequence = 6});
  world.daemon().EndWait("s", expired, EndCause::kWaitExpired);

  Daemon& daemon = world.Restart();
  const Outcome acquire = daemon.Acquire("s", {.client = "c", .sequence = 1});
  REQUIRE(acquire.kind == OutcomeKind::kGranted);
  CHECK(acquire.lease->id == held);
  CHECK(acquire.lease->host == daemon.self());
  const Outcome gone = daemon.Acquire("s", {.client = "c", .sequence = 2});
  CHECK(gone.kind == OutcomeKind::kNotHeld);
  CHECK(IsCause(world.guarantees(), gone.cause, EndCause::kReleased));
  const Outcome release = daemon.Release("s", ended, {}, {"c", 3});
  CHECK(release.kind == OutcomeKind::kReleased);
  CHECK(release.released() == 1);
  const Outcome admin = daemon.Do(
      AdminCommand{{"c", 4}, "s", 0, AdminResize{AdminResize::Change::kAdd, 1, 100, {}, {}}});
  CHECK(admin.changed);
  CHECK(daemon.Describe("s").row.limit == 3);
  const Outcome waiting = daemon.Acquire("s", {.wait = true, .client = "c", .sequence = 5});
  CHECK(waiting.kind == OutcomeKind::kQueued);
  CHECK(waiting.claim == waits);
  const Outcome told = daemon.Acquire("s", {.wait = true, .client = "c", .sequence = 6});
  CHECK(told.kind == OutcomeKind::kWaitEnded);
  CHECK(told.cause == EndCause::kWaitExpired);
  daemon.GiveBack("s", filler);
  CHECK(Saw(daemon.TakeEvents(), Event::Kind::kGranted, waits));
}

CONTRACT_CASE("restart: a repeated request moves its detached waiter here") {
  if (!world.CanRestart()) return;
  world.daemon().Create("s", 1);
  world.daemon().Grant("s");
  const Id waiter = world.daemon().Queue("s", {.client = "c", .sequence = 1});
  Daemon& daemon = world.Restart();
  CHECK(daemon.Acquire("s", {.wait = true, .client = "c", .sequence = 1}).claim == waiter);
  CHECK(daemon.Describe("s").waiters.at(0).waiter->host == daemon.self());
  CHECK(daemon.Describe("s").waiters.at(0).waiter->epoch == 2);
}

CONTRACT_CASE("restart: an id below the window is too old, one above is new") {
  world.options().request_window = 4;
  if (!world.CanRestart()) return;
  world.daemon().Create("s", 99);
  for (uint64_t sequence = 1; sequence <= 6; ++sequence) {
    const LeasePtr lease = world.daemon().Grant("s", {.client = "c", .sequence = sequence});
    if (sequence <= 2) world.daemon().GiveBack("s", lease->id);
  }
  Daemon& daemon = world.Restart();
  // A daemon that does not know yet how far the client has come says how its lease ended.
  const Outcome old = daemon.Acquire("s", {.client = "c", .sequence = 2});
  CHECK((old.kind == OutcomeKind::kTooOld || old.kind == OutcomeKind::kNotHeld));
  CHECK(daemon.Acquire("s", {.client = "c", .sequence = 3}).kind == OutcomeKind::kGranted);
  CHECK(daemon.Describe("s").held == 4);
  CHECK(daemon.Acquire("s", {.client = "c", .sequence = 7}).kind == OutcomeKind::kGranted);
  CHECK(daemon.Describe("s").held == 5);
}

CONTRACT_CASE("restart: the history stands and goes on") {
  if (!world.CanRestart() || !world.guarantees().history) return;
  world.daemon().Create("s", 1);
  const Id first = world.daemon().Grant("s")->id;
  world.daemon().End("s", first, EndCause::kExpired);
  Daemon& daemon = world.Restart();
  CHECK(IsCause(world.guarantees(), daemon.Verify("s", first).cause, EndCause::kExpired));
  daemon.GiveBack("s", daemon.Grant("s")->id);
  const Outcome outcome = daemon.Do(HistoryCommand{"s", 10, 0});
  REQUIRE(outcome.report->history.size() == 2);
  CHECK(outcome.report->history[0].number > outcome.report->history[1].number);
  CHECK(outcome.report->history[1].lease->id == first);
  CHECK(outcome.report->history[1].cause == EndCause::kExpired);
}

CONTRACT_CASE("restart: the revision goes on where it was") {
  if (!world.guarantees().revisions) return;
  if (!world.KeepsSemaphores()) return;
  const uint64_t raised = world.guarantees().revision_counts_claims ? 1 : 0;
  // A lease that does not survive the daemon has ended.
  const uint64_t ended = world.guarantees().leases_survive_daemon ? 0 : raised;
  world.daemon().Create("s", 2);
  world.daemon().Grant("s");
  const uint64_t before = world.daemon().Describe("s").row.revision + ended;
  Daemon& daemon = world.Restart();
  CHECK(daemon.Describe("s").row.revision == before);
  daemon.Grant("s");
  CHECK(daemon.Describe("s").row.revision == before + raised);
  REQUIRE(daemon.Resize("s", 3).kind == OutcomeKind::kDone);
  CHECK(daemon.Describe("s").row.revision > before + raised);
}

CONTRACT_CASE("restart: each life has an incarnation of its own") {
  if (!world.CanRestart()) return;
  const NodeRef first = world.daemon().self();
  const NodeRef second = world.Restart().self();
  CHECK(second.number == first.number);
  CHECK(second.incarnation > first.incarnation);
  const NodeRef other = world.Restart("b").self();
  CHECK(other.number != first.number);
}

CONTRACT_CASE("restart: many leases, waiters and partial releases over many restarts") {
  if (!world.CanRestart()) return;
  world.daemon().Create("s", 100);
  std::map<Id, Slots> held;
  for (int round = 0; round < 5; ++round) {
    Daemon& daemon = world.Restart();
    for (int i = 0; i < 10; ++i) {
      const LeasePtr lease = daemon.Grant("s", {.permits = static_cast<uint32_t>(1 + i % 4)});
      held[lease->id] = lease->slots;
      if (lease->permits < 3) continue;
      REQUIRE(daemon.Release("s", lease->id, {*std::next(lease->slots.begin())}).kind ==
              OutcomeKind::kReleased);
      held[lease->id] = daemon.Verify("s", lease->id).lease->slots;
    }
    for (int i = 0; i < 5; ++i) {
      daemon.GiveBack("s", held.begin()->first);
      held.erase(held.begin());
    }
    uint32_t permits = 0;
    const SemaphoreInfo info = daemon.Describe("s");
    for (const LeasePtr& lease : info.leases) {
      REQUIRE(held.contains(lease->id));
      CHECK(lease->slots == held.at(lease->id));
      permits += lease->permits;
    }
    CHECK(info.leases.size() == held.size());
    CHECK(info.held == permits);
  }
}

}  // namespace semaphored::contract
