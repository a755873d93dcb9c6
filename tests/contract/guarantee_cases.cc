// What an engine says of itself, line by line: what it cannot do it refuses, naming itself.
#include "tests/contract/world.h"

namespace semaphored::contract {
namespace {

void CheckUnsupported(World& world, const Outcome& outcome) {
  CHECK(outcome.kind == OutcomeKind::kUnsupported);
  CHECK(outcome.message.find(world.guarantees().adapter) != std::string::npos);
}

}  // namespace

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
  CHECK((lease->token != 0) == world.guarantees().fencing);
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
  if (world.guarantees().lanes_max > 1) return;
  ledger::LedgerOptions options = world.options();
  options.self = world.daemon().self();
  CHECK_FALSE(world.daemon().engine().OpenLane(options).ok());
}

}  // namespace semaphored::contract
