#include "adapters/dynamodb/node_table.h"

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/common/random.h"

namespace semaphored::dynamodb {
namespace {

constexpr int kJoinsMax = 20;
constexpr int kConflictsMax = 40;
constexpr int kBeatsMax = 2;
constexpr std::chrono::milliseconds kConflictPause{25};

absl::Status Dead() {
  return absl::FailedPreconditionError(
      "dynamodb: this node was declared dead by another daemon, its id was taken, or another "
      "process counts its heartbeats");
}

struct NodeItem {
  NodeStore::Node node;
  uint32_t lanes = 0;  // That this life of it has opened.
};

absl::StatusOr<NodeItem> ReadNode(const json& item) {
  try {
    NodeItem read;
    read.node.node_id = KeyOf(item).sort;
    read.node.ref = {static_cast<uint32_t>(NumberIn(item, "number")),
                     static_cast<uint32_t>(NumberIn(item, "incarnation"))};
    read.node.counter = NumberIn(item, "beats");
    read.node.dead = FlagIn(item, "dead");
    read.node.stopped = FlagIn(item, "stopped");
    read.node.daemon = TextIn(item, "daemon");
    read.lanes = static_cast<uint32_t>(NumberIn(item, "lanes"));
    if (read.node.ref.number == 0) throw std::invalid_argument("no number");
    return read;
  } catch (const std::exception&) {
    return absl::DataLossError("dynamodb: the item of a node is not understood");
  }
}

absl::StatusOr<std::vector<NodeItem>> ReadNodes(Client* client, const std::string& table,
                                                SteadyTime deadline) {
  Range range;
  range.partition = kNodes;
  const auto items = QueryAll(client, table, {range}, deadline);
  if (!items.ok()) return items.status();
  std::vector<NodeItem> nodes;
  for (const json& item : items->front()) {
    absl::StatusOr<NodeItem> node = ReadNode(item);
    if (!node.ok()) return node.status();
    nodes.push_back(*std::move(node));
  }
  return nodes;
}

// nullopt: there is none.
absl::StatusOr<std::optional<NodeItem>> FindNode(Client* client, const std::string& table,
                                                 const std::string& node_id, SteadyTime deadline) {
  const Reply reply = client->Repeat(GetItem(table, NodeKey(node_id)), deadline);
  if (!reply.answered()) return reply.status;
  const auto item = reply.body.find("Item");
  if (item == reply.body.end()) return std::optional<NodeItem>();
  absl::StatusOr<NodeItem> node = ReadNode(*item);
  if (!node.ok()) return node.status();
  return std::optional<NodeItem>(*std::move(node));
}

// False: a condition did not hold. Waits for other transactions on the items.
absl::StatusOr<bool> Carry(Client* client, const TransactionRequest& transaction,
                           SteadyTime deadline) {
  for (int i = 0; i < kConflictsMax; ++i) {
    const Reply reply = client->Repeat(transaction.ToRequest(RandomToken()), deadline);
    if (reply.answered()) return true;
    const std::optional<Cancelled> cancelled = ReadCancelled(reply);
    if (!cancelled || reply.kind == Reply::Kind::kBroken) return reply.status;
    if (cancelled->Has(Refusal::kCondition)) return false;
    if (cancelled->Has(Refusal::kOther)) return absl::InternalError(cancelled->message);
    std::this_thread::sleep_for(Skewed(kConflictPause));
  }
  return absl::UnavailableError("dynamodb: others are at the node's items all the time");
}

// What may have been opened by a life of the node can commit no more.
void EndLanes(const NodeItem& node, TransactionRequest* transaction) {
  for (uint32_t lane = 0; lane < node.lanes; ++lane)
    transaction->Delete(LaneKey(node.node.ref, lane));
}

// The number too: when the item of a dead node was removed its id begins with the first incarnation again, under
// another number.
Condition IsLife(NodeRef ref) {
  return Condition::Is("number", ref.number).And("incarnation", ref.incarnation);
}

Condition StandsAs(const NodeItem& node) { return IsLife(node.node.ref).And("lanes", node.lanes); }

}  // namespace

absl::StatusOr<std::vector<Key>> LanesOfLivingNodes(Client* client, const std::string& table,
                                                    SteadyTime deadline) {
  const absl::StatusOr<std::vector<NodeItem>> nodes = ReadNodes(client, table, deadline);
  if (!nodes.ok()) return nodes.status();
  std::vector<Key> lanes;
  for (const NodeItem& node : *nodes) {
    if (node.node.dead) continue;
    for (uint32_t lane = 0; lane < node.lanes; ++lane)
      lanes.push_back(LaneKey(node.node.ref, lane));
  }
  return lanes;
}

absl::StatusOr<Generation> MakeLane(Client* client, const std::string& table, NodeRef self,
                                    uint32_t lane, SteadyTime deadline) {
  for (int i = 0; i < kJoinsMax; ++i) {
    absl::StatusOr<Generation> generation = ReadGeneration(client, table, deadline);
    if (!generation.ok()) return generation.status();
    const absl::StatusOr<std::vector<NodeItem>> nodes = ReadNodes(client, table, deadline);
    if (!nodes.ok()) return nodes.status();
    const auto own = std::ranges::find_if(
        *nodes, [&](const NodeItem& each) { return each.node.ref == self && !each.node.dead; });
    if (own == nodes->end()) return Dead();
    TransactionRequest transaction(table);
    Change change;
    change.set.emplace_back("lanes", Number(uint64_t{std::max(own->lanes, lane + 1)}));
    transaction.Update(NodeKey(own->node.node_id), change,
                       StandsAs(*own).And(Condition::IsNot("dead")));
    json item = ItemWith(LaneKey(self, lane));
    SetNumber(&item, "generation", generation->number);
    transaction.Put(item);
    transaction.Check(GenerationKey(), Condition::Is("generation", generation->number));
    const absl::StatusOr<bool> made = Carry(client, transaction, deadline);
    if (!made.ok()) return made.status();
    if (*made) return generation;
  }
  return absl::AbortedError("dynamodb: another daemon writes this node's item");
}

json NodeTable::OwnItem(uint64_t beats) const {
  json item = ItemWith(NodeKey(node_id_));
  SetNumber(&item, "number", self_.number);
  SetNumber(&item, "incarnation", self_.incarnation);
  SetNumber(&item, "beats", beats);
  SetText(&item, "daemon", daemon_);
  return item;
}

absl::StatusOr<bool> NodeTable::JoinAsNew(SteadyTime deadline) {
  // A number that is drawn in vain is no loss.
  Change draw;
  draw.add.emplace_back("nodes", 1);
  const Reply drawn =
      client_.Repeat(UpdateItem(table_, StateKey(), draw, Condition::None()), deadline);
  if (!drawn.answered()) return drawn.status;
  try {
    self_ = {static_cast<uint32_t>(NumberIn(drawn.body.at("Attributes"), "nodes")), 1};
  } catch (const std::exception&) {
    return absl::DataLossError("dynamodb: the item STORE, STATE is not understood");
  }
  const Reply put = client_.Repeat(PutItem(table_, OwnItem(1), Condition::Absent()), deadline);
  beats_.Joined(1);
  if (put.answered()) return true;
  // Perhaps it was ours that stands there now: TryJoin then knows it by `daemon`.
  if (put.error == "ConditionalCheckFailedException") return false;
  return put.status;
}

absl::StatusOr<bool> NodeTable::TryJoin(const Node* seen, SteadyTime deadline) {
  const absl::StatusOr<std::optional<NodeItem>> before =
      FindNode(&client_, table_, node_id_, deadline);
  if (!before.ok()) return before.status();
  if (!before->has_value()) return JoinAsNew(deadline);
  const NodeItem& node = **before;
  const bool ours = !daemon_.empty() && node.node.daemon == daemon_;
  if (seen != nullptr && !ours &&
      (node.node.ref.incarnation != seen->ref.incarnation || node.node.counter != seen->counter)) {
    return absl::AbortedError(
        absl::StrCat("dynamodb: another daemon joins or counts as node ", node_id_));
  }
  self_ = {node.node.ref.number, node.node.ref.incarnation + 1};
  TransactionRequest transaction(table_);
  transaction.Put(OwnItem(node.node.counter + 1), StandsAs(node).And("beats", node.node.counter));
  EndLanes(node, &transaction);
  beats_.Joined(node.node.counter + 1);
  return Carry(&client_, transaction, deadline);
}

absl::StatusOr<NodeRef> NodeTable::Join(const std::string& node_id, const std::string& daemon,
                                        const Node* seen) {
  const SteadyTime deadline = Deadline();
  node_id_ = node_id;
  daemon_ = daemon;
  for (int i = 0; i < kJoinsMax; ++i) {
    const absl::StatusOr<bool> joined = TryJoin(seen, deadline);
    if (!joined.ok()) return joined.status();
    if (*joined) return self_;
  }
  return absl::UnavailableError("dynamodb: others join at the same time, each time; try again");
}

// Each attempt is a request of its own, since its condition depends on what became of the last.
absl::Status NodeTable::Heartbeat() {
  Reply reply;
  for (int attempt = 0; attempt < kBeatsMax; ++attempt) {
    Change beat;
    beat.set.emplace_back("beats", Number(beats_.next()));
    const Condition alive =
        IsLife(self_).And(Condition::IsNot("dead")).And(Condition::Below("beats", beats_.next()));
    reply = client_.Once(UpdateItem(table_, NodeKey(node_id_), beat, alive),
                         SteadyClock::now() + timeout_ / kBeatsMax);
    if (reply.kind == Reply::Kind::kRefused)
      return reply.error == "ConditionalCheckFailedException" ? Dead() : reply.status;
    beats_.Sent();
    if (reply.answered()) return absl::OkStatus();
  }
  return reply.status;
}

absl::Status NodeTable::Leave() {
  Change stopped;
  stopped.set.emplace_back("stopped", json{{"BOOL", true}});
  const Condition alive = IsLife(self_).And(Condition::IsNot("dead"));
  const Reply reply =
      client_.Repeat(UpdateItem(table_, NodeKey(node_id_), stopped, alive), Deadline());
  if (reply.answered()) return absl::OkStatus();
  return reply.error == "ConditionalCheckFailedException" ? Dead() : reply.status;
}

absl::StatusOr<std::vector<NodeStore::Node>> NodeTable::Observe() {
  const absl::StatusOr<std::vector<NodeItem>> items = ReadNodes(&client_, table_, Deadline());
  if (!items.ok()) return items.status();
  std::vector<Node> nodes;
  for (const NodeItem& item : *items) nodes.push_back(item.node);
  if (self_.number != 0) {
    const auto removed = dead_.RemoveSome(nodes, SteadyClock::now(), Deadline());
    upkeep_->Note(UpkeepWork::kNodes, removed.status());
    if (removed.ok()) {
      std::set<uint32_t> gone;
      for (const NodeRef& node : *removed) gone.insert(node.number);
      std::erase_if(nodes,
                    [&](const Node& node) { return node.dead && gone.contains(node.ref.number); });
    }
  }
  std::ranges::sort(nodes, {}, [](const Node& node) { return node.ref.number; });
  return nodes;
}

absl::StatusOr<bool> NodeTable::DeclareDead(const Node& seen) {
  const SteadyTime deadline = Deadline();
  const absl::StatusOr<std::optional<NodeItem>> now =
      FindNode(&client_, table_, seen.node_id, deadline);
  if (!now.ok()) return now.status();
  if (!now->has_value()) return false;
  const NodeItem& node = **now;
  if (node.node.ref != seen.ref || node.node.dead || node.node.counter != seen.counter)
    return false;
  Change dead;
  dead.set.emplace_back("dead", json{{"BOOL", true}});
  TransactionRequest transaction(table_);
  transaction.Update(NodeKey(seen.node_id), dead,
                     StandsAs(node).And("beats", seen.counter).And(Condition::IsNot("dead")));
  EndLanes(node, &transaction);
  return Carry(&client_, transaction, deadline);
}

}  // namespace semaphored::dynamodb
