#include "adapters/dynamodb/dead_nodes.h"

#include <algorithm>
#include <exception>

#include "absl/strings/match.h"
#include "adapters/dynamodb/requests.h"
#include "adapters/steady_clock.h"

namespace semaphored::dynamodb {
namespace {

constexpr size_t kNodesAtOnce = 32;
// Of the items of one node that say where it may have claims.
constexpr uint32_t kPlacesAtOnce = 32;

}  // namespace

absl::StatusOr<std::vector<bool>> DeadNodes::HasClaims(
    const std::vector<std::pair<uint32_t, std::string>>& at, SteadyTime deadline) {
  std::vector<Range> ranges;
  for (const auto& [number, name] : at) ranges.emplace_back().partition = PartitionOf(name);
  const auto items = QueryAll(client_, table_, std::move(ranges), deadline);
  if (!items.ok()) return items.status();
  std::vector<bool> has;
  for (size_t i = 0; i < at.size(); ++i) {
    has.push_back(std::ranges::any_of(
        (*items)[i], [&](const json& item) { return NumberIn(item, "node") == at[i].first; }));
  }
  return has;
}

absl::StatusOr<std::vector<DeadNodes::Left>> DeadNodes::LookAt(
    absl::Span<const NodeStore::Node* const> nodes, SteadyTime deadline) {
  std::vector<Range> ranges;
  for (const NodeStore::Node* node : nodes) {
    Range& range = ranges.emplace_back();
    range.partition = HostPartition(node->ref.number);
    range.rows_max = kPlacesAtOnce;
    range.backward = true;  // Sessions stand behind the semaphores.
  }
  const auto hosted = QueryAll(client_, table_, std::move(ranges), deadline);
  if (!hosted.ok()) return hosted.status();
  std::vector<Left> left(nodes.size(), Left::kNothing);
  std::vector<std::pair<uint32_t, std::string>> at;
  std::vector<std::pair<size_t, const json*>>
      items;  // For each of `at`: of which node, and the item.
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const json& item : (*hosted)[i]) {
      const Key key = KeyOf(item);
      const std::string& sort = key.sort;
      if (absl::StartsWith(sort, kHostedSession)) {
        left[i] = Left::kSomething;
        break;
      }
      if (!absl::StartsWith(sort, kAt)) continue;
      left[i] = Left::kPerhaps;
      at.emplace_back(nodes[i]->ref.number, sort.substr(sizeof kAt - 1));
      items.emplace_back(i, &item);
    }
  }
  if (at.empty()) return left;
  const absl::StatusOr<std::vector<bool>> has = HasClaims(at, deadline);
  if (!has.ok()) return has.status();
  std::vector<Request> requests;
  for (size_t i = 0; i < at.size(); ++i) {
    const auto& [node, item] = items[i];
    if ((*has)[i]) {
      left[node] = Left::kSomething;
    } else {
      // Another life of the node, if there is one by now, leaves another stamp where it has claims.
      requests.push_back(
          DeleteItem(table_, KeyOf(*item), Condition::IsText("stamp", TextIn(*item, "stamp"))));
    }
  }
  RunUpkeep(client_, requests, UpkeepWork::kNodes, upkeep_.get(), deadline);
  return left;
}

absl::StatusOr<std::vector<NodeRef>> DeadNodes::RemoveSome(
    const std::vector<NodeStore::Node>& nodes, SteadyTime now, SteadyTime deadline) {
  const SteadyTime until = SteadyClock::now() + kTurn;
  std::map<std::pair<uint32_t, uint32_t>, Seen> seen;
  std::vector<const NodeStore::Node*> due;
  for (const NodeStore::Node& node : nodes) {
    if (!node.dead) continue;
    const std::pair<uint32_t, uint32_t> ref(node.ref.number, node.ref.incarnation);
    const auto before = seen_.find(ref);
    const Seen& known = seen[ref] = before == seen_.end() ? Seen{} : before->second;
    if (known.due <= now) due.push_back(&node);
  }
  seen_ = std::move(seen);
  std::vector<NodeRef> removed;
  for (size_t at = 0; at < due.size() && SteadyClock::now() < until;) {
    const auto some = absl::MakeConstSpan(due).subspan(at, kNodesAtOnce);
    at += some.size();
    try {
      const absl::StatusOr<std::vector<Left>> left = LookAt(some, deadline);
      if (!left.ok()) return left.status();
      std::vector<Request> requests;
      std::vector<NodeRef> refs;
      for (size_t i = 0; i < some.size(); ++i) {
        const NodeRef ref = some[i]->ref;
        if ((*left)[i] == Left::kSomething) {
          Seen& known = seen_[{ref.number, ref.incarnation}];
          known.due = now + first_pause_ * (1 << std::min(known.looks++, kDoublings));
        }
        if ((*left)[i] != Left::kNothing) continue;
        requests.push_back(DeleteItem(table_, NodeKey(some[i]->node_id),
                                      Condition::Is("number", ref.number)
                                          .And("incarnation", ref.incarnation)
                                          .And(Condition::IsFlag("dead"))));
        refs.push_back(ref);
      }
      const std::vector<Reply> replies = client_->RepeatAll(requests, deadline);
      for (size_t i = 0; i < replies.size(); ++i) {
        // If the condition did not hold another daemon was first, or its next life was.
        if (replies[i].answered() || replies[i].error == "ConditionalCheckFailedException") {
          removed.push_back(refs[i]);
        } else {
          upkeep_->Failed(UpkeepWork::kNodes, replies[i].status);
        }
      }
    } catch (const std::exception&) {
      return absl::DataLossError("dynamodb: what a dead node has left is not understood");
    }
  }
  return removed;
}

}  // namespace semaphored::dynamodb
