// The daemons that have had the file. One at a time has it, which the file's lock sees to: so all
// others are dead by definition, a heartbeat is a look whether the lock still stands, and nothing
// is written but at Join.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "adapters/adapter.h"
#include "adapters/sqlite/database.h"

namespace semaphored::sqlite {

// Any thread. Heartbeat, Observe and DeclareDead do not touch the connection, so they never wait
// for a commit.
class NodeTable : public NodeStore {
 public:
  explicit NodeTable(std::shared_ptr<Database> database) : database_(std::move(database)) {}

  using NodeStore::Join;
  absl::StatusOr<NodeRef> Join(const std::string& node_id, const std::string& daemon,
                               const Node* seen) override;
  absl::Status Heartbeat() override;
  // Writes nothing: the file's lock is free when the process has ended.
  absl::Status Leave() override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<Node>> Observe() override;
  absl::StatusOr<bool> DeclareDead(const Node& seen) override;

  // FAILED_PRECONDITION unless `node` is the one that joined last and is not dead: it may write
  // nothing.
  absl::Status CheckMayWrite(const NodeRef& node) const;

 private:
  absl::StatusOr<std::vector<Node>> ReadNodes();
  absl::Status WriteNode(const Node& node);

  const std::shared_ptr<Database> database_;
  mutable std::mutex mutex_;
  std::vector<Node> nodes_;
  // Of `nodes_`, for CheckMayWrite, which every commit asks: number in the high half, incarnation
  // in the low; 0: none.
  std::atomic<uint64_t> living_{0};
};

}  // namespace semaphored::sqlite
