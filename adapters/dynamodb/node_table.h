// The daemons on one table: an item each with number, incarnation and heartbeats. Taking an id, or
// declaring a node dead, deletes its lanes' items in the same transaction: a commit of theirs that
// is under way lands before, or never.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "adapters/adapter.h"
#include "adapters/common/beat_counter.h"
#include "adapters/common/upkeep.h"
#include "adapters/dynamodb/client.h"
#include "adapters/dynamodb/dead_nodes.h"
#include "adapters/dynamodb/generation.h"
#include "adapters/dynamodb/requests.h"
#include "adapters/steady_clock.h"

namespace semaphored::dynamodb {

// The item of a lane, so that it can make commits; in the generation that its item then has.
// FAILED_PRECONDITION: this life of the node was replaced or declared dead. Blocks for a few requests.
absl::StatusOr<Generation> MakeLane(Client* client, const std::string& table, NodeRef self,
                                    uint32_t lane, SteadyTime deadline);

// The keys of all lanes that can commit. Those whose nodes are ended meanwhile are among them.
absl::StatusOr<std::vector<Key>> LanesOfLivingNodes(Client* client, const std::string& table,
                                                    SteadyTime deadline);

class NodeTable : public NodeStore {
 public:
  // `removal_pause`: DeadNodes::kFirstPause, or another for tests.
  NodeTable(const Url& url, std::shared_ptr<CredentialSource> credentials,
            std::chrono::milliseconds removal_pause = DeadNodes::kFirstPause,
            std::shared_ptr<Upkeep> upkeep = std::make_shared<Upkeep>())
      : table_(url.table),
        timeout_(url.timeout),
        client_(url, std::move(credentials)),
        upkeep_(std::move(upkeep)),
        dead_(&client_, table_, removal_pause, upkeep_) {}

  using NodeStore::Join;
  absl::StatusOr<NodeRef> Join(const std::string& node_id, const std::string& daemon,
                               const Node* seen) override;
  absl::Status Heartbeat() override;
  absl::Status Leave() override;
  // Once this node has joined: also removes items of dead nodes, a part of them with each call, and leaves those
  // out.
  absl::StatusOr<std::vector<Node>> Observe() override;
  absl::StatusOr<bool> DeclareDead(const Node& seen) override;

 private:
  // False: another daemon was first.
  absl::StatusOr<bool> TryJoin(const Node* seen, SteadyTime deadline);
  absl::StatusOr<bool> JoinAsNew(SteadyTime deadline);
  json OwnItem(uint64_t beats) const;
  SteadyTime Deadline() const { return SteadyClock::now() + timeout_; }

  const std::string table_;
  const std::chrono::milliseconds timeout_;
  Client client_;
  const std::shared_ptr<Upkeep> upkeep_;
  DeadNodes dead_;
  NodeRef self_;
  std::string node_id_;
  std::string daemon_;
  BeatCounter beats_;
};

}  // namespace semaphored::dynamodb
