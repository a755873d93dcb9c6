// The daemons on one Postgres store: a row each, with a counter that the heartbeat raises.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "adapters/adapter.h"
#include "adapters/common/beat_counter.h"
#include "adapters/common/upkeep.h"
#include "adapters/postgres/connection.h"
#include "adapters/postgres/statements.h"

namespace semaphored::postgres {

class PostgresNodes : public NodeStore {
 public:
  PostgresNodes(std::unique_ptr<Connection> connection, const std::string& schema,
                std::shared_ptr<Upkeep> upkeep)
      : connection_(std::move(connection)), sql_(schema), upkeep_(std::move(upkeep)) {}

  using NodeStore::Join;
  absl::StatusOr<NodeRef> Join(const std::string& node_id, const std::string& daemon,
                               const Node* seen) override;
  absl::Status Heartbeat() override;
  absl::Status Leave() override;
  absl::StatusOr<std::vector<Node>> Observe() override;
  absl::StatusOr<bool> DeclareDead(const Node& seen) override;

 private:
  Answered Query(const Statement& statement, const Arguments& arguments);

  const std::unique_ptr<Connection> connection_;
  const Statements sql_;
  const std::shared_ptr<Upkeep> upkeep_;
  NodeRef self_;
  BeatCounter counter_;
};

}  // namespace semaphored::postgres
