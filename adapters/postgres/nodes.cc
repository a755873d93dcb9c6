#include "adapters/postgres/nodes.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "adapters/postgres/schema.h"

namespace semaphored::postgres {
namespace {

// Locks in one order everywhere: the node's row, then its lanes'. Taking a node over, or declaring
// it dead, waits for its commits that are under way; those that come later find their lane ended.
constexpr char kJoin[] = R"sql(
  WITH joined AS (
    INSERT INTO semaphored.nodes AS n (node_id, daemon) VALUES ($1, $2)
      ON CONFLICT (node_id) DO UPDATE SET incarnation = n.incarnation + 1, counter = n.counter + 1, dead = false,
        stopped = false, daemon = $2, started_at = now()
        WHERE $3::integer IS NULL OR (n.incarnation = $3 AND n.counter = $4)
      RETURNING number, incarnation, counter),
  ended AS (
    UPDATE semaphored.lanes l SET alive = false FROM joined j WHERE l.node = j.number AND l.alive RETURNING l.lane)
  SELECT number, incarnation, counter, (SELECT count(*) FROM ended) FROM joined)sql";

// A server that has a synchronous standby loses nothing at a fail-over; that is known only while it
// is seen.
constexpr char kHeartbeat[] = R"sql(
  UPDATE semaphored.nodes SET counter = $3::bigint + 1 WHERE number = $1 AND incarnation = $2 AND NOT dead
    AND counter <= $3
    RETURNING (current_setting('synchronous_standby_names') <> '') <> (SELECT synchronous FROM semaphored.store))sql";

constexpr char kSynchronous[] =
    "UPDATE semaphored.store SET synchronous = current_setting('synchronous_standby_names') <> ''";

constexpr char kLeave[] = R"sql(
  UPDATE semaphored.nodes SET stopped = true WHERE number = $1 AND incarnation = $2 AND NOT dead RETURNING number)sql";

constexpr char kObserve[] = R"sql(
  SELECT number, incarnation, node_id, counter, dead, stopped, daemon FROM semaphored.nodes ORDER BY number)sql";

constexpr char kDeclareDead[] = R"sql(
  WITH declared AS (
    UPDATE semaphored.nodes SET dead = true WHERE number = $1 AND incarnation = $2 AND counter = $3 AND NOT dead
      RETURNING number, incarnation),
  ended AS (
    UPDATE semaphored.lanes l SET alive = false FROM declared d WHERE l.node = d.number AND l.incarnation <= d.incarnation
      AND l.alive RETURNING l.lane)
  SELECT (SELECT count(*) FROM declared), (SELECT count(*) FROM ended))sql";

absl::Status Replaced() {
  return absl::FailedPreconditionError(
      "postgres: this node was declared dead by another daemon, its id was taken, or another "
      "process counts its heartbeats");
}

}  // namespace

Answered PostgresNodes::Query(const char* name, const std::string& sql,
                              const Arguments& arguments) {
  Answered answered;
  if (absl::Status status = connection_->Open(); !status.ok()) {
    answered.ok = false;
    answered.failure = {Failure::Kind::kRefused, "", std::move(status)};
    return answered;
  }
  return connection_->Run(name, ForSchema(sql, schema_), arguments);
}

absl::StatusOr<NodeRef> PostgresNodes::Join(const std::string& node_id, const std::string& daemon,
                                            const Node* seen) {
  Arguments arguments = {node_id, daemon, std::nullopt, std::nullopt};
  if (seen != nullptr) {
    arguments[2] = std::to_string(seen->ref.incarnation);
    arguments[3] = std::to_string(seen->counter);
  }
  const Answered joined = Query("join", kJoin, arguments);
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
  const Answered beat = Query("heartbeat", kHeartbeat,
                              {std::to_string(self_.number), std::to_string(self_.incarnation),
                               std::to_string(counter_.last())});
  if (!beat.ok) {
    if (beat.failure.kind == Failure::Kind::kBroken) counter_.Sent();
    return beat.failure.status;
  }
  if (beat.rows.empty()) return Replaced();
  counter_.Sent();
  if (beat.rows[0][0].as<bool>()) Query("synchronous", kSynchronous, {});
  return absl::OkStatus();
}

absl::Status PostgresNodes::Leave() {
  const Answered left =
      Query("leave", kLeave, {std::to_string(self_.number), std::to_string(self_.incarnation)});
  if (!left.ok) return left.failure.status;
  return left.rows.empty() ? Replaced() : absl::OkStatus();
}

absl::StatusOr<std::vector<NodeStore::Node>> PostgresNodes::Observe() {
  const Answered seen = Query("observe", kObserve, {});
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
  const Answered declared =
      Query("declare_dead", kDeclareDead,
            {std::to_string(seen.ref.number), std::to_string(seen.ref.incarnation),
             std::to_string(seen.counter)});
  if (!declared.ok) return declared.failure.status;
  return declared.rows[0][0].as<int>() == 1;
}

}  // namespace semaphored::postgres
