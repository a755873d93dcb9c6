#include "adapters/sqlite/node_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace semaphored::sqlite {
namespace {

uint64_t Packed(const NodeRef& ref) {
  return static_cast<uint64_t>(ref.number) << 32 | ref.incarnation;
}

}  // namespace

// The file's lock has decided already: no other daemon is alive.
absl::StatusOr<NodeRef> NodeTable::Join(const std::string& node_id, const std::string& daemon,
                                        const Node*) {
  std::scoped_lock lock(database_->mutex(), mutex_);
  absl::StatusOr<std::vector<Node>> nodes = ReadNodes();
  if (!nodes.ok()) return nodes.status();
  uint32_t highest = 0;
  for (const Node& node : *nodes) highest = std::max(highest, node.ref.number);
  auto own = std::ranges::find(*nodes, node_id, &Node::node_id);
  if (own == nodes->end()) {
    own = nodes->insert(own, Node{.ref = {.number = highest + 1}, .node_id = node_id});
  }
  own->ref.incarnation++;
  own->dead = false;
  own->daemon = daemon;
  if (absl::Status status = WriteNode(*own); !status.ok()) return status;
  const NodeRef ref = own->ref;
  nodes_ = *std::move(nodes);
  living_ = Packed(ref);
  return ref;
}

absl::StatusOr<std::vector<NodeStore::Node>> NodeTable::ReadNodes() {
  absl::StatusOr<Statement> rows =
      database_->Prepare("SELECT number, node_id, incarnation FROM nodes");
  if (!rows.ok()) return rows.status();
  std::vector<Node> nodes;
  int code;
  while ((code = rows->Step()) == SQLITE_ROW) {
    Node& node = nodes.emplace_back();
    node.ref = {static_cast<uint32_t>(rows->Int(0)), static_cast<uint32_t>(rows->Int(2))};
    node.node_id = rows->Text(1);
    node.dead = true;
  }
  if (code != SQLITE_DONE) return database_->Error(code, "read its nodes");
  return nodes;
}

// Should its fate be unknown, the next Join takes an incarnation that is higher still or the same:
// no daemon has used it.
absl::Status NodeTable::WriteNode(const Node& node) {
  absl::StatusOr<Statement> write = database_->Prepare(
      "INSERT OR REPLACE INTO nodes(number, node_id, incarnation) VALUES(?, ?, ?)");
  if (!write.ok()) return write.status();
  if (absl::Status status = database_->Begin(); !status.ok()) return status;
  const int code = write->Bind(1, node.ref.number)
                       .BindText(2, node.node_id)
                       .Bind(3, node.ref.incarnation)
                       .Step();
  if (code != SQLITE_DONE) {
    absl::Status status = database_->Error(code, "write the node's row");
    database_->Rollback();
    return status;
  }
  absl::Status status;
  database_->Commit(&status);
  return status;
}

absl::Status NodeTable::Heartbeat() {
  if (absl::Status status = database_->CheckFile(); !status.ok()) return status;
  std::scoped_lock lock(mutex_);
  const uint64_t living = living_;
  for (Node& node : nodes_) {
    if (Packed(node.ref) != living) continue;
    ++node.counter;
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "sqlite: ", database_->name(), ": this node has not joined, or was declared dead"));
}

absl::StatusOr<std::vector<NodeStore::Node>> NodeTable::Observe() {
  std::scoped_lock lock(mutex_);
  return nodes_;
}

absl::StatusOr<bool> NodeTable::DeclareDead(const Node& seen) {
  std::scoped_lock lock(mutex_);
  for (Node& node : nodes_) {
    if (node.ref != seen.ref || node.counter != seen.counter) continue;
    node.dead = true;
    if (living_ == Packed(node.ref)) living_ = 0;
    return true;
  }
  return false;
}

absl::Status NodeTable::CheckMayWrite(const NodeRef& node) const {
  if (living_ == Packed(node) && node.number != 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("sqlite: ", database_->name(), ": node ", node.number, " in incarnation ",
                   node.incarnation, " has not joined, was replaced or was declared dead"));
}

}  // namespace semaphored::sqlite
