// The embedded store's format: its tables, and its records byte by byte.
#include "tests/unit/adapters/golden.h"

#include <string>
#include <string_view>

#include "adapters/sqlite/codec.h"
#include "adapters/sqlite/record.h"
#include "adapters/sqlite/schema.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/sqlite/fixture.h"

namespace semaphored::sqlite {
namespace {

using golden::BytesOf;
using golden::CheckStored;
using golden::HexOf;

constexpr uint32_t kSemaphore = 5;

constexpr char kTables[] =
    R"sql(CREATE TABLE meta(key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID
CREATE TABLE nodes(number INTEGER PRIMARY KEY, node_id TEXT NOT NULL, incarnation INTEGER NOT NULL)
CREATE TABLE semaphores(number INTEGER PRIMARY KEY, name TEXT NOT NULL, record BLOB NOT NULL)
CREATE TABLE revisions(semaphore INTEGER PRIMARY KEY, revision INTEGER NOT NULL, next_order INTEGER NOT NULL)
CREATE TABLE leases(token INTEGER PRIMARY KEY, record BLOB NOT NULL)
CREATE TABLE waiters(number INTEGER PRIMARY KEY, record BLOB NOT NULL)
CREATE TABLE sessions(number INTEGER PRIMARY KEY, record BLOB NOT NULL)
CREATE TABLE clients(number INTEGER PRIMARY KEY, client_id TEXT NOT NULL, since INTEGER NOT NULL)
CREATE TABLE requests(number INTEGER PRIMARY KEY, record BLOB NOT NULL)
CREATE TABLE history(first INTEGER PRIMARY KEY, record BLOB NOT NULL)
CREATE TABLE tickets(number INTEGER PRIMARY KEY, record BLOB NOT NULL)
CREATE TABLE payloads(number INTEGER PRIMARY KEY, record BLOB NOT NULL)
)sql";

constexpr char kSemaphoreHex[] = "1d03d00fa01f023280a0abfef96202646f067465616d2d61550179eb";
constexpr char kLeaseHex[] =
    "052a010000000000000002000000000000000300000000000000040000000000000007080f000000"
    "000000001000000000000000090a0b06cf0f80b899290e04686f7374067465616d2d610301030401"
    "020280a0abfef96201e0d4030c000000000000000d000000000000000e11c4a927c4";
constexpr char kWaiterHex[] =
    "051101000000000000000200000000000000ffffffff0f150000000000000016000000000000000f"
    "000000000000001000000000000000090a0b06cf0f80b899290e04686f7374067465616d2d6180a0"
    "abfef96252171761";
constexpr char kSessionHex[] =
    "0301000000000000000200000000000000030405b0ea010704686f7374067465616d2d610c198720";
constexpr char kRequestsHex[] =
    "c107080f000000000000001000000000000000010000000000000002000000000000000304050173"
    "05ffffffff0f150000000000000016000000000000000f0000000000000010000000000000000000"
    "0001730007097f542130";
constexpr char kHistoryHex[] =
    "03010000000000000002000000000000004d060301030401020280a0abfef962e80704686f737401"
    "7330d60702";
constexpr char kTicketHex[] =
    "050201000000000000000200000000000000130e0304d00fc801c0cf24807d090a0b000000000000"
    "000000000000000000000a746578742f706c61696e030b30302d34362d34372d30310102026e6f80"
    "a0abfef96282a0abfef962067465616d2d617ccee9a3";
constexpr char kPayloadHex[] = "616263d2f86a4f";

TEST_CASE("sqlite golden: the tables of version 1") {
  const auto database = Database::Open({}).value();
  REQUIRE(PrepareSchema(*database).ok());
  Statement statement =
      database->Prepare("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")
          .value();
  std::string tables;
  while (statement.Step() == SQLITE_ROW) (tables += statement.Text(0)) += '\n';
  CheckStored(tables, kTables);
  CHECK(database->QueryInt("PRAGMA user_version").value() == 1);
  CHECK(database->QueryInt("PRAGMA application_id").value() == 0x53656d44);
  CHECK(database
            ->QueryInt("SELECT count(*) FROM meta WHERE value = 0 AND key IN ('store_epoch', "
                       "'tokens_reserved', 'revision_floor')")
            .value() == 3);
}

TEST_CASE("sqlite golden: semaphores, leases, waiters and sessions") {
  std::string bytes;
  WriteSemaphore(kSemaphore, golden::FullRow(), &bytes);
  CheckStored(HexOf(bytes), kSemaphoreHex);
  SemaphoreRow row = ReadSemaphore(kSemaphore, BytesOf(kSemaphoreHex)).value();
  // These have columns of their own.
  row.name = golden::FullRow().name;
  row.revision = golden::FullRow().revision;
  row.next_order = golden::FullRow().next_order;
  CHECK(row == golden::FullRow());

  bytes.clear();
  WriteLease(kSemaphore, 77, *golden::FullLease(), &bytes);
  CheckStored(HexOf(bytes), kLeaseHex);
  const LeaseRecord lease = ReadLease(77, BytesOf(kLeaseHex)).value();
  bytes.clear();
  WriteLease(lease.semaphore, 77, *lease.lease, &bytes);
  CheckStored(HexOf(bytes), kLeaseHex);

  bytes.clear();
  WriteWaiter(8, kSemaphore, *golden::FullOffer(), &bytes);
  CheckStored(HexOf(bytes), kWaiterHex);
  const WaiterRecord waiter = ReadWaiter(8, BytesOf(kWaiterHex)).value();
  bytes.clear();
  WriteWaiter(8, waiter.semaphore, *waiter.waiter, &bytes);
  CheckStored(HexOf(bytes), kWaiterHex);

  bytes.clear();
  WriteSession(9, golden::FullSession(), &bytes);
  CheckStored(HexOf(bytes), kSessionHex);
  const auto session = ReadSession(9, BytesOf(kSessionHex)).value();
  bytes.clear();
  WriteSession(9, *session, &bytes);
  CheckStored(HexOf(bytes), kSessionHex);
}

TEST_CASE("sqlite golden: tickets and payloads") {
  std::string bytes;
  WriteTicket(4, kSemaphore, golden::FullTicket(), &bytes);
  CheckStored(HexOf(bytes), kTicketHex);
  const TicketRecord ticket = ReadTicket(4, BytesOf(kTicketHex)).value();
  CHECK(ticket.semaphore == kSemaphore);
  CHECK(*ticket.ticket == golden::FullTicket());
  bytes.clear();
  WritePayload(4, "abc", &bytes);
  CheckStored(HexOf(bytes), kPayloadHex);
  const std::string stored = BytesOf(kPayloadHex);
  CHECK(ReadPayload(4, stored).value() == "abc");
}

// One that is granted, a one-shot that is done, and one that is forgotten.
TEST_CASE("sqlite golden: the log of requests") {
  using Op = ledger::RequestChange::Op;
  using State = ledger::RequestRow::State;
  ledger::RequestChange granted;
  granted.row = {{7, 8, {}}, {15, 16}, State::kWaiting, "s", {1, 2}, EndCause::kRevoked, 4,
                 5,          true};
  ledger::RequestChange done;
  done.row.request = {0, 0, {21, 22}};
  done.row.fingerprint = {15, 16};
  done.row.semaphore = "s";
  ledger::RequestChange gone;
  gone.op = Op::kRemove;
  gone.row.request = {7, 9, {}};
  std::string bytes;
  for (const ledger::RequestChange* change : {&granted, &done, &gone})
    AppendRequest(*change, &bytes);
  SealRequests(10, &bytes);
  CheckStored(HexOf(bytes), kRequestsHex);
  std::string again;
  REQUIRE(ReadRequests(10, BytesOf(kRequestsHex), [&](const RequestView& view) {
            if (!view.removed) CHECK(view.Copy() == (again.empty() ? granted.row : done.row));
            again += view.bytes;
          }).ok());
  SealRequests(10, &again);
  CheckStored(HexOf(again), kRequestsHex);
}

TEST_CASE("sqlite golden: the log of history") {
  std::string bytes;
  AppendHistory({0, "s", golden::FullLease(), 1'700'000'000'500, EndCause::kRevoked}, &bytes);
  SealHistory(11, &bytes);
  CheckStored(HexOf(bytes), kHistoryHex);
  std::string again;
  REQUIRE(ReadHistory(11, BytesOf(kHistoryHex), [&](const HistoryRow& row) {
            CHECK(row.number == 11);
            AppendHistory(row, &again);
          }).ok());
  SealHistory(11, &again);
  CheckStored(HexOf(again), kHistoryHex);
}

}  // namespace
}  // namespace semaphored::sqlite
