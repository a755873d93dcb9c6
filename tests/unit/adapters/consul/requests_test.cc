// The rows of requests in Consul: what one daemon writes while another one's knowledge is old.
#include <string>
#include <utility>
#include <vector>

#include "adapters/common/client_names.h"
#include "adapters/consul/format.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/consul/daemon.h"
#include "tests/unit/adapters/consul/fixture.h"
#include "tests/unit/relay.h"

namespace semaphored::consul {
namespace {

using ledger::RequestChange;
using ledger::RequestRow;
using ledger::Transaction;
using Kind = ledger::CommitResult::Kind;
using Op = RequestChange::Op;
using State = RequestRow::State;

constexpr uint32_t kClient = 7;
constexpr uint64_t kWindow = 1024;

// A lane, and the client "x" as the ledger above it would name it.
struct Lane {
  OpenStore open;

  Transaction Begin() {
    Transaction transaction = consul::Begin(open);
    transaction.new_clients.push_back({kClient, "x"});
    return transaction;
  }
  static RequestChange Change(Op op, uint64_t sequence, State state = State::kDone) {
    RequestRow row = MakeRow(sequence, state);
    row.request.client = kClient;
    return {op, row};
  }
  ledger::CommitResult Commit(Op op, uint64_t sequence, State state = State::kDone) {
    Transaction transaction = Begin();
    transaction.requests.push_back(Change(op, sequence, state));
    return open.Commit(transaction);
  }
  ledger::CommitResult Insert(uint64_t sequence) { return Commit(Op::kInsert, sequence); }
  // Grants a lease for this request; it is the same one each time.
  void Grant(uint64_t sequence, const LeasePtr& lease) {
    Transaction grant = consul::Grant(open, LoadOne(open, "s").row, lease);
    grant.new_clients.push_back({kClient, "x"});
    grant.requests.push_back(Change(Op::kInsert, sequence, State::kGranted));
    grant.requests.back().row.claim = lease->id;
    REQUIRE(open.Commit(grant).kind == Kind::kWon);
  }
  ledger::CommitResult End(uint64_t sequence, const LeasePtr& lease) {
    Transaction end = consul::Grant(open, LoadOne(open, "s").row, lease);
    end.semaphores[0].leases = {{lease, nullptr, EndCause::kExpired}};
    end.new_clients.push_back({kClient, "x"});
    end.requests.push_back(Change(Op::kUpdate, sequence, State::kEnded));
    end.requests.back().row.claim = lease->id;
    end.requests.back().row.cause = EndCause::kExpired;
    return open.Commit(end);
  }
  ledger::LedgerStore::FoundRequest Find(uint64_t sequence) {
    const ledger::NamedRequest named{{kClient, sequence}, "x"};
    return open.store->FindRequests({&named, 1}, kWindow).value().front();
  }
  void RaiseFloor(uint64_t below) {
    Transaction transaction = Begin();
    transaction.request_floors.push_back({kClient, below});
    transaction.concerns.emplace_back(open.self.number, "a word");
    REQUIRE(open.Commit(transaction).kind == Kind::kWon);
    REQUIRE(open.store->Wait(SteadyTime::min()).ok());
  }
};

struct TwoLanes {
  TestPrefix prefix;
  Lane a{Open(prefix)};
  Lane b{OpenOther()};

  OpenStore OpenOther() const {
    OpenStore open;
    open.engine = OpenEngine(prefix.UrlText()).value();
    open.self = open.engine->nodes().Join("b").value();
    open.store =
        std::make_unique<ConsulStore>(prefix.ParsedUrl(), open.engine->guarantees(), open.self, 0);
    REQUIRE(open.store->Start().ok());
    return open;
  }
  RequestBlock Block(uint64_t block) const {
    return ReadRequestBlock(prefix.Value(prefix.keys().RequestBlock("x", block)));
  }
};

// ---- inserts ----

TEST_CASE("consul requests: one row for one id, whatever a daemon knows", "[consul]") {
  TwoLanes two;
  REQUIRE(two.a.Insert(3).kind == Kind::kWon);
  // B takes the block for absent,
  const ledger::CommitResult lost = two.b.Insert(3);
  CHECK(lost.kind == Kind::kLost);
  CHECK(lost.requests_lost);
  // and then knows it as it was before A wrote to it again.
  REQUIRE(two.b.Insert(4).kind == Kind::kWon);
  REQUIRE(two.a.Insert(5).kind == Kind::kWon);
  CHECK(two.b.Insert(5).requests_lost);
  CHECK(two.a.Insert(4).requests_lost);
  CHECK(two.b.Find(5).row == Lane::Change(Op::kInsert, 5).row);
  Transaction absent = two.b.Begin();
  absent.absent_requests.push_back({{kClient, 3}, "x"});
  absent.concerns.emplace_back(two.b.open.self.number, "a word");
  CHECK(two.b.open.Commit(absent).requests_lost);
  absent.absent_requests[0].request.sequence = 6;
  CHECK(two.b.open.Commit(absent).kind == Kind::kWon);
  CHECK_FALSE(two.b.Find(6).row.has_value());
}

TEST_CASE("consul requests: a one-shot id is carried out once, and goes when its writer says so",
          "[consul]") {
  TwoLanes two;
  const Id id{0xabcd, 1};
  const std::string key = two.prefix.keys().RequestBlock(ledger::NameOfOneShot(id), 0);
  const auto change = [&](Lane& lane, Op op, State state) {
    RequestRow row = MakeRow(0, state);
    row.request.one_shot = id;
    Transaction transaction = consul::Begin(lane.open);
    transaction.requests.push_back({op, row});
    return lane.open.Commit(transaction);
  };
  const auto forget = [&](Lane& lane) {
    Transaction transaction = consul::Begin(lane.open);
    transaction.forgotten_requests.push_back(id);
    REQUIRE(lane.open.Commit(transaction).kind == Kind::kWon);
    REQUIRE(lane.open.store->Wait(SteadyTime()).ok());
  };
  const auto found = [&](Lane& lane) {
    const ledger::NamedRequest named{{0, 0, id}, ""};
    return lane.open.store->FindRequests({&named, 1}, kWindow).value().front();
  };
  CHECK_FALSE(found(two.b).row.has_value());
  CHECK_FALSE(found(two.b).too_old);
  REQUIRE(change(two.a, Op::kInsert, State::kWaiting).kind == Kind::kWon);
  CHECK(change(two.b, Op::kInsert, State::kWaiting).requests_lost);
  Transaction absent = consul::Begin(two.b.open);
  absent.absent_requests.push_back({{0, 0, id}, ""});
  absent.concerns.emplace_back(two.b.open.self.number, "a word");
  CHECK(two.b.open.Commit(absent).requests_lost);
  // No floor is written or looked at.
  CHECK(two.prefix.Tree(two.prefix.keys().OneShots()).size() == 1);
  forget(two.a);
  CHECK_FALSE(two.prefix.Value(key).empty());
  REQUIRE(change(two.b, Op::kUpdate, State::kEnded).kind == Kind::kWon);
  CHECK(found(two.a).row->state == State::kEnded);
  forget(two.b);
  CHECK(two.prefix.Value(key).empty());
  // A has read the row, and looks again before it takes the id for a new one.
  CHECK(change(two.a, Op::kInsert, State::kDone).requests_lost);
  CHECK(change(two.a, Op::kInsert, State::kDone).kind == Kind::kWon);
}

TEST_CASE("consul requests: a row that only another daemon's block is in the way of lands",
          "[consul]") {
  TwoLanes two;
  for (uint64_t i = 0; i < 16; ++i) {
    Lane& lane = i % 2 == 0 ? two.a : two.b;
    REQUIRE(lane.Insert(i).kind == Kind::kWon);
  }
  CHECK(two.Block(0).rows.size() == 16);
}

TEST_CASE("consul requests: nothing is inserted below a floor of which a daemon does not know",
          "[consul]") {
  TwoLanes two;
  REQUIRE(two.a.Insert(1).kind == Kind::kWon);
  // B knows the first block; of the second one that it is not there.
  REQUIRE(two.b.Insert(2).kind == Kind::kWon);
  REQUIRE(two.a.Insert(40).kind == Kind::kWon);
  two.a.RaiseFloor(32);
  for (const uint64_t sequence : {3, 1, 20, 31}) {
    INFO(sequence);
    CHECK(two.b.Insert(sequence).requests_lost);
    CHECK(two.b.Find(sequence).too_old);
    CHECK_FALSE(two.b.Find(sequence).row.has_value());
    Transaction absent = two.b.Begin();
    absent.absent_requests.push_back({{kClient, sequence}, "x"});
    absent.concerns.emplace_back(two.b.open.self.number, "a word");
    CHECK(two.b.open.Commit(absent).requests_lost);
  }
  CHECK(two.b.Insert(32).kind == Kind::kWon);
  CHECK(two.a.Find(32).row.has_value());
  CHECK_FALSE(two.a.Find(33).too_old);
}

TEST_CASE("consul requests: an insert whose answer was lost is its own", "[consul]") {
  TestPrefix prefix;
  Relay relay(prefix.port());
  Lane lane{Open(prefix, relay.port(), std::chrono::milliseconds(1500))};
  Transaction insert = lane.Begin();
  insert.requests.push_back(Lane::Change(Op::kInsert, 1));
  relay.LoseAnswers();
  REQUIRE(lane.open.Commit(insert).kind == Kind::kUnknown);
  relay.CutClients();
  CHECK(lane.open.Settle(insert).kind == Kind::kWon);
  CHECK(lane.Find(1).row == insert.requests[0].row);
  CHECK(lane.Insert(1).requests_lost);
}

// ---- rows of claims ----

TEST_CASE("consul requests: the document says whether a claim waits, stands or is gone",
          "[consul]") {
  TwoLanes two;
  SemaphoreRow row = Make(two.a.open, "s");
  auto waiter = std::make_shared<Waiter>();
  static_cast<Claim&>(*waiter) = *MakeLease(two.a.open, 1);
  Transaction wait = two.a.Begin();
  ledger::SemaphoreDelta& delta = wait.semaphores.emplace_back();
  delta.name = "s";
  delta.before = delta.after = row;
  delta.waiters.push_back({nullptr, waiter});
  wait.requests.push_back(Lane::Change(Op::kInsert, 1, State::kWaiting));
  wait.requests.back().row.claim = waiter->id;
  REQUIRE(two.a.open.Commit(wait).kind == Kind::kWon);
  CHECK(two.b.Find(1).row->state == State::kWaiting);

  const LeasePtr lease = MakeLease(two.b.open, 1);
  Transaction grant = Grant(two.b.open, LoadOne(two.b.open, "s").row, lease);
  grant.semaphores[0].waiters.push_back({waiter, nullptr});
  grant.new_clients.push_back({kClient, "x"});
  grant.requests.push_back(Lane::Change(Op::kUpdate, 1, State::kGranted));
  const std::vector<Entry> before = two.prefix.Tree(two.prefix.keys().Requests());
  REQUIRE(two.b.open.Commit(grant).kind == Kind::kWon);
  // A grant writes no row, so the waiter's own daemon cannot be in its way.
  CHECK(two.prefix.Tree(two.prefix.keys().Requests()) == before);
  CHECK(two.a.Find(1).row->state == State::kGranted);

  // As when its permits have ended with their daemon.
  two.prefix.Put(two.prefix.keys().Document("s"), "damaged", 0);
  CHECK(two.a.Find(1).row->pinned());
  two.prefix.Delete(two.prefix.keys().Document("s"));
  const std::optional<RequestRow> gone = two.a.Find(1).row;
  REQUIRE(gone.has_value());
  CHECK(gone->state == State::kEnded);
  CHECK(gone->cause == EndCause::kEngineLost);
  CHECK(gone->claim == waiter->id);
}

TEST_CASE("consul requests: a claim ends while its client goes on at another daemon", "[consul]") {
  TwoLanes two;
  Make(two.a.open, "s");
  const LeasePtr lease = MakeLease(two.a.open, 1);
  two.a.Grant(1, lease);
  // B has not yet met the client.
  REQUIRE(two.a.Insert(2).kind == Kind::kWon);
  REQUIRE(two.b.End(1, lease).kind == Kind::kWon);
  CHECK(two.a.Find(1).row->cause == EndCause::kExpired);
  CHECK(two.a.Find(2).row.has_value());
  // B knows the block, but not what A has written since.
  two.a.Grant(3, lease);
  REQUIRE(two.a.Insert(4).kind == Kind::kWon);
  REQUIRE(two.b.End(3, lease).kind == Kind::kWon);
  CHECK(two.Block(0).rows.size() == 4);
  CHECK_FALSE(two.Block(0).pinned());
}

TEST_CASE("consul requests: a row whose claim stands outlives floors", "[consul]") {
  TwoLanes two;
  Make(two.a.open, "s");
  const LeasePtr lease = MakeLease(two.a.open, 1);
  REQUIRE(two.a.Insert(4).kind == Kind::kWon);
  two.a.Grant(5, lease);
  REQUIRE(two.a.Insert(20).kind == Kind::kWon);
  REQUIRE(two.b.Insert(6).kind == Kind::kWon);
  two.a.RaiseFloor(100);
  CHECK(two.Block(0).closed);
  CHECK(two.Block(0).rows.size() == 1);
  CHECK(two.prefix.Value(two.prefix.keys().RequestBlock("x", 1)).empty());
  for (Lane* lane : {&two.a, &two.b}) {
    const auto found = lane->Find(5);
    REQUIRE(found.row.has_value());
    CHECK(found.row->state == State::kGranted);
    CHECK_FALSE(found.too_old);
    CHECK(lane->Find(4).too_old);
    CHECK(lane->Insert(5).requests_lost);
    CHECK(lane->Insert(6).requests_lost);
  }
  // It ends below the floor, by a daemon that knows the block as it was before.
  REQUIRE(two.b.End(5, lease).kind == Kind::kWon);
  CHECK(two.a.Find(5).row->cause == EndCause::kExpired);
  two.a.RaiseFloor(200);
  CHECK(two.prefix.Value(two.prefix.keys().RequestBlock("x", 0)).empty());
  CHECK(two.a.Find(5).too_old);
}

TEST_CASE("consul requests: a floor rises over more blocks than a transaction takes", "[consul]") {
  TwoLanes two;
  constexpr uint64_t kBlocks = 130;
  for (uint64_t block = 0; block < kBlocks; ++block) {
    RequestBlock value;
    value.rows[block * 16] = MakeRow(block * 16, State::kDone);
    two.prefix.Put(two.prefix.keys().RequestBlock("x", block), WriteRequestBlock(value), 0);
  }
  two.a.RaiseFloor(129 * 16 + 3);
  CHECK(two.prefix.Tree(two.prefix.keys().Client("x")).size() < kBlocks);
  for (int i = 0; i < 3; ++i) REQUIRE(two.a.open.store->Wait(SteadyTime::min()).ok());
  CHECK(two.prefix.Tree(two.prefix.keys().Client("x")).size() == 2);
  CHECK(two.b.Find(129 * 16).row.has_value());
  CHECK(two.b.Find(128 * 16).too_old);
}

TEST_CASE("consul requests: of what is not understood nothing is done twice", "[consul]") {
  TwoLanes two;
  Make(two.a.open, "s");
  const LeasePtr lease = MakeLease(two.a.open, 1);
  two.a.Grant(5, lease);
  const std::string key = two.prefix.keys().RequestBlock("x", 0);
  two.prefix.Put(key, "garbled", 0);
  for (Lane* lane : {&two.b, &two.a}) {
    CHECK(lane->Insert(6).requests_lost);
    CHECK(lane->Find(6).too_old);
    CHECK(lane->Insert(16 + lane->open.self.number).kind == Kind::kWon);
  }
  REQUIRE(two.a.End(5, lease).kind == Kind::kWon);
  two.a.RaiseFloor(160);
  CHECK(two.prefix.Value(key) == "garbled");
}

// ---- with the ledger ----

TEST_CASE("consul requests: one id for two semaphores, at two daemons", "[consul]") {
  TestPrefix prefix;
  Daemon a(prefix, "a");
  Daemon b(prefix, "b");
  // Both know the client, and neither what the other one does next.
  REQUIRE(a.Acquire("x", 1, 1, "held").kind == OutcomeKind::kGranted);
  REQUIRE(b.Acquire("x", 2, 2, "other").kind == OutcomeKind::kGranted);
  REQUIRE(a.Acquire("z", 1, 3).kind == OutcomeKind::kGranted);
  for (const uint64_t sequence : {3, 5}) {
    const std::string theirs = sequence == 3 ? "other" : "third";
    // It waits, or is granted.
    const bool waits = b.Acquire("x", sequence, 10 + sequence, theirs).kind == OutcomeKind::kQueued;
    CHECK(waits == (sequence == 3));
    CHECK(a.Acquire("x", sequence, 20 + sequence).kind == OutcomeKind::kReused);
    CHECK(a.Waiters().empty());
    // And the other way round.
    REQUIRE(a.Acquire("x", sequence + 1, 30 + sequence).kind == OutcomeKind::kQueued);
    CHECK(b.Acquire("x", sequence + 1, 40 + sequence, "fourth").kind == OutcomeKind::kReused);
    REQUIRE(a.End(30 + sequence, EndCause::kCancelled).kind == OutcomeKind::kDone);
  }
  // No third party notices.
  CHECK(b.Release("z", 2, 3).kind == OutcomeKind::kReleased);
  CHECK(b.Release("x", 100, 2, "other").kind == OutcomeKind::kReleased);
  CHECK(a.Verify(13, "other") == OutcomeKind::kHeld);
}

TEST_CASE("consul requests: a late repeat at a daemon whose floor is old", "[consul]") {
  TestPrefix prefix;
  Daemon a(prefix, "a");
  Daemon b(prefix, "b");
  REQUIRE(b.Acquire("x", 1, 1).kind == OutcomeKind::kGranted);
  REQUIRE(b.Release("x", 2, 1).kind == OutcomeKind::kReleased);
  // Meanwhile the client goes on at A, and its first requests are forgotten.
  const uint64_t far = 1024 * 8 + 1024;
  REQUIRE(a.Acquire("x", far, 2).kind == OutcomeKind::kGranted);
  REQUIRE(a.Idle().ok());
  REQUIRE(prefix.Value(prefix.keys().RequestBlock("x", 0)).empty());
  CHECK(b.Acquire("x", 1, 3, "other").kind == OutcomeKind::kTooOld);
  CHECK(b.Acquire("x", 3, 3, "other").kind == OutcomeKind::kTooOld);
  CHECK(b.Release("x", far + 1, 2).kind == OutcomeKind::kReleased);
}

}  // namespace
}  // namespace semaphored::consul
