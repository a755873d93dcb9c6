#include "adapters/consul/node_table.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "adapters/common/store_version.h"
#include "adapters/consul/format.h"
#include "adapters/steady_clock.h"

namespace semaphored::consul {
namespace {

constexpr int kJoinsMax = 20;

absl::Status Dead() {
  return absl::FailedPreconditionError(
      "consul: this node was declared dead by another daemon, its id was taken, or another process "
      "counts its heartbeats");
}

struct Table {
  std::vector<NodeAtIndex> nodes;
  std::map<std::string, Entry> beats;  // By key.
  uint32_t highest = 0;                // Of all numbers that were given.
  uint64_t highest_index = 0;
};

absl::StatusOr<Table> ReadTable(Client* client, const Keys& keys) {
  TransactionRequest request;
  request.GetTree(keys.Nodes());
  request.GetTree(keys.Heartbeats());
  request.GetTree(keys.HighestNode());
  absl::StatusOr<std::vector<Entry>> entries = client->Read(request);
  if (!entries.ok()) return entries.status();
  Table table;
  for (Entry& entry : *entries) {
    if (entry.key == keys.HighestNode()) {
      if (!absl::SimpleAtoi(entry.value, &table.highest))
        return absl::DataLossError(
            absl::StrCat("consul: the key ", entry.key, " is not understood"));
      table.highest_index = entry.modify_index;
      continue;
    }
    if (!entry.key.starts_with(keys.Nodes())) {
      std::string key = entry.key;
      table.beats.emplace(std::move(key), std::move(entry));
      continue;
    }
    absl::StatusOr<NodeRow> node = ReadNode(entry.key, entry.value);
    if (!node.ok()) return node.status();
    table.nodes.push_back({*std::move(node), entry.key, entry.modify_index});
  }
  return table;
}

uint64_t BeatsOf(const Table& table, const std::string& key, uint64_t* index) {
  uint64_t beats = 0;
  const auto found = table.beats.find(key);
  if (found == table.beats.end()) return 0;
  if (index != nullptr) *index = found->second.modify_index;
  return absl::SimpleAtoi(found->second.value, &beats) ? beats : 0;
}

}  // namespace

absl::StatusOr<NodeAtIndex> FindNode(Client* client, const Keys& keys, NodeRef self) {
  absl::StatusOr<Table> table = ReadTable(client, keys);
  if (!table.ok()) return table.status();
  for (NodeAtIndex& node : table->nodes) {
    if (node.ref == self && !node.dead) return std::move(node);
  }
  return Dead();
}

absl::StatusOr<bool> NodeTable::TryJoin(const std::string& node_id, const std::string& daemon,
                                        const Node* seen) {
  const absl::StatusOr<Table> table = ReadTable(&client_, keys_);
  if (!table.ok()) return table.status();
  NodeAtIndex joined;
  joined.node_id = node_id;
  joined.key = keys_.Node(node_id);
  uint32_t highest = table->highest;
  for (const NodeAtIndex& node : table->nodes) {
    highest = std::max(highest, node.ref.number);
    if (node.node_id == node_id) joined = node;
  }
  const uint64_t before = joined.index;
  const bool is_new = joined.ref.number == 0;
  if (is_new) joined.ref.number = highest + 1;
  const std::string beat = keys_.Heartbeat(joined.ref.number);
  uint64_t beat_index = 0;
  const uint64_t beats = BeatsOf(*table, beat, &beat_index);
  if (!is_new && seen != nullptr &&
      (joined.ref.incarnation != seen->ref.incarnation || beats != seen->counter)) {
    return absl::AbortedError(
        absl::StrCat("consul: another daemon joins or counts as node ", node_id));
  }
  joined.dead = false;
  joined.stopped = false;
  joined.daemon = daemon;
  ++joined.ref.incarnation;
  TransactionRequest request;
  request.Cas(joined.key, WriteNode(joined), before);
  // Two who come at once and take the same number have this key in common.
  request.Cas(beat, std::to_string(beats + 1), beat_index);
  request.DeleteTree(keys_.Lanes(joined.ref.number));
  if (is_new)
    request.Cas(keys_.HighestNode(), std::to_string(joined.ref.number), table->highest_index);
  const absl::StatusOr<TransactionAnswer> answer = client_.Write(request);
  if (!answer.ok()) return answer.status();
  if (!answer->done) return false;
  beat_index_ = joined.index = answer->landed_at();
  self_ = std::move(joined);
  beats_.Joined(beats + 1);
  return true;
}

absl::StatusOr<NodeRef> NodeTable::Join(const std::string& node_id, const std::string& daemon,
                                        const Node* seen) {
  for (int i = 0; i < kJoinsMax; ++i) {
    const absl::StatusOr<bool> joined = TryJoin(node_id, daemon, seen);
    if (!joined.ok()) return joined.status();
    if (*joined) return self_.ref;
  }
  return absl::UnavailableError("consul: others join at the same time, each time; try again");
}

absl::Status NodeTable::ReadBeat() {
  const absl::StatusOr<Table> table = ReadTable(&client_, keys_);
  if (!table.ok()) return table.status();
  for (const NodeAtIndex& node : table->nodes) {
    if (node.ref != self_.ref || node.dead) continue;
    self_.index = node.index;
    uint64_t index = 0;
    if (!beats_.MayBe(BeatsOf(*table, keys_.Heartbeat(self_.ref.number), &index))) return Dead();
    beat_index_ = index;
    return absl::OkStatus();
  }
  return Dead();
}

// FAILED_PRECONDITION: the store has become a newer one.
absl::Status NodeTable::JudgeStore(const std::vector<Entry>& entries) const {
  // Not always the last: keys that only begin like it are read with it.
  const auto entry = std::ranges::find(entries, keys_.Version(), &Entry::key);
  uint64_t version = 0;
  if (entry == entries.end() || !absl::SimpleAtoi(entry->value, &version)) return absl::OkStatus();
  const absl::Status newer = JudgeVersion(absl::StrCat("consul: the store under ", keys_.prefix()),
                                          version, kStoreVersion);
  return newer.ok() ? newer : absl::FailedPreconditionError(newer.message());
}

absl::Status NodeTable::Heartbeat() {
  // The second time after it was read again: a beat whose answer was lost has moved it.
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (beat_index_ == 0) {
      if (absl::Status status = ReadBeat(); !status.ok()) return status;
    }
    TransactionRequest request;
    request.Cas(keys_.Heartbeat(self_.ref.number), std::to_string(beats_.next()), beat_index_);
    request.Check(self_.key, self_.index);
    // In the same request: a daemon of a newer version may have raised it.
    request.GetTree(keys_.Version());
    const absl::StatusOr<TransactionAnswer> answer = client_.Write(request);
    beat_index_ = answer.ok() ? answer->landed_at() : 0;
    if (answer.ok() && !answer->done) continue;
    beats_.Sent();
    return answer.ok() ? JudgeStore(answer->entries) : answer.status();
  }
  return absl::UnavailableError("consul: this node's heartbeat is written by another process");
}

absl::Status NodeTable::Leave() {
  if (absl::Status status = ReadBeat(); !status.ok()) return status;
  NodeAtIndex stopped = self_;
  stopped.stopped = true;
  TransactionRequest request;
  request.Cas(stopped.key, WriteNode(stopped), self_.index);
  const absl::StatusOr<TransactionAnswer> answer = client_.Write(request);
  if (!answer.ok()) return answer.status();
  return answer->done ? absl::OkStatus() : Dead();
}

absl::StatusOr<std::vector<NodeStore::Node>> NodeTable::Observe() {
  const absl::StatusOr<Table> table = ReadTable(&client_, keys_);
  if (!table.ok()) return table.status();
  std::vector<DeadNode> dead;
  for (const NodeAtIndex& node : table->nodes) {
    if (node.dead) dead.push_back({node.ref, node.key, node.index});
  }
  absl::flat_hash_set<uint32_t> removed;
  if (self_.ref.number != 0) {
    const auto gone = dead_.RemoveSome(dead, SteadyClock::now());
    upkeep_->Note(UpkeepWork::kNodes, gone.status());
    if (gone.ok()) {
      for (const NodeRef& node : *gone) removed.insert(node.number);
    }
  }
  std::vector<Node> nodes;
  for (const NodeAtIndex& node : table->nodes) {
    if (node.dead && removed.contains(node.ref.number)) continue;
    nodes.push_back({node.ref, node.node_id,
                     BeatsOf(*table, keys_.Heartbeat(node.ref.number), nullptr), node.dead,
                     node.stopped, node.daemon});
  }
  std::ranges::sort(nodes, {}, [](const Node& node) { return node.ref.number; });
  return nodes;
}

absl::StatusOr<bool> NodeTable::DeclareDead(const Node& seen) {
  absl::StatusOr<Table> table = ReadTable(&client_, keys_);
  if (!table.ok()) return table.status();
  for (NodeAtIndex& node : table->nodes) {
    if (node.ref != seen.ref || node.dead) continue;
    const std::string beat = keys_.Heartbeat(node.ref.number);
    uint64_t beat_index = 0;
    if (BeatsOf(*table, beat, &beat_index) != seen.counter) return false;
    const uint64_t before = node.index;
    node.dead = true;
    TransactionRequest request;
    request.Cas(node.key, WriteNode(node), before);
    request.Check(beat, beat_index);
    request.DeleteTree(keys_.Lanes(node.ref.number));
    const absl::StatusOr<TransactionAnswer> answer = client_.Write(request);
    if (!answer.ok()) return answer.status();
    return answer->done;
  }
  return false;
}

}  // namespace semaphored::consul
