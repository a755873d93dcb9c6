// Claims that move from one session to another, out of a session, or into one: they are found where
// they are then, by whatever daemon looks.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/dynamodb/fixture.h"

namespace semaphored::dynamodb {
namespace {

using ledger::SessionPtr;
using ledger::Transaction;
using Kind = ledger::CommitResult::Kind;
using Names = std::vector<std::string>;

SessionPtr OpenSession(OpenStore& open, uint64_t number) {
  auto session = std::make_shared<Session>();
  session->id = MakeId(number);
  session->host = open.self;
  session->ttl_ms = 5'000;
  Transaction transaction = Begin(open);
  transaction.sessions.push_back({nullptr, session});
  REQUIRE(open.Commit(transaction).kind == Kind::kWon);
  return session;
}

// The claim in the session, or detached at the node.
template <typename Row>
std::shared_ptr<Row> MovedTo(const Row& row, const OpenStore& open, const SessionPtr& session) {
  auto moved = std::make_shared<Row>(row);
  moved->session = session ? session->id : row.id;
  moved->host = open.self;
  moved->ttl_ms = row.ttl_ms + 1;
  ++moved->epoch;
  return moved;
}

void Move(OpenStore& open, const LeasePtr& from, const LeasePtr& to) {
  Transaction move = Touch(open, LoadOne(open, "s").row);
  move.semaphores[0].leases.push_back({from, to, EndCause::kNone});
  REQUIRE(open.Commit(move).kind == Kind::kWon);
}

bool IsHostedAt(OpenStore& open, NodeRef node, const std::string& semaphore) {
  const Names names = open.store->HostedBy({&node, 1})->semaphores;
  return std::ranges::find(names, semaphore) != names.end();
}

Names InSession(OpenStore& open, const SessionPtr& session) {
  return open.store->LoadSession(session->id)->semaphores;
}

TEST_CASE("dynamodb moves: a lease is found in the session that it has moved to", "[dynamodb]") {
  StoreTable table;
  OpenStore a = Open(table);
  OpenStore b = Open(table, {.node_id = "b"});
  OpenStore look = Open(table, {.node_id = "look"});
  const SessionPtr first = OpenSession(a, 71);
  const SessionPtr second = OpenSession(b, 72);
  const LeasePtr lease = MakeLease(a, 1);
  lease->session = first->id;
  Transaction grant = Grant(a, Make(a, "s"), lease);
  REQUIRE(a.Commit(grant).kind == Kind::kWon);
  CHECK(InSession(look, first) == Names{"s"});
  CHECK(InSession(look, second).empty());

  const auto moved = MovedTo(*lease, b, second);
  moved->moved_from = a.self.number;
  Move(b, LoadOne(b, "s").leases[0], moved);
  CHECK(InSession(look, second) == Names{"s"});
  CHECK(IsHostedAt(look, b.self, "s"));
  const LeasePtr there = LoadOne(look, "s").leases.at(0);
  CHECK(there->session == second->id);
  CHECK(there->host == b.self);
  CHECK(there->epoch == 2);
  CHECK(there->ttl_ms == 30'001);
  CHECK(there->moved_from == a.self.number);
  CHECK(there->token == lease->token);

  // Nothing else changes when the move is over.
  const auto settled = std::make_shared<Lease>(*there);
  settled->moved_from = 0;
  Move(b, there, settled);
  CHECK(LoadOne(look, "s").leases.at(0)->moved_from == 0);
}

TEST_CASE("dynamodb moves: a lease that leaves its session is found at its node, and back",
          "[dynamodb]") {
  StoreTable table;
  OpenStore a = Open(table);
  OpenStore b = Open(table, {.node_id = "b"});
  const SessionPtr session = OpenSession(a, 71);
  const LeasePtr lease = MakeLease(a, 1);
  lease->session = session->id;
  Transaction grant = Grant(a, Make(a, "s"), lease);
  REQUIRE(a.Commit(grant).kind == Kind::kWon);
  CHECK_FALSE(IsHostedAt(a, b.self, "s"));

  const LeasePtr in_session = LoadOne(b, "s").leases[0];
  const LeasePtr detached = MovedTo(*in_session, b, nullptr);
  Move(b, in_session, detached);
  CHECK(IsHostedAt(a, b.self, "s"));
  CHECK(LoadOne(a, "s").leases.at(0)->detached());

  // A session in which there was never a claim here.
  const SessionPtr other = OpenSession(a, 72);
  const LeasePtr stands = LoadOne(a, "s").leases[0];
  Move(a, stands, MovedTo(*stands, a, other));
  CHECK(InSession(b, other) == Names{"s"});
  CHECK(LoadOne(b, "s").leases.at(0)->session == other->id);
}

TEST_CASE("dynamodb moves: a waiter moves, and is let in where it is then", "[dynamodb]") {
  StoreTable table;
  OpenStore a = Open(table);
  OpenStore b = Open(table, {.node_id = "b"});
  const SessionPtr session = OpenSession(b, 72);
  Make(a, "s");
  const WaiterPtr waiter = MakeWaiter(a, 1);
  Transaction queue = Touch(a, LoadOne(a, "s").row);
  queue.semaphores[0].waiters.push_back({nullptr, waiter, EndCause::kNone});
  REQUIRE(a.Commit(queue).kind == Kind::kWon);

  const ledger::LoadedSemaphore loaded = LoadOne(b, "s");
  const auto moved = MovedTo(*loaded.waiters[0], b, session);
  Transaction move = Touch(b, loaded.row);
  move.semaphores[0].waiters.push_back({loaded.waiters[0], moved, EndCause::kNone});
  move.epochs.push_back({session->id, session->epoch});
  REQUIRE(b.Commit(move).kind == Kind::kWon);
  const ledger::LoadedSemaphore after = LoadOne(a, "s");
  REQUIRE(after.waiters.size() == 1);
  CHECK(after.waiters[0]->session == session->id);
  CHECK(after.waiters[0]->ttl_ms == 30'001);
  CHECK(InSession(a, session) == Names{"s"});

  const LeasePtr lease = MakeLease(b, 1);
  static_cast<Claim&>(*lease) = *after.waiters[0];
  Transaction let_in = Touch(a, after.row);
  let_in.semaphores[0].waiters.push_back({after.waiters[0], nullptr, EndCause::kNone});
  let_in.semaphores[0].leases.push_back({nullptr, lease, EndCause::kNone});
  let_in.epochs.push_back({session->id, session->epoch});
  REQUIRE(a.Commit(let_in).kind == Kind::kWon);
  CHECK(InSession(b, session) == Names{"s"});
  CHECK(IsHostedAt(a, b.self, "s"));
}

TEST_CASE("dynamodb moves: a move that is half seen is read again", "[dynamodb]") {
  StoreTable table;
  DynamoProxy proxy(&table);
  OpenStore a = Open(table);
  OpenStore look = Open(table, {.node_id = "look", .endpoint = proxy.endpoint()});
  Transaction grant = Grant(a, Make(a, "s"), MakeLease(a, 1));
  REQUIRE(a.Commit(grant).kind == Kind::kWon);
  const LeasePtr before = LoadOne(a, "s").leases[0];
  const json old_item = table.Item(LeaseKey("s", *before));
  const auto after = std::make_shared<Lease>(*before);
  after->moved_from = 9;
  Move(a, before, after);
  // A page with the new head and the lease as it was.
  int queries = 0;
  proxy.OnAnswer([&](const std::string& operation, json* body) {
    if (operation != "Query" || ++queries > 2) return;
    for (json& item : (*body)["Items"]) {
      if (KeyOf(item).sort.starts_with(kLeases)) item = old_item;
    }
  });
  CHECK(LoadOne(look, "s").leases.at(0)->moved_from == 9);
  CHECK(queries == 3);
}

TEST_CASE("dynamodb moves: a session that closes keeps its claims until the last has ended",
          "[dynamodb]") {
  StoreTable table;
  OpenStore a = Open(table);
  OpenStore b = Open(table, {.node_id = "b"});
  const SessionPtr session = OpenSession(a, 71);
  const LeasePtr lease = MakeLease(a, 1);
  lease->session = session->id;
  Transaction grant = Grant(a, Make(a, "s"), lease);
  REQUIRE(a.Commit(grant).kind == Kind::kWon);
  auto closing = std::make_shared<Session>(*session);
  closing->closing = true;
  ++closing->epoch;
  Transaction close = Begin(a);
  close.sessions.push_back({session, closing});
  REQUIRE(a.Commit(close).kind == Kind::kWon);
  const ledger::SharedStore::SessionAt at = b.store->LoadSession(session->id).value();
  REQUIRE(at.session);
  CHECK(at.session->closing);
  CHECK(at.session->epoch == 2);
  CHECK(at.semaphores == Names{"s"});
  const ledger::SharedStore::Hosted hosted = b.store->HostedBy({&a.self, 1}).value();
  REQUIRE(hosted.sessions.size() == 1);
  CHECK(hosted.sessions[0]->closing);
  // What was decided for the session before it closed does not land.
  LoadOne(b, "s");
  Transaction late = Grant(b, After(grant), MakeLease(b, 2, 2));
  late.epochs.push_back({session->id, 1});
  CHECK(b.Commit(late).kind == Kind::kLost);
}

}  // namespace
}  // namespace semaphored::dynamodb
