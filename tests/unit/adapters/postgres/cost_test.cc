// What a command costs the database, counted in rows that are written.
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "catch2/generators/catch_generators.hpp"
#include "tests/unit/adapters/postgres/fixture.h"

namespace semaphored::postgres {
namespace {

// The rules over a schema of their own, and a semaphore "s".
class CountedLane {
 public:
  CountedLane(uint32_t limit, const Settings& settings)
      : engine_(OpenEngine(schema_.Url()).value()), sql_(schema_.Connect()) {
    ledger::LedgerOptions options;
    options.self = engine_->nodes().Join("a").value();
    options.now = [] { return SteadyClock::now(); };
    options.now_unix_ms = [] { return int64_t{1'800'000'000'000}; };
    lane_ = engine_->OpenLane(options).value();
    const AdminCommand create{{}, "s", 0, AdminCreate{limit, settings}};
    REQUIRE(RunAll({create}).front().kind == OutcomeKind::kDone);
  }

  std::vector<Outcome> RunAll(std::vector<Command> commands) {
    std::vector<Submission> batch;
    for (Command& command : commands) batch.push_back({++number_, std::move(command)});
    return std::move(
        lane_->Step(batch, SteadyClock::now() + std::chrono::seconds(20)).value().outcomes);
  }
  static AcquireCommand Ask(uint64_t claim, uint32_t permits, const std::string& holder) {
    AcquireCommand acquire;
    acquire.semaphore = "s";
    acquire.claim = acquire.session = MakeId(claim);
    acquire.permits = permits;
    acquire.wait = true;
    acquire.ttl_ms = 10'000;
    acquire.holder = holder;
    return acquire;
  }
  // The rows of leases and waiters that the release inserts, changes or deletes. Empty slots: all.
  int64_t RowsOfRelease(uint64_t claim, Slots slots = {}) {
    sql_.Run(std::string("CREATE TEMP TABLE known AS ") + kRows);
    const ReleaseCommand release{{}, "s", MakeId(claim), std::move(slots)};
    REQUIRE(RunAll({release}).front().kind == OutcomeKind::kReleased);
    sql_.Run(std::string("CREATE TEMP TABLE present AS ") + kRows);
    const int64_t written =
        sql_.Number("SELECT count(*) FROM (SELECT * FROM present EXCEPT SELECT * FROM known) AS n");
    const int64_t deleted = sql_.Number(
        "SELECT count(*) FROM (SELECT place FROM known WHERE waits EXCEPT "
        "SELECT place FROM present WHERE waits) AS d");
    return written + deleted;
  }

 private:
  // Each version of a row, by its place.
  static constexpr char kRows[] =
      "SELECT false AS waits, ctid::text AS place, xmin::text AS version FROM semaphored.leases "
      "UNION ALL SELECT true, ctid::text, xmin::text FROM semaphored.waiters";

  TestSchema schema_;
  std::unique_ptr<Engine> engine_;
  Client sql_;
  std::unique_ptr<Adapter> lane_;
  uint64_t number_ = 0;
};

TEST_CASE("postgres cost: the return of one slot writes one row, however many stay", "[postgres]") {
  const uint32_t permits = GENERATE(3u, 10'000u);
  CountedLane lane(permits, {});
  REQUIRE(lane.RunAll({CountedLane::Ask(1, permits, "h")}).front().kind == OutcomeKind::kGranted);
  CHECK(lane.RowsOfRelease(1, Slots{2}) == 1);
}

TEST_CASE("postgres cost: what waits at its holder's cap costs others nothing", "[postgres]") {
  constexpr uint64_t kCapped = 1'000;
  CountedLane lane(2, {.permits_per_holder = 1});
  std::vector<Command> asked = {CountedLane::Ask(1, 1, "greedy"), CountedLane::Ask(2, 1, "modest")};
  for (uint64_t i = 0; i < kCapped; ++i) asked.emplace_back(CountedLane::Ask(100 + i, 1, "greedy"));
  asked.emplace_back(CountedLane::Ask(3, 1, "patient"));
  REQUIRE(lane.RunAll(std::move(asked)).back().kind == OutcomeKind::kQueued);
  // The lease that ends, the waiter that goes, and the lease that it becomes.
  CHECK(lane.RowsOfRelease(2) == 3);
  const VerifyCommand verify{"s", MakeId(3), 0, 0};
  CHECK(lane.RunAll({verify}).front().kind == OutcomeKind::kHeld);
}

}  // namespace
}  // namespace semaphored::postgres
