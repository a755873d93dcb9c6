// From version 1 of the schema to a made-up version 2: what is migrated stays, a daemon that works
// goes on, and a migration that fails leaves what there was.
#include "adapters/postgres/schema.h"

#include <future>
#include <string>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "catch2/generators/catch_generators.hpp"
#include "catch2/matchers/catch_matchers_string.hpp"
#include "tests/unit/adapters/postgres/fixture.h"

namespace semaphored::postgres {
namespace {

using Catch::Matchers::ContainsSubstring;
using ledger::Transaction;
using Kind = ledger::CommitResult::Kind;

constexpr char kSchema2[] =
    "ALTER TABLE semaphored.semaphores ADD COLUMN color text NOT NULL DEFAULT 'green';"
    "UPDATE semaphored.store SET version = 2;";
// It leaves out daemons that know less.
constexpr char kStrictSchema2[] = "UPDATE semaphored.store SET version = 2, oldest_daemon = 2;";
constexpr char kBrokenSchema2[] =
    "ALTER TABLE semaphored.semaphores ADD COLUMN color text; SELECT 1 / 0;"
    "UPDATE semaphored.store SET version = 2;";

// As a daemon of version 2 would prepare it.
absl::Status Prepare(OpenStore& open, const TestSchema& schema, const char* second,
                     bool manage = true) {
  std::vector<const char*> migrations(OwnMigrations().begin(), OwnMigrations().end());
  migrations.push_back(second);
  return PrepareSchema(*open.connection, schema.name(), manage, migrations);
}

struct VersionOne {
  TestSchema schema;
  Client sql = schema.Connect();
  OpenStore open = Open(schema, {.node_id = "old"});
  OpenStore newer = Open(schema, {.node_id = "new"});
  SemaphoreRow row = Make(open, "s");
  int64_t version() { return sql.Number("SELECT version FROM semaphored.store"); }
};

TEST_CASE("postgres schema: version 1 is migrated under a daemon that works", "[postgres]") {
  VersionOne one;
  CHECK(one.version() == 1);
  const LeasePtr lease = MakeLease(one.open, 1);
  Transaction grant = Grant(one.open, one.row, lease);
  REQUIRE(one.open.Commit(grant).kind == Kind::kWon);
  REQUIRE(Prepare(one.newer, one.schema, kSchema2) == absl::OkStatus());
  CHECK(one.version() == 2);
  CHECK(one.sql.Text("SELECT color FROM semaphored.semaphores") == "green");
  // Once is enough, also for one that manages no schema.
  CHECK(Prepare(one.newer, one.schema, kSchema2, GENERATE(true, false)) == absl::OkStatus());
  // The daemon of version 1 goes on, and may start again.
  const ledger::LoadedSemaphore loaded = LoadOne(one.open, "s");
  CHECK(loaded.leases.at(0)->token == lease->token);
  Transaction end = Begin(one.open);
  Touch(end, loaded.row).leases.push_back({lease, nullptr, EndCause::kReleased});
  CHECK(one.open.Commit(end).kind == Kind::kWon);
  CHECK(OpenEngine(one.schema.Url()).ok());
}

TEST_CASE("postgres schema: several daemons migrate at the same moment, under a busy one",
          "[postgres]") {
  VersionOne one;
  OpenStore third = Open(one.schema, {.node_id = "third"});
  std::vector<std::future<absl::Status>> prepared;
  for (OpenStore* each : {&one.newer, &third}) {
    prepared.push_back(
        std::async(std::launch::async, [&, each] { return Prepare(*each, one.schema, kSchema2); }));
  }
  for (uint64_t i = 0; i < 20; ++i) {
    Transaction grant = Grant(one.open, LoadOne(one.open, "s").row, MakeLease(one.open, i + 1));
    REQUIRE(one.open.Commit(grant).kind == Kind::kWon);
    const ledger::LoadedSemaphore loaded = LoadOne(one.open, "s");
    Transaction end = Begin(one.open);
    Touch(end, loaded.row).leases.push_back({loaded.leases.at(0), nullptr, EndCause::kReleased});
    REQUIRE(one.open.Commit(end).kind == Kind::kWon);
  }
  for (auto& each : prepared) CHECK(each.get() == absl::OkStatus());
  CHECK(one.version() == 2);
}

TEST_CASE("postgres schema: a daemon that is too old for version 2 does not start", "[postgres]") {
  VersionOne one;
  REQUIRE(Prepare(one.newer, one.schema, kStrictSchema2) == absl::OkStatus());
  const absl::Status refused = OpenEngine(one.schema.Url()).status();
  CHECK(refused.code() == absl::StatusCode::kUnimplemented);
  CHECK_THAT(std::string(refused.message()), ContainsSubstring("this one knows 1"));
}

TEST_CASE("postgres schema: version 1 is left alone by a daemon that manages no schema",
          "[postgres]") {
  VersionOne one;
  const absl::Status refused = Prepare(one.newer, one.schema, kSchema2, /*manage=*/false);
  CHECK(refused.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(refused.message()), ContainsSubstring("has version 1"));
  CHECK(one.version() == 1);
}

TEST_CASE("postgres schema: a migration that fails leaves version 1", "[postgres]") {
  VersionOne one;
  CHECK_FALSE(Prepare(one.newer, one.schema, kBrokenSchema2).ok());
  CHECK(one.version() == 1);
  CHECK(
      one.sql.Number("SELECT count(*) FROM information_schema.columns WHERE column_name = 'color' "
                     "AND table_schema = '" +
                     one.schema.name() + "'") == 0);
  // And the next one is not kept from it.
  CHECK(Prepare(one.newer, one.schema, kSchema2) == absl::OkStatus());
  CHECK(one.version() == 2);
}

}  // namespace
}  // namespace semaphored::postgres
