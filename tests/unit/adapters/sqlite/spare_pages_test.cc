// The embedded store's file becomes smaller when tickets go, in steps that lose nothing.
#include "adapters/sqlite/spare_pages.h"

#include <sqlite3.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adapters/sqlite/store.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/sqlite/fault_vfs.h"
#include "tests/unit/adapters/sqlite/fixture.h"
#include "tests/unit/adapters/sqlite/ticket_store.h"

namespace semaphored::sqlite {
namespace {

using std::chrono::milliseconds;

// The store as another process would find it, had this one died now: sound, and with exactly these
// tickets, whose payloads are whole.
void CheckAfterCrash(const std::string& path, uint64_t first, uint64_t last) {
  TemporaryFolder elsewhere;
  for (const char* suffix : {"", "-wal"})
    std::filesystem::copy_file(path + suffix, elsewhere / (std::string("state.db") + suffix));
  OpenStore open = Open(elsewhere / "state.db", {}, false);
  CHECK(open.database
            ->QueryInt("SELECT count(*) FROM pragma_integrity_check WHERE "
                       "integrity_check <> 'ok'")
            .value() == 0);
  std::vector<ledger::LedgerStore::TicketAt> all;
  for (uint64_t number = first; number <= last; ++number) all.push_back({"s", MakeId(number)});
  REQUIRE(open.image.semaphores.at(0).tickets.size() == all.size());
  const std::vector<PayloadPtr> payloads = open.store->ReadPayloads(all).value();
  for (uint64_t number = first; number <= last; ++number) {
    REQUIRE(payloads[number - first] != nullptr);
    REQUIRE(*payloads[number - first] == *TicketStore::PayloadOf(number));
  }
}

}  // namespace

TEST_CASE("sqlite space: of 4,000 tickets that are destroyed the file keeps 1 MiB") {
  TemporaryFolder folder;
  TicketStore store(Open(folder / "state.db", {}, false));
  store.Idle();
  const int64_t before = store.FileBytes();
  store.Add(1, 4'000);
  store.Idle();
  CHECK(store.FileBytes() > 250 * kMiB);
  store.Remove(1, 4'000);
  CHECK(store.IdleUntilAtMost(before + 3 * kMiB, 400));
  CHECK(store.FreePages() <= 512);
  // Nothing more is done, and the space that is kept is used again.
  const int64_t after = store.FileBytes();
  store.Idle();
  CHECK(store.FileBytes() == after);
  // The log, which large commits have made longer, is as long as before them.
  CHECK(std::filesystem::file_size(folder / "state.db-wal") <= 16 * kMiB);
}

TEST_CASE("sqlite space: a store that is never idle gives it back, too") {
  TemporaryFolder folder;
  TicketStore store(Open(folder / "state.db", {}, false));
  store.Add(1, 500);
  store.Remove(1, 500);
  REQUIRE(store.FreePages() > 7'000);
  const SteadyTime bound = SteadyClock::now() + std::chrono::seconds(60);
  while (store.FileBytes() > 4 * kMiB && SteadyClock::now() < bound) store.Touch();
  CHECK(store.FileBytes() <= 4 * kMiB);
}

TEST_CASE("sqlite space: a queue that is now shorter and now longer keeps its file") {
  TemporaryFolder folder;
  TicketStore store(Open(folder / "state.db", {}, false));
  store.Add(1, 200);
  store.Remove(1, 40);
  store.Idle();
  store.Idle();
  CHECK(store.FreePages() > 40 * 16);
  CHECK(store.FileBytes() > 12 * kMiB);
  // A quarter is the bound; an eighth is kept.
  store.Remove(41, 60);
  CHECK(store.IdleUntilAtMost(11 * kMiB, 100));
  CHECK(store.FreePages() >= 256);
  CheckAfterCrash(folder / "state.db", 61, 200);
}

TEST_CASE("sqlite space: killed at any step, the store has all that it should") {
  TemporaryFolder folder;
  TicketStore store(Open(folder / "state.db"));
  store.Add(1, 300);
  // Those that stay are at the file's end, and have to move.
  store.Remove(1, 270);
  SparePages pages(&store.database(), std::make_shared<Upkeep>());
  pages.Look();
  REQUIRE(pages.too_many());
  for (int step = 1; pages.too_many(); ++step) {
    REQUIRE(step < 1'000);
    pages.Step();
    if (step % 5 == 0) CheckAfterCrash(folder / "state.db", 271, 300);
    if (step % 20 == 0) REQUIRE(store.database().Checkpoint().ok());
    if (step % 20 == 1) CheckAfterCrash(folder / "state.db", 271, 300);
  }
  REQUIRE(store.database().Checkpoint().ok());
  CHECK(store.FileBytes() < 5 * kMiB);
  CheckAfterCrash(folder / "state.db", 271, 300);
  store.Add(301, 310);
  CheckAfterCrash(folder / "state.db", 271, 310);
}

TEST_CASE("sqlite space: a disk that fails under a step costs nothing, and the next one goes on") {
  CurrentFault() = Fault();
  TemporaryFolder folder;
  TicketStore store(
      TryOpen({.path = folder / "state.db", .synchronous = true, .vfs = FaultVfsName()}).value());
  store.Add(1, 100);
  store.Remove(1, 90);
  const auto upkeep = std::make_shared<Upkeep>();
  SparePages pages(&store.database(), upkeep);
  using Operation = Fault::Operation;
  const Fault faults[] = {{.operation = Operation::kWrite, .code = SQLITE_FULL},
                          {.operation = Operation::kWrite, .code = SQLITE_IOERR_WRITE},
                          {.operation = Operation::kSync, .code = SQLITE_IOERR_FSYNC}};
  for (const Fault& fault : faults) {
    CAPTURE(fault.code);
    pages.Look();
    REQUIRE(pages.too_many());
    const int64_t free = store.FreePages();
    CurrentFault() = fault;
    pages.Step();
    CHECK(CurrentFault().failures > 0);
    CHECK_FALSE(pages.too_many());
    CurrentFault() = Fault();
    CHECK(store.FreePages() == free);
    CHECK_FALSE(store.database().unsettled());
    store.Touch();
    CheckAfterCrash(folder / "state.db", 91, 100);
  }
  const auto errors = [&] {
    return upkeep->figures().errors[static_cast<size_t>(UpkeepWork::kSpace)];
  };
  CHECK(errors() == std::size(faults));
  for (pages.Look(); pages.too_many();) pages.Step();
  CHECK(errors() == std::size(faults));
  CHECK(store.FreePages() <= 256);
  CheckAfterCrash(folder / "state.db", 91, 100);
}

TEST_CASE("sqlite space: in memory, too, it is given back") {
  TicketStore store(Open(""));
  store.Add(1, 100);
  store.Remove(1, 100);
  for (int i = 0; i < 100 && store.FreePages() > 256; ++i) store.Idle();
  CHECK(store.FreePages() <= 256);
}

TEST_CASE("sqlite space: a file of an earlier build keeps its size until it is made to shrink") {
  TemporaryFolder folder;
  const std::string path = folder / "state.db";
  const auto run = [&](const char* sql) {
    sqlite3* handle = nullptr;
    REQUIRE(sqlite3_open(path.c_str(), &handle) == SQLITE_OK);
    CHECK(sqlite3_exec(handle, sql, nullptr, nullptr, nullptr) == SQLITE_OK);
    sqlite3_close(handle);
  };
  { Open(path); }
  run("PRAGMA auto_vacuum=NONE; VACUUM;");
  {
    OpenStore open = Open(path);
    CHECK_FALSE(open.database->can_shrink());
    TicketStore store(std::move(open));
    store.Add(1, 100);
    store.Remove(1, 90);
    store.Idle();
    CHECK(store.FreePages() > 1'000);
  }
  // As docs/operations.md says.
  run("PRAGMA auto_vacuum=INCREMENTAL; VACUUM;");
  const OpenStore open = Open(path);
  CHECK(open.database->can_shrink());
  CHECK(open.database->CountPages().value().free == 0);
  CHECK(open.image.semaphores.at(0).tickets.size() == 10);
}

}  // namespace semaphored::sqlite
