// Tickets in the embedded store: each written once a commit, payloads apart, and both under a disk
// that fails.
#include <chrono>
#include <string>
#include <vector>

#include "adapters/ledger/ledger.h"
#include "adapters/open.h"
#include "adapters/sqlite/store.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "sqlite3.h"
#include "tests/unit/adapters/sqlite/fault_vfs.h"
#include "tests/unit/adapters/sqlite/fixture.h"

namespace semaphored::sqlite {
namespace {

using ledger::CommitResult;
using ledger::Transaction;
using Kind = CommitResult::Kind;
using Operation = Fault::Operation;

PayloadPtr Bytes(const std::string& bytes) { return std::make_shared<const std::string>(bytes); }

TicketPtr WithAttempt(const TicketPtr& ticket, uint32_t attempt) {
  auto changed = std::make_shared<Ticket>(*ticket);
  changed->attempt = attempt;
  return changed;
}

// Null: there is no such ticket.
PayloadPtr PayloadOf(OpenStore& open, const Id& ticket) {
  const std::vector<ledger::LedgerStore::TicketAt> asked{{"s", ticket}};
  return open.store->ReadPayloads(asked).value().at(0);
}

SemaphoreRow Make(OpenStore& open) {
  Transaction transaction = Create(open, "s");
  REQUIRE(open.Commit(transaction).kind == Kind::kWon);
  SemaphoreRow row = *transaction.semaphores[0].after;
  row.revision = transaction.semaphores[0].revision;
  return row;
}

int64_t Count(OpenStore& open, const std::string& table) {
  return open.database->QueryInt("SELECT count(*) FROM " + table).value();
}

}  // namespace

TEST_CASE("sqlite tickets: whatever happens to one in a commit is one write") {
  TemporaryFolder folder;
  const TicketPtr stays = MakeTicket(1);
  const TicketPtr passing = MakeTicket(2);
  {
    OpenStore open = Open(folder / "state.db");
    SemaphoreRow row = Make(open);
    Transaction transaction = Begin(open);
    auto& delta = Touch(transaction, row);
    delta.tickets.push_back({nullptr, stays, Bytes("stays")});
    delta.tickets.push_back({nullptr, passing, Bytes("passing")});
    delta.tickets.push_back({stays, WithAttempt(stays, 1), nullptr});
    delta.tickets.push_back({passing, nullptr, nullptr});
    delta.tickets.push_back({WithAttempt(stays, 1), WithAttempt(stays, 2), nullptr});
    REQUIRE(open.Commit(transaction).kind == Kind::kWon);
    CHECK(Count(open, "tickets") == 1);
    CHECK(Count(open, "payloads") == 1);
    CHECK(*PayloadOf(open, stays->id) == "stays");
    CHECK(PayloadOf(open, passing->id) == nullptr);
    row.revision = transaction.semaphores[0].revision;
    transaction = Begin(open);
    Touch(transaction, row)
        .tickets.push_back({WithAttempt(stays, 2), WithAttempt(stays, 3), nullptr});
    REQUIRE(open.Commit(transaction).kind == Kind::kWon);
  }
  OpenStore open = Open(folder / "state.db");
  const ledger::LoadedSemaphore& semaphore = open.image.semaphores.at(0);
  REQUIRE(semaphore.tickets.size() == 1);
  CHECK(*semaphore.tickets[0] == *WithAttempt(stays, 3));
  CHECK(*PayloadOf(open, stays->id) == "stays");
  Transaction transaction = Begin(open);
  Touch(transaction, semaphore.row).tickets.push_back({semaphore.tickets[0], nullptr, nullptr});
  REQUIRE(open.Commit(transaction).kind == Kind::kWon);
  CHECK(Count(open, "tickets") == 0);
  CHECK(Count(open, "payloads") == 0);
}

TEST_CASE("sqlite tickets: a batch of the longest payloads fits a commit") {
  TemporaryFolder folder;
  OpenStore open = Open(folder / "state.db");
  const SemaphoreRow row = Make(open);
  Transaction transaction = Begin(open);
  auto& delta = Touch(transaction, row);
  for (uint64_t i = 0; i < 256; ++i)
    delta.tickets.push_back(
        {nullptr, MakeTicket(i + 1), Bytes(std::string(65'536, static_cast<char>('a' + i % 26)))});
  REQUIRE(open.Commit(transaction).kind == Kind::kWon);
  CHECK(*PayloadOf(open, MakeId(256)) == std::string(65'536, 'v'));
}

TEST_CASE("sqlite tickets: a commit that fails leaves none, and one that is not known is settled") {
  CurrentFault() = Fault();
  TemporaryFolder folder;
  OpenStore open =
      TryOpen({.path = folder / "state.db", .synchronous = true, .vfs = FaultVfsName()}).value();
  const SemaphoreRow row = Make(open);
  const auto enqueue = [&](Transaction* transaction) {
    *transaction = Begin(open);
    Touch(*transaction, row).tickets.push_back({nullptr, MakeTicket(1), Bytes("payload")});
  };
  Transaction transaction;
  enqueue(&transaction);
  CurrentFault() = {.operation = Operation::kWrite, .code = SQLITE_FULL};
  CHECK(open.Commit(transaction).kind == Kind::kFailed);
  CurrentFault() = Fault();
  CHECK(PayloadOf(open, MakeId(1)) == nullptr);
  enqueue(&transaction);
  CurrentFault() = {.operation = Operation::kSync, .code = SQLITE_IOERR_FSYNC};
  CHECK(open.Commit(transaction).kind == Kind::kUnknown);
  CHECK(PayloadOf(open, MakeId(1)) == nullptr);
  CurrentFault() = Fault();
  REQUIRE(open.Settle(transaction).kind == Kind::kWon);
  CHECK(*PayloadOf(open, MakeId(1)) == "payload");
  CHECK(Count(open, "tickets") == 1);
}

TEST_CASE("sqlite tickets: a damaged payload is told of its own ticket, and the others are given") {
  TemporaryFolder folder;
  const std::string url = "sqlite://" + folder / "state.db";
  const auto open_lane = [](Engine& engine) {
    ledger::LedgerOptions options;
    options.self = engine.nodes().Join("node").value();
    options.now = [] { return SteadyClock::now(); };
    options.now_unix_ms = [] { return int64_t{0}; };
    return engine.OpenLane(options).value();
  };
  {
    auto engine = OpenEngine(url).value();
    auto lane = open_lane(*engine);
    std::vector<Submission> batch;
    for (uint64_t i = 1; i <= 2; ++i) {
      EnqueueCommand enqueue;
      enqueue.semaphore = "s";
      enqueue.ticket = MakeId(i);
      enqueue.limit = 2;
      enqueue.payload = Bytes("payload");
      batch.push_back({i, enqueue});
    }
    REQUIRE(lane->Step(batch, SteadyTime::max()).ok());
  }
  {
    OpenStore open = Open(folder / "state.db");
    REQUIRE(open.database->Execute("UPDATE payloads SET record = x'0102' WHERE number = 1").ok());
  }
  auto engine = OpenEngine(url).value();
  auto lane = open_lane(*engine);
  std::vector<Submission> batch;
  for (uint64_t i = 1; i <= 2; ++i) {
    TakeCommand take;
    take.semaphore = "s";
    take.claim = take.session = MakeId(10 + i);
    batch.push_back({i, take});
  }
  const StepResult taken = lane->Step(batch, SteadyTime::max()).value();
  REQUIRE(taken.outcomes[0].kind == OutcomeKind::kGranted);
  CHECK(taken.outcomes[0].report->tickets[0].payload == nullptr);
  CHECK(taken.outcomes[0].message.find("payload 1 is damaged") != std::string::npos);
  REQUIRE(taken.outcomes[1].kind == OutcomeKind::kGranted);
  REQUIRE(taken.outcomes[1].report->tickets[0].payload != nullptr);
  CHECK(*taken.outcomes[1].report->tickets[0].payload == "payload");
  CHECK(taken.outcomes[1].message.empty());
}

}  // namespace semaphored::sqlite
