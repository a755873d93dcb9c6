// The store on a real Postgres: what a faulty daemon cannot do, races that are lost, locks of other
// clients, history that is bounded.
#include "adapters/postgres/store.h"

#include <chrono>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapters/postgres/pruning.h"
#include "adapters/postgres/statements.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "catch2/generators/catch_generators.hpp"
#include "catch2/matchers/catch_matchers_string.hpp"
#include "tests/unit/adapters/postgres/fixture.h"

namespace semaphored::postgres {
namespace {

using ledger::CommitResult;
using ledger::LoadedSemaphore;
using ledger::Transaction;
using std::chrono::milliseconds;
using Kind = CommitResult::Kind;
using Op = ledger::RequestChange::Op;
using State = ledger::RequestRow::State;

constexpr char kCountLeases[] = "SELECT count(*) FROM semaphored.leases";
constexpr char kRaise[] =
    "UPDATE semaphored.semaphores SET revision = revision + 1 WHERE name = 's'";

milliseconds Since(SteadyClock::time_point start) {
  return std::chrono::duration_cast<milliseconds>(SteadyClock::now() - start);
}

bool NamesConstraint(const absl::Status& status, const std::string& what) {
  return std::string(status.message()).find(what) != std::string::npos;
}

// ---- a daemon that is wrong ----

TEST_CASE("postgres: a second lease of a slot is refused by the database", "[postgres]") {
  TestSchema schema;
  Client other = schema.Connect();
  OpenStore open = Open(schema);
  SemaphoreRow row = Make(open, "s");
  const LeasePtr first = MakeLease(open, 1, 1);
  Transaction grant = Grant(open, row, first);
  REQUIRE(open.Commit(grant).kind == Kind::kWon);
  row = LoadOne(open, "s").row;

  SECTION("whoever it is that errs") {
    const bool ourselves = GENERATE(true, false);
    OpenStore another = Open(schema, {.node_id = "b"});
    OpenStore& liar = ourselves ? open : another;
    // The revision is right: only the slot is not free.
    Transaction lie = Grant(liar, row, MakeLease(liar, 2, 1));
    const CommitResult result = liar.Commit(lie);
    CHECK(result.kind == Kind::kFailed);
    CHECK(result.status.code() == absl::StatusCode::kInternal);
    CHECK(NamesConstraint(result.status, "one_lease_per_slot"));
  }
  SECTION("also if only one slot of several is taken, and nothing else of the batch is written") {
    const SemaphoreRow elsewhere = Make(open, "t");
    LeasePtr wide = MakeLease(open, 2, 2);
    wide->permits = 2;
    wide->slots = {1, 2};
    Transaction lie = Grant(open, row, wide);
    Touch(lie, elsewhere).leases.push_back({nullptr, MakeLease(open, 3), EndCause::kNone});
    lie.semaphores[1].after->limit = 9;
    lie.new_clients.push_back({1, "client"});
    lie.requests.push_back({Op::kInsert, MakeRequest(7, State::kGranted, MakeId(2))});
    auto session = std::make_shared<Session>();
    session->id = MakeId(4);
    session->host = open.self;
    lie.sessions.push_back({nullptr, session});
    CHECK(open.Commit(lie).kind == Kind::kFailed);
    CHECK(LoadOne(open, "t").row == elsewhere);
    CHECK(other.Number("SELECT count(*) FROM semaphored.requests") == 0);
    CHECK(other.Number("SELECT count(*) FROM semaphored.sessions") == 0);
    CHECK_FALSE(Find(open, 7, "client").row);
  }
  SECTION("also within one batch") {
    Transaction lie = Begin(open);
    auto& delta = Touch(lie, row);
    delta.leases.push_back({nullptr, MakeLease(open, 2, 3), EndCause::kNone});
    delta.leases.push_back({nullptr, MakeLease(open, 3, 3), EndCause::kNone});
    CHECK(open.Commit(lie).kind == Kind::kFailed);
  }

  CHECK(other.Number(kCountLeases) == 1);
  const LoadedSemaphore stored = LoadOne(open, "s");
  CHECK(stored.row == row);
  REQUIRE(stored.leases.size() == 1);
  CHECK(stored.leases[0]->id == first->id);
  CHECK(stored.leases[0]->token == first->token);
  // And the lane goes on.
  const LeasePtr next = MakeLease(open, 9, 2);
  Transaction good = Grant(open, row, next);
  REQUIRE(open.Commit(good).kind == Kind::kWon);
  CHECK(next->token > first->token);
}

TEST_CASE("postgres: the end of a lease that is not there is no end of another's", "[postgres]") {
  TestSchema schema;
  OpenStore open = Open(schema);
  SemaphoreRow row = Make(open, "s");
  Transaction grant = Grant(open, row, MakeLease(open, 1, 1));
  REQUIRE(open.Commit(grant).kind == Kind::kWon);
  row = LoadOne(open, "s").row;
  Transaction lie = Begin(open);
  Touch(lie, row).leases.push_back({MakeLease(open, 2, 1), nullptr, EndCause::kReleased});
  // As if rows had been changed past the revision: all is read anew.
  const CommitResult result = open.Commit(lie);
  CHECK(result.kind == Kind::kLost);
  CHECK(result.stale == std::vector<std::string>{"s"});
  CHECK(LoadOne(open, "s").leases.size() == 1);
  CHECK(LoadOne(open, "s").row == row);
}

// ---- how many permits ----

// Detached, on three slots; no two of its numbers are alike.
LeasePtr MakeWideLease(const OpenStore& open) {
  const LeasePtr lease = MakeLease(open, 21);
  lease->slots = {1, 2, 4};
  lease->permits = 3;
  lease->request = {0, 22};
  lease->epoch = 23;
  lease->ttl_ms = 24;
  lease->priority = 25;
  lease->granted_at_unix_ms = 26'000;
  return lease;
}

LeasePtr RestOf(const LeasePtr& lease, const Slots& slots) {
  auto rest = std::make_shared<Lease>(*lease);
  rest->slots = slots;
  rest->permits = static_cast<uint32_t>(slots.size());
  return rest;
}

TEST_CASE("postgres: a lease has as many permits as rows that stand, after an end by hand, too",
          "[postgres]") {
  TestSchema schema;
  Client other = schema.Connect();
  OpenStore open = Open(schema);
  Transaction grant = Grant(open, Make(open, "s"), MakeWideLease(open));
  REQUIRE(open.Commit(grant).kind == Kind::kWon);
  CHECK(LoadOne(open, "s").leases.at(0)->permits == 3);
  other.Run("UPDATE semaphored.leases SET completed_at = now(), end_cause = 3 WHERE slot = 2");
  other.Run(kRaise);
  const LeasePtr left = LoadOne(open, "s").leases.at(0);
  CHECK(left->slots == Slots{1, 4});
  CHECK(left->permits == 2);
}

TEST_CASE("postgres: the history of a lease that goes in several acts tells of the last one",
          "[postgres]") {
  TestSchema schema;
  OpenStore open = Open(schema);
  const LeasePtr whole = MakeWideLease(open);
  const LeasePtr two = RestOf(whole, {2, 4});
  const LeasePtr last = RestOf(whole, {4});
  Transaction grant = Grant(open, Make(open, "s"), whole);
  REQUIRE(open.Commit(grant).kind == Kind::kWon);
  Transaction part = Begin(open);
  Touch(part, LoadOne(open, "s").row).leases.push_back({whole, two, EndCause::kNone});
  REQUIRE(open.Commit(part).kind == Kind::kWon);
  // A part and the end in one batch.
  Transaction end = Begin(open);
  auto& delta = Touch(end, LoadOne(open, "s").row);
  delta.leases.push_back({two, last, EndCause::kNone});
  delta.leases.push_back({last, nullptr, EndCause::kRevoked});
  end.history.push_back({0, "s", last, 27'000, EndCause::kRevoked});
  REQUIRE(open.Commit(end).kind == Kind::kWon);

  const std::vector<HistoryRow> history = open.store->ReadHistory("s", 0, 10).value();
  REQUIRE(history.size() == 1);
  CHECK(history[0].ended_at_unix_ms == 27'000);
  CHECK(history[0].cause == EndCause::kRevoked);
  const Lease& ended = *history[0].lease;
  CHECK(ended.id == whole->id);
  CHECK(ended.slots == Slots{4});
  CHECK(ended.permits == 1);
  CHECK(ended.token == whole->token);
  CHECK(ended.request.sequence == 22);
  CHECK(ended.host == open.self);
  CHECK(ended.epoch == 23);
  CHECK(ended.ttl_ms == 24);
  CHECK(ended.priority == 25);
  CHECK(ended.order == 21);
  CHECK(ended.granted_at_unix_ms == 26'000);
  CHECK_FALSE(ended.foreign);
}

// ---- lost races ----

// The first write to `table` fails with `state`; at the end of its transaction, if `deferred`.
void FailOnce(Client& other, const std::string& table, const std::string& state, bool deferred) {
  other.Run("CREATE SEQUENCE semaphored.failures");
  other.Run(
      "CREATE FUNCTION semaphored.fail_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
      "IF nextval('semaphored.failures') = 1 THEN RAISE EXCEPTION 'once' USING ERRCODE = '" +
      state + "'; END IF; RETURN NEW; END $$");
  other.Run(std::string("CREATE ") + (deferred ? "CONSTRAINT TRIGGER" : "TRIGGER") +
            " fail_once AFTER INSERT OR UPDATE ON semaphored." + table +
            (deferred ? " DEFERRABLE INITIALLY DEFERRED" : "") +
            " FOR EACH ROW EXECUTE FUNCTION semaphored.fail_once()");
}

TEST_CASE("postgres: deadlocks and serialization failures are lost races", "[postgres]") {
  const std::string state = GENERATE("40P01", "40001");
  const bool deferred = GENERATE(false, true);
  const int attempt = GENERATE(0, 3);
  CAPTURE(state, deferred, attempt);
  TestSchema schema;
  Client other = schema.Connect();
  OpenStore open = Open(schema);
  SemaphoreRow row = Make(open, "s");
  if (attempt > 0) {
    // Another lane was first: from here on the semaphore is locked.
    other.Run(kRaise);
    Transaction late = Grant(open, row, MakeLease(open, 5));
    late.attempt = attempt;
    REQUIRE(open.Commit(late).kind == Kind::kLost);
    row = LoadOne(open, "s").row;
  }
  FailOnce(other, "leases", state, deferred);

  const LeasePtr lease = MakeLease(open, 1);
  Transaction grant = Grant(open, row, lease);
  grant.attempt = attempt;
  const CommitResult result = open.Commit(grant);
  CHECK(result.kind == Kind::kLost);
  CHECK(result.status.ok());
  CHECK_FALSE(result.requests_lost);
  CHECK(result.stale == std::vector<std::string>{"s"});
  CHECK(other.Number(kCountLeases) == 0);
  CHECK(LoadOne(open, "s").row == row);

  Transaction again = Grant(open, LoadOne(open, "s").row, lease);
  again.attempt = attempt + 1;
  REQUIRE(open.Commit(again).kind == Kind::kWon);
  CHECK(lease->token != 0);
  CHECK(other.Number(kCountLeases) == 1);
}

TEST_CASE("postgres: who has lost often enough locks, and wins against a busy rival",
          "[postgres]") {
  TestSchema schema;
  Client rival = schema.Connect();
  OpenStore open = Open(schema);
  Make(open, "s");
  // The rival is quicker each time, between our reading and our writing.
  for (int attempt = 0; attempt <= 3; ++attempt) {
    const SemaphoreRow row = LoadOne(open, "s").row;
    rival.Run(kRaise);
    Transaction grant = Grant(open, row, MakeLease(open, 1));
    grant.attempt = attempt;
    const CommitResult lost = open.Commit(grant);
    REQUIRE(lost.kind == Kind::kLost);
    CHECK(lost.stale == std::vector<std::string>{"s"});
  }
  const SemaphoreRow row = LoadOne(open, "s").row;
  auto raised = std::async(std::launch::async, [&] { rival.Run(kRaise); });
  Client watcher = schema.Connect();
  REQUIRE(Within10s([&] { return WaitingForLocks(watcher, schema) == 1; }));

  SECTION("the commit wins, and the rival goes on after it") {
    Transaction grant = Grant(open, row, MakeLease(open, 1));
    grant.attempt = 4;
    REQUIRE(open.Commit(grant).kind == Kind::kWon);
    raised.get();
    CHECK(LoadOne(open, "s").row.revision == row.revision + 2);
    CHECK(LoadOne(open, "s").leases.size() == 1);
  }
  SECTION("a look for notices keeps the lock, waiting for them gives it up") {
    REQUIRE(open.store->Wait(SteadyTime::min()).ok());
    CHECK(raised.wait_for(milliseconds(50)) == std::future_status::timeout);
    REQUIRE(open.store->Wait(SteadyClock::now()).ok());
    raised.get();
    CHECK(LoadOne(open, "s").row.revision == row.revision + 1);
  }
  SECTION("a batch of other semaphores gives it up") {
    const SemaphoreRow elsewhere = [&] {
      OpenStore another = Open(schema, {.node_id = "b"});
      return Make(another, "t");
    }();
    Transaction grant = Grant(open, elsewhere, MakeLease(open, 2));
    REQUIRE(open.Commit(grant).kind == Kind::kWon);
    raised.get();
  }
}

// ---- locks of other clients ----

TEST_CASE("postgres: a row that another client keeps locked is named, within a second",
          "[postgres]") {
  TestSchema schema;
  Client holder = schema.Connect();
  OpenStore open = Open(schema);
  std::vector<SemaphoreRow> rows;
  for (const char* name : {"a", "b", "c"}) rows.push_back(Make(open, name));
  holder.Run("BEGIN");
  holder.Run("SELECT 1 FROM semaphored.semaphores WHERE name = 'b' FOR UPDATE");

  Transaction grant = Begin(open);
  for (size_t i = 0; i < rows.size(); ++i)
    Touch(grant, rows[i]).leases.push_back({nullptr, MakeLease(open, i + 1), EndCause::kNone});
  const auto start = SteadyClock::now();
  const CommitResult busy = open.Commit(grant);
  CHECK(Since(start) < milliseconds(5000));
  CHECK(busy.kind == Kind::kFailed);
  CHECK(busy.status.code() == absl::StatusCode::kUnavailable);
  CHECK(busy.busy == std::vector<std::string>{"b"});
  CHECK(holder.Number(kCountLeases) == 0);

  // The others are free; and this one, when it is left alone.
  Transaction others = Begin(open);
  for (const size_t i : {0, 2})
    Touch(others, rows[i]).leases.push_back({nullptr, MakeLease(open, i + 1), EndCause::kNone});
  CHECK(open.Commit(others).kind == Kind::kWon);
  holder.Run("ROLLBACK");
  Transaction last = Grant(open, rows[1], MakeLease(open, 2));
  CHECK(open.Commit(last).kind == Kind::kWon);
}

TEST_CASE("postgres: a lock that cannot be had after losses is no error for good", "[postgres]") {
  TestSchema schema;
  Client holder = schema.Connect();
  OpenStore open = Open(schema);
  const SemaphoreRow stale = Make(open, "s");
  holder.Run(kRaise);
  holder.Run("BEGIN");
  holder.Run("SELECT 1 FROM semaphored.semaphores WHERE name = 's' FOR UPDATE");
  Transaction late = Grant(open, stale, MakeLease(open, 1));
  late.attempt = 3;
  const auto start = SteadyClock::now();
  CHECK(open.Commit(late).kind == Kind::kFailed);
  CHECK(Since(start) < milliseconds(5000));
  holder.Run("ROLLBACK");
  Transaction grant = Grant(open, LoadOne(open, "s").row, MakeLease(open, 1));
  CHECK(open.Commit(grant).kind == Kind::kWon);
}

TEST_CASE("postgres: a lock that cannot be had after losses is named too", "[postgres]") {
  TestSchema schema;
  Client holder = schema.Connect();
  OpenStore open = Open(schema);
  Transaction late = Grant(open, Make(open, "s"), MakeLease(open, 1));
  late.attempt = 3;
  holder.Run(kRaise);
  holder.Run("BEGIN; SELECT 1 FROM semaphored.semaphores FOR UPDATE");
  CHECK(open.Commit(late).busy == std::vector<std::string>{"s"});
}

// ---- history ----

// Leases that have ended, the oldest first, a minute apart.
void AddHistory(Client& other, int count) {
  other.Run(
      "INSERT INTO semaphored.leases (semaphore, slot, kind, claim, token, holder, "
      "session, node, incarnation, epoch, ttl_ms, priority, queue_order, created_at, "
      "completed_at, end_cause, history_number) SELECT 's', 1, 'd', gen_random_uuid(), n, "
      "'h', gen_random_uuid(), 1, 1, 1, 1000, 0, n, now(), now() - (" +
      std::to_string(count) +
      " - n) * interval '1 minute', 1, nextval('semaphored.history_numbers') "
      "FROM generate_series(1, " +
      std::to_string(count) + ") AS n");
}

// Waits of no length, as the lane's thread does when it has nothing to do; rows left after each,
// until one changes nothing.
std::vector<int64_t> Prune(OpenStore& open, Client& other) {
  std::vector<int64_t> rows = {other.Number(kCountLeases)};
  do {
    REQUIRE(open.store->Wait(SteadyClock::now()).ok());
    rows.push_back(other.Number(kCountLeases));
  } while (rows.back() != rows[rows.size() - 2]);
  return rows;
}

TEST_CASE("postgres: history is bounded by number, pruned in small batches", "[postgres]") {
  TestSchema schema;
  Client other = schema.Connect();
  StoreOptions options;
  options.prune.history_rows = 100;
  options.prune.history_age_ms = int64_t{1000} * 3600 * 24 * 365;
  options.prune.interval = milliseconds(0);
  OpenStore open = Open(schema, {.store = options});
  SemaphoreRow row = Make(open, "s");
  Transaction grant = Grant(open, row, MakeLease(open, 1));
  REQUIRE(open.Commit(grant).kind == Kind::kWon);
  AddHistory(other, 1200);
  // One more: the lease that lives.
  CHECK(Prune(open, other) == std::vector<int64_t>{1201, 201, 101, 101});
  CHECK(other.Number("SELECT min(history_number) FROM semaphored.leases") == 1101);
  CHECK(LoadOne(open, "s").leases.size() == 1);
  AddHistory(other, 10);
  CHECK(Prune(open, other) == std::vector<int64_t>{111, 101, 101});
}

TEST_CASE("postgres: history is bounded by age", "[postgres]") {
  TestSchema schema;
  Client other = schema.Connect();
  StoreOptions options;
  options.prune.history_age_ms = 60'000 * 300 + 30'000;
  options.prune.interval = milliseconds(0);
  OpenStore open = Open(schema, {.store = options});
  AddHistory(other, 900);
  CHECK(Prune(open, other) == std::vector<int64_t>{900, 301, 301});
  CHECK(other.Number("SELECT min(history_number) FROM semaphored.leases") == 600);
}

TEST_CASE("postgres: parts of leases that were given back before the rest are pruned too",
          "[postgres]") {
  TestSchema schema;
  Client other = schema.Connect();
  StoreOptions options;
  options.prune.history_rows = 0;
  options.prune.interval = milliseconds(0);
  OpenStore open = Open(schema, {.store = options});
  const LeasePtr wide = MakeLease(open, 1);
  wide->slots = {1, 2};
  wide->permits = 2;
  Transaction grant = Grant(open, Make(open, "s"), wide);
  REQUIRE(open.Commit(grant).kind == Kind::kWon);
  const LeasePtr rest = MakeLease(open, 1);
  for (const auto& [before, after] : {std::pair(wide, rest), std::pair(rest, LeasePtr())}) {
    Transaction release = Begin(open);
    Touch(release, LoadOne(open, "s").row).leases.push_back({before, after, EndCause::kReleased});
    if (!after) release.history.push_back({0, "s", rest, 1, EndCause::kReleased});
    REQUIRE(open.Commit(release).kind == Kind::kWon);
  }
  Prune(open, other);
  CHECK(other.Number(kCountLeases) == 0);
}

TEST_CASE("postgres: history that became visible after higher numbers went is pruned",
          "[postgres]") {
  TestSchema schema;
  Client other = schema.Connect();
  Client slow = schema.Connect();
  StoreOptions options;
  options.prune.history_rows = 0;
  options.prune.interval = milliseconds(0);
  OpenStore open = Open(schema, {.store = options});
  slow.Run("BEGIN");
  AddHistory(slow, 1);
  AddHistory(other, 1);
  Prune(open, other);
  slow.Run("COMMIT");
  Prune(open, other);
  CHECK(other.Number(kCountLeases) == 0);
}

TEST_CASE("postgres: one lane prunes, in its own time", "[postgres]") {
  TestSchema schema;
  Client other = schema.Connect();
  StoreOptions options;
  options.prune.history_rows = 0;
  options.lane = GENERATE(0, 1);
  options.prune.interval = std::chrono::hours(1);
  OpenStore open = Open(schema, {.store = options});
  AddHistory(other, 10);
  // Under load a lane never waits.
  REQUIRE(open.store->Wait(SteadyTime::min()).ok());
  CHECK(other.Number(kCountLeases) == (options.lane == 0 ? 0 : 10));
  AddHistory(other, 10);
  REQUIRE(open.store->Wait(SteadyClock::now()).ok());
  CHECK(other.Number(kCountLeases) == (options.lane == 0 ? 10 : 20));
}

TEST_CASE("postgres: a lane prunes first when it begins, also just after the machine has started",
          "[postgres]") {
  const Statements sql("semaphored");
  Upkeep upkeep;
  Pruner pruner(&sql, {.interval = std::chrono::hours(1)}, &upkeep);
  int asked = 0;
  const Pruner::Query query = [&](const Statement&, const Arguments&) {
    ++asked;
    Answered answered;
    answered.ok = false;
    answered.failure.state = "57014";
    answered.failure.status = absl::UnavailableError("postgres: canceled (57014)");
    return answered;
  };
  const SteadyTime start = SteadyTime() + std::chrono::seconds(20);
  REQUIRE(pruner.PruneIfDue(start, query).ok());
  const int first = asked;
  CHECK(first > 0);
  CHECK(upkeep.figures().errors[static_cast<size_t>(UpkeepWork::kHistory)] > 0);
  REQUIRE(pruner.PruneIfDue(start + std::chrono::minutes(59), query).ok());
  CHECK(asked == first);
  REQUIRE(pruner.PruneIfDue(start + std::chrono::hours(1), query).ok());
  CHECK(asked > first);
}

TEST_CASE(
    "postgres: while there is more history to prune, all else is walked along once in an interval",
    "[postgres]") {
  TestSchema schema;
  Client other = schema.Connect();
  StoreOptions options;
  options.lane = 1;  // It does not prune by itself.
  OpenStore open = Open(schema, {.store = options});
  AddHistory(other, 2500);
  const Statements sql(schema.name());
  Upkeep upkeep;
  PruneOptions prune;
  prune.history_rows = 0;
  prune.interval = std::chrono::seconds(40);
  Pruner pruner(&sql, prune, &upkeep);
  std::map<std::string, int> asked;
  const Pruner::Query query = [&](const Statement& statement, const Arguments& arguments) {
    ++asked[statement.name()];
    return open.connection->Run(statement, arguments);
  };
  const SteadyTime start = SteadyTime() + std::chrono::hours(1);
  for (const int second : {0, 1, 2, 39}) {
    REQUIRE(pruner.PruneIfDue(start + std::chrono::seconds(second), query).ok());
  }
  CHECK(other.Number(kCountLeases) == 0);
  CHECK(asked["prune"] == 4);
  CHECK(asked["prune_ended"] == 1);
  REQUIRE(pruner.PruneIfDue(start + std::chrono::seconds(79), query).ok());
  CHECK(asked["prune_ended"] == 2);
}

// Carries out one request of client "c" (number 1) with `sequence`.
void CarryOut(OpenStore& open, uint64_t sequence) {
  Transaction transaction = Begin(open);
  transaction.new_clients.push_back({1, "c"});
  Touch(transaction, LoadOne(open, "s").row);
  transaction.requests.push_back({Op::kInsert, MakeRequest(sequence, State::kDone)});
  REQUIRE(open.Commit(transaction).kind == Kind::kWon);
}

bool Remembers(OpenStore& open, uint64_t sequence) { return Find(open, sequence).row.has_value(); }

TEST_CASE("postgres: a lane forgets its own requests of a client, not another lane's",
          "[postgres]") {
  TestSchema schema;
  OpenStore open = Open(schema);
  Make(open, "s");
  StoreOptions second;
  second.lane = 1;
  OpenStore other = Open(schema, {.node_id = "b", .store = second});
  CarryOut(open, 1);
  CarryOut(other, 2);
  Transaction forget = Begin(open);
  forget.new_clients.push_back({1, "c"});
  forget.forgotten_clients.push_back(1);
  REQUIRE(open.Commit(forget).kind == Kind::kWon);
  CHECK_FALSE(Remembers(open, 1));
  CHECK(Remembers(open, 2));
}

TEST_CASE("postgres: requests that a life of a daemon wrote are kept until long after its end",
          "[postgres]") {
  TestSchema schema;
  Client other = schema.Connect();
  const char* const nodes = "SELECT count(*) FROM semaphored.nodes";
  const char* const lanes = "SELECT count(*) FROM semaphored.lanes";
  std::optional<OpenStore> gone = Open(schema, {.node_id = "gone"});
  Make(*gone, "s");
  CarryOut(*gone, 1);
  other.Run("INSERT INTO semaphored.clients (client_id, floor) VALUES ('c', 1), ('of old', 9)");
  StoreOptions options;
  options.prune.interval = milliseconds(0);
  options.prune.thorough_every = 1;
  SECTION("it is kept") {
    OpenStore open = Open(schema, {.node_id = "b", .store = options});
    DeclareDead(schema, gone->self);
    Prune(open, other);
    Prune(open, other);
    CHECK(Remembers(open, 1));
    CHECK(other.Number(nodes) == 2);
  }
  SECTION("it goes, with the daemon") {
    options.prune.requests_kept = milliseconds(0);
    OpenStore open = Open(schema, {.node_id = "b", .store = options});
    CarryOut(open, 2);
    Prune(open, other);
    CHECK(Remembers(open, 1));  // It lives.
    // More than one look's worth.
    other.Run(absl::StrCat(
        "INSERT INTO semaphored.requests SELECT 'many', g, gen_random_uuid(), 5, 's', "
        "gen_random_uuid(), 0, 0, 0, false, ",
        gone->self.number, ", ", gone->self.incarnation, ", 0 FROM generate_series(1, 5000) AS g"));
    DeclareDead(schema, gone->self);
    for (int i = 0; i < 10; ++i) Prune(open, other);
    CHECK_FALSE(Remembers(open, 1));
    CHECK(other.Number("SELECT count(*) FROM semaphored.requests") == 1);
    CHECK(Remembers(open, 2));
    CHECK(other.Number(nodes) == 1);
    CHECK(other.Number(lanes) == 1);
    CHECK(other.Number("SELECT count(*) FROM semaphored.clients") == 1);
  }
  SECTION("who hosts something stays") {
    options.prune.requests_kept = milliseconds(0);
    Transaction grant = Grant(*gone, LoadOne(*gone, "s").row, MakeLease(*gone, 1));
    REQUIRE(gone->Commit(grant).kind == Kind::kWon);
    OpenStore open = Open(schema, {.node_id = "b", .store = options});
    DeclareDead(schema, gone->self);
    for (int i = 0; i < 4; ++i) Prune(open, other);
    CHECK_FALSE(Remembers(open, 1));
    CHECK(other.Number(nodes) == 2);
  }
  SECTION("an earlier life of a daemon that lives") {
    options.prune.requests_kept = milliseconds(0);
    OpenStore open = Open(schema, {.node_id = "gone", .store = options});
    for (int i = 0; i < 4; ++i) Prune(open, other);
    CHECK_FALSE(Remembers(open, 1));
    CHECK(other.Number(nodes) == 1);
    CHECK(other.Number(lanes) == 1);
  }
}

TEST_CASE(
    "postgres: pruning walks along the history, also when its plan was made on an empty table",
    "[postgres]") {
  TestSchema schema;
  StoreOptions options;
  options.prune.interval = milliseconds(0);
  OpenStore open = Open(schema, {.store = options});
  REQUIRE(open.store->Wait(SteadyClock::now()).ok());
  std::string plan;
  for (const auto& row : open.connection->Run("EXPLAIN EXECUTE prune(1, 2, 3)").rows)
    plan += row[0].as<std::string>() + "\n";
  CHECK_THAT(plan, Catch::Matchers::ContainsSubstring("Index Scan using leases_history on"));
  CHECK_THAT(plan, !Catch::Matchers::ContainsSubstring("Sort"));
}

TEST_CASE("postgres: whoever is told of a commit hears what it did", "[postgres]") {
  TestSchema schema;
  OpenStore open = Open(schema, {.node_id = "a"});
  OpenStore other = Open(schema, {.node_id = "b"});
  const SemaphoreRow row = Make(open, "s");
  const auto waiter = std::make_shared<Waiter>();
  static_cast<Claim&>(*waiter) = *MakeLease(other, 1);
  waiter->order = 3;
  Transaction queue = Begin(other);
  Touch(queue, row).waiters.push_back({nullptr, waiter, EndCause::kNone});
  REQUIRE(other.Commit(queue).kind == Kind::kWon);

  const SemaphoreRow queued = LoadOne(open, "s").row;
  const LeasePtr lease = MakeLease(other, 1);
  lease->order = 3;
  Transaction grant = Grant(open, queued, lease);
  grant.semaphores[0].waiters.push_back({waiter, nullptr, EndCause::kNone});
  grant.semaphores[0].after = queued;
  grant.concerns.push_back({other.self.number, "s"});
  REQUIRE(open.Commit(grant).kind == Kind::kWon);
  std::vector<ledger::ChangeNotice> notices;
  REQUIRE(Within10s([&] {
    notices = other.store->Wait(SteadyTime::min()).value();
    return !notices.empty();
  }));
  REQUIRE(notices.size() == 1);
  CHECK(notices[0].semaphore == "s");
  CHECK(notices[0].revision == queued.revision + 1);
  const auto details = other.store->ReadDetails(notices[0]);
  REQUIRE(details);
  REQUIRE(details->granted.size() == 1);
  CHECK(details->granted[0].token == lease->token);
  CHECK(details->granted[0].slots == lease->slots);
  CHECK(details->granted[0].place.order == 3);

  // Another role can send the like, and is not believed.
  Client client = schema.Connect();
  client.Run(absl::StrCat("SELECT pg_notify('", schema.name(), "_", other.self.number, "', 's ",
                          queued.revision + 2, " ", std::string(64, '0'),
                          R"( 99 {"next_order":4,"ended":[],"left":[],"granted":[]}'))"));
  REQUIRE(Within10s([&] {
    notices = other.store->Wait(SteadyTime::min()).value();
    return !notices.empty();
  }));
  CHECK(notices[0].revision == queued.revision + 2);
  CHECK_FALSE(other.store->ReadDetails(notices[0]));
}

TEST_CASE("postgres: numbers of clients of whom nobody speaks are given up", "[postgres]") {
  TestSchema schema;
  OpenStore open = Open(schema);
  Transaction create = Create(open, "s", 5000);
  for (uint32_t i = 0; i < 3000; ++i)
    create.new_clients.push_back({i + 1, absl::StrCat("client ", i + 1)});
  REQUIRE(open.Commit(create).kind == Kind::kWon);
  int asked = 0;
  open.store->ForgetClientsBut([&](uint32_t number) {
    ++asked;
    return number == 7;
  });
  CHECK(asked == 3000);
  // Few enough to be left alone.
  open.store->ForgetClientsBut([&](uint32_t) { return ++asked > 0; });
  CHECK(asked == 3000);
  // Number 7 is still known, 8 is not.
  Transaction grant = Grant(open, LoadOne(open, "s").row, MakeLease(open, 1));
  grant.semaphores[0].leases[0].after->request = {7, 1};
  REQUIRE(open.Commit(grant).kind == Kind::kWon);
  CHECK(schema.Connect().Text("SELECT client_id FROM semaphored.leases") == "client 7");
}

}  // namespace
}  // namespace semaphored::postgres
