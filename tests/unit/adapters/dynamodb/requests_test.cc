// Requests as rows in DynamoDB: each is carried out once, whatever the daemon knew that meets it
// again, and what expires cannot be carried out again.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/dynamodb/table.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/dynamodb/fixture.h"

namespace semaphored::dynamodb {
namespace {

using ledger::CommitResult;
using ledger::NamedRequest;
using ledger::RequestRow;
using ledger::Transaction;
using Kind = CommitResult::Kind;
using State = RequestRow::State;

constexpr int64_t kHourMs = 3'600'000;

NamedRequest Named(uint64_t sequence) { return {{7, sequence}, "c"}; }

// One client, "c", that makes requests about "s".
struct Requests {
  StoreTable table;
  int64_t now_unix_ms = 1'800'000'000'000;

  // `clock`: the daemon's wall clock; nullptr: as it should be.
  OpenStore OpenAs(const std::string& node_id, const int64_t* clock = nullptr,
                   const std::string& endpoint = "") {
    const int64_t* const shown = clock == nullptr ? &now_unix_ms : clock;
    return Open(table, {.node_id = node_id, .endpoint = endpoint, .now_unix_ms = [shown] {
                          return *shown;
                        }});
  }
  // A commit that touches "s", and changes a request of "c".
  CommitResult Commit(OpenStore& open, ledger::RequestChange change) {
    Transaction transaction = Touch(open, LoadOne(open, "s").row);
    transaction.new_clients.push_back({7, "c"});
    transaction.requests.push_back(std::move(change));
    return open.Commit(transaction);
  }
  json Row(uint64_t sequence) const { return table.Item(RequestRowKey("c", sequence)); }
  bool Expires(uint64_t sequence) const { return Row(sequence).contains(kExpiresAt); }
  // As the table's TTL does it.
  void Expire() const {
    for (const json& item : table.Items(RequestPartition("c"))) {
      if (item.contains(kExpiresAt) && SignedIn(item, kExpiresAt) * 1000 <= now_unix_ms)
        table.Delete(KeyOf(item));
    }
  }
};

// For a day and some hours the client makes a request every hour, from `first` on; all expires that may.
void WorkForADay(Requests& requests, OpenStore& open, uint64_t first) {
  for (uint64_t hour = 0; hour < 27; ++hour) {
    REQUIRE(requests.Commit(open, Insert(7, first + hour, State::kDone)).kind == Kind::kWon);
    requests.now_unix_ms += kHourMs;
  }
  requests.Expire();
}

ledger::LedgerStore::FoundRequest FindOne(OpenStore& open, uint64_t sequence,
                                          uint64_t window = 1024) {
  const NamedRequest named = Named(sequence);
  return open.store->FindRequests({&named, 1}, window).value().front();
}

bool Lost(const CommitResult& result) { return result.kind == Kind::kLost && result.requests_lost; }

// ---- one-shot requests ----

struct OneShots : Requests {
  const Id id{0xabcd, 1};
  SteadyTime now = SteadyClock::now();

  OpenStore OpenSweeping(const std::string& node_id, std::chrono::milliseconds retention) {
    OpenStore open = Open(table, {.node_id = node_id,
                                  .now_unix_ms = [this] { return now_unix_ms; },
                                  .now = [this] { return now; }});
    open.store->SweepOneShots(retention);
    return open;
  }
  ledger::RequestChange Change(ledger::RequestChange::Op op, State state) const {
    ledger::RequestChange change = Insert(0, 0, state);
    change.op = op;
    change.row.request = {0, 0, id};
    return change;
  }
  Kind Insert_(OpenStore& open, State state) {
    return Commit(open, Change(ledger::RequestChange::Op::kInsert, state)).kind;
  }
  Kind Update_(OpenStore& open, State state) {
    return Commit(open, Change(ledger::RequestChange::Op::kUpdate, state)).kind;
  }
  void Forget(OpenStore& open) {
    Transaction transaction = Touch(open, LoadOne(open, "s").row);
    transaction.forgotten_requests.push_back(id);
    REQUIRE(open.Commit(transaction).kind == Kind::kWon);
    REQUIRE(open.store->Wait(SteadyTime()).ok());
  }
  json Item() const { return table.Item(OneShotKey(id)); }
  // Looks at each partition once; the first call leaves out the last one.
  void SweepAll(OpenStore& open) {
    for (int i = 0; i < 256; ++i) {
      REQUIRE(open.store->Wait(SteadyTime()).ok());
      now += std::chrono::seconds(1);
    }
  }
};

TEST_CASE("dynamodb requests: a one-shot id is carried out once, and never expires", "[dynamodb]") {
  OneShots shots;
  OpenStore a = shots.OpenAs("a");
  OpenStore b = shots.OpenAs("b");
  Make(a, "s");
  const NamedRequest named{{0, 0, shots.id}, ""};
  CHECK_FALSE(a.store->FindRequests({&named, 1}, 4).value()[0].too_old);
  REQUIRE(shots.Insert_(a, State::kGranted) == Kind::kWon);
  const CommitResult lost =
      shots.Commit(b, shots.Change(ledger::RequestChange::Op::kInsert, State::kGranted));
  CHECK(Lost(lost));
  Transaction late = Touch(b, LoadOne(b, "s").row);
  late.absent_requests.push_back(named);
  CHECK(Lost(b.Commit(late)));
  const auto found = b.store->FindRequests({&named, 1}, 4).value()[0];
  REQUIRE(found.row);
  CHECK(found.row->state == State::kGranted);
  CHECK(found.row->request == named.request);
  REQUIRE(shots.Update_(b, State::kEnded) == Kind::kWon);
  CHECK_FALSE(shots.Item().contains(kExpiresAt));
  // A wait that is given up leaves nothing.
  REQUIRE(shots.Commit(b, shots.Change(ledger::RequestChange::Op::kRemove, State::kWaiting)).kind ==
          Kind::kWon);
  CHECK(shots.Item().is_null());
  CHECK(shots.Insert_(a, State::kDone) == Kind::kWon);
}

TEST_CASE("dynamodb requests: one-shot requests go as their writer says, and no others",
          "[dynamodb]") {
  OneShots shots;
  OpenStore a = shots.OpenAs("a");
  OpenStore b = shots.OpenAs("b");
  Make(a, "s");
  REQUIRE(shots.Insert_(a, State::kGranted) == Kind::kWon);
  shots.Forget(a);
  CHECK_FALSE(shots.Item().is_null());  // It stands.
  REQUIRE(shots.Update_(b, State::kEnded) == Kind::kWon);
  shots.Forget(a);
  CHECK_FALSE(shots.Item().is_null());  // Another lane's.
  shots.Forget(b);
  CHECK(shots.Item().is_null());
}

TEST_CASE("dynamodb requests: one-shot requests that were left go when they were seen for long",
          "[dynamodb]") {
  OneShots shots;
  OpenStore a = shots.OpenAs("a");
  OpenStore late = shots.OpenSweeping("late", std::chrono::seconds(256));
  Make(a, "s");
  REQUIRE(shots.Insert_(a, State::kGranted) == Kind::kWon);
  shots.SweepAll(late);
  shots.SweepAll(late);
  CHECK_FALSE(shots.Item().is_null());
  REQUIRE(shots.Update_(a, State::kEnded) == Kind::kWon);
  // Seen here for the first time: its age counts from now on.
  shots.SweepAll(late);
  CHECK_FALSE(shots.Item().is_null());
  // Its writer removes it, and the id is used again: another row.
  shots.Forget(a);
  shots.now_unix_ms += 60'000;
  REQUIRE(shots.Insert_(a, State::kDone) == Kind::kWon);
  shots.SweepAll(late);
  CHECK_FALSE(shots.Item().is_null());
  shots.SweepAll(late);
  CHECK(shots.Item().is_null());
}

// ---- one row for each ----

TEST_CASE("dynamodb requests: a request is carried out once", "[dynamodb]") {
  StoreTable table;
  OpenStore a = Open(table);
  OpenStore b = Open(table, {.node_id = "b"});
  const SemaphoreRow row = Make(a, "s");
  Transaction first = Grant(a, row, MakeLease(a, 5));
  first.new_clients.push_back({7, "c"});
  first.requests.push_back(Insert(7, 5, State::kGranted));
  REQUIRE(a.Commit(first).kind == Kind::kWon);
  // Another daemon that does not know of it meets the same request.
  LoadOne(b, "s");
  Transaction again = Grant(b, After(first), MakeLease(b, 6, 2));
  again.new_clients.push_back({1, "c"});
  again.requests.push_back(Insert(1, 5, State::kGranted));
  CHECK(Lost(b.Commit(again)));
  // When it has read which requests the client has made, the condition alone decides.
  again.requests[0] = Insert(1, 6, State::kGranted);
  REQUIRE(b.Commit(again).kind == Kind::kWon);
  Transaction late = Touch(a, LoadOne(a, "s").row);
  late.absent_requests.push_back(Named(6));
  CHECK(Lost(a.Commit(late)));
  late.absent_requests[0] = Named(9);
  CHECK(a.Commit(late).kind == Kind::kWon);
  CHECK(table.Item(RequestRowKey("c", 9)).is_null());
}

TEST_CASE("dynamodb requests: two that meet the same request write one row", "[dynamodb]") {
  Requests requests;
  OpenStore a = requests.OpenAs("a");
  OpenStore b = requests.OpenAs("b");
  const SemaphoreRow s = Make(a, "s");
  const SemaphoreRow t = Make(b, "t");
  // Both know the client, and that it has made no such request.
  REQUIRE(requests.Commit(a, Insert(7, 1, State::kDone)).kind == Kind::kWon);
  REQUIRE(requests.Commit(b, Insert(7, 2, State::kDone)).kind == Kind::kWon);
  Transaction of_a = Grant(a, LoadOne(a, "s").row, MakeLease(a, 5));
  of_a.requests.push_back(Insert(7, 5, State::kGranted));
  Transaction of_b = Grant(b, t, MakeLease(b, 6));
  of_b.requests.push_back(Insert(7, 5, State::kGranted));
  REQUIRE(a.Commit(of_a).kind == Kind::kWon);
  const CommitResult lost = b.Commit(of_b);
  CHECK(Lost(lost));
  CHECK(lost.stale.empty());
  CHECK(LoadOne(b, "t").leases.empty());
}

TEST_CASE("dynamodb requests: a row comes back as it was written", "[dynamodb]") {
  Requests requests;
  OpenStore a = requests.OpenAs("a");
  Make(a, "s");
  ledger::RequestChange done = Insert(7, 5, State::kDone);
  done.row.claim = {};
  done.row.number = 3;
  done.row.remaining = 4;
  done.row.changed = true;
  REQUIRE(requests.Commit(a, done).kind == Kind::kWon);
  OpenStore b = requests.OpenAs("b");
  CHECK(FindOne(b, 5).row == done.row);
  const ledger::RequestChange waits = Insert(7, 6, State::kWaiting);
  REQUIRE(requests.Commit(a, waits).kind == Kind::kWon);
  CHECK(FindOne(b, 6).row == waits.row);
  ledger::RequestChange ended = Update(7, 6, State::kWaitEnded);
  ended.row.cause = EndCause::kWaitExpired;
  REQUIRE(requests.Commit(a, ended).kind == Kind::kWon);
  CHECK(FindOne(b, 6).row == ended.row);
  CHECK_FALSE(FindOne(b, 4).row.has_value());
  CHECK_FALSE(FindOne(b, 4).too_old);
  CHECK(FindOne(b, 4, 2).too_old);
  // A row is found however low it is.
  CHECK(FindOne(b, 5, 1).row == done.row);
}

// ---- what expires ----

TEST_CASE("dynamodb requests: a row expires only when its claim has ended", "[dynamodb]") {
  Requests requests;
  OpenStore a = requests.OpenAs("a");
  Make(a, "s");
  REQUIRE(requests.Commit(a, Insert(7, 1, State::kWaiting)).kind == Kind::kWon);
  CHECK_FALSE(requests.Expires(1));
  REQUIRE(requests.Commit(a, Update(7, 1, State::kGranted)).kind == Kind::kWon);
  CHECK_FALSE(requests.Expires(1));
  requests.now_unix_ms += 100 * kHourMs;
  REQUIRE(requests.Commit(a, Update(7, 1, State::kEnded)).kind == Kind::kWon);
  CHECK(SignedIn(requests.Row(1), kExpiresAt) * 1000 == requests.now_unix_ms + 24 * kHourMs);
  REQUIRE(requests.Commit(a, Insert(7, 2, State::kGranted)).kind == Kind::kWon);
  CHECK_FALSE(requests.Expires(2));
  REQUIRE(requests.Commit(a, Insert(7, 3, State::kDone)).kind == Kind::kWon);
  CHECK(requests.Expires(3));
}

TEST_CASE("dynamodb requests: one that was given up may be made again", "[dynamodb]") {
  Requests requests;
  OpenStore a = requests.OpenAs("a");
  OpenStore b = requests.OpenAs("b");
  Make(a, "s");
  REQUIRE(requests.Commit(a, Insert(7, 1, State::kWaiting)).kind == Kind::kWon);
  REQUIRE(requests.Commit(a, Remove(7, 1)).kind == Kind::kWon);
  CHECK_FALSE(FindOne(b, 1).row.has_value());
  CHECK_FALSE(FindOne(b, 1).too_old);
  CHECK(requests.Expires(1));
  Transaction absent = Touch(b, LoadOne(b, "s").row);
  absent.absent_requests.push_back(Named(1));
  CHECK(b.Commit(absent).kind == Kind::kWon);
  const ledger::RequestChange again = Insert(7, 1, State::kGranted);
  REQUIRE(requests.Commit(b, again).kind == Kind::kWon);
  CHECK(FindOne(a, 1).row == again.row);
  CHECK_FALSE(requests.Expires(1));
  CHECK(Lost(requests.Commit(a, Insert(7, 1, State::kGranted))));
}

// ---- late repeats ----

TEST_CASE("dynamodb requests: a request whose row has expired is too old for a stale daemon",
          "[dynamodb]") {
  Requests requests;
  int64_t stopped = requests.now_unix_ms;
  OpenStore a = requests.OpenAs("a");
  Make(a, "s");
  OpenStore right = requests.OpenAs("right");
  // Its machine was suspended, and its clock with it.
  OpenStore late = requests.OpenAs("late", &stopped);
  REQUIRE(requests.Commit(right, Insert(7, 1, State::kDone)).kind == Kind::kWon);
  REQUIRE(requests.Commit(late, Insert(7, 2, State::kDone)).kind == Kind::kWon);
  WorkForADay(requests, a, 3);
  REQUIRE(requests.Row(3).is_null());
  REQUIRE_FALSE(requests.Row(20).is_null());
  for (OpenStore* open : {&right, &late}) {
    CHECK(Lost(requests.Commit(*open, Insert(7, 3, State::kGranted))));
    Transaction absent = Touch(*open, LoadOne(*open, "s").row);
    absent.absent_requests.push_back(Named(3));
    CHECK(Lost(open->Commit(absent)));
  }
  CHECK(FindOne(right, 3).too_old);
  CHECK(requests.Row(3).is_null());
  // The client is not kept from going on.
  stopped = requests.now_unix_ms;
  CHECK(requests.Commit(late, Insert(7, 30, State::kDone)).kind == Kind::kWon);
  CHECK(requests.Commit(right, Insert(7, 31, State::kDone)).kind == Kind::kWon);
}

TEST_CASE("dynamodb requests: a commit that was held back for a day does not land", "[dynamodb]") {
  Requests requests;
  DynamoProxy proxy(&requests.table);
  int64_t stopped = requests.now_unix_ms;
  OpenStore a = requests.OpenAs("a");
  Make(a, "s");
  Make(a, "t");
  OpenStore held_back = requests.OpenAs("b", &stopped, proxy.endpoint());
  REQUIRE(requests.Commit(held_back, Insert(7, 1, State::kDone)).kind == Kind::kWon);
  Transaction grant = Grant(held_back, LoadOne(held_back, "t").row, MakeLease(held_back, 2));
  grant.requests.push_back(Insert(7, 2, State::kGranted));
  int writes = 0;
  proxy.OnRequest([&](DynamoProxy::Passing* passing) {
    if (passing->operation != "TransactWriteItems" || ++writes > 1) return;
    // The daemon is stopped here; the client goes to another one, with the same request.
    WorkForADay(requests, a, 2);
  });
  CHECK(Lost(held_back.Commit(grant)));
  CHECK(writes == 1);
  CHECK(LoadOne(a, "t").leases.empty());
  CHECK(requests.Row(2).is_null());
}

TEST_CASE("dynamodb requests: an item that is old enough makes lower requests late", "[dynamodb]") {
  Requests requests;
  OpenStore a = requests.OpenAs("a");
  Make(a, "s");
  REQUIRE(requests.Commit(a, Insert(7, 5, State::kWaiting)).kind == Kind::kWon);
  REQUIRE(requests.Commit(a, Insert(7, 8, State::kWaiting)).kind == Kind::kWon);
  requests.now_unix_ms += 3 * kHourMs;
  CHECK(requests.Commit(a, Insert(7, 4, State::kDone)).kind == Kind::kWon);
  // What is given up and made again is as old as it was first.
  REQUIRE(requests.Commit(a, Remove(7, 5)).kind == Kind::kWon);
  REQUIRE(requests.Commit(a, Insert(7, 5, State::kWaiting)).kind == Kind::kWon);
  REQUIRE(requests.Commit(a, Remove(7, 8)).kind == Kind::kWon);
  requests.now_unix_ms += 2 * kHourMs;
  CHECK(FindOne(a, 3).too_old);
  CHECK(FindOne(a, 6).too_old);
  CHECK_FALSE(FindOne(a, 8).too_old);
  CHECK_FALSE(FindOne(a, 9).too_old);
  CHECK(FindOne(a, 5).row.has_value());
  CHECK(Lost(requests.Commit(a, Insert(7, 3, State::kDone))));
  CHECK(Lost(requests.Commit(a, Insert(7, 6, State::kDone))));
  CHECK(requests.Commit(a, Insert(7, 8, State::kDone)).kind == Kind::kWon);
}

// ---- generations ----

uint64_t GenerationOf(const StoreTable& table, const OpenStore& open) {
  return NumberIn(table.Item(LaneKey(open.self, 0)), "generation");
}

TEST_CASE("dynamodb generations: one that begins is in the items of all lanes", "[dynamodb]") {
  Requests requests;
  OpenStore a = requests.OpenAs("a");
  OpenStore b = requests.OpenAs("b");
  Make(a, "s");
  const uint64_t before = GenerationOf(requests.table, a);
  CHECK(GenerationOf(requests.table, b) == before);
  requests.now_unix_ms += kHourMs;
  REQUIRE(requests.Commit(a, Insert(7, 1, State::kDone)).kind == Kind::kWon);
  CHECK(GenerationOf(requests.table, a) == before);
  requests.now_unix_ms += kHourMs;
  // What accepts no request begins none.
  Transaction touch = Touch(a, LoadOne(a, "s").row);
  REQUIRE(a.Commit(touch).kind == Kind::kWon);
  CHECK(GenerationOf(requests.table, a) == before);
  REQUIRE(requests.Commit(a, Insert(7, 2, State::kDone)).kind == Kind::kWon);
  const uint64_t after = GenerationOf(requests.table, a);
  CHECK(after > before);
  CHECK(GenerationOf(requests.table, b) == after);
  OpenStore c = requests.OpenAs("c");
  CHECK(GenerationOf(requests.table, c) == after);
  // Without delay the others learn of it.
  Transaction ours = Touch(b, LoadOne(b, "s").row);
  CHECK(b.Commit(ours).kind == Kind::kWon);
  CHECK(requests.Commit(b, Insert(7, 3, State::kDone)).kind == Kind::kWon);
}

TEST_CASE("dynamodb generations: what one daemon has begun another one carries on", "[dynamodb]") {
  Requests requests;
  DynamoProxy proxy(&requests.table);
  OpenStore a = requests.OpenAs("a", nullptr, proxy.endpoint());
  OpenStore b = requests.OpenAs("b");
  OpenStore c = requests.OpenAs("c");
  Make(a, "s");
  const uint64_t before = GenerationOf(requests.table, a);
  // The daemon ends between the first item and the others.
  proxy.OnRequest([&](DynamoProxy::Passing* passing) {
    const std::string partition = LaneKey(c.self, 0).partition;
    if (passing->operation != "UpdateItem" || TextIn(passing->body["Key"], "PK") != partition)
      return;
    passing->refuse = true;
    passing->error = "ValidationException";
  });
  requests.now_unix_ms += 2 * kHourMs;
  CHECK(requests.Commit(a, Insert(7, 1, State::kDone)).kind == Kind::kFailed);
  const uint64_t begun = GenerationOf(requests.table, b);
  CHECK(begun > before);
  CHECK(GenerationOf(requests.table, c) == before);
  // A daemon that learns of it from its lane accepts nothing before all lanes have it.
  REQUIRE(requests.Commit(b, Insert(7, 1, State::kDone)).kind == Kind::kWon);
  CHECK(GenerationOf(requests.table, c) == begun);
  CHECK(Lost(requests.Commit(c, Insert(7, 1, State::kDone))));
  CHECK(requests.Commit(c, Insert(7, 2, State::kDone)).kind == Kind::kWon);
}

TEST_CASE("dynamodb generations: if its item is deleted, a higher one begins", "[dynamodb]") {
  Requests requests;
  OpenStore a = requests.OpenAs("a");
  OpenStore b = requests.OpenAs("b");
  Make(a, "s");
  const uint64_t before = GenerationOf(requests.table, a);
  requests.table.Delete(GenerationKey());
  requests.now_unix_ms += 2 * kHourMs;
  CHECK(requests.Commit(a, Insert(7, 1, State::kDone)).kind == Kind::kWon);
  CHECK(GenerationOf(requests.table, b) > before);
  CHECK(requests.Commit(b, Insert(7, 2, State::kDone)).kind == Kind::kWon);
}

TEST_CASE("dynamodb generations: a settled commit leaves the lane its generation", "[dynamodb]") {
  Requests requests;
  DynamoProxy proxy(&requests.table);
  int64_t stopped = requests.now_unix_ms;
  OpenStore a = requests.OpenAs("a");
  Make(a, "s");
  OpenStore b = Open(requests.table, {.node_id = "b",
                                      .endpoint = proxy.endpoint(),
                                      .timeout = std::chrono::milliseconds(1500),
                                      .now_unix_ms = [&] { return stopped; }});
  Transaction lost = Touch(b, LoadOne(b, "s").row);
  lost.new_clients.push_back({7, "c"});
  lost.requests.push_back(Insert(7, 1, State::kDone));
  bool lose = true;
  proxy.OnRequest([&](DynamoProxy::Passing* passing) {
    if (passing->operation != "TransactWriteItems" || !lose) return;
    passing->refuse = passing->lose = true;
  });
  REQUIRE(b.Commit(lost).kind == Kind::kUnknown);
  requests.now_unix_ms += 3 * kHourMs;
  REQUIRE(requests.Commit(a, Insert(7, 1, State::kDone)).kind == Kind::kWon);
  const uint64_t generation = GenerationOf(requests.table, a);
  lose = false;
  CHECK(b.Settle(lost).kind == Kind::kLost);
  CHECK(GenerationOf(requests.table, b) == generation);
  CHECK(Lost(b.Commit(lost)));
}

}  // namespace
}  // namespace semaphored::dynamodb
