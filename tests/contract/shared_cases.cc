// Several daemons on one engine: only for engines that are not exclusive. Promises 4, 5, 6 and 11
// across daemons.
#include <algorithm>
#include <functional>
#include <memory>
#include <set>

#include "tests/contract/world.h"

namespace semaphored::contract {
namespace {

void DeclareDead(Daemon& by, const NodeRef& dead) {
  const absl::StatusOr<std::vector<NodeStore::Node>> nodes = by.engine().nodes().Observe();
  REQUIRE(nodes.ok());
  for (const NodeStore::Node& node : *nodes) {
    if (node.ref == dead) REQUIRE(by.engine().nodes().DeclareDead(node).value_or(false));
  }
}

}  // namespace

CONTRACT_CASE("shared: the limit holds over all daemons") {
  if (!IsShared(world)) return;
  Daemon& a = world.daemon();
  Daemon& b = world.OpenAnother("b");
  a.Create("s", 3);
  std::vector<uint32_t> slots;
  for (Daemon* daemon : {&a, &b, &a}) slots.push_back(daemon->Grant("s")->slots.front());
  if (!world.guarantees().lowest_slot) std::ranges::sort(slots);
  CHECK(slots == std::vector<uint32_t>{1, 2, 3});
  CHECK(b.Acquire("s", {}).kind == OutcomeKind::kFull);
  CHECK(a.Acquire("s", {}).kind == OutcomeKind::kFull);
}

CONTRACT_CASE("shared: each daemon's answers are true at once, without a notice") {
  if (!SharesClaims(world)) return;
  Daemon& a = world.daemon();
  Daemon& b = world.OpenAnother("b");
  a.Create("s", 1);
  CHECK(b.Exists("s"));
  const LeasePtr lease = a.Grant("s");
  CHECK(b.Verify("s", lease->id).kind == OutcomeKind::kHeld);
  CHECK(b.VerifySlot("s", 1, lease->token).kind == OutcomeKind::kHeld);
  CHECK(b.Describe("s").held == 1);
  a.GiveBack("s", lease->id);
  CHECK(b.Verify("s", lease->id).kind == OutcomeKind::kNotHeld);
  CHECK(b.Describe("s").held == 0);
  REQUIRE(a.Resize("s", 7).kind == OutcomeKind::kDone);
  CHECK(b.Describe("s").row == a.Describe("s").row);
  REQUIRE(a.Administer("s", AdminDestroy{}).kind == OutcomeKind::kDone);
  CHECK_FALSE(b.Exists("s"));
}

CONTRACT_CASE("shared: each daemon sees what others do to a semaphore") {
  if (!IsShared(world)) return;
  Daemon& a = world.daemon();
  Daemon& b = world.OpenAnother("b");
  const Guarantees can = world.guarantees();
  // At once, or as soon as the engine has told of it, or when the daemon looks again.
  const auto check = [&](Daemon& daemon, const std::function<bool()>& seen) {
    if (!can.push) world.Advance(world.options().sweep_interval.count());
    if (!can.shares_claims) daemon.PollUntil(seen);
    CHECK(seen());
  };
  a.Create("s", 1);
  CHECK(b.Exists("s"));
  REQUIRE(a.Resize("s", 7).kind == OutcomeKind::kDone);
  check(b, [&] { return b.Describe("s").row.limit == 7; });
  if (can.revisions) CHECK(b.Describe("s").row.revision == a.Describe("s").row.revision);
  if (can.settings) {
    REQUIRE(a.Administer("s", AdminPause{true}).kind == OutcomeKind::kDone);
    check(b, [&] { return b.Describe("s").row.paused; });
    CHECK(b.Acquire("s", {}).kind == OutcomeKind::kPaused);
  }
  REQUIRE(a.Administer("s", AdminDestroy{}).kind == OutcomeKind::kDone);
  check(b, [&] { return !b.Exists("s"); });
  b.Create("s", 2);
  check(a, [&] { return a.Exists("s"); });
  CHECK(a.Describe("s").row.limit == 2);
  CHECK(a.Acquire("s", {}).kind == OutcomeKind::kGranted);
}

CONTRACT_CASE("shared: a release here serves the waiter there") {
  if (!IsShared(world)) return;
  Daemon& a = world.daemon();
  Daemon& b = world.OpenAnother("b");
  a.Create("s", 1);
  const LeasePtr lease = a.Grant("s");
  const Id waiter = b.Queue("s");
  a.GiveBack("s", lease->id);
  b.PollUntil([&] { return Saw(b.events(), Event::Kind::kGranted, waiter); });
  CHECK(Overtakes(world.guarantees(), *b.Verify("s", waiter).lease, *lease));
}

CONTRACT_CASE("shared: first come first served over all daemons") {
  if (!IsShared(world) || !world.guarantees().queue) return;
  Daemon& a = world.daemon();
  Daemon& b = world.OpenAnother("b");
  a.Create("s", 1);
  Id holds = a.Grant("s")->id;
  std::vector<Id> order;
  for (int i = 0; i < 6; ++i) order.push_back((i % 2 == 0 ? a : b).Queue("s"));
  CHECK(WaitersIn(a.Describe("s")) == order);
  CHECK(WaitersIn(b.Describe("s")) == order);
  for (const Id& next : order) {
    b.GiveBack("s", holds);
    CHECK(a.Verify("s", next).kind == OutcomeKind::kHeld);
    holds = next;
  }
}

CONTRACT_CASE("shared: a lease ended elsewhere is told, with the cause") {
  if (!SharesClaims(world)) return;
  Daemon& a = world.daemon();
  Daemon& b = world.OpenAnother("b");
  a.Create("s", 1);
  const LeasePtr lease = a.Grant("s");
  REQUIRE(b.Administer("s", AdminRevoke{}).kind == OutcomeKind::kDone);
  const auto ended = [&] {
    return std::ranges::any_of(a.events(), [&](const SeenEvent& event) {
      return event.kind == Event::Kind::kEnded && event.claim == lease->id;
    });
  };
  a.PollUntil(ended);
  if (world.guarantees().history)
    CHECK(Saw(a.events(), Event::Kind::kEnded, lease->id, EndCause::kRevoked));
}

CONTRACT_CASE("shared: a session moves to another daemon with all it has") {
  if (!SharesClaims(world)) return;
  Daemon& a = world.daemon();
  Daemon& b = world.OpenAnother("b");
  a.Create("s", 1);
  const Id session = world.NewId();
  REQUIRE(a.OpenSession(session).kind == OutcomeKind::kDone);
  const LeasePtr lease = a.Grant("s", {.session = session});
  const Outcome moved = b.Do(AdoptSessionCommand{session});
  REQUIRE(moved.kind == OutcomeKind::kDone);
  CHECK(moved.report->session->epoch == 2);
  CHECK(moved.report->session->host == b.self());
  REQUIRE(moved.report->claims.size() == 1);
  CHECK(moved.report->claims[0].lease->token == lease->token);
  CHECK(a.End("s", lease->id, EndCause::kExpired, 1).kind == OutcomeKind::kStale);
  CHECK(a.Do(CloseSessionCommand{session, 1, EndCause::kExpired}).kind == OutcomeKind::kStale);
  CHECK(b.Verify("s", lease->id).kind == OutcomeKind::kHeld);
  const SemaphoreInfo info = b.Describe("s");
  REQUIRE(info.leases.size() == 1);
  CHECK(info.leases[0]->host == b.self());
}

CONTRACT_CASE("shared: the new host of a session touches all semaphores in which it has claims") {
  if (!SharesClaims(world)) return;
  Daemon& a = world.daemon();
  Daemon& b = world.OpenAnother("b");
  constexpr int kSemaphores = 80;
  const Id session = world.NewId();
  REQUIRE(a.OpenSession(session).kind == OutcomeKind::kDone);
  std::vector<std::string> names;
  for (int i = 0; i < kSemaphores; ++i) {
    names.push_back("s/" + std::to_string(i));
    a.Create(names.back(), 1);
    a.Grant(names.back(), {.session = session});
  }
  std::vector<uint64_t> before;
  for (const std::string& name : names) before.push_back(a.Describe(name).row.revision);
  const Outcome moved = b.Do(AdoptSessionCommand{session});
  REQUIRE(moved.kind == OutcomeKind::kDone);
  CHECK(moved.report->claims.size() == names.size());
  const auto untouched = [&] {
    int count = 0;
    for (int i = 0; i < kSemaphores; ++i) {
      if (b.Describe(names[i]).row.revision == before[i]) ++count;
    }
    return count;
  };
  b.PollUntil([&] { return untouched() == 0; });
  CHECK(untouched() == 0);
}

CONTRACT_CASE(
    "shared: a session with claims in very many semaphores is read in parts, then moves") {
  if (!SharesClaims(world)) return;
  constexpr int kSemaphores = 20;
  Daemon& a = world.daemon();
  world.options().read_to_adopt_max = 8;
  Daemon& b = world.OpenAnother("b");
  const Id session = world.NewId();
  REQUIRE(a.OpenSession(session).kind == OutcomeKind::kDone);
  for (int i = 0; i < kSemaphores; ++i) {
    const std::string name = "s/" + std::to_string(i);
    a.Create(name, 1);
    a.Grant(name, {.session = session});
  }
  for (const bool more : {true, true, false}) {
    const Outcome moved = b.Do(AdoptSessionCommand{session});
    if (more) {
      CHECK(moved.kind == OutcomeKind::kReading);
      // Others have their turn, and the session is where it was.
      CHECK(b.Describe("s/0").held == 1);
      CHECK(a.Do(AdoptSessionCommand{session}).report->session->epoch == 1);
    } else {
      REQUIRE(moved.kind == OutcomeKind::kDone);
      CHECK(moved.report->session->epoch == 2);
      CHECK(moved.report->claims.size() == kSemaphores);
    }
  }
}

CONTRACT_CASE("shared: sessions of others that have ended do not count for ever") {
  if (!SharesClaims(world)) return;
  world.options().limits.sessions_max = 3;
  Daemon& a = world.daemon();
  Daemon& b = world.OpenAnother("b");
  a.Create("s", 9);
  for (int i = 0; i < 6; ++i) {
    const Id session = world.NewId();
    REQUIRE(a.OpenSession(session).kind == OutcomeKind::kDone);
    const LeasePtr lease = a.Grant("s", {.session = session});
    CHECK(b.Describe("s").held == 1);  // So b knows of the session.
    a.GiveBack("s", lease->id);
    REQUIRE(a.Do(CloseSessionCommand{session, 0, EndCause::kReleased}).kind == OutcomeKind::kDone);
    world.Advance(10'000);
    b.Poll();
  }
  CHECK(b.OpenSession(world.NewId()).kind == OutcomeKind::kDone);
}

CONTRACT_CASE("shared: a session that was forgotten here and has moved is told of") {
  if (!SharesClaims(world)) return;
  Daemon& a = world.daemon();
  Daemon& b = world.OpenAnother("b");
  a.Create("s", 1);
  const Id session = world.NewId();
  REQUIRE(a.OpenSession(session).kind == OutcomeKind::kDone);
  world.Advance(10'000);
  a.Poll();  // It has no claims: a forgets it.
  REQUIRE(b.Do(AdoptSessionCommand{session}).kind == OutcomeKind::kDone);
  a.TakeEvents();
  a.Acquire("s", {.session = session});
  CHECK(Saw(a.events(), Event::Kind::kMoved, session));
}

CONTRACT_CASE("shared: a repeated request finds its lease through another daemon") {
  if (!SharesClaims(world)) return;
  Daemon& a = world.daemon();
  Daemon& b = world.OpenAnother("b");
  a.Create("s", 3);
  const LeasePtr lease = a.Grant("s", {.client = "c", .sequence = 1});
  const Outcome again = b.Acquire("s", {.client = "c", .sequence = 1});
  REQUIRE(again.kind == OutcomeKind::kGranted);
  CHECK(again.lease->id == lease->id);
  CHECK(again.lease->token == lease->token);
  CHECK(again.lease->host == b.self());
  CHECK(a.Describe("s").held == 1);
}

CONTRACT_CASE("shared: an acquire that only counts if repeated is looked for in the engine") {
  if (!SharesClaims(world)) return;
  Daemon& a = world.daemon();
  Daemon& b = world.OpenAnother("b");
  a.Create("s", 1);
  // What b knows of the semaphore is older than what a does below, and it writes nothing.
  CHECK(b.Describe("s").held == 0);
  const LeasePtr lease = a.Grant("s", {.client = "c", .sequence = 1});
  const Id waiter = a.Queue("s", {.client = "c", .sequence = 2});
  const auto again = [&](uint64_t sequence) {
    return b.Acquire("s",
                     {.wait = true, .client = "c", .sequence = sequence, .only_if_repeated = true});
  };
  CHECK(again(3).kind == OutcomeKind::kNotAskedBefore);
  const Outcome held = again(1);
  REQUIRE(held.kind == OutcomeKind::kGranted);
  CHECK(held.lease->id == lease->id);
  CHECK(held.lease->host == b.self());
  const Outcome queued = again(2);
  CHECK(queued.kind == OutcomeKind::kQueued);
  CHECK(queued.claim == waiter);
  b.GiveBack("s", lease->id);
  CHECK(again(1).kind == OutcomeKind::kNotHeld);
}

CONTRACT_CASE("shared: what a node declared dead left is orphaned, and it can write nothing") {
  if (!SharesClaims(world)) return;
  Daemon& a = world.daemon();
  Daemon& b = world.OpenAnother("b");
  a.Create("s", 3);
  const LeasePtr lease = a.Grant("s");
  DeclareDead(b, a.self());
  const Outcome outcome = b.Do(OrphansCommand{{a.self()}});
  REQUIRE(outcome.report->orphans.size() == 1);
  CHECK(outcome.report->orphans[0].session == lease->id);
  CHECK(a.ErrorOf(world.MakeAcquire("s", {})).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(a.engine().nodes().Heartbeat().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(b.Describe("s").held == 1);
}

CONTRACT_CASE("shared: what a dead node left is told though its semaphores never stand still") {
  if (!SharesClaims(world)) return;
  Daemon& a = world.daemon();
  Daemon& c = world.OpenAnother("c");
  const auto busy = std::make_shared<bool>(false);
  // Asked for between what b reads and what it makes of it.
  world.options().now_unix_ms = [&world, &c, busy] {
    if (*busy) c.GiveBack("s", c.Grant("s")->id);
    return world.now_unix_ms();
  };
  Daemon& b = world.OpenAnother("b");
  a.Create("s", 3);
  const LeasePtr lease = a.Grant("s");
  DeclareDead(b, a.self());
  *busy = true;
  const Outcome outcome = b.Do(OrphansCommand{{a.self()}});
  *busy = false;
  REQUIRE(outcome.report->orphans.size() == 1);
  CHECK(outcome.report->orphans[0].session == lease->id);
}

CONTRACT_CASE("shared: the node id taken by another process is lost to the first") {
  if (!SharesClaims(world)) return;
  Daemon& first = world.daemon();
  first.Create("s", 3);
  Daemon& second = world.OpenAnother("a");
  CHECK(second.self().incarnation > first.self().incarnation);
  CHECK(first.ErrorOf(world.MakeAcquire("s", {})).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(first.engine().nodes().Heartbeat().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(second.Acquire("s", {}).kind == OutcomeKind::kGranted);
}

}  // namespace semaphored::contract
