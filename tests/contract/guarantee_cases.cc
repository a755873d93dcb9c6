// What an engine says of itself, line by line: what it cannot do it refuses, naming itself. What it
// promises to several daemons is in guarantee_shared_cases.cc.
#include <algorithm>
#include <set>

#include "tests/contract/world.h"

namespace semaphored::contract {
CONTRACT_CASE("guarantee: the adapter has a name, and lane and engine say the same") {
  const Guarantees& lane = world.daemon().lane().guarantees();
  const Guarantees& engine = world.daemon().engine().guarantees();
  CHECK_FALSE(lane.adapter.empty());
  CHECK(lane.adapter == engine.adapter);
  CHECK(lane.exclusive == engine.exclusive);
  CHECK(lane.history == engine.history);
  CHECK(lane.lanes_max >= 1);
  CHECK(lane.permits_per_request_max >= 1);
}

CONTRACT_CASE("guarantee: leases survive the daemon just where the engine can restart") {
  const bool survive = world.guarantees().leases_survive_daemon;
  world.daemon().Create("s", 1);
  const Id lease = world.daemon().Grant("s")->id;
  world.CloseAll();
  const Outcome outcome = world.daemon().Verify("s", lease);
  CHECK((outcome.kind == OutcomeKind::kHeld) == survive);
}

CONTRACT_CASE("guarantee: weighted or refused") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3);
  const Outcome outcome = daemon.Acquire("s", {.permits = 2});
  if (world.guarantees().weighted) {
    CHECK(outcome.kind == OutcomeKind::kGranted);
  } else {
    CheckUnsupported(world, outcome);
  }
}

CONTRACT_CASE("guarantee: permits of one request up to what the engine can") {
  Daemon& daemon = world.daemon();
  const uint32_t most = world.guarantees().permits_per_request_max;
  if (most >= 1'000'000) return;  // The API's own bound: nothing above it arrives here.
  daemon.Create("s", most + 1);
  CHECK(daemon.Acquire("s", {.permits = most}).kind == OutcomeKind::kGranted);
  CheckUnsupported(world, daemon.Acquire("s", {.permits = most + 1}));
}

CONTRACT_CASE("guarantee: history or refused") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  daemon.GiveBack("s", daemon.Grant("s")->id);
  const Outcome outcome = daemon.Do(HistoryCommand{"s", 10, 0});
  if (world.guarantees().history) {
    CHECK(outcome.kind == OutcomeKind::kDone);
    CHECK(outcome.report->history.size() == 1);
  } else {
    CheckUnsupported(world, outcome);
  }
}

CONTRACT_CASE("guarantee: tokens, where there is fencing") {
  Daemon& daemon = world.daemon();
  const LeasePtr lease = daemon.Grant("s", {.limit = 1});
  const bool fencing = world.guarantees().fencing;
  CHECK((lease->token != 0) == fencing);
  // Nothing is proven by the token that none has.
  const Outcome outcome = daemon.VerifySlot("s", lease->slots.front(), lease->token);
  CHECK(outcome.kind == (fencing ? OutcomeKind::kHeld : OutcomeKind::kNotHeld));
  CHECK(outcome.slot_token() == lease->token);
}

CONTRACT_CASE("guarantee: an exclusive engine refuses a second daemon and says who has it") {
  if (!world.guarantees().exclusive) return;  // shared_cases.cc then opens many.
  world.daemon().Create("s", 1);
  const absl::StatusOr<std::unique_ptr<Daemon>> second = world.TryOpen("b");
  if (second.ok()) {
    // The memory of a process: another connection is another engine.
    CHECK_FALSE(world.guarantees().leases_survive_daemon);
    CHECK_FALSE((*second)->Exists("s"));
  } else {
    CHECK(second.status().code() == absl::StatusCode::kFailedPrecondition);
    CHECK_FALSE(second.status().message().empty());
  }
  CHECK(world.daemon().Exists("s"));
  CHECK(world.daemon().Acquire("s", {}).kind == OutcomeKind::kGranted);
}

CONTRACT_CASE("guarantee: a node's heartbeat succeeds, and it sees itself alive") {
  Daemon& daemon = world.daemon();
  NodeStore& nodes = daemon.engine().nodes();
  CHECK(nodes.Heartbeat().ok());
  const absl::StatusOr<std::vector<NodeStore::Node>> seen = nodes.Observe();
  REQUIRE(seen.ok());
  bool found = false;
  for (const NodeStore::Node& node : *seen) {
    if (node.ref != daemon.self()) continue;
    found = true;
    CHECK(node.node_id == "a");
    CHECK_FALSE(node.dead);
  }
  CHECK(found);
}

CONTRACT_CASE("guarantee: no more lanes are opened than make sense") {
  ledger::LedgerOptions options = world.options();
  options.self = world.daemon().self();
  std::vector<std::unique_ptr<Adapter>> more;
  for (uint32_t i = 1; i < world.guarantees().lanes_max; ++i) {
    absl::StatusOr<std::unique_ptr<Adapter>> lane = world.daemon().engine().OpenLane(options);
    REQUIRE(lane.ok());
    more.push_back(*std::move(lane));
  }
  CHECK(world.daemon().engine().OpenLane(options).status().code() ==
        absl::StatusCode::kFailedPrecondition);
}

CONTRACT_CASE("guarantee: a grant takes the lowest free slots, or any that are free") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 4);
  std::vector<LeasePtr> leases;
  std::set<uint32_t> slots;
  for (int i = 0; i < 4; ++i) {
    leases.push_back(daemon.Grant("s"));
    slots.insert(leases.back()->slots.front());
  }
  CHECK(slots == std::set<uint32_t>{1, 2, 3, 4});
  const std::vector<uint32_t> free = {leases[1]->slots.front(), leases[3]->slots.front()};
  daemon.GiveBack("s", leases[3]->id);
  daemon.GiveBack("s", leases[1]->id);
  std::vector<uint32_t> taken;
  for (int i = 0; i < 2; ++i) taken.push_back(daemon.GrantSoon("s")->slots.front());
  if (!world.guarantees().lowest_slot) std::ranges::sort(taken);
  CHECK(taken == free);
}

CONTRACT_CASE("guarantee: room is given by the Step that makes it, or soon after") {
  Daemon& daemon = world.daemon();
  const bool at_once = world.guarantees().grants_at_once;
  daemon.Create("s", 1);
  const LeasePtr first = daemon.Grant("s");
  const Id waiter = daemon.Queue("s");
  std::vector<Command> batch;
  batch.push_back(world.MakeRelease("s", first->id));
  batch.push_back(VerifyCommand{"s", waiter, 0, 0});
  const std::vector<Outcome> outcomes = daemon.DoAll(std::move(batch));
  CHECK(outcomes[1].kind == (at_once ? OutcomeKind::kHeld : OutcomeKind::kStillWaiting));
  daemon.PollUntil([&] { return Saw(daemon.events(), Event::Kind::kGranted, waiter); });
  CHECK(Overtakes(world.guarantees(), *daemon.Verify("s", waiter).lease, *first));

  // The same for who asks in that very batch, and does not wait: at worst it is told that there is
  // no room.
  const AcquireCommand next = world.MakeAcquire("s", {});
  batch.clear();
  batch.push_back(world.MakeRelease("s", waiter));
  batch.push_back(next);
  const Outcome asked = std::move(daemon.DoAll(std::move(batch))[1]);
  const bool granted = asked.kind == OutcomeKind::kGranted;
  CHECK((granted || (!at_once && asked.kind == OutcomeKind::kFull)));
  if (!granted) daemon.GrantSoon("s");
  daemon.CheckHeld("s", 1);
}

CONTRACT_CASE("guarantee: permits per holder, or refused") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3);
  const Settings capped{.permits_per_holder = 1};
  const Outcome created = daemon.Administer("capped", AdminCreate{3, capped});
  const Outcome configured = daemon.Administer("s", AdminConfigure{capped});
  if (world.guarantees().holder_cap) {
    CHECK(created.kind == OutcomeKind::kDone);
    CHECK(configured.kind == OutcomeKind::kDone);
    return;
  }
  CheckUnsupported(world, created);
  CHECK_FALSE(daemon.Exists("capped"));
  CheckUnsupported(world, configured);
  CHECK(daemon.Describe("s").row.settings == Settings{});
}

CONTRACT_CASE("guarantee: settings and pauses, or refused") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3);
  const Settings settings{.longest_hold_ms = 9'000, .waiters_max = 7};
  const Outcome created = daemon.Administer("set", AdminCreate{3, settings});
  const Outcome configured = daemon.Administer("s", AdminConfigure{settings});
  const Outcome paused = daemon.Administer("s", AdminPause{true});
  if (world.guarantees().settings) {
    CHECK(created.kind == OutcomeKind::kDone);
    CHECK(configured.kind == OutcomeKind::kDone);
    CHECK(paused.kind == OutcomeKind::kDone);
    return;
  }
  CheckUnsupported(world, created);
  CHECK_FALSE(daemon.Exists("set"));
  CheckUnsupported(world, configured);
  CheckUnsupported(world, paused);
  CHECK(daemon.Describe("s").row.settings == Settings{});
  CHECK_FALSE(daemon.Describe("s").row.paused);
}

CONTRACT_CASE("guarantee: an expected revision holds against all daemons, or is refused") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3);
  const uint64_t revision = daemon.Describe("s").row.revision;
  const AdminResize more{AdminResize::Change::kSet, 9, 100, {}, {}};
  const AdminCommand act{{}, "s", std::max<uint64_t>(revision, 1), more};
  if (!world.guarantees().revisions) {
    CheckUnsupported(world, daemon.Do(act));
    CHECK(daemon.Describe("s").row.limit == 3);
    return;
  }
  Daemon& other = world.guarantees().exclusive ? daemon : world.OpenAnother("b");
  REQUIRE(other.Resize("s", 4).kind == OutcomeKind::kDone);
  CHECK(daemon.Do(act).kind == OutcomeKind::kRevisionMismatch);
  CHECK(other.Describe("s").row.limit == 4);
}

CONTRACT_CASE("guarantee: a revision counts claims, or only what changes the semaphore itself") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3);
  uint64_t last = daemon.Describe("s").row.revision;
  const LeasePtr lease = daemon.Grant("s");
  const uint64_t claims = world.guarantees().revision_counts_claims ? 1 : 0;
  CHECK(daemon.Describe("s").row.revision == last + claims);
  daemon.GiveBack("s", lease->id);
  last += 2 * claims;
  CHECK(daemon.Describe("s").row.revision == last);
  REQUIRE(daemon.Resize("s", 5).kind == OutcomeKind::kDone);
  CHECK(daemon.Describe("s").row.revision > last);
}

CONTRACT_CASE("guarantee: a list shows what a first use has made, or that is not kept") {
  if (!world.guarantees().names) return;
  Daemon& daemon = world.daemon();
  daemon.Create("meant", 1);
  daemon.GiveBack("used", daemon.Grant("used", {.limit = 1})->id);
  // Of a daemon that has used neither.
  Daemon& other = world.guarantees().exclusive ? daemon : world.OpenAnother("b");
  const auto listed = [&](const std::string& name) {
    const Outcome list = other.Do(ListCommand{name, "", 10});
    REQUIRE(list.kind == OutcomeKind::kDone);
    REQUIRE(list.report->infos.size() == 1);
    return list.report->infos[0].row.made_on_use;
  };
  CHECK_FALSE(listed("meant"));
  CHECK(listed("used") == world.guarantees().made_on_use);
}

CONTRACT_CASE("guarantee: all semaphores are listed, or one that is named in full") {
  Daemon& daemon = world.daemon();
  daemon.Create("team/a", 1);
  daemon.Create("team/b", 1);
  const Outcome all = daemon.Do(ListCommand{"team/", "", 10});
  if (world.guarantees().names) {
    REQUIRE(all.kind == OutcomeKind::kDone);
    CHECK(all.report->infos.size() == 2);
  } else {
    CheckUnsupported(world, all);
  }
  const Outcome one = daemon.Do(ListCommand{"team/a", "", 10});
  REQUIRE(one.kind == OutcomeKind::kDone);
  REQUIRE(one.report->infos.size() == 1);
  CHECK(one.report->infos[0].row.name == "team/a");
}

CONTRACT_CASE("guarantee: a limit up to what the engine can give") {
  Daemon& daemon = world.daemon();
  const uint32_t most = world.guarantees().limit_max;
  if (most >= 1'000'000) return;  // The API's own bound: nothing above it arrives here.
  daemon.Create("s", 2);
  CheckUnsupported(world, daemon.Administer("new", AdminCreate{most + 1, {}}));
  CheckUnsupported(world, daemon.Acquire("new", {.limit = most + 1, .wait = true}));
  CHECK_FALSE(daemon.Exists("new"));
  CheckUnsupported(world, daemon.Resize("s", most + 1));
  const AdminResize add{AdminResize::Change::kAdd, most - 1, 1'000'000, ShrinkPolicy::kWait, {}};
  CheckUnsupported(world, daemon.Administer("s", add));
  CHECK(daemon.Describe("s").row.limit == 2);
  if (most > 10'000) return;
  daemon.Create("most", most);
  CHECK(daemon.Describe("most").row.limit == most);
  CHECK(daemon.Acquire("most", {}).kind == OutcomeKind::kGranted);
  CHECK(daemon.Administer("most", AdminDestroy{DestroyPolicy::kForce}).affected() == 1);
}

CONTRACT_CASE("guarantee: a limit of zero, or refused however it is asked for") {
  if (world.CanBeZero()) {
    world.daemon().Create("none", 0);
    return;
  }
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  CheckUnsupported(world, daemon.Administer("none", AdminCreate{0, {}}));
  CHECK_FALSE(daemon.Exists("none"));
  const AdminResize less{AdminResize::Change::kRemove, 2, 100, ShrinkPolicy::kWait, {}};
  CheckUnsupported(world, daemon.Administer("s", less));
  CHECK(daemon.Describe("s").row.limit == 2);
}

CONTRACT_CASE("guarantee: any name, or a clear refusal where it would be mistaken for another") {
  Daemon& daemon = world.daemon();
  for (const std::string& name :
       {std::string("a-A-1"), std::string("a-B-2"), std::string(255, 'x')}) {
    const Outcome created = daemon.Administer(name, AdminCreate{1, {}});
    const Outcome acquired = daemon.Acquire(name, {.limit = 1});
    if (world.guarantees().names) {
      CHECK(created.kind == OutcomeKind::kDone);
      CHECK(acquired.kind == OutcomeKind::kGranted);
      continue;
    }
    CheckUnsupported(world, created);
    CheckUnsupported(world, acquired);
    CHECK_FALSE(daemon.Exists(name));
  }
  CHECK_FALSE(daemon.Exists("a"));
}

CONTRACT_CASE("guarantee: a lease is recalled before the engine takes it back") {
  Daemon& daemon = world.daemon();
  const int64_t most = world.guarantees().longest_hold_max_ms;
  if (!world.guarantees().settings) {
    daemon.Create("s", 1);
    const LeasePtr lease = daemon.Grant("s");
    CHECK((lease->longest_hold_ms != 0) == (most != 0));
    CHECK(lease->longest_hold_ms <= most);
    return;
  }
  daemon.Create("own", 1, {.longest_hold_ms = 1'000, .recall_grace_ms = 100});
  daemon.Create("none", 1, {.recall_grace_ms = 100});
  CHECK(daemon.Grant("own")->longest_hold_ms == 1'000);
  const int64_t bound = daemon.Grant("none")->longest_hold_ms;
  if (most == 0) {
    CHECK(bound == 0);
    return;
  }
  CHECK(bound > 0);
  CHECK(bound + std::max<int64_t>(100, world.guarantees().vouch_max_ms) <= most);
  daemon.Create("long", 1, {.longest_hold_ms = 10 * most, .recall_grace_ms = 100});
  CHECK(daemon.Grant("long")->longest_hold_ms == bound);
}

}  // namespace semaphored::contract
