#include "adapters/postgres/nodes.h"

#include <optional>

#include "absl/strings/str_cat.h"

namespace semaphored::postgres {
namespace {

absl::Status Replaced() {
  return absl::FailedPreconditionError(
      "postgres: this node was declared dead by another daemon, its id was taken, or another "
      "process counts its heartbeats");
}

}  // namespace

Answered PostgresNodes::Query(const Statement& statement, const Arguments& arguments) {
  Answered answered;
  if (absl::Status status = connection_->Open(); !status.ok()) {
    answered.ok = false;
    answered.failure = {Failure::Kind::kRefused, "", std::move(status)};
    return answered;
  }
  return connection_->Run(statement, arguments);
}

absl::StatusOr<NodeRef> PostgresNodes::Join(const std::string& node_id, const std::string& daemon,
                                            const Node* seen) {
  Arguments arguments = {node_id, daemon, std::nullopt, std::nullopt};
  if (seen != nullptr) {
    arguments[2] = std::to_string(seen->ref.incarnation);
    arguments[3] = std::to_string(seen->counter);
  }
  const Answered joined = Query(sql_.join, arguments);
  if (!joined.ok) return joined.failure.status;
  if (joined.rows.empty()) {
    return absl::AbortedError(
        absl::StrCat("postgres: another daemon joins or counts as node ", node_id));
  }
  self_ = {joined.rows[0][0].as<uint32_t>(), joined.rows[0][1].as<uint32_t>()};
  counter_.Joined(joined.rows[0][2].as<uint64_t>());
  return self_;
}

absl::Status PostgresNodes::Heartbeat() {
  const Answered beat =
      Query(sql_.heartbeat, {std::to_string(self_.number), std::to_string(self_.incarnation),
                             std::to_string(counter_.last())});
  if (!beat.ok) {
    if (beat.failure.kind == Failure::Kind::kBroken) counter_.Sent();
    return beat.failure.status;
  }
  if (beat.rows.empty()) return Replaced();
  counter_.Sent();
  if (beat.rows[0][0].as<bool>()) {
    const Answered noted = Query(sql_.synchronous, {});
    if (!noted.ok) upkeep_->Failed(UpkeepWork::kFailOver, noted.failure.status);
  }
  return absl::OkStatus();
}

absl::Status PostgresNodes::Leave() {
  const Answered left =
      Query(sql_.leave, {std::to_string(self_.number), std::to_string(self_.incarnation)});
  if (!left.ok) return left.failure.status;
  return left.rows.empty() ? Replaced() : absl::OkStatus();
}

absl::StatusOr<std::vector<NodeStore::Node>> PostgresNodes::Observe() {
  const Answered seen = Query(sql_.observe, {});
  if (!seen.ok) return seen.failure.status;
  std::vector<Node> nodes;
  for (const auto& row : seen.rows) {
    Node& node = nodes.emplace_back();
    node.ref = {row[0].as<uint32_t>(), row[1].as<uint32_t>()};
    node.node_id = row[2].as<std::string>();
    node.counter = row[3].as<uint64_t>();
    node.dead = row[4].as<bool>();
    node.stopped = row[5].as<bool>();
    node.daemon = row[6].as<std::string>();
  }
  return nodes;
}

absl::StatusOr<bool> PostgresNodes::DeclareDead(const Node& seen) {
  const Answered declared = Query(
      sql_.declare_dead, {std::to_string(seen.ref.number), std::to_string(seen.ref.incarnation),
                          std::to_string(seen.counter)});
  if (!declared.ok) return declared.failure.status;
  return declared.rows[0][0].as<int>() == 1;
}

}  // namespace semaphored::postgres
