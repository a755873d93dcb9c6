#include "adapters/sqlite/restore.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "adapters/sqlite/database.h"
#include "adapters/sqlite/file_lock.h"
#include "adapters/sqlite/files.h"
#include "adapters/sqlite/record.h"
#include "adapters/sqlite/schema.h"

namespace semaphored::sqlite {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kEpochMax = 32'767;
// How much higher an epoch may be than it must be. Some hundred restores of one store remain.
constexpr uint32_t kEpochSteps = 64;
constexpr char kLog[] = "-wal";
// What no SQLite opens: it stands in the store's place while files are exchanged.
constexpr char kTombstone[] =
    "A restore of this store was interrupted. Call `semaphored restore` again.\n";

absl::Status WriteFile(const std::string& path, const std::string& text, const Owner& owner) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) return absl::UnavailableError("sqlite: cannot write " + path);
  if (absl::Status status = GiveTo(owner, path); !status.ok()) return status;
  return Sync(path);
}

void RemoveAll(const std::string& path) {
  std::error_code ignored;
  for (const char* suffix : {"", kLog, "-shm", ".lock"}) fs::remove(path + suffix, ignored);
}

bool HasContent(const std::string& path) {
  std::error_code ignored;
  const auto size = fs::file_size(path, ignored);
  return !ignored && size > 0;
}

// With the mode of a store, not of the copy: one that is kept read-only, or for all to read, makes no such store.
absl::Status Copy(const std::string& from, const std::string& to) {
  constexpr auto kMode = fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read;
  std::error_code code;
  fs::copy_file(from, to, fs::copy_options::overwrite_existing, code);
  if (!code)
    fs::permissions(to, kMode, fs::perm_options::replace | fs::perm_options::nofollow, code);
  return code ? FromCode(absl::StrCat("copy ", from, " to ", to), code) : absl::OkStatus();
}

int64_t NotedEpoch(const std::string& path) {
  int64_t noted = 0;
  std::ifstream(path + ".epoch") >> noted;
  return noted;
}

// The highest epoch that is known of beside the back-up's. 0 if nothing can be read.
int64_t KnownEpoch(const std::string& path) {
  int64_t noted = NotedEpoch(path);
  sqlite3* handle = nullptr;
  sqlite3_stmt* query = nullptr;
  // Only read, and with no look at its log's end: it may be damaged.
  if (sqlite3_open_v2(path.c_str(), &handle, SQLITE_OPEN_READONLY, nullptr) == SQLITE_OK &&
      sqlite3_prepare_v2(handle, "SELECT value FROM meta WHERE key = 'store_epoch'", -1, &query,
                         nullptr) == SQLITE_OK &&
      sqlite3_step(query) == SQLITE_ROW) {
    noted = std::max<int64_t>(noted, sqlite3_column_int64(query, 0));
  }
  sqlite3_finalize(query);
  sqlite3_close(handle);
  return noted;
}

// Raises `longest_ms` to the longest TTL of the rows that `query` finds.
template <typename Read, typename TtlOf>
absl::Status LookAtTtls(Database& database, const char* query, Read read, TtlOf ttl_of,
                        int64_t* longest_ms) {
  absl::StatusOr<Statement> rows = database.Prepare(query);
  if (!rows.ok()) return rows.status();
  int code;
  while ((code = rows->Step()) == SQLITE_ROW) {
    const auto row = read(static_cast<uint64_t>(rows->Int(0)), rows->Blob(1));
    if (!row.ok()) return database.DataLoss(row.status().message());
    *longest_ms = std::max(*longest_ms, ttl_of(*row));
  }
  return code == SQLITE_DONE ? absl::OkStatus() : database.Error(code, "read it");
}

// Of all that may hold permits, or was promised some.
absl::StatusOr<int64_t> LongestTtl(Database& database) {
  int64_t longest_ms = 0;
  absl::Status status = LookAtTtls(
      database, "SELECT number, record FROM sessions", ReadSession,
      [](const auto& session) { return session->ttl_ms; }, &longest_ms);
  if (status.ok()) {
    status = LookAtTtls(
        database, "SELECT token, record FROM leases", ReadLease,
        [](const auto& row) { return row.lease->ttl_ms; }, &longest_ms);
  }
  if (status.ok()) {
    status = LookAtTtls(
        database, "SELECT number, record FROM waiters", ReadWaiter,
        [](const auto& row) { return row.waiter->ttl_ms; }, &longest_ms);
  }
  if (!status.ok()) return status;
  return longest_ms;
}

absl::StatusOr<int64_t> NewEpoch(int64_t asked, int64_t known) {
  const int64_t step = 1 + std::random_device{}() % kEpochSteps;
  const int64_t epoch = asked != 0 ? asked : std::min(known + step, std::max(known + 1, kEpochMax));
  if (epoch > known && epoch <= kEpochMax) return epoch;
  return absl::InvalidArgumentError(absl::StrCat("sqlite: the epoch must be from ", known + 1,
                                                 " to ", kEpochMax, ", not ", epoch));
}

// The back-up as one file without a log, with its epoch raised, at `path`. The new epoch.
absl::StatusOr<int64_t> Prepare(const RestoreOptions& options, const std::string& path,
                                int64_t known, int64_t* longest_ttl_ms) {
  if (!HasContent(options.from))
    return absl::NotFoundError(absl::StrCat("sqlite: ", options.from, " is not there, or empty"));
  RemoveAll(path);
  if (absl::Status status = Copy(options.from, path); !status.ok()) return status;
  if (HasContent(options.from + kLog)) {
    if (absl::Status status = Copy(options.from + kLog, path + kLog); !status.ok()) return status;
  }
  DatabaseOptions file;
  file.path = path;
  absl::StatusOr<std::unique_ptr<Database>> opened = Database::Open(file);
  if (!opened.ok()) return opened.status();
  Database& database = **opened;
  if (absl::Status status = PrepareSchema(database); !status.ok()) return status;
  const absl::StatusOr<int64_t> old =
      database.QueryInt("SELECT value FROM meta WHERE key = 'store_epoch'");
  if (!old.ok()) return old.status();
  const absl::StatusOr<int64_t> epoch = NewEpoch(options.epoch, std::max(*old, known));
  if (!epoch.ok()) return epoch.status();
  const absl::StatusOr<int64_t> ttl_ms = LongestTtl(database);
  if (!ttl_ms.ok()) return ttl_ms.status();
  *longest_ttl_ms = *ttl_ms;
  const std::string raise =
      absl::StrCat("UPDATE meta SET value = ", *epoch, " WHERE key = 'store_epoch'");
  if (absl::Status status = database.Execute(raise); !status.ok()) return status;
  const absl::StatusOr<int64_t> busy = database.QueryInt("PRAGMA wal_checkpoint(TRUNCATE)");
  if (!busy.ok()) return busy.status();
  opened->reset();
  if (*busy != 0 || HasContent(path + kLog))
    return absl::InternalError(absl::StrCat("sqlite: ", path, ": its log cannot be taken in"));
  if (absl::Status status = Sync(path); !status.ok()) return status;
  return *epoch;
}

// The store goes aside, and `fresh` comes in its place.
absl::Status Exchange(const std::string& path, const std::string& fresh, const std::string& aside,
                      const Owner& owner) {
  const std::string tombstone = path + ".tombstone";
  if (!aside.empty()) {
    std::error_code code;
    fs::create_hard_link(path, aside, code);
    if (code) return FromCode(absl::StrCat("link ", path, " to ", aside), code);
  }
  if (absl::Status status = WriteFile(tombstone, kTombstone, owner); !status.ok()) return status;
  if (absl::Status status = Rename(tombstone, path); !status.ok()) return status;
  if (HasContent(path + kLog) && !aside.empty()) {
    if (absl::Status status = Rename(path + kLog, aside + kLog); !status.ok()) return status;
  }
  std::error_code ignored;
  for (const char* suffix : {kLog, "-shm"}) fs::remove(path + suffix, ignored);
  if (HasContent(path + kLog))
    return absl::UnavailableError(absl::StrCat("sqlite: cannot remove ", path, kLog));
  return Rename(fresh, path);
}

bool IsTombstone(const std::string& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line + "\n" == kTombstone;
}

}  // namespace

absl::StatusOr<Restored> Restore(const RestoreOptions& options) {
  std::error_code missing;
  const bool replaces = fs::exists(options.path, missing);
  absl::StatusOr<std::unique_ptr<FileLock>> lock = FileLock::Take(options.path);
  if (!lock.ok()) return lock.status();
  const std::string path = (*lock)->resolved_path();
  const absl::StatusOr<Owner> owner =
      OwnerOf(replaces ? path : fs::path(path).parent_path().string());
  if (!owner.ok()) return owner.status();
  for (const char* suffix : {"", ".lock"}) {
    if (absl::Status status = GiveTo(*owner, path + suffix); !status.ok()) return status;
  }
  const std::string fresh = path + ".restoring";
  Restored restored;
  if (HasContent(path) && !IsTombstone(path)) {
    restored.aside = path + ".before-restore";
    std::error_code ignored;
    if (fs::exists(restored.aside, ignored)) {
      return absl::FailedPreconditionError(
          absl::StrCat("sqlite: ", restored.aside,
                       " is there, from a restore before: move it away, or remove it"));
    }
  }
  int64_t longest_ttl_ms = 0;
  const int64_t known = std::max(KnownEpoch(path), NotedEpoch(options.from));
  const absl::StatusOr<int64_t> epoch = Prepare(options, fresh, known, &longest_ttl_ms);
  if (!epoch.ok()) {
    RemoveAll(fresh);
    // It is the back-up that is wrong.
    return absl::Status(epoch.status().code(),
                        absl::StrReplaceAll(epoch.status().message(), {{fresh, options.from}}));
  }
  restored.epoch = *epoch;
  absl::Status given = GiveTo(*owner, fresh);
  if (given.ok()) given = Sync(fresh);
  if (!given.ok()) return given;
  // A back-up that cannot be written to has the random step alone.
  if (const absl::StatusOr<Owner> of = OwnerOf(options.from); of.ok())
    static_cast<void>(WriteFile(options.from + ".epoch", absl::StrCat(*epoch, "\n"), *of));
  if (options.wait) options.wait(longest_ttl_ms);
  // First of all: were this not noted, the next restore might give the same epoch again.
  absl::Status status = WriteFile(path + ".epoch", absl::StrCat(*epoch, "\n"), *owner);
  if (status.ok()) status = Exchange(path, fresh, restored.aside, *owner);
  if (!status.ok()) return status;
  RemoveAll(fresh);
  return restored;
}

}  // namespace semaphored::sqlite
