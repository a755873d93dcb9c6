// Commits whose answer is lost: what became of them is found out, and those that had not arrived
// never will. And servers that say nothing: whoever asks them comes back.
#include <signal.h>

#include <chrono>
#include <future>
#include <string>
#include <vector>

#include "adapters/postgres/store.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "catch2/generators/catch_generators.hpp"
#include "tests/unit/adapters/postgres/fixture.h"
#include "tests/unit/relay.h"

namespace semaphored::postgres {
namespace {

using ledger::CommitResult;
using ledger::Transaction;
using std::chrono::milliseconds;
using Kind = CommitResult::Kind;

constexpr char kRows[] = "SELECT count(*) FROM semaphored.leases";
// Long enough for a server on a busy machine that is to answer.
constexpr milliseconds kTimeout{1500};
constexpr milliseconds kBound = kTimeout + milliseconds(5000);

milliseconds TimeSince(SteadyClock::time_point start) {
  return std::chrono::duration_cast<milliseconds>(SteadyClock::now() - start);
}

// A store behind a relay, with a semaphore "s" at `row` and a commit that was prepared before.
struct Behind {
  TestSchema schema;
  Relay relay{schema.port()};
  Client other = schema.Connect();
  OpenStore open;
  SemaphoreRow row;

  explicit Behind(milliseconds timeout = kTimeout, milliseconds lock_timeout = milliseconds(5000)) {
    open = Open(schema, {.port = relay.port(), .timeout = timeout, .lock_timeout = lock_timeout});
    row = Make(open, "s");
  }

  // The semaphore as another client sees it.
  int64_t Revision() {
    return other.Number("SELECT revision FROM semaphored.semaphores WHERE name = 's'");
  }
};

TEST_CASE("postgres: a commit whose answer was lost had landed", "[postgres]") {
  Behind behind;
  OpenStore& open = behind.open;
  const bool declared_dead = GENERATE(false, true);
  const LeasePtr stays = MakeLease(open, 1, 1);
  const LeasePtr brief = MakeLease(open, 2, 2);
  Transaction grant = Grant(open, behind.row, stays);
  grant.semaphores[0].leases.push_back({nullptr, brief, EndCause::kNone});
  grant.semaphores[0].leases.push_back({brief, nullptr, EndCause::kReleased});
  grant.history.push_back({0, "s", brief, 5, EndCause::kReleased});
  behind.relay.LoseAnswers();
  const auto start = SteadyClock::now();
  REQUIRE(open.Commit(grant).kind == Kind::kUnknown);
  CHECK(TimeSince(start) < kBound);
  CHECK(stays->token == 0);
  // What is written stands, also when its writer was declared dead after it.
  if (declared_dead) DeclareDead(behind.schema, behind.open.self);

  REQUIRE(open.Settle(grant).kind == Kind::kWon);
  for (const LeasePtr& lease : {stays, brief}) {
    CHECK(lease->token != 0);
    CHECK(static_cast<int64_t>(lease->token) ==
          behind.other.Number("SELECT token FROM semaphored.leases WHERE claim = '" +
                              lease->id.Hex() + "'"));
  }
  CHECK(behind.Revision() == static_cast<int64_t>(behind.row.revision) + 1);

  Transaction next = Grant(open, LoadOne(open, "s").row, MakeLease(open, 3, 3));
  const CommitResult after = open.Commit(next);
  if (declared_dead) {
    CHECK(after.kind == Kind::kFailed);
    CHECK(after.status.code() == absl::StatusCode::kFailedPrecondition);
  } else {
    CHECK(after.kind == Kind::kWon);
  }
}

TEST_CASE("postgres: a commit that had not arrived is settled, and cannot land later",
          "[postgres]") {
  Behind behind;
  OpenStore& open = behind.open;
  const LeasePtr lost = MakeLease(open, 1);
  Transaction grant = Grant(open, behind.row, lost);
  behind.relay.DelayRequests();
  REQUIRE(open.Commit(grant).kind == Kind::kUnknown);
  CHECK(behind.other.Number(kRows) == 0);

  SECTION("it is lost") {
    const CommitResult settled = open.Settle(grant);
    CHECK(settled.kind == Kind::kLost);
    CHECK(settled.stale == std::vector<std::string>{"s"});
    REQUIRE(behind.relay.DeliverDelayed());
    CHECK(behind.other.Number(kRows) == 0);
    CHECK(behind.Revision() == static_cast<int64_t>(behind.row.revision));
    CHECK(lost->token == 0);
    // The same again, as the ledger would: this time it arrives.
    Transaction again = Grant(open, LoadOne(open, "s").row, lost);
    REQUIRE(open.Commit(again).kind == Kind::kWon);
    CHECK(behind.other.Number(kRows) == 1);
  }
  SECTION("it arrives after the next one") {
    REQUIRE(open.Settle(grant).kind == Kind::kLost);
    Transaction next = Grant(open, LoadOne(open, "s").row, MakeLease(open, 2));
    REQUIRE(open.Commit(next).kind == Kind::kWon);
    REQUIRE(behind.relay.DeliverDelayed());
    CHECK(behind.other.Number(kRows) == 1);
    REQUIRE(LoadOne(open, "s").leases.size() == 1);
    CHECK(LoadOne(open, "s").leases[0]->id == MakeId(2));
  }
  SECTION("it arrives before it is settled: then it has landed") {
    REQUIRE(behind.relay.DeliverDelayed());
    REQUIRE(open.Settle(grant).kind == Kind::kWon);
    CHECK(lost->token != 0);
    CHECK(behind.other.Number(kRows) == 1);
  }
  SECTION("it is lost with earlier ones, at a fail-over: the node lives") {
    behind.other.Run("UPDATE semaphored.lanes SET commits = commits - 1");
    REQUIRE(open.Settle(grant).kind == Kind::kLost);
    REQUIRE(behind.relay.DeliverDelayed());
    CHECK(behind.other.Number(kRows) == 0);
    Transaction again = Grant(open, LoadOne(open, "s").row, lost);
    REQUIRE(open.Commit(again).kind == Kind::kWon);
    CHECK(behind.other.Number(kRows) == 1);
  }
  SECTION("this node was declared dead meanwhile") {
    DeclareDead(behind.schema, behind.open.self);
    const CommitResult settled = open.Settle(grant);
    CHECK(settled.kind == Kind::kFailed);
    CHECK(settled.status.code() == absl::StatusCode::kFailedPrecondition);
    REQUIRE(behind.relay.DeliverDelayed());
    CHECK(behind.other.Number(kRows) == 0);
    CHECK(behind.Revision() == static_cast<int64_t>(behind.row.revision));
  }
  SECTION("its id was taken meanwhile") {
    OpenStore successor = Open(behind.schema);
    const CommitResult settled = open.Settle(grant);
    CHECK(settled.kind == Kind::kFailed);
    CHECK(settled.status.code() == absl::StatusCode::kFailedPrecondition);
    REQUIRE(behind.relay.DeliverDelayed());
    CHECK(behind.other.Number(kRows) == 0);
  }
}

// A commit that waits in the server for a row that `holder` has locked.
struct UnderWay {
  Behind behind{milliseconds(5000)};
  Client holder = behind.schema.Connect();
  LeasePtr lease = MakeLease(behind.open, 1);
  Transaction grant = Grant(behind.open, behind.row, lease);
  std::future<CommitResult> commit;

  UnderWay() {
    holder.Run("BEGIN");
    holder.Run("SELECT 1 FROM semaphored.semaphores WHERE name = 's' FOR UPDATE");
    commit = std::async(std::launch::async, [this] { return behind.open.Commit(grant); });
    REQUIRE(Within10s([&] { return Waiting() == 1; }));
  }
  int64_t Waiting() { return WaitingForLocks(behind.other, behind.schema); }
};

TEST_CASE("postgres: a commit that the server ended while it waited has not landed", "[postgres]") {
  UnderWay under_way;
  Behind& behind = under_way.behind;
  behind.other.Run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%" +
                   behind.schema.name() + ".commit_1%' AND wait_event_type = 'Lock'");
  REQUIRE(under_way.commit.get().kind == Kind::kUnknown);
  under_way.holder.Run("ROLLBACK");
  CHECK(behind.open.Settle(under_way.grant).kind == Kind::kLost);
  CHECK(behind.other.Number(kRows) == 0);
  CHECK(behind.Revision() == static_cast<int64_t>(behind.row.revision));
}

TEST_CASE("postgres: settling waits for a commit that is still under way", "[postgres]") {
  UnderWay under_way;
  Behind& behind = under_way.behind;
  behind.relay.CutClients();
  REQUIRE(under_way.commit.get().kind == Kind::kUnknown);
  auto settled =
      std::async(std::launch::async, [&] { return behind.open.Settle(under_way.grant); });
  REQUIRE(Within10s([&] { return under_way.Waiting() == 2; }));
  CHECK(behind.other.Number(kRows) == 0);
  SECTION("and finds that it landed") {
    under_way.holder.Run("ROLLBACK");
    REQUIRE(settled.get().kind == Kind::kWon);
    CHECK(under_way.lease->token != 0);
    CHECK(behind.other.Number(kRows) == 1);
  }
  SECTION("and finds that it came second") {
    under_way.holder.Run("UPDATE semaphored.semaphores SET revision = revision + 1");
    under_way.holder.Run("COMMIT");
    REQUIRE(settled.get().kind == Kind::kLost);
    CHECK(behind.other.Number(kRows) == 0);
  }
}

TEST_CASE("postgres: what cannot be settled yet stays unknown", "[postgres]") {
  Behind behind(milliseconds(1000), milliseconds(100));
  Transaction grant = Grant(behind.open, behind.row, MakeLease(behind.open, 1));
  behind.relay.DelayRequests();
  REQUIRE(behind.open.Commit(grant).kind == Kind::kUnknown);
  behind.other.Run("BEGIN");
  behind.other.Run("SELECT 1 FROM semaphored.lanes FOR UPDATE");
  CHECK(behind.open.Settle(grant).kind == Kind::kUnknown);
  CHECK(behind.open.Settle(grant).kind == Kind::kUnknown);
  behind.other.Run("ROLLBACK");
  CHECK(behind.open.Settle(grant).kind == Kind::kLost);
  REQUIRE(behind.relay.DeliverDelayed());
  CHECK(behind.other.Number(kRows) == 0);
}

TEST_CASE("postgres: a settling whose own answer was lost does not pass for the commit",
          "[postgres]") {
  Behind behind;
  const LeasePtr lost = MakeLease(behind.open, 1);
  Transaction grant = Grant(behind.open, behind.row, lost);
  behind.relay.DelayRequests();
  REQUIRE(behind.open.Commit(grant).kind == Kind::kUnknown);
  // A slow disk, or a standby that is waited for: what writes the lane's row is durable only after
  // the time-out.
  behind.other.Run(
      "CREATE FUNCTION semaphored.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
      "PERFORM pg_catalog.pg_sleep(3); RETURN NULL; END $$");
  behind.other.Run(
      "CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON semaphored.lanes "
      "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION semaphored.slow()");
  const int64_t commits = behind.other.Number("SELECT commits FROM semaphored.lanes");
  REQUIRE(behind.open.Settle(grant).kind == Kind::kUnknown);
  REQUIRE(Within10s(
      [&] { return behind.other.Number("SELECT commits FROM semaphored.lanes") > commits; }));
  CHECK(behind.open.Settle(grant).kind == Kind::kLost);
  REQUIRE(behind.relay.DeliverDelayed());
  CHECK(behind.other.Number(kRows) == 0);
}

TEST_CASE("postgres: a commit under a lock that broke before its end was not made", "[postgres]") {
  Behind behind;
  OpenStore& open = behind.open;
  behind.other.Run("UPDATE semaphored.semaphores SET revision = revision + 1");
  Transaction late = Grant(open, behind.row, MakeLease(open, 1));
  late.attempt = 3;
  REQUIRE(open.Commit(late).kind == Kind::kLost);
  const SemaphoreRow row = LoadOne(open, "s").row;
  Transaction grant = Grant(open, row, MakeLease(open, 1));
  grant.attempt = 4;
  behind.relay.LoseAnswers();
  const CommitResult result = open.Commit(grant);
  CHECK(result.kind == Kind::kFailed);
  CHECK(result.status.code() == absl::StatusCode::kUnavailable);
  // The server still has its transaction open, and ends it in the end.
  REQUIRE(Within10s([&] {
    return behind.other.Run("SELECT 1 FROM semaphored.semaphores FOR UPDATE SKIP LOCKED").size() ==
           1;
  }));
  CHECK(behind.other.Number(kRows) == 0);
  Transaction again = Grant(open, LoadOne(open, "s").row, MakeLease(open, 1));
  CHECK(open.Commit(again).kind == Kind::kWon);
}

// ---- a server that says nothing ----

TEST_CASE("postgres: an engine on a server that says nothing does not open, in time",
          "[postgres]") {
  TestSchema schema;
  const SilentListener silent;
  const auto start = SteadyClock::now();
  const auto engine = OpenEngine(schema.Url("&timeout_ms=500", silent.port()));
  CHECK(engine.status().code() == absl::StatusCode::kUnavailable);
  // libpq knows whole seconds, and no fewer than two.
  CHECK(TimeSince(start) < milliseconds(8000));
}

TEST_CASE("postgres: whatever is asked of a server that falls silent comes back in time",
          "[postgres]") {
  Behind behind;
  OpenStore& open = behind.open;
  behind.relay.DelayRequests();
  const std::vector<std::string> names = {"s"};
  SemaphoreRow row;
  row.name = "s";
  const std::vector<const SemaphoreRow*> rows = {&row};
  const std::vector<std::function<absl::Status()>> calls = {
      [&] { return open.store->Load(names).status(); },
      [&] { return open.store->Changed(rows).status(); },
      [&] {
        const ledger::NamedRequest asked{{1, 1}, "client"};
        return open.store->FindRequests({&asked, 1}, 16).status();
      },
      [&] { return open.store->Names("", "", 10).status(); },
      [&] { return open.store->ReadHistory("s", 0, 10).status(); },
      [&] { return open.store->LoadSession(MakeId(1)).status(); },
      [&] { return open.store->EndForeign(names); }};
  for (const auto& call : calls) {
    behind.relay.DelayRequests();
    const auto start = SteadyClock::now();
    CHECK(call().code() == absl::StatusCode::kUnavailable);
    CHECK(TimeSince(start) < kBound);
    // The next one goes over a new connection.
    CHECK(call().ok());
  }
}

TEST_CASE("postgres: heartbeats over a connection that fell silent go on over another",
          "[postgres]") {
  TestSchema schema;
  Relay relay(schema.port());
  auto engine = OpenEngine(schema.Url("&timeout_ms=1500", relay.port())).value();
  REQUIRE(engine->nodes().Join("a").ok());
  relay.DelayRequests();
  const auto start = SteadyClock::now();
  CHECK(engine->nodes().Heartbeat().code() == absl::StatusCode::kUnavailable);
  CHECK(TimeSince(start) < kBound);
  CHECK(engine->nodes().Heartbeat().ok());
  // The first one arrives late, when its condition holds no more.
  const uint64_t counter = engine->nodes().Observe()->front().counter;
  REQUIRE(relay.DeliverDelayed());
  CHECK(engine->nodes().Observe()->front().counter == counter);
  CHECK(engine->nodes().Heartbeat().ok());
}

TEST_CASE("postgres: a heartbeat whose answer was lost is known as this daemon's own",
          "[postgres]") {
  TestSchema schema;
  Relay relay(schema.port());
  auto engine = OpenEngine(schema.Url("&timeout_ms=1500", relay.port())).value();
  REQUIRE(engine->nodes().Join("a").ok());
  REQUIRE(engine->nodes().Heartbeat().ok());  // The statement is prepared.
  const uint64_t counter = engine->nodes().Observe()->front().counter;
  relay.LoseAnswers();
  CHECK(engine->nodes().Heartbeat().code() == absl::StatusCode::kUnavailable);
  CHECK(engine->nodes().Observe()->front().counter == counter + 1);
  CHECK(engine->nodes().Heartbeat().ok());
  CHECK(engine->nodes().Heartbeat().ok());
}

TEST_CASE("postgres: a commit to a server process that stands still comes back in time",
          "[postgres]") {
  TestSchema schema;
  Client other = schema.Connect();
  OpenStore open = Open(schema, {.timeout = kTimeout});
  const SemaphoreRow row = Make(open, "s");
  Transaction grant = Grant(open, row, MakeLease(open, 1));
  const int process = open.connection->backend_pid();
  REQUIRE(kill(process, SIGSTOP) == 0);
  const auto start = SteadyClock::now();
  const Kind kind = open.Commit(grant).kind;
  const milliseconds took = TimeSince(start);
  const Kind settled = open.Settle(grant).kind;
  REQUIRE(kill(process, SIGCONT) == 0);
  CHECK(kind == Kind::kUnknown);
  CHECK(took < kBound);
  CHECK(settled == Kind::kLost);
  // It reads what was sent to it before it finds that nobody listens any more.
  REQUIRE(Within10s([&] {
    return other.Number("SELECT count(*) FROM pg_stat_activity WHERE pid = " +
                        std::to_string(process)) == 0;
  }));
  CHECK(other.Number(kRows) == 0);
}

}  // namespace
}  // namespace semaphored::postgres
