// The daemons on one Postgres store: a row each, with a counter that the heartbeat raises.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "adapters/adapter.h"
#include "adapters/common/beat_counter.h"
#include "adapters/postgres/connection.h"

namespace semaphored::postgres {

class PostgresNodes : public NodeStore {
 public:
  PostgresNodes(std::unique_ptr<Connection> connection, std::string schema)
      : connection_(std::move(connection)), schema_(std::move(schema)) {}

  using NodeStore::Join;
  absl::StatusOr<NodeRef> Join(const std::string& node_id, const std::string& daemon,
                               const Node* seen) override;
  absl::Status Heartbeat() override;
  absl::Status Leave() override;
  absl::StatusOr<std::vector<Node>> Observe() override;
  absl::StatusOr<bool> DeclareDead(const Node& seen) override;

 private:
  Answered Query(const char* name, const std::string& sql, const Arguments& arguments);

  const std::unique_ptr<Connection> connection_;
  const std::string schema_;
  NodeRef self_;
  BeatCounter counter_;
};

}  // namespace semaphored::postgres
