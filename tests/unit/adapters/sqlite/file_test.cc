// The embedded store's file: who may have it, what it may be, and what becomes of one that is
// damaged.
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "adapters/open.h"
#include "adapters/sqlite/schema.h"
#include "adapters/sqlite/store.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/sqlite/fixture.h"

namespace semaphored::sqlite {
namespace {

bool Says(const absl::Status& status, absl::string_view text) {
  return status.message().find(text) != absl::string_view::npos;
}

absl::Status OpenStatus(const std::string& path) {
  return TryOpen({.path = path, .synchronous = true, .vfs = ""}).status();
}

// Runs SQL on the file, as any program could while no daemon has it.
void Sql(const std::string& path, const std::string& sql) {
  sqlite3* handle = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &handle) == SQLITE_OK);
  char* message = nullptr;
  const int code = sqlite3_exec(handle, sql.c_str(), nullptr, nullptr, &message);
  INFO((message == nullptr ? "" : message));
  CHECK(code == SQLITE_OK);
  sqlite3_free(message);
  sqlite3_close(handle);
}

// ---- Who may have it ----

TEST_CASE("a second daemon on a file is refused, by every path to it") {
  TemporaryFolder folder;
  const std::string path = folder / "state.db";
  std::filesystem::create_symlink(path, folder / "dangling.db");
  const OpenStore open = Open(folder / "dangling.db");
  CHECK(open.database->name() == std::filesystem::canonical(path));
  std::filesystem::create_hard_link(path, folder / "hard.db");
  std::filesystem::create_directory_symlink(folder.path(), folder / "folder");
  for (const char* other : {"state.db", "dangling.db", "folder/state.db", "./state.db"}) {
    CAPTURE(other);
    const absl::Status status = OpenStatus(folder / other);
    CHECK(absl::IsFailedPrecondition(status));
    CHECK(Says(status, path));
    CHECK(Says(status, "pid " + std::to_string(getpid())));
  }
  // Another process, since SQLite's own locks do not part two connections of one.
  const pid_t child = fork();
  if (child == 0) _exit(absl::IsFailedPrecondition(OpenStatus(folder / "hard.db")) ? 0 : 1);
  int result = 0;
  REQUIRE(waitpid(child, &result, 0) == child);
  CHECK(result == 0);
}

TEST_CASE("the file is free again when the process that had it was killed") {
  TemporaryFolder folder;
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    OpenStore open = Open(folder / "state.db");
    ledger::Transaction transaction = Create(open, "s");
    const bool won = open.Commit(transaction).kind == ledger::CommitResult::Kind::kWon;
    if (write(ready[1], won ? "y" : "n", 1) != 1) _exit(1);
    pause();
  }
  char answer = 0;
  REQUIRE(read(ready[0], &answer, 1) == 1);
  CHECK(answer == 'y');
  const absl::Status refused = OpenStatus(folder / "state.db");
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK(Says(refused, "pid " + std::to_string(child)));
  REQUIRE(kill(child, SIGKILL) == 0);
  REQUIRE(waitpid(child, nullptr, 0) == child);
  CHECK(Open(folder / "state.db").image.semaphores.size() == 1);
  close(ready[0]);
  close(ready[1]);
}

TEST_CASE("a heartbeat sees that the file was deleted or replaced") {
  for (const char* victim : {"state.db", "state.db.lock"}) {
    CAPTURE(victim);
    TemporaryFolder folder;
    const OpenStore open = Open(folder / "state.db");
    CHECK(open.nodes->Heartbeat().ok());
    std::filesystem::rename(folder / victim, folder / "moved");
    CHECK(absl::IsFailedPrecondition(open.nodes->Heartbeat()));
    std::filesystem::copy_file(folder / "moved", folder / victim);
    CHECK(absl::IsFailedPrecondition(open.nodes->Heartbeat()));
  }
}

// ---- What it may be ----

// A store with enough rows for several pages in each table.
void Fill(const std::string& path) {
  OpenStore open = Open(path);
  ledger::Transaction transaction = Begin(open);
  transaction.new_clients.push_back({1, "client"});
  for (uint64_t i = 1; i <= 200; ++i) {
    auto& delta = transaction.semaphores.emplace_back();
    delta.name = "semaphore-" + std::to_string(i);
    delta.after = MakeRow(delta.name);
    const LeasePtr lease = MakeLease(i);
    delta.leases.push_back({nullptr, lease, EndCause::kNone});
    delta.waiters.push_back({nullptr, MakeWaiter(1000 + i), EndCause::kNone});
    delta.tickets.push_back(
        {nullptr, MakeTicket(2000 + i), std::make_shared<const std::string>(300, 'p')});
    lease->request = {1, i};
    transaction.requests.push_back(MakeRequest(1, i, delta.name));
    transaction.requests.back().row.state = ledger::RequestRow::State::kGranted;
  }
  REQUIRE(open.Commit(transaction).kind == ledger::CommitResult::Kind::kWon);
}

TEST_CASE("a file of schema version 1 becomes one of a later version, and keeps what it has") {
  TemporaryFolder folder;
  Fill(folder / "state.db");
  std::vector<const char*> migrations(Migrations().begin(), Migrations().end());
  migrations.push_back("ALTER TABLE nodes ADD COLUMN zone TEXT NOT NULL DEFAULT 'none';");
  {
    auto database = Database::Open({.path = folder / "state.db", .vfs = {}});
    REQUIRE(database.ok());
    REQUIRE(PrepareSchema(**database, migrations).ok());
    CHECK((*database)->QueryInt("PRAGMA user_version").value() == 2);
    CHECK((*database)->QueryInt("SELECT count(*) FROM nodes WHERE zone = 'none'").value() == 1);
    CHECK((*database)->QueryInt("SELECT count(*) FROM leases").value() == 200);
    // Done once; a second time changes nothing.
    REQUIRE(PrepareSchema(**database, migrations).ok());
    CHECK((*database)->QueryInt("SELECT count(*) FROM requests").value() == 1);
  }
  // What was there before is kept, and a daemon that knows version 1 opens it.
  const std::string kept = folder / "state.db.version-1";
  CHECK(std::filesystem::status(kept).permissions() ==
        std::filesystem::status(folder / "state.db").permissions());
  {
    auto database = Database::Open({.path = kept, .vfs = {}});
    REQUIRE(database.ok());
    CHECK((*database)->QueryInt("PRAGMA user_version").value() == 1);
    CHECK((*database)->QueryInt("SELECT count(*) FROM leases").value() == 200);
  }
  CHECK(OpenStatus(kept).ok());
  // A daemon that knows version 1 only does not open it.
  CHECK(absl::IsUnimplemented(OpenStatus(folder / "state.db")));
}

TEST_CASE("a file of a newer version, or of another program, is refused") {
  TemporaryFolder folder;
  { Open(folder / "state.db"); }
  Sql(folder / "state.db", "PRAGMA user_version=2");
  absl::Status status = OpenStatus(folder / "state.db");
  CHECK(absl::IsUnimplemented(status));
  CHECK(Says(status, "version 2"));
  CHECK(Says(status, "state.db"));
  Sql(folder / "other.db", "CREATE TABLE theirs(x)");
  status = OpenStatus(folder / "other.db");
  CHECK(absl::IsUnimplemented(status));
  CHECK(Says(status, "another program"));
}

// ---- Damage ----

TEST_CASE("what is no database is DATA_LOSS") {
  TemporaryFolder folder;
  std::ofstream(folder / "state.db") << std::string(10'000, 'x');
  const absl::Status status = OpenStatus(folder / "state.db");
  CHECK(absl::IsDataLoss(status));
  CHECK(Says(status, "state.db"));
}

TEST_CASE("no page can be overwritten without DATA_LOSS, or the whole truth") {
  TemporaryFolder folder;
  Fill(folder / "good.db");
  constexpr int64_t kPage = 4096;
  const auto size = static_cast<int64_t>(std::filesystem::file_size(folder / "good.db"));
  int refused = 0;
  for (int64_t page = 0; page * kPage < size; ++page) {
    for (const char fill : {'\0', '\x5a'}) {
      CAPTURE(page, fill);
      std::filesystem::copy_file(folder / "good.db", folder / "bad.db",
                                 std::filesystem::copy_options::overwrite_existing);
      {
        std::fstream file(folder / "bad.db", std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(page * kPage);
        file << std::string(kPage, fill);
      }
      auto open = TryOpen({.path = folder / "bad.db", .synchronous = false, .vfs = ""});
      std::filesystem::remove(folder / "bad.db-wal");
      if (!open.ok()) {
        CHECK(Says(open.status(), "bad.db"));
        CHECK(absl::IsDataLoss(open.status()));
        ++refused;
        continue;
      }
      REQUIRE(open->image.semaphores.size() == 200);
      for (const auto& semaphore : open->image.semaphores) {
        REQUIRE(semaphore.leases.size() == 1);
        REQUIRE(semaphore.waiters.size() == 1);
        REQUIRE(semaphore.tickets.size() == 1);
      }
    }
  }
  CHECK(refused > 10);
}

TEST_CASE("rows that are missing or do not fit are DATA_LOSS") {
  for (const char* sql :
       {"DELETE FROM semaphores WHERE number = 5", "DELETE FROM revisions WHERE semaphore = 5",
        "DELETE FROM meta", "UPDATE semaphores SET name = 'semaphore-6' WHERE number = 5",
        "UPDATE leases SET token = 500000 WHERE token = 1",
        "UPDATE leases SET record = x'00' WHERE token = 1",
        "UPDATE waiters SET number = 500 WHERE number = 1",
        "UPDATE meta SET value = 3 WHERE key = 'tokens_reserved'",
        "UPDATE meta SET value = -1 WHERE key = 'store_epoch'",
        "UPDATE requests SET record = x'00'", "INSERT INTO sessions VALUES(1, x'0102')",
        "DELETE FROM payloads WHERE number = 5", "DELETE FROM tickets WHERE number = 5",
        "UPDATE tickets SET record = x'00'", "INSERT INTO payloads VALUES(5000, x'0102')"}) {
    CAPTURE(sql);
    TemporaryFolder folder;
    Fill(folder / "state.db");
    Sql(folder / "state.db", sql);
    CHECK(absl::IsDataLoss(OpenStatus(folder / "state.db")));
  }
}

// ---- URLs ----

TEST_CASE("a store's URL: what is understood") {
  TemporaryFolder folder;
  CHECK(OpenEngine("sqlite::memory:").ok());
  CHECK(OpenEngine("sqlite://" + folder / "a%20b.db").ok());
  CHECK(std::filesystem::exists(folder / "a b.db"));
  auto engine = OpenEngine("sqlite://" + folder / "c.db?history_rows=0&synchronous=off").value();
  CHECK_FALSE(engine->guarantees().history);
  CHECK(engine->guarantees().exclusive);
  CHECK(engine->guarantees().adapter == "sqlite");
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  CHECK(OpenEngine("sqlite:relative.db").ok());
  CHECK(OpenEngine("sqlite://relative.db").ok());
  std::filesystem::current_path(here);
  CHECK(std::filesystem::exists(folder / "relative.db"));
}

TEST_CASE("a store's URL: what is not, and why") {
  auto message = [](const std::string& url, absl::StatusCode code) {
    const absl::Status status = OpenEngine(url).status();
    CAPTURE(url, status.ToString());
    CHECK(status.code() == code);
    return std::string(status.message());
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  CHECK(message("mysql://x", invalid).find("sqlite:") != std::string::npos);
  message("", invalid);
  message("sqlite", invalid);
  message("sqlite:", invalid);
  message("sqlite:///a%zz.db", invalid);
  message("sqlite:///a%2", invalid);
  CHECK(message("sqlite::memory:?cache=1", invalid).find("'cache'") != std::string::npos);
  message("sqlite::memory:?history_rows=-1", invalid);
  message("sqlite::memory:?synchronous=maybe", invalid);
  TemporaryFolder folder;
  CHECK(message("sqlite://" + folder / "no/folder/state.db", absl::StatusCode::kUnavailable)
            .find("no folder") != std::string::npos);
  message("sqlite://" + folder.path(), absl::StatusCode::kUnavailable);
}

TEST_CASE("an embedded engine has one lane at a time, after joining") {
  auto engine = OpenEngine("sqlite::memory:").value();
  ledger::LedgerOptions options;
  options.now = [] { return SteadyClock::now(); };
  options.now_unix_ms = [] { return int64_t{0}; };
  CHECK(absl::IsFailedPrecondition(engine->OpenLane(options).status()));
  options.self = engine->nodes().Join("node").value();
  {
    auto lane = engine->OpenLane(options);
    REQUIRE(lane.ok());
    CHECK(absl::IsFailedPrecondition(engine->OpenLane(options).status()));
  }
  CHECK(engine->OpenLane(options).ok());
}

}  // namespace
}  // namespace semaphored::sqlite
