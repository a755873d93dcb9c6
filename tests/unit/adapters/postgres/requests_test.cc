// Requests as rows on a real Postgres: one id never stands for two commands, whichever daemon sees it
// first; a row whose claim waits or stands is never forgotten; what is forgotten is too old, and is
// not carried out again.
#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/postgres/store.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "catch2/generators/catch_generators.hpp"
#include "tests/unit/adapters/postgres/fixture.h"
#include "tests/unit/relay.h"

namespace semaphored::postgres {
namespace {

using ledger::CommitResult;
using ledger::RequestRow;
using ledger::Transaction;
using std::chrono::milliseconds;
using Kind = CommitResult::Kind;
using Op = ledger::RequestChange::Op;
using State = RequestRow::State;

constexpr uint64_t kLater = 5000;  // Far above the sequence numbers of the rows below a floor.

// A batch of client number 1, "c", that touches the semaphore as it is stored.
Transaction Batch(OpenStore& open, const std::string& semaphore = "s") {
  Transaction transaction = Begin(open);
  transaction.new_clients.push_back({1, "c"});
  Touch(transaction, LoadOne(open, semaphore).row);
  return transaction;
}

Transaction With(Transaction transaction, Op op, const RequestRow& row) {
  transaction.requests.push_back({op, row});
  return transaction;
}

Kind Insert(OpenStore& open, const RequestRow& row) {
  Transaction transaction = With(Batch(open), Op::kInsert, row);
  return open.Commit(transaction).kind;
}

Kind Update(OpenStore& open, const RequestRow& row) {
  Transaction transaction = With(Batch(open), Op::kUpdate, row);
  return open.Commit(transaction).kind;
}

Kind RaiseFloor(OpenStore& open, uint64_t below) {
  Transaction transaction = Batch(open);
  transaction.request_floors.push_back({1, below});
  return open.Commit(transaction).kind;
}

// Two daemons on one semaphore.
struct Two {
  TestSchema schema;
  Client sql = schema.Connect();
  OpenStore a = Patient("a");
  OpenStore b = Patient("b");
  // It waits for other commits for as long as the test lets it.
  OpenStore Patient(const std::string& node_id) const {
    return Open(
        schema,
        {.node_id = node_id, .timeout = milliseconds(9000), .lock_timeout = milliseconds(8000)});
  }
  Two() { Make(a, "s"); }
  int64_t Rows() { return sql.Number("SELECT count(*) FROM semaphored.requests"); }
};

// ---- what is kept ----

TEST_CASE("postgres requests: a row is kept as it was written, and follows its claim",
          "[postgres]") {
  Two two;
  RequestRow row = MakeRequest(7, State::kWaiting, MakeId(1));
  row.request.client = 1;
  REQUIRE(Insert(two.a, row) == Kind::kWon);
  CHECK(Find(two.b, 7).row == row);
  row.state = State::kGranted;
  // Whichever daemon grants it.
  Transaction grant = With(Batch(two.b), Op::kUpdate, row);
  REQUIRE(two.b.Commit(grant).kind == Kind::kWon);
  CHECK(Find(two.a, 7).row == row);
  row.state = GENERATE(State::kEnded, State::kWaitEnded);
  row.cause = EndCause::kRevoked;
  REQUIRE(Update(two.a, row) == Kind::kWon);
  CHECK(Find(two.b, 7).row == row);
  CHECK_FALSE(Find(two.b, 7).too_old);

  RequestRow done = MakeRequest(8, State::kDone);
  done.number = 4'000'000'000;
  done.remaining = 3;
  done.changed = true;
  REQUIRE(Insert(two.b, done) == Kind::kWon);
  CHECK(Find(two.a, 8).row == done);
}

TEST_CASE("postgres requests: many are found in the order in which they are asked for",
          "[postgres]") {
  Two two;
  for (const uint64_t sequence : {5, 9}) {
    REQUIRE(Insert(two.a, MakeRequest(sequence, State::kDone)) == Kind::kWon);
  }
  // The row of 9 is the last by 4: 6 may have been forgotten within a window of 3, not of 4.
  const std::vector<ledger::NamedRequest> asked = {
      {{3, 9}, "c"}, {{3, 6}, "c"}, {{4, 9}, "another"}, {{3, 5}, "c"}, {{3, INT64_MAX}, "c"}};
  const auto found = two.b.store->FindRequests(asked, 3).value();
  REQUIRE(found.size() == 5);
  REQUIRE(found[0].row);
  CHECK(found[0].row->request == RequestKey{3, 9});
  CHECK_FALSE(found[1].row);
  CHECK(found[1].too_old);
  CHECK_FALSE(two.b.store->FindRequests({&asked[1], 1}, 4).value()[0].too_old);
  CHECK_FALSE(found[2].row);
  CHECK_FALSE(found[2].too_old);
  CHECK(found[3].row->request == RequestKey{3, 5});
  CHECK_FALSE(found[3].too_old);
  CHECK_FALSE(found[4].too_old);
}

// ---- one id, one command ----

TEST_CASE("postgres requests: an id that has a row is refused, with all of its batch",
          "[postgres]") {
  Two two;
  Make(two.b, "t");
  const bool same_semaphore = GENERATE(true, false);
  const State state = GENERATE(State::kWaiting, State::kGranted, State::kEnded, State::kDone);
  REQUIRE(Insert(two.a, MakeRequest(7, state, MakeId(1))) == Kind::kWon);
  Transaction second = Batch(two.b, same_semaphore ? "s" : "t");
  second.semaphores[0].leases.push_back({nullptr, MakeLease(two.b, 2), EndCause::kNone});
  second.requests.push_back({Op::kInsert, MakeRequest(6, State::kDone)});
  second.requests.push_back({Op::kInsert, MakeRequest(7, State::kGranted, MakeId(2))});
  const CommitResult lost = two.b.Commit(second);
  CHECK(lost.kind == Kind::kLost);
  CHECK(lost.requests_lost);
  CHECK(Find(two.b, 7).row->claim == MakeId(1));
  CHECK_FALSE(Find(two.b, 6).row);
  CHECK(LoadOne(two.b, same_semaphore ? "s" : "t").leases.empty());
  // The lane goes on.
  CHECK(Insert(two.b, MakeRequest(6, State::kDone)) == Kind::kWon);
}

TEST_CASE("postgres requests: of two that come at the same moment one waits, and is refused",
          "[postgres]") {
  Two two;
  Make(two.b, "t");
  // The first is under way: what follows waits for its end.
  two.sql.Run("BEGIN");
  two.sql.Run(
      "INSERT INTO semaphored.requests VALUES ('c', 7, gen_random_uuid(), 1, 's', "
      "gen_random_uuid(), 0, 0, 0, false, 1, 1, 0)");
  Transaction second = With(Batch(two.b, "t"), Op::kInsert, MakeRequest(7, State::kDone));
  auto commit = std::async(std::launch::async, [&] { return two.b.Commit(second); });
  Client watcher = two.schema.Connect();
  REQUIRE(Within10s([&] { return WaitingForLocks(watcher, two.schema) == 1; }));
  const bool lands = GENERATE(true, false);
  two.sql.Run(lands ? "COMMIT" : "ROLLBACK");
  const CommitResult result = commit.get();
  CHECK(result.kind == (lands ? Kind::kLost : Kind::kWon));
  CHECK(result.requests_lost == lands);
}

TEST_CASE("postgres requests: batches with the same ids in other orders do not deadlock",
          "[postgres]") {
  Two two;
  Make(two.b, "t");
  two.sql.Run("BEGIN");
  two.sql.Run(
      "INSERT INTO semaphored.requests VALUES ('c', 1, gen_random_uuid(), 1, 's', "
      "gen_random_uuid(), 0, 0, 0, false, 1, 1, 0)");
  Transaction backwards = Batch(two.b, "t");
  for (const uint64_t sequence : {2, 1})
    backwards.requests.push_back({Op::kInsert, MakeRequest(sequence, State::kDone)});
  auto commit = std::async(std::launch::async, [&] { return two.b.Commit(backwards); });
  Client watcher = two.schema.Connect();
  REQUIRE(Within10s([&] { return WaitingForLocks(watcher, two.schema) == 1; }));
  // It waits at 1, so it has not 2 yet.
  two.sql.Run(
      "INSERT INTO semaphored.requests VALUES ('c', 2, gen_random_uuid(), 1, 's', "
      "gen_random_uuid(), 0, 0, 0, false, 1, 1, 0)");
  two.sql.Run("COMMIT");
  CHECK(commit.get().requests_lost);
}

TEST_CASE("postgres requests: those that must be absent are looked at, and nothing is written",
          "[postgres]") {
  Two two;
  REQUIRE(Insert(two.a, MakeRequest(7, State::kDone)) == Kind::kWon);
  REQUIRE(RaiseFloor(two.a, 3) == Kind::kWon);
  const auto lose = [&](uint64_t sequence, const std::string& client) {
    Transaction rests = Batch(two.b);
    rests.absent_requests.push_back({{1, sequence}, client});
    const CommitResult result = two.b.Commit(rests);
    CHECK(result.requests_lost == (result.kind == Kind::kLost));
    return result.kind == Kind::kLost;
  };
  CHECK(lose(7, "c"));
  CHECK(lose(2, "c"));
  CHECK_FALSE(lose(3, "c"));
  CHECK_FALSE(lose(8, "c"));
  CHECK_FALSE(lose(7, "another"));
  CHECK(two.Rows() == 1);
}

TEST_CASE("postgres requests: a wait that was given up leaves its id free", "[postgres]") {
  Two two;
  const RequestRow waits = MakeRequest(7, State::kWaiting, MakeId(1));
  REQUIRE(Insert(two.a, waits) == Kind::kWon);
  Transaction cancel = With(Batch(two.b), Op::kRemove, waits);
  REQUIRE(two.b.Commit(cancel).kind == Kind::kWon);
  CHECK(two.Rows() == 0);
  CHECK_FALSE(Find(two.a, 7).too_old);
  CHECK(Insert(two.a, MakeRequest(7, State::kGranted, MakeId(2))) == Kind::kWon);
  // Neither has a condition of its own.
  Transaction nothing = With(Batch(two.b), Op::kRemove, MakeRequest(99, State::kWaiting));
  nothing.requests.push_back({Op::kUpdate, MakeRequest(98, State::kGranted)});
  CHECK(two.b.Commit(nothing).kind == Kind::kWon);
  CHECK(two.Rows() == 1);
}

TEST_CASE("postgres requests: a commit whose answer was lost knows its own row again",
          "[postgres]") {
  TestSchema schema;
  Relay relay(schema.port());
  OpenStore open = Open(schema, {.port = relay.port(), .timeout = milliseconds(1500)});
  OpenStore other = Open(schema, {.node_id = "b"});
  Make(open, "s");
  const RequestRow row = MakeRequest(7, State::kGranted, MakeId(1));
  Transaction grant = With(Batch(open), Op::kInsert, row);
  grant.semaphores[0].leases.push_back({nullptr, MakeLease(open, 1), EndCause::kNone});
  SECTION("it had landed") {
    relay.LoseAnswers();
    REQUIRE(open.Commit(grant).kind == Kind::kUnknown);
    CHECK(Insert(other, MakeRequest(7, State::kGranted, MakeId(2))) == Kind::kLost);
    REQUIRE(open.Settle(grant).kind == Kind::kWon);
    CHECK(Find(open, 7).row == row);
  }
  SECTION("it had not, and another daemon is first") {
    relay.DelayRequests();
    REQUIRE(open.Commit(grant).kind == Kind::kUnknown);
    REQUIRE(Insert(other, MakeRequest(7, State::kGranted, MakeId(2))) == Kind::kWon);
    REQUIRE(open.Settle(grant).kind == Kind::kLost);
    REQUIRE(relay.DeliverDelayed());
    CHECK(Find(open, 7).row->claim == MakeId(2));
    Transaction again = With(Batch(open), Op::kInsert, row);
    CHECK(open.Commit(again).requests_lost);
  }
}

// ---- what may be forgotten, and what may not ----

TEST_CASE(
    "postgres requests: a floor that another commit is raising is left to the next that raises it",
    "[postgres]") {
  Two two;
  for (const uint64_t sequence : {1, 2}) {
    REQUIRE(Insert(two.a, MakeRequest(sequence, State::kDone)) == Kind::kWon);
  }
  REQUIRE(RaiseFloor(two.a, 1) == Kind::kWon);
  two.sql.Run("BEGIN; UPDATE semaphored.clients SET floor = 2");
  Transaction raise = Batch(two.b);
  raise.request_floors.push_back({1, 3});
  auto raised = std::async(std::launch::async, [&] { return two.b.Commit(raise).kind; });
  const bool waited = raised.wait_for(milliseconds(4000)) != std::future_status::ready;
  two.sql.Run("ROLLBACK");
  CHECK_FALSE(waited);
  REQUIRE(raised.get() == Kind::kWon);
  CHECK(two.Rows() == 2);
  CHECK(Find(two.a, 1).row);
  REQUIRE(RaiseFloor(two.a, 3) == Kind::kWon);
  CHECK(two.Rows() == 0);
  CHECK(Find(two.b, 2).too_old);
}

TEST_CASE("postgres requests: a late repeat is too old at a daemon that does not know the floor",
          "[postgres]") {
  Two two;
  Make(two.b, "t");
  REQUIRE(Insert(two.a, MakeRequest(1, State::kDone)) == Kind::kWon);
  // The daemon has decided what it will do, and has looked up nothing.
  Transaction late = With(Batch(two.b, "t"), Op::kInsert, MakeRequest(1, State::kDone));
  REQUIRE(Insert(two.a, MakeRequest(kLater, State::kDone)) == Kind::kWon);
  SECTION("the row is there") {}
  SECTION("the row has gone") {
    REQUIRE(RaiseFloor(two.a, kLater - 1000) == Kind::kWon);
    CHECK(two.Rows() == 1);
    CHECK_FALSE(Find(two.b, 1).row);
    CHECK(Find(two.b, 1).too_old);
    // A new id below the floor is refused as well, at either daemon.
    CHECK(Insert(two.a, MakeRequest(2, State::kDone)) == Kind::kLost);
  }
  const int64_t rows = two.Rows();
  const CommitResult lost = two.b.Commit(late);
  CHECK(lost.kind == Kind::kLost);
  CHECK(lost.requests_lost);
  CHECK(two.Rows() == rows);
  // At the floor itself it is new.
  CHECK(Insert(two.b, MakeRequest(kLater - 1000, State::kDone)) == Kind::kWon);
}

TEST_CASE("postgres requests: a late repeat waits for the commit that forgets its row",
          "[postgres]") {
  Two two;
  REQUIRE(Insert(two.a, MakeRequest(1, State::kDone)) == Kind::kWon);
  Transaction late = With(Batch(two.b), Op::kInsert, MakeRequest(1, State::kDone));
  two.sql.Run("BEGIN");
  const bool row_first = GENERATE(true, false);
  const std::vector<std::string> steps = {
      "DELETE FROM semaphored.requests WHERE sequence = 1",
      "INSERT INTO semaphored.clients (client_id, floor) VALUES ('c', 100)"};
  two.sql.Run(steps[row_first ? 0 : 1]);
  two.sql.Run(steps[row_first ? 1 : 0]);
  auto commit = std::async(std::launch::async, [&] { return two.b.Commit(late); });
  Client watcher = two.schema.Connect();
  REQUIRE(Within10s([&] { return WaitingForLocks(watcher, two.schema) == 1; }));
  const bool forgets = GENERATE(true, false);
  two.sql.Run(forgets ? "COMMIT" : "ROLLBACK");
  CHECK(commit.get().requests_lost);
  CHECK(Find(two.b, 1).too_old == forgets);
}

// What the lane's thread does when it has nothing to do.
void Prune(OpenStore& open) {
  for (int i = 0; i < 6; ++i) REQUIRE(open.store->Wait(SteadyClock::now()).ok());
}

StoreOptions Eager() {
  StoreOptions options;
  options.prune.interval = milliseconds(0);
  options.prune.thorough_every = 1;
  options.prune.requests_kept = milliseconds(0);
  return options;
}

TEST_CASE("postgres requests: a row that waits or stands outlives floor, client and daemon",
          "[postgres]") {
  Two two;
  const State state = GENERATE(State::kWaiting, State::kGranted);
  const RequestRow row = MakeRequest(1, state, MakeId(1));
  REQUIRE(Insert(two.a, row) == Kind::kWon);
  REQUIRE(Insert(two.a, MakeRequest(2, State::kDone)) == Kind::kWon);
  SECTION("the floor") {
    REQUIRE(RaiseFloor(two.a, kLater) == Kind::kWon);
    REQUIRE(RaiseFloor(two.b, kLater + 300) == Kind::kWon);
  }
  SECTION("a client that was silent for long") {
    Transaction forget = Batch(two.a);
    forget.forgotten_clients.push_back(1);
    REQUIRE(two.a.Commit(forget).kind == Kind::kWon);
  }
  SECTION("a daemon that has ended") { DeclareDead(two.schema, two.a.self); }
  OpenStore late = Open(two.schema, {.node_id = "late", .store = Eager()});
  Prune(late);
  const auto found = Find(late, 1);
  CHECK(found.row == row);
  CHECK_FALSE(found.too_old);
  // Beside it the client is known still: what has gone is too old.
  CHECK_FALSE(Find(late, 2).row);
  CHECK(Find(late, 2).too_old);
  CHECK(Insert(late, MakeRequest(1, State::kDone)) == Kind::kLost);
  CHECK(Insert(late, MakeRequest(2, State::kDone)) == Kind::kLost);

  // When its claim has ended it goes as any other.
  RequestRow ended = row;
  ended.state = State::kEnded;
  ended.cause = EndCause::kExpired;
  REQUIRE(Update(late, ended) == Kind::kWon);
  Prune(late);
  CHECK_FALSE(Find(two.b, 1).row);
  CHECK(Find(two.b, 1).too_old);
  CHECK(Insert(two.b, MakeRequest(1, State::kDone)) == Kind::kLost);
}

// ---- one-shot requests ----

RequestRow MakeOneShot(const Id& one_shot, State state) {
  RequestRow row = MakeRequest(0, state, MakeId(1));
  row.request = {0, 0, one_shot};
  return row;
}

ledger::LedgerStore::FoundRequest FindOneShot(OpenStore& open, const Id& one_shot) {
  const ledger::NamedRequest asked{{0, 0, one_shot}, ""};
  return open.store->FindRequests({&asked, 1}, 1024).value().front();
}

Kind ForgetOneShot(OpenStore& open, const Id& one_shot) {
  Transaction forget = Begin(open);
  forget.forgotten_requests.push_back(one_shot);
  return open.Commit(forget).kind;
}

TEST_CASE("postgres requests: a one-shot id is carried out once, and has no window", "[postgres]") {
  Two two;
  const Id id{0xabcd, 1};
  const RequestRow row = MakeOneShot(id, State::kWaiting);
  REQUIRE(Insert(two.a, row) == Kind::kWon);
  REQUIRE(Insert(two.a, MakeOneShot({0xabcd, 2}, State::kDone)) == Kind::kWon);
  REQUIRE(RaiseFloor(two.a, kLater) == Kind::kWon);
  CHECK(FindOneShot(two.b, id).row == row);
  CHECK(Insert(two.b, row) == Kind::kLost);
  Transaction absent = Batch(two.b);
  absent.absent_requests.push_back({{0, 0, id}, ""});
  CHECK(two.b.Commit(absent).requests_lost);
  absent.absent_requests[0].request.one_shot = {0xabcd, 3};
  CHECK(two.b.Commit(absent).kind == Kind::kWon);
  CHECK_FALSE(FindOneShot(two.b, {0xabcd, 3}).too_old);
  Transaction remove = With(Batch(two.b), Op::kRemove, row);
  REQUIRE(two.b.Commit(remove).kind == Kind::kWon);
  CHECK_FALSE(FindOneShot(two.a, id).row);
  CHECK(Insert(two.a, row) == Kind::kWon);
}

TEST_CASE("postgres requests: a claim is read with the one-shot id that made it", "[postgres]") {
  Two two;
  const LeasePtr lease = MakeLease(two.a, 2);
  lease->request = {0, 0, {0xabcd, 1}};
  Transaction grant = Batch(two.a);
  grant.semaphores[0].leases.push_back({nullptr, lease, EndCause::kNone});
  grant.requests.push_back({Op::kInsert, MakeOneShot({0xabcd, 1}, State::kGranted)});
  REQUIRE(two.a.Commit(grant).kind == Kind::kWon);
  const auto loaded = LoadOne(two.b, "s");
  REQUIRE(loaded.leases.size() == 1);
  CHECK(loaded.leases[0]->request == lease->request);
}

TEST_CASE("postgres requests: one-shot requests go as their writer says, and no others",
          "[postgres]") {
  Two two;
  const Id id{0xabcd, 1};
  REQUIRE(Insert(two.a, MakeOneShot(id, State::kGranted)) == Kind::kWon);
  REQUIRE(ForgetOneShot(two.a, id) == Kind::kWon);
  CHECK(FindOneShot(two.a, id).row);  // It stands.
  RequestRow ended = MakeOneShot(id, State::kEnded);
  ended.cause = EndCause::kReleased;
  REQUIRE(Update(two.b, ended) == Kind::kWon);
  REQUIRE(ForgetOneShot(two.a, id) == Kind::kWon);
  CHECK(FindOneShot(two.a, id).row);  // Another lane's.
  REQUIRE(ForgetOneShot(two.b, id) == Kind::kWon);
  CHECK_FALSE(FindOneShot(two.a, id).row);
  CHECK(two.sql.Number("SELECT count(*) FROM semaphored.clients") == 0);
  // It may be used again.
  CHECK(Insert(two.a, MakeOneShot(id, State::kDone)) == Kind::kWon);
}

TEST_CASE("postgres requests: one-shot requests of a daemon that has ended go, if none stands",
          "[postgres]") {
  Two two;
  REQUIRE(Insert(two.a, MakeOneShot({0xabcd, 1}, State::kDone)) == Kind::kWon);
  REQUIRE(Insert(two.a, MakeOneShot({0xabcd, 2}, State::kGranted)) == Kind::kWon);
  DeclareDead(two.schema, two.a.self);
  OpenStore late = Open(two.schema, {.node_id = "late", .store = Eager()});
  Prune(late);
  CHECK_FALSE(FindOneShot(two.b, {0xabcd, 1}).row);
  CHECK(FindOneShot(two.b, {0xabcd, 2}).row);
}

TEST_CASE("postgres requests: what ended below its floor is found along a long table",
          "[postgres]") {
  Two two;
  OpenStore late = Open(two.schema, {.node_id = "late", .store = Eager()});
  // Of every hundredth the claim stands; all are below the floor, as the floor's rise leaves them.
  two.sql.Run(
      "INSERT INTO semaphored.requests SELECT 'c', g, gen_random_uuid(), CASE g % 100 WHEN 0 THEN "
      "2 "
      "ELSE 3 END, 's', gen_random_uuid(), 1, 0, 0, false, 1, 1, 0 FROM generate_series(1, 2200) "
      "AS "
      "g");
  two.sql.Run("INSERT INTO semaphored.clients (client_id, floor) VALUES ('c', 2001)");
  for (int i = 0; i < 3; ++i) Prune(late);
  CHECK(two.sql.Number("SELECT count(*) FROM semaphored.requests WHERE state = 2") == 22);
  CHECK(two.sql.Number("SELECT count(*) FROM semaphored.requests WHERE state = 3") == 198);
}

TEST_CASE("postgres requests: what one lane forgets is too old while another knows the client",
          "[postgres]") {
  Two two;
  REQUIRE(Insert(two.a, MakeRequest(10, State::kDone)) == Kind::kWon);
  REQUIRE(Insert(two.a, MakeRequest(12, State::kDone)) == Kind::kWon);
  const bool known_elsewhere = GENERATE(true, false);
  if (known_elsewhere) REQUIRE(Insert(two.b, MakeRequest(11, State::kDone)) == Kind::kWon);
  SECTION("of a client that was silent there") {
    Transaction forget = Batch(two.a);
    forget.forgotten_clients.push_back(1);
    REQUIRE(two.a.Commit(forget).kind == Kind::kWon);
  }
  SECTION("with the end of a daemon") {
    DeclareDead(two.schema, two.a.self);
    OpenStore late = Open(two.schema, {.node_id = "late", .store = Eager()});
    // First the requests, then the clients, page by page.
    for (int i = 0; i < 5; ++i) Prune(late);
  }
  CHECK_FALSE(Find(two.b, 10).row);
  CHECK_FALSE(Find(two.b, 12).row);
  CHECK(Find(two.b, 12).too_old == known_elsewhere);
  CHECK(Insert(two.b, MakeRequest(12, State::kDone)) ==
        (known_elsewhere ? Kind::kLost : Kind::kWon));
  // What comes next is new in any case.
  CHECK(Insert(two.b, MakeRequest(13, State::kDone)) == Kind::kWon);
}

}  // namespace
}  // namespace semaphored::postgres
