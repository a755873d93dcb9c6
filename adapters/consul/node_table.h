// The daemons on one Consul store: a key each with the incarnation, and one with the counter that
// the heartbeat raises. Taking an id, or declaring a node dead, deletes its lanes' keys in the same
// transaction: a commit of theirs that is under way lands before, or never. The keys of a dead node go when
// nothing else of it is left (dead_nodes.h); no number is given twice, so that a daemon that was paused
// meanwhile finds no lane and no heartbeat that it could take for its own.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "adapters/adapter.h"
#include "adapters/common/beat_counter.h"
#include "adapters/common/upkeep.h"
#include "adapters/consul/client.h"
#include "adapters/consul/dead_nodes.h"
#include "adapters/consul/document.h"
#include "adapters/consul/keys.h"
#include "adapters/consul/transaction_request.h"

namespace semaphored::consul {

// A node's key as it stands.
struct NodeAtIndex : NodeRow {
  std::string key;
  uint64_t index = 0;
};

// FAILED_PRECONDITION: this life of it was replaced or declared dead.
absl::StatusOr<NodeAtIndex> FindNode(Client* client, const Keys& keys, NodeRef self);

class NodeTable : public NodeStore {
 public:
  static constexpr std::chrono::minutes kRemovalPause{10};

  explicit NodeTable(const Url& url, std::chrono::milliseconds removal_pause = kRemovalPause,
                     std::shared_ptr<Upkeep> upkeep = std::make_shared<Upkeep>())
      : client_(url),
        keys_(url.prefix),
        dead_(&client_, &keys_, removal_pause),
        upkeep_(std::move(upkeep)) {}

  using NodeStore::Join;
  absl::StatusOr<NodeRef> Join(const std::string& node_id, const std::string& daemon,
                               const Node* seen) override;
  absl::Status Heartbeat() override;
  absl::Status Leave() override;
  // Once this node has joined: also removes keys of dead nodes, a part of them with each call, and leaves those
  // out.
  absl::StatusOr<std::vector<Node>> Observe() override;
  absl::StatusOr<bool> DeclareDead(const Node& seen) override;

 private:
  // False: another daemon was first.
  absl::StatusOr<bool> TryJoin(const std::string& node_id, const std::string& daemon,
                               const Node* seen);
  absl::Status JudgeStore(const std::vector<Entry>& entries) const;
  // Where the heartbeat stands. FAILED_PRECONDITION: as for Heartbeat.
  absl::Status ReadBeat();

  Client client_;
  const Keys keys_;
  DeadNodes dead_;
  const std::shared_ptr<Upkeep> upkeep_;
  NodeAtIndex self_;
  BeatCounter beats_;
  uint64_t beat_index_ = 0;  // 0: to be read.
};

}  // namespace semaphored::consul
