// A disk that fails under the embedded store: what is said then is true, nothing that was promised
// is lost, and the store goes on when the disk does.
#include <filesystem>
#include <string>

#include "adapters/sqlite/store.h"
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

// A page in the log, with its header.
constexpr int kFrameBytes = 24 + 4096;

// No fault outlives the test.
struct FaultScope {
  FaultScope() { CurrentFault() = Fault(); }
  ~FaultScope() { CurrentFault() = Fault(); }
};

DatabaseOptions Faulty(const std::string& path) {
  return {.path = path, .synchronous = true, .vfs = FaultVfsName()};
}

OpenStore OpenFaulty(const std::string& path) { return TryOpen(Faulty(path)).value(); }

// A transaction that makes the semaphore and grants a lease on it.
Transaction CreateAndGrant(const OpenStore& open, const std::string& name, const LeasePtr& lease) {
  Transaction transaction = Create(open, name);
  transaction.semaphores[0].leases.push_back({nullptr, lease, EndCause::kNone});
  return transaction;
}

// The file as another process would find it, had this one died now. (Copying drops SQLite's own
// locks, as closing any descriptor of the file does; the lock beside it stands.)
ledger::Image AfterCrash(const TemporaryFolder& folder, const std::string& name) {
  TemporaryFolder elsewhere;
  for (const char* suffix : {"", "-wal"}) {
    std::filesystem::copy_file(folder / (name + suffix), elsewhere / (name + suffix));
  }
  return Open(elsewhere / name, {}, false).image;
}

TEST_CASE("a full disk: nothing is written, and with room again the store goes on") {
  const FaultScope scope;
  TemporaryFolder folder;
  OpenStore open = OpenFaulty(folder / "state.db");
  const LeasePtr before = MakeLease(1);
  Transaction transaction = CreateAndGrant(open, "before", before);
  REQUIRE(open.Commit(transaction).kind == Kind::kWon);

  for (int bytes : {0, 1000, 2 * kFrameBytes}) {
    CAPTURE(bytes);
    CurrentFault() = {.operation = Operation::kWrite, .code = SQLITE_FULL, .bytes_written = bytes};
    const LeasePtr lease = MakeLease(2);
    transaction = CreateAndGrant(open, "during", lease);
    const CommitResult result = open.Commit(transaction);
    CHECK(result.kind == Kind::kFailed);
    CHECK(absl::IsResourceExhausted(result.status));
    CHECK(result.status.message().find(folder / "state.db") != std::string::npos);
    CHECK(lease->token == 0);
    CurrentFault() = Fault();
    const ledger::Image image = AfterCrash(folder, "state.db");
    CHECK(FindSemaphore(image, "during") == nullptr);
    CHECK(FindSemaphore(image, "before")->leases.size() == 1);
  }
  const LeasePtr lease = MakeLease(2);
  transaction = CreateAndGrant(open, "during", lease);
  CHECK(open.Commit(transaction).kind == Kind::kWon);
  CHECK(lease->token == before->token + 1);
  CHECK(FindSemaphore(AfterCrash(folder, "state.db"), "during")->leases.size() == 1);
}

TEST_CASE("an error while a commit is synced is not known, until it is settled") {
  const FaultScope scope;
  TemporaryFolder folder;
  OpenStore open = OpenFaulty(folder / "state.db");
  const LeasePtr lease = MakeLease(1);
  Transaction transaction = CreateAndGrant(open, "s", lease);
  CurrentFault() = {.operation = Operation::kSync, .code = SQLITE_IOERR_FSYNC};
  REQUIRE(open.Commit(transaction).kind == Kind::kUnknown);
  CHECK(lease->token == 0);
  // All of it was handed to the disk: dying now, it would have won.
  CHECK(FindSemaphore(AfterCrash(folder, "state.db"), "s")->leases.size() == 1);

  // Nobody else may write, and settling does not end in anything but a win.
  Transaction other = Create(open, "other");
  CHECK(absl::IsFailedPrecondition(open.Commit(other).status));
  CHECK(open.Settle(transaction).kind == Kind::kUnknown);
  CurrentFault() = {.operation = Operation::kWrite, .code = SQLITE_FULL};
  CHECK(open.Settle(transaction).kind == Kind::kUnknown);
  CurrentFault() = Fault();
  REQUIRE(open.Settle(transaction).kind == Kind::kWon);
  CHECK(lease->token == 1);
  CHECK(open.Settle(transaction).kind == Kind::kFailed);
  CHECK(open.Commit(other).kind == Kind::kWon);
  const ledger::Image image = AfterCrash(folder, "state.db");
  CHECK(FindSemaphore(image, "s")->leases.size() == 1);
  CHECK(FindSemaphore(image, "s")->row.revision == 1);
  CHECK(FindSemaphore(image, "other") != nullptr);
}

// Fails the commit in its write number `after`, of which the first `bytes` reach the file, and
// settles it. False: it has fewer writes.
bool FailInWrite(int after, int bytes, bool checkpointed) {
  CAPTURE(after, bytes, checkpointed);
  TemporaryFolder folder;
  OpenStore open = OpenFaulty(folder / "state.db");
  // The log is begun anew by the commit, or goes on.
  if (checkpointed) REQUIRE(open.database->Checkpoint().ok());
  const LeasePtr lease = MakeLease(1);
  Transaction transaction = CreateAndGrant(open, "s", lease);
  CurrentFault() = {.operation = Operation::kWrite,
                    .after = after,
                    .code = SQLITE_IOERR_WRITE,
                    .bytes_written = bytes};
  const CommitResult result = open.Commit(transaction);
  const bool failed = CurrentFault().failures > 0;
  CurrentFault() = Fault();
  REQUIRE(result.kind == (failed ? Kind::kUnknown : Kind::kWon));
  // Either the whole of it is there, or nothing.
  const ledger::Image image = AfterCrash(folder, "state.db");
  if (const auto* found = FindSemaphore(image, "s")) CHECK(found->leases.size() == 1);
  if (!failed) return false;
  REQUIRE(open.Settle(transaction).kind == Kind::kWon);
  CHECK(FindSemaphore(AfterCrash(folder, "state.db"), "s")->leases.size() == 1);
  return true;
}

TEST_CASE("an error in the middle of a commit is not known, and settling it has one effect") {
  const FaultScope scope;
  for (const bool checkpointed : {false, true}) {
    for (const int bytes : {0, 10, 24, 1000, kFrameBytes, 3 * kFrameBytes, Fault::kAll}) {
      int writes = 0;
      while (FailInWrite(writes, bytes, checkpointed)) ++writes;
      CHECK(writes > 0);
    }
  }
}

TEST_CASE("a transaction of any size is in the log when its commit has won") {
  const FaultScope scope;
  TemporaryFolder folder;
  OpenStore open = OpenFaulty(folder / "state.db");
  size_t leases = 0;
  // Sizes on either side of what is handed to the file system at once, and far beyond.
  for (size_t size = 1; size <= 16'384; size *= 2) {
    Transaction transaction = Create(open, std::to_string(size));
    for (size_t i = 0; i < size; ++i) {
      transaction.semaphores[0].leases.push_back({nullptr, MakeLease(++leases), EndCause::kNone});
    }
    REQUIRE(open.Commit(transaction).kind == Kind::kWon);
  }
  const ledger::Image image = AfterCrash(folder, "state.db");
  for (size_t size = 1; size <= 16'384; size *= 2) {
    CHECK(FindSemaphore(image, std::to_string(size))->leases.size() == size);
  }
}

TEST_CASE("loading again after a commit that was lost overwrites it first") {
  const FaultScope scope;
  TemporaryFolder folder;
  OpenStore open = OpenFaulty(folder / "state.db");
  Transaction transaction = CreateAndGrant(open, "s", MakeLease(1));
  CurrentFault() = {.operation = Operation::kSync, .code = SQLITE_IOERR_FSYNC};
  REQUIRE(open.Commit(transaction).kind == Kind::kUnknown);
  CHECK_FALSE(open.store->LoadAll().ok());
  CurrentFault() = Fault();
  const ledger::Image image = open.store->LoadAll().value();
  CHECK(image.semaphores.empty());
  CHECK(AfterCrash(folder, "state.db").semaphores.empty());
}

TEST_CASE("a checkpoint that fails loses nothing") {
  const FaultScope scope;
  TemporaryFolder folder;
  OpenStore open = OpenFaulty(folder / "state.db");
  Transaction transaction = CreateAndGrant(open, "s", MakeLease(1));
  REQUIRE(open.Commit(transaction).kind == Kind::kWon);
  for (const auto& [operation, code] :
       {std::pair(Operation::kWrite, SQLITE_FULL), std::pair(Operation::kWrite, SQLITE_IOERR_WRITE),
        std::pair(Operation::kSync, SQLITE_IOERR_FSYNC)}) {
    CurrentFault() = {.operation = operation, .log = false, .code = code};
    CHECK_FALSE(open.database->Checkpoint().ok());
    CHECK(CurrentFault().failures == 1);
    CurrentFault() = Fault();
    CHECK(AfterCrash(folder, "state.db").semaphores.size() == 1);
  }
  transaction = Create(open, "t");
  CHECK(open.Commit(transaction).kind == Kind::kWon);
  CHECK(open.database->Checkpoint().ok());
  CHECK(AfterCrash(folder, "state.db").semaphores.size() == 2);
}

TEST_CASE("an error while reading a page is not a commit that may have happened") {
  const FaultScope scope;
  TemporaryFolder folder;
  { OpenFaulty(folder / "state.db"); }
  auto database = Database::Open(Faulty(folder / "state.db")).value();
  REQUIRE(database->Execute("PRAGMA shrink_memory").ok());
  // Its pages are in the log still, which is kept when the file is closed.
  CurrentFault() = {.operation = Operation::kRead, .code = SQLITE_IOERR_READ};
  CHECK(absl::IsUnavailable(database->QueryInt("SELECT count(*) FROM leases").status()));
  CurrentFault() = Fault();
  CHECK(database->QueryInt("SELECT count(*) FROM leases").value() == 0);
}

TEST_CASE("a file that can only be read is refused at the start") {
  const FaultScope scope;
  TemporaryFolder folder;
  { OpenFaulty(folder / "state.db"); }
  CurrentFault() = {.operation = Operation::kOpen, .log = false, .code = SQLITE_READONLY};
  absl::Status status = TryOpen(Faulty(folder / "state.db")).status();
  CHECK(absl::IsPermissionDenied(status));
  CHECK(status.message().find("state.db") != std::string::npos);
  CurrentFault() = {.operation = Operation::kOpen, .log = false, .code = SQLITE_CANTOPEN};
  CHECK(absl::IsUnavailable(TryOpen(Faulty(folder / "state.db")).status()));
}

TEST_CASE("a file that becomes read-only: nothing is written, what is there stays") {
  const FaultScope scope;
  TemporaryFolder folder;
  OpenStore open = OpenFaulty(folder / "state.db");
  Transaction transaction = Create(open, "s");
  CurrentFault() = {.operation = Operation::kWrite, .code = SQLITE_READONLY};
  const CommitResult result = open.Commit(transaction);
  CHECK(result.kind == Kind::kFailed);
  CHECK(absl::IsPermissionDenied(result.status));
  CurrentFault() = Fault();
  CHECK(open.Commit(transaction).kind == Kind::kWon);
}

}  // namespace
}  // namespace semaphored::sqlite
