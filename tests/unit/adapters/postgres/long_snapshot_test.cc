// What a commit costs while a transaction of another client keeps all old versions of rows (ADR 0021).
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/postgres/fixture.h"

namespace semaphored::postgres {
namespace {

using ledger::Transaction;
using Kind = ledger::CommitResult::Kind;

// So many, that each has few versions.
constexpr uint32_t kSemaphores = 100;
constexpr int kVersions = 5'000;  // Of the lane's row: some 40 pages.
constexpr int kCounted = 100;
// The page of the row, and a new one and an index's now and then.
constexpr int64_t kBlocksOfCommit = 10;

// Of the table of lanes and its index, that were read, whether or not they were in the server's
// memory.
int64_t BlocksOfLanes(OpenStore& open, Client& reader) {
  REQUIRE(open.connection->Run("SELECT pg_stat_force_next_flush()").ok);
  return reader.Number(
      "SELECT heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit "
      "FROM pg_statio_all_tables WHERE relid = 'semaphored.lanes'::regclass");
}

TEST_CASE("postgres: under a long snapshot a commit does not pass the older versions of its lane",
          "[postgres]") {
  TestSchema schema;
  OpenStore open = Open(schema);
  Client reader = schema.Connect();
  Client snapshot = schema.Connect();
  std::vector<SemaphoreRow> rows;
  for (uint32_t i = 0; i < kSemaphores; ++i) rows.push_back(Make(open, absl::StrCat("s", i)));
  snapshot.Run("BEGIN ISOLATION LEVEL REPEATABLE READ");
  REQUIRE(snapshot.Number("SELECT count(*) FROM semaphored.lanes") > 0);
  const auto commit = [&](int count) {
    for (int i = 0; i < count; ++i) {
      SemaphoreRow& row = rows[static_cast<size_t>(i) % rows.size()];
      Transaction change = Begin(open);
      Touch(change, row);
      REQUIRE(open.Commit(change).kind == Kind::kWon);
      ++row.revision;
    }
  };
  commit(kVersions);
  const int64_t before = BlocksOfLanes(open, reader);
  commit(kCounted);
  CHECK(BlocksOfLanes(open, reader) - before <= kCounted * kBlocksOfCommit);
}

}  // namespace
}  // namespace semaphored::postgres
