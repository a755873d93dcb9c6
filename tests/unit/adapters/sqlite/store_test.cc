// The embedded store: what a commit writes is what the next start loads, under its conditions and
// with its tokens.
#include "adapters/sqlite/store.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/sqlite/fixture.h"

namespace semaphored::sqlite {
namespace {

using ledger::CommitResult;
using ledger::Transaction;
using Kind = CommitResult::Kind;

// The row as the ledger would have it after the commit.
SemaphoreRow After(const Transaction& transaction, size_t delta = 0) {
  SemaphoreRow row = *transaction.semaphores[delta].after;
  row.revision = transaction.semaphores[delta].revision;
  return row;
}

// Commits that `lease` is granted, or ended, on the semaphore at `row`, which is brought up to
// date.
void Grant(OpenStore& open, SemaphoreRow* row, const LeasePtr& lease) {
  Transaction transaction = Begin(open);
  Touch(transaction, *row).leases.push_back({nullptr, lease, EndCause::kNone});
  REQUIRE(open.Commit(transaction).kind == Kind::kWon);
  *row = After(transaction);
}

void End(OpenStore& open, SemaphoreRow* row, const LeasePtr& lease) {
  Transaction transaction = Begin(open);
  Touch(transaction, *row).leases.push_back({lease, nullptr, EndCause::kReleased});
  transaction.history.push_back({0, row->name, lease, 1, EndCause::kReleased});
  REQUIRE(open.Commit(transaction).kind == Kind::kWon);
  *row = After(transaction);
}

SemaphoreRow Make(OpenStore& open, const std::string& name) {
  Transaction transaction = Create(open, name);
  REQUIRE(open.Commit(transaction).kind == Kind::kWon);
  return After(transaction);
}

TEST_CASE("what was committed is there after a restart") {
  TemporaryFolder folder;
  const LeasePtr held = MakeLease(1, 1);
  const WaiterPtr waiting = MakeWaiter(3);
  {
    OpenStore open = Open(folder / "state.db");
    Transaction transaction = Create(open, "team/db");
    auto& delta = transaction.semaphores[0];
    delta.after->settings.backfill = true;
    delta.after->next_order = 9;
    delta.leases.push_back({nullptr, held, EndCause::kNone});
    delta.waiters.push_back({nullptr, waiting, EndCause::kNone});
    auto session = std::make_shared<Session>();
    session->id = MakeId(4);
    session->epoch = 3;
    transaction.sessions.push_back({nullptr, session});
    transaction.new_clients.push_back({1, "client"});
    transaction.requests = {MakeRequest(1, 7), MakeRequest(1, 5)};
    REQUIRE(open.Commit(transaction).kind == Kind::kWon);
    CHECK(held->token == 1);
    CHECK(transaction.semaphores[0].revision == 1);
  }
  OpenStore open = Open(folder / "state.db");
  CHECK(open.self == NodeRef{1, 2});
  REQUIRE(open.image.semaphores.size() == 1);
  const auto& semaphore = open.image.semaphores[0];
  CHECK(semaphore.row.name == "team/db");
  CHECK(semaphore.row.limit == 4);
  CHECK(semaphore.row.settings.backfill);
  CHECK(semaphore.row.next_order == 9);
  CHECK(semaphore.row.revision == 1);
  REQUIRE(semaphore.leases.size() == 1);
  CHECK(semaphore.leases[0]->id == held->id);
  CHECK(semaphore.leases[0]->token == 1);
  REQUIRE(semaphore.waiters.size() == 1);
  CHECK(semaphore.waiters[0]->id == waiting->id);
  REQUIRE(open.image.sessions.size() == 1);
  CHECK(open.image.sessions[0]->epoch == 3);
  REQUIRE(open.image.clients.size() == 1);
  CHECK(open.image.clients[0].client_id == "client");
  CHECK(open.image.clients[0].sequence_high == 7);
  const auto request = FindRequest(open, 1, 5);
  REQUIRE(request);
  CHECK(*request == MakeRequest(1, 5).row);
  CHECK_FALSE(FindRequest(open, 1, 6));
}

TEST_CASE("claims change and go, and the rest stays") {
  TemporaryFolder folder;
  {
    OpenStore open = Open(folder / "state.db");
    SemaphoreRow row = Make(open, "s");
    std::vector<LeasePtr> leases;
    for (uint32_t slot = 1; slot <= 3; ++slot) {
      leases.push_back(MakeLease(slot, slot));
      Grant(open, &row, leases.back());
    }
    auto recalled = std::make_shared<Lease>(*leases[1]);
    recalled->recall = {Recall::Reason::kShrunk, 5};
    const WaiterPtr first = MakeWaiter(10);
    const WaiterPtr second = MakeWaiter(11);
    Transaction transaction = Begin(open);
    auto& delta = Touch(transaction, row);
    delta.leases.push_back({leases[0], nullptr, EndCause::kReleased});
    delta.leases.push_back({leases[1], recalled, EndCause::kNone});
    delta.waiters.push_back({nullptr, first, EndCause::kNone});
    delta.waiters.push_back({nullptr, second, EndCause::kNone});
    REQUIRE(open.Commit(transaction).kind == Kind::kWon);
    CHECK(recalled->token == leases[1]->token);
    row = After(transaction);

    auto moved = std::make_shared<Waiter>(*second);
    moved->epoch = 2;
    transaction = Begin(open);
    auto& next = Touch(transaction, row);
    next.waiters.push_back({first, nullptr, EndCause::kCancelled});
    next.waiters.push_back({second, moved, EndCause::kNone});
    REQUIRE(open.Commit(transaction).kind == Kind::kWon);
  }
  const OpenStore open = Open(folder / "state.db");
  const auto& semaphore = open.image.semaphores.at(0);
  REQUIRE(semaphore.leases.size() == 2);
  CHECK(semaphore.leases[0]->recall == Recall{Recall::Reason::kShrunk, 5});
  CHECK(semaphore.leases[1]->id == MakeId(3));
  REQUIRE(semaphore.waiters.size() == 1);
  CHECK(semaphore.waiters[0]->id == MakeId(11));
  CHECK(semaphore.waiters[0]->epoch == 2);
}

TEST_CASE("what comes and goes in one transaction leaves no row, but a token and history") {
  TemporaryFolder folder;
  {
    OpenStore open = Open(folder / "state.db");
    const SemaphoreRow row = Make(open, "s");
    const LeasePtr brief = MakeLease(1);
    auto shorter = std::make_shared<Lease>(*brief);
    const LeasePtr stays = MakeLease(2);
    const WaiterPtr waiter = MakeWaiter(3);
    Transaction transaction = Begin(open);
    auto& delta = Touch(transaction, row);
    delta.leases.push_back({nullptr, brief, EndCause::kNone});
    delta.leases.push_back({brief, shorter, EndCause::kNone});
    delta.leases.push_back({shorter, nullptr, EndCause::kReleased});
    delta.leases.push_back({nullptr, stays, EndCause::kNone});
    delta.waiters.push_back({nullptr, waiter, EndCause::kNone});
    delta.waiters.push_back({waiter, nullptr, EndCause::kCancelled});
    transaction.history.push_back({0, "s", shorter, 5, EndCause::kReleased});
    REQUIRE(open.Commit(transaction).kind == Kind::kWon);
    CHECK(brief->token == 1);
    CHECK(shorter->token == 1);
    CHECK(stays->token == 2);
  }
  OpenStore open = Open(folder / "state.db");
  CHECK(open.image.semaphores.at(0).leases.size() == 1);
  CHECK(open.image.semaphores.at(0).waiters.empty());
  const auto history = open.store->ReadHistory("s", 0, 10).value();
  REQUIRE(history.size() == 1);
  CHECK(history[0].lease->token == 1);
}

TEST_CASE("tokens and revisions rise over destruction, restarts and crashes") {
  TemporaryFolder folder;
  uint64_t token = 0;
  uint64_t revision = 0;
  for (int round = 0; round < 4; ++round) {
    OpenStore open = Open(folder / "state.db");
    SemaphoreRow row = Make(open, "s");
    CHECK(row.revision > revision);
    for (uint64_t i = 0; i < 3; ++i) {
      const LeasePtr lease = MakeLease(i + 1);
      Grant(open, &row, lease);
      CHECK(lease->token > token);
      token = lease->token;
      End(open, &row, lease);
    }
    Transaction destroy = Begin(open);
    Touch(destroy, row).after.reset();
    REQUIRE(open.Commit(destroy).kind == Kind::kWon);
    revision = row.revision + 1;
    // A crash: what a clean end would still write is not written.
    if (round % 2 == 1) {
      TemporaryFolder elsewhere;
      REQUIRE(std::system(("cp " + folder.path() + "/* " + elsewhere.path()).c_str()) == 0);
      open = OpenStore();
      REQUIRE(std::system(("cp " + elsewhere.path() + "/* " + folder.path()).c_str()) == 0);
    }
  }
  CHECK(token > 65'536);
}

TEST_CASE("a semaphore destroyed and made anew in one transaction goes on") {
  OpenStore open = Open("");
  SemaphoreRow row = Make(open, "s");
  const LeasePtr lease = MakeLease(1);
  Grant(open, &row, lease);
  Transaction transaction = Begin(open);
  auto& delta = Touch(transaction, row);
  delta.after = MakeRow("s", 9);
  delta.leases.push_back({lease, nullptr, EndCause::kDestroyed});
  REQUIRE(open.Commit(transaction).kind == Kind::kWon);
  CHECK(delta.revision == row.revision + 1);
  const auto image = open.store->LoadAll().value();
  CHECK(image.semaphores.at(0).row.limit == 9);
  CHECK(image.semaphores.at(0).leases.empty());
}

TEST_CASE("a transaction whose conditions do not hold changes nothing") {
  OpenStore open = Open("");
  const SemaphoreRow row = Make(open, "s");
  SemaphoreRow stale = row;
  stale.revision = 7;
  const LeasePtr lease = MakeLease(1);
  Transaction transaction = Begin(open);
  Touch(transaction, stale).leases.push_back({nullptr, lease, EndCause::kNone});
  CommitResult result = open.Commit(transaction);
  CHECK(result.kind == Kind::kLost);
  CHECK(result.stale == std::vector<std::string>{"s"});
  CHECK(lease->token == 0);

  transaction = Create(open, "s");
  CHECK(open.Commit(transaction).kind == Kind::kLost);
  transaction = Begin(open);
  SemaphoreRow other = row;
  other.name = "other";
  Touch(transaction, other);
  CHECK(open.Commit(transaction).kind == Kind::kLost);

  auto session = std::make_shared<Session>();
  session->id = MakeId(4);
  transaction = Begin(open);
  transaction.sessions.push_back({nullptr, session});
  CHECK(open.Commit(transaction).kind == Kind::kWon);
  CHECK(open.Commit(transaction).kind == Kind::kLost);
  transaction = Begin(open);
  transaction.epochs.push_back({session->id, 2});
  Touch(transaction, row);
  CHECK(open.Commit(transaction).kind == Kind::kLost);

  transaction = Begin(open);
  transaction.new_clients.push_back({1, "client"});
  transaction.requests.push_back(MakeRequest(1, 1));
  CHECK(open.Commit(transaction).kind == Kind::kWon);
  transaction = Begin(open);
  transaction.requests.push_back(MakeRequest(1, 1));
  CHECK(open.Commit(transaction).kind == Kind::kLost);

  transaction = Begin(open);
  Touch(transaction, row).leases.push_back({nullptr, lease, EndCause::kNone});
  CHECK(open.Commit(transaction).kind == Kind::kWon);
  CHECK(lease->token == 1);
}

TEST_CASE("a node that was replaced or declared dead writes nothing") {
  OpenStore open = Open("");
  Transaction transaction = Create(open, "s");
  const NodeRef newer = open.nodes->Join("node").value();
  CHECK(newer == NodeRef{1, 2});
  CommitResult result = open.Commit(transaction);
  CHECK(result.kind == Kind::kFailed);
  CHECK(absl::IsFailedPrecondition(result.status));

  open.self = newer;
  transaction = Create(open, "s");
  CHECK(open.Commit(transaction).kind == Kind::kWon);
  CHECK(open.nodes->Heartbeat().ok());
  const auto nodes = open.nodes->Observe().value();
  REQUIRE(nodes.size() == 1);
  CHECK(nodes[0].counter == 1);
  auto stale = nodes[0];
  stale.counter = 0;
  CHECK_FALSE(open.nodes->DeclareDead(stale).value());
  CHECK(open.nodes->DeclareDead(nodes[0]).value());
  CHECK(absl::IsFailedPrecondition(open.nodes->Heartbeat()));
  transaction = Create(open, "t");
  CHECK(open.Commit(transaction).kind == Kind::kFailed);
}

TEST_CASE("other nodes of the file are dead by definition") {
  TemporaryFolder folder;
  { Open(folder / "state.db"); }
  OpenStore open = Open(folder / "state.db");
  CHECK(open.nodes->Join("another").value() == NodeRef{2, 1});
  const auto nodes = open.nodes->Observe().value();
  REQUIRE(nodes.size() == 2);
  CHECK(nodes[0].dead);
  CHECK_FALSE(nodes[1].dead);
}

TEST_CASE("a client's number that is used again does not bring old requests back") {
  TemporaryFolder folder;
  {
    OpenStore open = Open(folder / "state.db");
    Transaction transaction = Begin(open);
    transaction.new_clients = {{1, "one"}, {2, "two"}};
    transaction.requests = {MakeRequest(1, 8), MakeRequest(2, 9)};
    REQUIRE(open.Commit(transaction).kind == Kind::kWon);
    transaction = Begin(open);
    transaction.forgotten_clients = {2};
    REQUIRE(open.Commit(transaction).kind == Kind::kWon);
    CHECK_FALSE(FindRequest(open, 2, 9));
    transaction = Begin(open);
    transaction.new_clients = {{2, "three"}};
    transaction.requests = {MakeRequest(2, 1)};
    REQUIRE(open.Commit(transaction).kind == Kind::kWon);
  }
  OpenStore open = Open(folder / "state.db");
  REQUIRE(open.image.clients.size() == 2);
  CHECK(open.image.clients[1].client_id == "three");
  CHECK(open.image.clients[1].sequence_high == 1);
  CHECK_FALSE(FindRequest(open, 2, 9));
  CHECK(FindRequest(open, 2, 1));
  CHECK(FindRequest(open, 1, 8));
}

// Else what is far below the window, and whose row was cut, would seem new after a restart.
TEST_CASE("the numbers of waits that were given up are known after a restart") {
  TemporaryFolder folder;
  {
    OpenStore open = Open(folder / "state.db", {}, false);
    Transaction transaction = Begin(open);
    transaction.new_clients = {{1, "client"}};
    transaction.requests = {MakeRequest(1, 1)};
    REQUIRE(open.Commit(transaction).kind == Kind::kWon);
    for (uint64_t sequence = 2; sequence <= 1000; ++sequence) {
      transaction = Begin(open);
      transaction.requests = {MakeRequest(1, sequence)};
      if (sequence > 100) transaction.request_floors = {{1, sequence - 100}};
      REQUIRE(open.Commit(transaction).kind == Kind::kWon);
      transaction = Begin(open);
      transaction.requests = {MakeRequest(1, sequence)};
      transaction.requests[0].op = ledger::RequestChange::Op::kRemove;
      REQUIRE(open.Commit(transaction).kind == Kind::kWon);
    }
    CHECK(open.database->QueryInt("SELECT count(*) FROM requests").value() < 400);
  }
  OpenStore open = Open(folder / "state.db");
  CHECK(open.image.clients[0].sequence_high == 1000);
  CHECK_FALSE(FindRequest(open, 1, 1));
  CHECK_FALSE(FindRequest(open, 1, 1000));
}

TEST_CASE("requests stay in proportion to the window, and a silent client keeps its own") {
  TemporaryFolder folder;
  {
    OpenStore open = Open(folder / "state.db", {}, false);
    Transaction transaction = Begin(open);
    transaction.new_clients = {{1, "busy"}, {2, "silent"}};
    transaction.requests = {MakeRequest(2, 1)};
    REQUIRE(open.Commit(transaction).kind == Kind::kWon);
    for (uint64_t sequence = 1; sequence <= 30'000;) {
      transaction = Begin(open);
      for (int i = 0; i < 50; ++i) transaction.requests.push_back(MakeRequest(1, sequence++));
      if (sequence > 100) transaction.request_floors.push_back({1, sequence - 100});
      REQUIRE(open.Commit(transaction).kind == Kind::kWon);
    }
    CHECK(open.database->QueryInt("SELECT count(*) FROM requests").value() < 400);
  }
  OpenStore open = Open(folder / "state.db");
  CHECK(FindRequest(open, 2, 1));
  CHECK(FindRequest(open, 1, 30'000));
  CHECK_FALSE(FindRequest(open, 1, 1));
  CHECK(open.image.clients[0].sequence_high == 30'000);
}

TEST_CASE("history is told newest first, by semaphore, in pages, and up to its bound") {
  TemporaryFolder folder;
  OpenStore open = Open(folder / "state.db", {.history_rows = 500}, false);
  SemaphoreRow a = Make(open, "a");
  SemaphoreRow b = Make(open, "b");
  for (uint64_t i = 0; i < 1000; ++i) {
    SemaphoreRow& row = i % 2 == 0 ? a : b;
    const LeasePtr lease = MakeLease(i + 1);
    Grant(open, &row, lease);
    End(open, &row, lease);
  }
  auto all = open.store->ReadHistory("", 0, 10'000).value();
  REQUIRE(all.size() == 500);
  CHECK(all.front().number == 1000);
  CHECK(all.back().number == 501);
  CHECK(open.database->QueryInt("SELECT count(*) FROM history").value() < 600);
  auto some = open.store->ReadHistory("a", 0, 3).value();
  REQUIRE(some.size() == 3);
  CHECK(some[0].number == 999);
  CHECK(some[2].number == 995);
  CHECK(some[2].semaphore == "a");
  some = open.store->ReadHistory("a", 995, 1).value();
  REQUIRE(some.size() == 1);
  CHECK(some[0].number == 993);
  open = OpenStore();
  open = Open(folder / "state.db", {.history_rows = 500}, false);
  CHECK(open.store->ReadHistory("", 0, 10'000).value().size() == 500);
  open = OpenStore();
  open = Open(folder / "state.db", {.history_rows = 0});
  CHECK_FALSE(open.store->guarantees().history);
  CHECK(absl::IsUnimplemented(open.store->ReadHistory("", 0, 1).status()));
}

TEST_CASE("a wait ends at its deadline, or when it is woken") {
  OpenStore open = Open("");
  CHECK(open.store->Wait(SteadyTime::min()).value().empty());
  open.store->Wake();
  CHECK(open.store->Wait(SteadyTime::max()).value().empty());
  std::jthread waker([&] { open.store->Wake(); });
  CHECK(open.store->Wait(SteadyTime::max()).value().empty());
}

}  // namespace
}  // namespace semaphored::sqlite
