// Claims that move from one session to another, to detached and back, and sessions that close, on a
// real Postgres: what leads from a session or a node to its semaphores follows.
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/postgres/store.h"
#include "catch2/catch_test_macros.hpp"
#include "catch2/generators/catch_generators.hpp"
#include "tests/unit/adapters/postgres/fixture.h"

namespace semaphored::postgres {
namespace {

using ledger::CommitResult;
using ledger::SessionPtr;
using ledger::Transaction;
using Kind = CommitResult::Kind;
using Names = std::vector<std::string>;

SessionPtr MakeSession(const OpenStore& open, uint64_t number) {
  auto session = std::make_shared<Session>();
  session->id = MakeId(number);
  session->host = open.self;
  session->ttl_ms = 7000;
  session->holder = "holder";
  return session;
}

// Two daemons, each with a session, and a semaphore.
struct Sessions {
  TestSchema schema;
  Client sql = schema.Connect();
  // It waits for other commits for as long as the test lets it.
  OpenStore a = Open(schema, {.node_id = "a",
                              .timeout = std::chrono::seconds(9),
                              .lock_timeout = std::chrono::seconds(8)});
  OpenStore b = Open(schema, {.node_id = "b"});
  SessionPtr of_a = MakeSession(a, 101);
  SessionPtr of_b = MakeSession(b, 102);

  Sessions() {
    Make(a, "s");
    for (const auto& [open, session] : {std::pair(&a, of_a), std::pair(&b, of_b)}) {
      Transaction transaction = Begin(*open);
      transaction.sessions.push_back({nullptr, session});
      REQUIRE(open->Commit(transaction).kind == Kind::kWon);
    }
  }
  Names Of(const Session& session) { return a.store->LoadSession(session.id).value().semaphores; }
  Names HostedBy(const OpenStore& open) {
    // (It ends the lanes of the node: the last question of a test.)
    const NodeRef nodes[] = {open.self};
    return a.store->HostedBy(nodes).value().semaphores;
  }
};

template <typename Row>
void CheckSame(const Row& loaded, const Row& row) {
  CHECK(loaded.id == row.id);
  CHECK(loaded.session == row.session);
  CHECK(loaded.fingerprint == row.fingerprint);
  CHECK(loaded.request.sequence == row.request.sequence);
  CHECK(loaded.host == row.host);
  CHECK(loaded.epoch == row.epoch);
  CHECK(loaded.ttl_ms == row.ttl_ms);
  CHECK(loaded.permits == row.permits);
  CHECK(loaded.order == row.order);
  CHECK(loaded.holder == row.holder);
}

// As the ledger moves a claim: to a session, or, with its own id, to be detached.
template <typename Row>
std::shared_ptr<Row> MovedTo(const std::shared_ptr<Row>& row, const Id& session,
                             const OpenStore& open) {
  auto moved = std::make_shared<Row>(*row);
  moved->session = session;
  moved->host = open.self;
  moved->ttl_ms += 1000;
  ++moved->epoch;
  return moved;
}

void Replace(OpenStore& open, const LeasePtr& before, const LeasePtr& after) {
  Transaction transaction = Begin(open);
  Touch(transaction, LoadOne(open, "s").row).leases.push_back({before, after, EndCause::kNone});
  REQUIRE(open.Commit(transaction).kind == Kind::kWon);
}

void Replace(OpenStore& open, const WaiterPtr& before, const WaiterPtr& after) {
  Transaction transaction = Begin(open);
  Touch(transaction, LoadOne(open, "s").row).waiters.push_back({before, after, EndCause::kNone});
  REQUIRE(open.Commit(transaction).kind == Kind::kWon);
}

TEST_CASE("postgres moves: a lease goes from session to session, to detached, and back",
          "[postgres]") {
  Sessions sessions;
  const LeasePtr lease = MakeLease(sessions.a, 1);
  lease->session = sessions.of_a->id;
  lease->fingerprint = {7, 8};
  lease->request = {0, 9};
  lease->slots = {1, 3};
  lease->permits = 2;
  lease->priority = 5;
  lease->recall = {Recall::Reason::kShrunk, 40};
  lease->granted_at_unix_ms = 1'800'000'000'000;
  Replace(sessions.a, nullptr, lease);
  CHECK(sessions.Of(*sessions.of_a) == Names{"s"});
  const auto check = [&](const LeasePtr& row) {
    const ledger::LoadedSemaphore loaded = LoadOne(sessions.a, "s");
    REQUIRE(loaded.leases.size() == 1);
    CheckSame<Claim>(*loaded.leases[0], *row);
    CHECK(loaded.leases[0]->slots == row->slots);
    CHECK(loaded.leases[0]->token == lease->token);
    CHECK(loaded.leases[0]->priority == row->priority);
    CHECK(loaded.leases[0]->recall == row->recall);
    CHECK(loaded.leases[0]->granted_at_unix_ms == row->granted_at_unix_ms);
    CHECK(loaded.leases[0]->moved_from == row->moved_from);
  };
  check(lease);

  const LeasePtr to_b = MovedTo(lease, sessions.of_b->id, sessions.b);
  to_b->moved_from = sessions.a.self.number;
  to_b->recall = {Recall::Reason::kAdministrator, 50};
  Replace(sessions.b, lease, to_b);
  check(to_b);
  CHECK(sessions.Of(*sessions.of_a).empty());
  CHECK(sessions.Of(*sessions.of_b) == Names{"s"});
  // No holder can count on it under the former session any more: nothing else changes.
  const auto settled = std::make_shared<Lease>(*to_b);
  settled->moved_from = 0;
  Replace(sessions.b, to_b, settled);
  check(settled);

  const LeasePtr detached = MovedTo(LeasePtr(settled), settled->id, sessions.b);
  Replace(sessions.b, settled, detached);
  check(detached);
  CHECK(sessions.Of(*sessions.of_b).empty());

  SECTION("and is found where it is then") {
    CHECK(sessions.HostedBy(sessions.b) == Names{"s"});
    CHECK(sessions.HostedBy(sessions.a).empty());
  }
  SECTION("and back, and gives a slot back in the same batch") {
    const LeasePtr back = MovedTo(detached, sessions.of_a->id, sessions.a);
    const auto rest = std::make_shared<Lease>(*back);
    rest->slots = {3};
    rest->permits = 1;
    Transaction batch = Begin(sessions.a);
    auto& delta = Touch(batch, LoadOne(sessions.a, "s").row);
    delta.leases.push_back({detached, back, EndCause::kNone});
    delta.leases.push_back({back, rest, EndCause::kNone});
    REQUIRE(sessions.a.Commit(batch).kind == Kind::kWon);
    check(rest);
    CHECK(sessions.Of(*sessions.of_a) == Names{"s"});
    CHECK(sessions.HostedBy(sessions.b).empty());
    CHECK(sessions.HostedBy(sessions.a) == Names{"s"});
  }
}

TEST_CASE("postgres moves: a waiter, or an offer, goes to another session", "[postgres]") {
  Sessions sessions;
  const auto waiter = std::make_shared<Waiter>();
  static_cast<Claim&>(*waiter) = *MakeLease(sessions.a, 1);
  waiter->session = sessions.of_a->id;
  waiter->fingerprint = {7, 8};
  waiter->request = {0, 9};
  waiter->works = GENERATE(false, true);
  Replace(sessions.a, nullptr, waiter);
  const auto check = [&](const WaiterPtr& row) {
    const ledger::LoadedSemaphore loaded = LoadOne(sessions.a, "s");
    REQUIRE(loaded.waiters.size() == 1);
    CheckSame<Claim>(*loaded.waiters[0], *row);
    CHECK(loaded.waiters[0]->works == row->works);
  };
  check(waiter);
  CHECK(sessions.Of(*sessions.of_a) == Names{"s"});

  const WaiterPtr to_b = MovedTo(waiter, sessions.of_b->id, sessions.b);
  Replace(sessions.b, waiter, to_b);
  check(to_b);
  CHECK(sessions.Of(*sessions.of_a).empty());
  CHECK(sessions.Of(*sessions.of_b) == Names{"s"});

  const WaiterPtr detached = MovedTo(to_b, to_b->id, sessions.a);
  Replace(sessions.a, to_b, detached);
  check(detached);
  CHECK(sessions.Of(*sessions.of_b).empty());
  CHECK(sessions.HostedBy(sessions.b).empty());
  CHECK(sessions.HostedBy(sessions.a) == Names{"s"});
}

TEST_CASE("postgres moves: a waiter is let in and moved in one batch", "[postgres]") {
  Sessions sessions;
  const LeasePtr lease = MakeLease(sessions.b, 1);
  lease->session = sessions.of_b->id;
  lease->fingerprint = {7, 8};
  const auto waiter = std::make_shared<Waiter>();
  static_cast<Claim&>(*waiter) = *lease;
  Replace(sessions.b, nullptr, waiter);
  const LeasePtr moved = MovedTo(lease, sessions.of_a->id, sessions.a);
  moved->moved_from = sessions.b.self.number;
  Transaction batch = Begin(sessions.a);
  auto& delta = Touch(batch, LoadOne(sessions.a, "s").row);
  delta.waiters.push_back({waiter, nullptr, EndCause::kNone});
  delta.leases.push_back({nullptr, lease, EndCause::kNone});
  delta.leases.push_back({lease, moved, EndCause::kNone});
  REQUIRE(sessions.a.Commit(batch).kind == Kind::kWon);
  const ledger::LoadedSemaphore loaded = LoadOne(sessions.b, "s");
  CHECK(loaded.waiters.empty());
  REQUIRE(loaded.leases.size() == 1);
  CheckSame<Claim>(*loaded.leases[0], *moved);
  CHECK(loaded.leases[0]->moved_from == sessions.b.self.number);
  CHECK(loaded.leases[0]->token == moved->token);
  CHECK(moved->token != 0);
}

// ---- sessions that close ----

SessionPtr Closing(const SessionPtr& session) {
  auto closing = std::make_shared<Session>(*session);
  closing->closing = true;
  ++closing->epoch;
  return closing;
}

TEST_CASE("postgres moves: a session closes once, and its row stays", "[postgres]") {
  Sessions sessions;
  const SessionPtr closing = Closing(sessions.of_a);
  const LeasePtr lease = MakeLease(sessions.a, 1);
  lease->session = closing->id;
  Transaction grant = Grant(sessions.a, LoadOne(sessions.a, "s").row, lease);
  grant.epochs.push_back({closing->id, sessions.of_a->epoch});
  REQUIRE(sessions.a.Commit(grant).kind == Kind::kWon);
  Transaction close = Begin(sessions.a);
  close.sessions.push_back({sessions.of_a, closing});
  REQUIRE(sessions.a.Commit(close).kind == Kind::kWon);

  const SessionPtr loaded = sessions.b.store->LoadSession(closing->id).value().session;
  REQUIRE(loaded);
  CHECK(loaded->closing);
  CHECK(loaded->epoch == 2);
  CHECK(sessions.Of(*closing) == Names{"s"});
  const std::string names[] = {"s"};
  CHECK(sessions.b.store->Load(names).value().sessions.at(0)->closing);
  CHECK_FALSE(sessions.b.store->LoadSession(sessions.of_b->id).value().session->closing);
  // What rests upon the session as it was, from whichever daemon, has lost.
  Transaction late = Begin(sessions.b);
  late.sessions.push_back({sessions.of_a, Closing(sessions.of_a)});
  CHECK(sessions.b.Commit(late).kind == Kind::kLost);
  Transaction second = Grant(sessions.a, LoadOne(sessions.a, "s").row, MakeLease(sessions.a, 2, 2));
  second.epochs.push_back({closing->id, sessions.of_a->epoch});
  CHECK(sessions.a.Commit(second).kind == Kind::kLost);
  // The last claim takes the row along.
  Transaction last = Begin(sessions.a);
  Touch(last, LoadOne(sessions.a, "s").row).leases.push_back({lease, nullptr, EndCause::kReleased});
  last.sessions.push_back({closing, nullptr});
  REQUIRE(sessions.a.Commit(last).kind == Kind::kWon);
  CHECK_FALSE(sessions.b.store->LoadSession(closing->id).value().session);
}

TEST_CASE("postgres moves: a close waits for what its host's other lanes have under way",
          "[postgres]") {
  Sessions sessions;
  sessions.sql.Run(absl::StrCat("INSERT INTO semaphored.lanes (node, incarnation, lane) VALUES (",
                                sessions.a.self.number, ", ", sessions.a.self.incarnation, ", 7)"));
  // As a commit does first of all.
  sessions.sql.Run("BEGIN; UPDATE semaphored.lanes SET commits = commits + 1 WHERE lane = 7");
  Transaction close = Begin(sessions.a);
  close.sessions.push_back({sessions.of_a, Closing(sessions.of_a)});
  auto commit = std::async(std::launch::async, [&] { return sessions.a.Commit(close); });
  Client watcher = sessions.schema.Connect();
  REQUIRE(Within10s([&] { return WaitingForLocks(watcher, sessions.schema) == 1; }));
  // What changes nothing of the session does not wait: another lane's, as here.
  Transaction beside = Create(sessions.b, "t");
  CHECK(sessions.b.Commit(beside).kind == Kind::kWon);
  sessions.sql.Run("COMMIT");
  CHECK(commit.get().kind == Kind::kWon);
}

}  // namespace
}  // namespace semaphored::postgres
