// How the server carries out each prepared statement, on a database with 100,000 semaphores and ten ended leases for each of them. A
// tenth of it by default; SEMAPHORED_TEST_SEMAPHORES says how many.
#include <cstdlib>
#include <set>
#include <string>

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "adapters/postgres/engine.h"
#include "adapters/postgres/statements.h"
#include "tests/unit/adapters/postgres/fixture.h"

namespace semaphored::postgres {
namespace {

using Plan = nlohmann::json;

// Rows of all tables that grow with use, of daemons that have ended. $count$: semaphores. Ids are numbers written as UUIDs.
constexpr char kFill[] = R"sql(
  INSERT INTO semaphored.semaphores (name, permits, revision)
    SELECT 'held/' || i, 10, 1 FROM generate_series(1, $count$) AS i;
  INSERT INTO semaphored.sessions (id, node, incarnation, epoch, ttl_ms, holder)
    SELECT ('0' || lpad(to_hex(i), 31, '0'))::uuid, 1000 + i % 3, 1, 1, 30000, 'h' FROM generate_series(1, $count$ / 10) AS i;
  INSERT INTO semaphored.leases (semaphore, slot, kind, claim, token, holder, session, node, incarnation, epoch, ttl_ms,
                                 priority, queue_order, created_at)
    SELECT 'held/' || i, 1, 'd', ('1' || lpad(to_hex(i), 31, '0'))::uuid, i, 'h',
           CASE i % 2 WHEN 0 THEN ('1' || lpad(to_hex(i), 31, '0')) ELSE ('0' || lpad(to_hex(i % ($count$ / 10) + 1), 31, '0')) END::uuid,
           1000 + i % 3, 1, 1, 30000, 0, i, now() FROM generate_series(1, $count$) AS i;
  INSERT INTO semaphored.leases (semaphore, slot, kind, claim, token, holder, session, node, incarnation, epoch, ttl_ms,
                                 priority, queue_order, created_at, completed_at, end_cause, history_number)
    SELECT 'held/' || i % $count$ + 1, 1, 'd', ('2' || lpad(to_hex(i), 31, '0'))::uuid, i, 'h', ('2' || lpad(to_hex(i), 31, '0'))::uuid,
           0, 1, 1, 30000, 0, i, now(), now(), 1, i FROM generate_series(1, 10 * $count$) AS i;
  INSERT INTO semaphored.waiters (semaphore, queue_order, priority, claim, permits, holder, session, fingerprint, node, incarnation,
                                  epoch, ttl_ms, queued_at, works)
    SELECT 'held/' || i, i, 0, ('3' || lpad(to_hex(i), 31, '0'))::uuid, 1, 'h',
           CASE i % 2 WHEN 0 THEN ('3' || lpad(to_hex(i), 31, '0')) ELSE ('0' || lpad(to_hex(i % ($count$ / 10) + 1), 31, '0')) END::uuid,
           gen_random_uuid(), 1000 + i % 3, 1, 1, 30000, now(), false FROM generate_series(1, $count$) AS i;
  INSERT INTO semaphored.requests (client_id, sequence, fingerprint, state, semaphore, claim, cause, number, remaining, changed, node,
                                   incarnation, lane)
    SELECT 'c' || i / 10, i % 10, gen_random_uuid(), 3, 'held/' || i, ('1' || lpad(to_hex(i), 31, '0'))::uuid, 1, 0, 0, false, 1000 + i % 3, 1, 0
    FROM generate_series(1, $count$) AS i;
  INSERT INTO semaphored.clients (client_id, floor) SELECT 'c' || i, 1 FROM generate_series(1, $count$ / 10) AS i;
  INSERT INTO semaphored.tickets (semaphore, queue_order, priority, ticket, state, attempt, max_attempts, back_off_initial_ms,
                                  back_off_percent, back_off_max_ms, delay_ms, delays, node, incarnation, content_type, payload_bytes,
                                  trace, enqueued_at, changed)
    SELECT 'held/' || i, i, 0, ('4' || lpad(to_hex(i), 31, '0'))::uuid, 1, 0, 5, 1000, 200, 60000, 0, 0, 0, 1, '', 1, '', now(), 1
    FROM generate_series(1, $count$) AS i;
  INSERT INTO semaphored.payloads (ticket, payload) SELECT ('4' || lpad(to_hex(i), 31, '0'))::uuid, 'x' FROM generate_series(1, $count$) AS i;
  INSERT INTO semaphored.lanes (node, incarnation, lane, alive) SELECT i, 1, 0, false FROM generate_series(1000, 1002) AS i;
  SELECT setval('semaphored.history_numbers', 10 * $count$), setval('semaphored.tokens', 10 * $count$))sql";

// What grows with use; the others have a row for each daemon or lane.
const std::set<std::string> kLarge = {"semaphores", "sessions", "leases",  "waiters",
                                      "requests",   "clients",  "tickets", "payloads"};

// Statements that walk along a whole large table, or a whole index of it, and why each may. Each grant and each wait would write an index
// more (of ttl_ms; of node), at every commit, to save one walk.
const std::set<std::string> kWalks = {
    "withheld",  // On a new connection after a fail-over, of tables that the bounds of the store limit.
    "drop_nodes",  // Once, an hour after a daemon has ended: leases and waiters that stand.
};

// Of a node of a plan and all below it: what is read in a way that grows with the table.
void FindWalks(const Plan& node, std::set<std::string>* walks) {
  const std::string type = node.value("Node Type", "");
  const std::string table = node.value("Relation Name", "");
  if (kLarge.contains(table)) {
    // The index of a few parts of leases is read from its beginning, a page at a time, and so are the ends of one that is in order.
    const bool along_an_index = type.starts_with("Index") && !node.contains("Index Cond") &&
                                node.value("Index Name", "") != "leases_parts" &&
                                node.value("Index Name", "") != "leases_history";
    if (type == "Seq Scan" || along_an_index)
      walks->insert(absl::StrCat(type, " of ", table, " ", node.value("Index Name", "")));
  }
  for (const Plan& below : node.value("Plans", Plan::array())) FindWalks(below, walks);
}

int ArgumentsOf(const std::string& sql) {
  int count = 0;
  while (sql.find(absl::StrCat("$", count + 1)) != std::string::npos) ++count;
  return count;
}

Plan Explain(Client& client, const Statement& statement) {
  const std::string name = "plan_" + statement.name();
  client.Run(absl::StrCat("PREPARE ", name, " AS ", statement.sql()));
  const std::vector<std::string> none(static_cast<size_t>(ArgumentsOf(statement.sql())), "NULL");
  const std::string arguments =
      none.empty() ? "" : absl::StrCat("(", absl::StrJoin(none, ","), ")");
  return Plan::parse(
             client.Text(absl::StrCat("EXPLAIN (FORMAT JSON) EXECUTE ", name, arguments)))[0]
      .at("Plan");
}

TEST_CASE("postgres: no statement walks along a large table", "[postgres]") {
  const char* set = std::getenv("SEMAPHORED_TEST_SEMAPHORES");
  const std::string count = set == nullptr ? "10000" : set;
  TestSchema schema;
  REQUIRE(OpenEngine(schema.Url()).ok());
  Client owner = schema.Connect();
  owner.Run(absl::StrReplaceAll(kFill, {{"$count$", count}}));
  owner.Run("ANALYZE");

  const Statements statements(schema.name());
  CHECK(statements.all().size() > 30);
  Client daemon(schema.ServerUrl(), schema.name());
  daemon.Run(ConnectionSettings(std::chrono::seconds(10), std::chrono::seconds(1)));
  std::set<std::string> walking;
  for (const Statement& statement : statements.all()) {
    const Plan plan = Explain(daemon, statement);
    std::set<std::string> walks;
    FindWalks(plan, &walks);
    if (walks.empty()) continue;
    walking.insert(statement.name());
    INFO(statement.name() << ": " << absl::StrJoin(walks, "; ") << "\n" << plan.dump(1));
    CHECK(kWalks.contains(statement.name()));
  }
  // What no longer walks is no exception any more.
  CHECK(walking == kWalks);
}

}  // namespace
}  // namespace semaphored::postgres
