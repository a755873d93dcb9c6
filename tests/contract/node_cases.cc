// A daemon's row among the nodes: what comes back of it, and who may write it.
#include <optional>
#include <string>

#include "tests/contract/world.h"

namespace semaphored::contract {
namespace {

std::optional<NodeStore::Node> RowOf(NodeStore& nodes, const std::string& node_id) {
  const absl::StatusOr<std::vector<NodeStore::Node>> all = nodes.Observe();
  REQUIRE(all.ok());
  for (const NodeStore::Node& node : *all) {
    if (node.node_id == node_id) return node;
  }
  return std::nullopt;
}

}  // namespace

CONTRACT_CASE("nodes: what a daemon says of itself comes back as it was said") {
  NodeStore& nodes = world.daemon().engine().nodes();
  const std::string said =
      R"({"host":"h\u00e9","pid":1,"lock":{"inode":18446744073709551615}} '")" +
      std::string(1500, 'x');
  const NodeStore::Node before = RowOf(nodes, "a").value();
  CHECK(before.daemon.empty());
  const absl::StatusOr<NodeRef> self = nodes.Join("a", said, &before);
  REQUIRE(self.ok());
  const NodeStore::Node row = RowOf(nodes, "a").value();
  CHECK(row.ref == *self);
  CHECK(row.daemon == said);
  CHECK_FALSE(row.dead);
  CHECK_FALSE(row.stopped);
  CHECK(nodes.Heartbeat().ok());
  CHECK(RowOf(nodes, "a")->daemon == said);
}

CONTRACT_CASE("nodes: an id is taken only from the row that was seen") {
  if (!SharesClaims(world)) return;
  NodeStore& a = world.daemon().engine().nodes();
  NodeStore& other = world.OpenAnother("b").engine().nodes();
  const NodeStore::Node seen = RowOf(other, "a").value();
  const auto is_refused = [&](const NodeStore::Node& expected) {
    const absl::Status refused = other.Join("a", "other", &expected).status();
    CHECK(refused.code() == absl::StatusCode::kAborted);
    CHECK(a.Heartbeat().ok());
  };
  is_refused(NodeStore::Node{});  // There was none.
  is_refused(seen);               // Its counter has moved.
  NodeStore::Node former = RowOf(other, "a").value();
  --former.ref.incarnation;
  is_refused(former);
  const NodeStore::Node now = RowOf(other, "a").value();
  const absl::StatusOr<NodeRef> taken = other.Join("a", "other", &now);
  REQUIRE(taken.ok());
  CHECK(taken->incarnation == seen.ref.incarnation + 1);
  CHECK(RowOf(a, "a")->daemon == "other");
  CHECK(RowOf(a, "a")->counter != now.counter);
  CHECK(a.Heartbeat().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(other.Heartbeat().ok());
}

CONTRACT_CASE("nodes: an id that has no row is taken once") {
  if (!SharesClaims(world)) return;
  NodeStore& a = world.daemon().engine().nodes();
  NodeStore& other = world.OpenAnother("b").engine().nodes();
  const NodeStore::Node none;
  REQUIRE(a.Join("c", "first", &none).ok());
  CHECK(other.Join("c", "second", &none).status().code() == absl::StatusCode::kAborted);
  CHECK(RowOf(other, "c")->daemon == "first");
  CHECK(a.Heartbeat().ok());
}

CONTRACT_CASE("nodes: a daemon that stops says so, until its next life") {
  if (!SharesClaims(world)) {
    CHECK(world.daemon().engine().nodes().Leave().ok());
    return;
  }
  NodeStore& a = world.daemon().engine().nodes();
  NodeStore& other = world.OpenAnother("b").engine().nodes();
  REQUIRE(a.Join("a", "former", nullptr).ok());
  REQUIRE(a.Leave().ok());
  const NodeStore::Node left = RowOf(other, "a").value();
  CHECK(left.stopped);
  CHECK_FALSE(left.dead);
  CHECK(left.daemon == "former");
  // As any node that is silent.
  REQUIRE(other.DeclareDead(left).value_or(false));
  // Nothing is left of it: some engines have removed its row by now.
  const NodeStore::Node dead = RowOf(other, "a").value_or(NodeStore::Node());
  CHECK((dead.ref.number == 0 || dead.dead));
  CHECK(a.Leave().code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(other.Join("a", "next", &dead).ok());
  CHECK_FALSE(RowOf(a, "a")->stopped);
  CHECK_FALSE(RowOf(a, "a")->dead);
  CHECK(a.Leave().code() == absl::StatusCode::kFailedPrecondition);
  CHECK_FALSE(RowOf(a, "a")->stopped);
}

CONTRACT_CASE("nodes: a daemon for which another process counts must not go on") {
  NodeStore& nodes = world.daemon().engine().nodes();
  CHECK(nodes.Heartbeat().ok());
  CHECK(nodes.Heartbeat().ok());
  if (!world.AddToCounter("a", 1)) {
    CHECK_FALSE(SharesClaims(world));
    return;
  }
  const NodeStore::Node raised = RowOf(nodes, "a").value();
  for (int i = 0; i < 2; ++i)
    CHECK(nodes.Heartbeat().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(RowOf(nodes, "a")->counter == raised.counter);
}

CONTRACT_CASE("nodes: a store that has lost the last heartbeats does not end the daemon") {
  NodeStore& nodes = world.daemon().engine().nodes();
  for (int i = 0; i < 3; ++i) REQUIRE(nodes.Heartbeat().ok());
  const NodeStore::Node before = RowOf(nodes, "a").value();
  if (!world.AddToCounter("a", -2)) return;
  CHECK(nodes.Heartbeat().ok());
  CHECK(RowOf(nodes, "a")->counter > before.counter);
}

}  // namespace semaphored::contract
