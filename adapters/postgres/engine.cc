#include "adapters/postgres/engine.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "adapters/ledger/ledger.h"
#include "adapters/postgres/connection.h"
#include "adapters/postgres/nodes.h"
#include "adapters/postgres/schema.h"
#include "adapters/postgres/store.h"
#include "adapters/postgres/url.h"

namespace semaphored::postgres {
namespace {

constexpr int kServerVersionMin = 130'000;  // gen_random_uuid()
// Daemons hold locks for a commit's time; only a program that has left a transaction open holds one
// for longer.
constexpr int64_t kLockTimeoutMax_ms = 500;
constexpr int kTokenCounterBits = 48;  // The store's epoch stands above.

std::chrono::milliseconds LockTimeout(const Url& url) {
  return std::min<std::chrono::milliseconds>(url.timeout / 4,
                                             std::chrono::milliseconds(kLockTimeoutMax_ms));
}

// A pooler may give each transaction another server connection: neither LISTEN, nor settings, nor
// prepared statements can be relied upon then.
absl::Status RefusePooler(Connection& connection, int pid_told) {
  const Answered pid =
      connection.Run("SELECT pg_backend_pid(), current_setting('server_version_num')::int");
  if (!pid.ok) return pid.failure.status;
  if (pid.rows[0][1].as<int>() < kServerVersionMin)
    return absl::UnimplementedError("postgres: version 13 or later is needed");
  if (pid.rows[0][0].as<int>() == pid_told) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "postgres: the connection goes through a pooler such as pgbouncer. semaphored listens, and "
      "keeps "
      "settings and prepared statements in its few connections: connect it to the server itself");
}

// A server whose log has a new timeline was promoted. Without a synchronous standby it may lack
// commits that the old primary confirmed: tokens then go on far above, and nothing is granted until
// every lease that may have been lost has run out.
absl::Status NoticeFailover(Connection& connection, const std::string& schema) {
  const auto run = [&](absl::string_view sql) {
    return connection.Run(ForSchema(std::string(sql), schema));
  };
  constexpr absl::string_view kNow = "substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)";
  const Answered seen = run(absl::StrCat("SELECT timeline = ", kNow, " FROM semaphored.store"));
  if (!seen.ok) return seen.failure.status;
  if (seen.rows[0][0].as<bool>()) return absl::OkStatus();
  // One connection finds it first; the others wait, and find it done.
  const Answered noticed = run(absl::StrCat(
      "BEGIN; SELECT 1 FROM semaphored.store FOR UPDATE;"
      "UPDATE semaphored.store SET epoch = epoch + CASE WHEN timeline <> '' AND NOT synchronous "
      "THEN 1 ELSE 0 END,"
      " withheld = withheld OR (timeline <> '' AND NOT synchronous), timeline = ",
      kNow, ", synchronous = current_setting('synchronous_standby_names') <> '' WHERE timeline <> ",
      kNow,
      ";"
      "SELECT setval('semaphored.tokens', greatest((SELECT last_value FROM semaphored.tokens), "
      "epoch::bigint << ",
      kTokenCounterBits, ")) FROM semaphored.store WHERE epoch > 0; COMMIT"));
  if (!noticed.ok) {
    connection.Run("ROLLBACK");
    return noticed.failure.status;
  }
  return absl::OkStatus();
}

class PostgresEngine : public Engine {
 public:
  explicit PostgresEngine(Url url) : url_(std::move(url)) {
    guarantees_.adapter = "postgres";
    guarantees_.permits_per_request_max = 10'000;
    guarantees_.lanes_max = url_.lanes;
    guarantees_.durable_tickets = true;
    guarantees_.history = url_.history_rows > 0;
  }

  absl::Status Open() {
    std::unique_ptr<Connection> connection = NewConnection(/*schema_is_there=*/false);
    if (absl::Status status = connection->Open(); !status.ok()) return status;
    if (absl::Status status = PrepareSchema(*connection, url_.schema, url_.manage_schema);
        !status.ok())
      return status;
    if (absl::Status status = NoticeFailover(*connection, url_.schema); !status.ok()) return status;
    const Answered safe =
        connection->Run("SELECT current_setting('synchronous_standby_names') <> ''");
    if (!safe.ok) return safe.failure.status;
    guarantees_.safe_at_failover = safe.rows[0][0].as<bool>();
    connection->Close();
    nodes_ = std::make_unique<PostgresNodes>(NewConnection(true), url_.schema, upkeep());
    return absl::OkStatus();
  }

  const Guarantees& guarantees() const override { return guarantees_; }
  NodeStore& nodes() override { return *nodes_; }

  absl::StatusOr<std::unique_ptr<Adapter>> OpenLane(const ledger::LedgerOptions& options) override {
    if (lanes_ == url_.lanes)
      return absl::FailedPreconditionError(
          absl::StrCat("postgres: lanes=", url_.lanes, " is all that may be opened"));
    StoreOptions store;
    store.schema = url_.schema;
    store.self = options.self;
    store.lane = lanes_++;
    store.upkeep = upkeep();
    store.prune.history_rows = url_.history_rows;
    store.prune.history_age_ms = url_.history_age_ms;
    store.prune.requests_kept = std::max(options.client_retention, options.request_retention);
    auto lane = std::make_unique<PostgresStore>(NewConnection(true), guarantees_, store);
    if (absl::Status status = lane->Start(); !status.ok()) return status;
    return ledger::MakeLedgerAdapter(std::move(lane), options);
  }

 private:
  std::unique_ptr<Connection> NewConnection(bool schema_is_there) {
    Connection::Options options;
    options.connection = url_.connection;
    options.timeout = url_.timeout;
    options.prepare = [this, schema_is_there](Connection& connection) {
      if (absl::Status status = RefusePooler(connection, connection.backend_pid()); !status.ok())
        return status;
      if (Answered set = connection.Run(ConnectionSettings(url_.timeout, LockTimeout(url_)));
          !set.ok)
        return set.failure.status;
      return schema_is_there ? NoticeFailover(connection, url_.schema) : absl::OkStatus();
    };
    return std::make_unique<Connection>(std::move(options), &guard_);
  }

  const Url url_;
  Guarantees guarantees_;
  Guard guard_;
  std::unique_ptr<PostgresNodes> nodes_;
  uint32_t lanes_ = 0;
};

}  // namespace

// Plans are made once: all statements find their rows by an index, in its order, and planning them again
// for each batch would cost more than they do.
std::string ConnectionSettings(std::chrono::milliseconds timeout,
                               std::chrono::milliseconds lock_timeout) {
  return absl::StrCat(
      "SET statement_timeout = ", timeout.count(), "; SET lock_timeout = ", lock_timeout.count(),
      "; SET idle_in_transaction_session_timeout = ", timeout.count(),
      "; SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_hashjoin = "
      "off"
      "; SET enable_mergejoin = off; SET enable_bitmapscan = off; SET enable_sort = off; SET jit = "
      "off; SET max_parallel_workers_per_gather = 0; SET "
      "default_transaction_isolation = 'read committed'"
      "; SET search_path = pg_catalog; SET client_min_messages = error; SET TimeZone = 'UTC'"
      "; SET synchronous_commit = ",
      // Whatever the server's setting is: the outcome that a client receives is on disk.
      "'on'"
      // Postgres 13 has no such setting. No statement looks for one row twice, so a memory of what was found only costs.
      "; SELECT set_config(name, 'off', false) FROM pg_catalog.pg_settings WHERE name = "
      "'enable_memoize'");
}

absl::StatusOr<std::unique_ptr<Engine>> OpenPostgres(const std::string& url) {
  absl::StatusOr<Url> parsed = ReadUrl(url);
  if (!parsed.ok()) return parsed.status();
  auto engine = std::make_unique<PostgresEngine>(*std::move(parsed));
  if (absl::Status status = engine->Open(); !status.ok()) return status;
  return engine;
}

}  // namespace semaphored::postgres
