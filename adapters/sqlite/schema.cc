#include "adapters/sqlite/schema.h"

#include <spdlog/spdlog.h>

#include <filesystem>
#include <iterator>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "adapters/sqlite/files.h"

namespace semaphored::sqlite {
namespace {

namespace fs = std::filesystem;

// Each takes a file from the version of its index to the next. Never changed once released: a new
// version is a new entry.
constexpr const char* kMigrations[] = {
    R"sql(
      CREATE TABLE meta(key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
      INSERT INTO meta VALUES('store_epoch', 0), ('tokens_reserved', 0), ('revision_floor', 0);
      CREATE TABLE nodes(number INTEGER PRIMARY KEY, node_id TEXT NOT NULL, incarnation INTEGER NOT NULL);
      CREATE TABLE semaphores(number INTEGER PRIMARY KEY, name TEXT NOT NULL, record BLOB NOT NULL);
      CREATE TABLE revisions(semaphore INTEGER PRIMARY KEY, revision INTEGER NOT NULL, next_order INTEGER NOT NULL);
      CREATE TABLE leases(token INTEGER PRIMARY KEY, record BLOB NOT NULL);
      CREATE TABLE waiters(number INTEGER PRIMARY KEY, record BLOB NOT NULL);
      CREATE TABLE sessions(number INTEGER PRIMARY KEY, record BLOB NOT NULL);
      CREATE TABLE clients(number INTEGER PRIMARY KEY, client_id TEXT NOT NULL, since INTEGER NOT NULL);
      CREATE TABLE requests(number INTEGER PRIMARY KEY, record BLOB NOT NULL);
      CREATE TABLE history(first INTEGER PRIMARY KEY, record BLOB NOT NULL);
      CREATE TABLE tickets(number INTEGER PRIMARY KEY, record BLOB NOT NULL);
      CREATE TABLE payloads(number INTEGER PRIMARY KEY, record BLOB NOT NULL);
    )sql",
};
static_assert(std::size(kMigrations) == kSchemaVersion);

absl::Status Migrate(Database& database, size_t from, absl::Span<const char* const> migrations) {
  std::string script = "BEGIN IMMEDIATE;";
  for (const char* migration : migrations.subspan(from)) script += migration;
  absl::StrAppend(&script, "PRAGMA application_id=", kApplicationId,
                  ";PRAGMA user_version=", migrations.size(), ";COMMIT;");
  absl::Status status = database.Execute(script);
  if (!status.ok()) database.Rollback();
  return status;
}

// The file as it is, beside it: a migration cannot be undone. What an interrupted attempt has left is replaced.
absl::Status KeepCopy(Database& database, int64_t version) {
  if (database.in_memory()) return absl::OkStatus();
  const std::string copy = absl::StrCat(database.name(), ".version-", version);
  const std::string fresh = copy + ".new";
  std::error_code code;
  fs::remove(fresh, code);
  absl::Status status = database.Execute(
      absl::StrCat("VACUUM INTO '", absl::StrReplaceAll(fresh, {{"'", "''"}}), "'"));
  if (!status.ok()) return status;
  fs::permissions(fresh, fs::status(database.name(), code).permissions(), code);
  if (status = Sync(fresh); !status.ok()) return status;
  if (status = Rename(fresh, copy); !status.ok()) return status;
  spdlog::warn("sqlite: {} is brought to a newer schema; as it was before, it is kept as {}",
               database.name(), copy);
  return absl::OkStatus();
}

}  // namespace

absl::Span<const char* const> Migrations() { return kMigrations; }

absl::Status PrepareSchema(Database& database, absl::Span<const char* const> migrations) {
  const auto newest = static_cast<int64_t>(migrations.size());
  absl::StatusOr<int64_t> version = database.QueryInt("PRAGMA user_version");
  if (!version.ok()) return version.status();
  absl::StatusOr<int64_t> application = database.QueryInt("PRAGMA application_id");
  if (!application.ok()) return application.status();
  absl::StatusOr<int64_t> tables = database.QueryInt("SELECT count(*) FROM sqlite_master");
  if (!tables.ok()) return tables.status();

  const bool empty = *version == 0 && *application == 0 && *tables == 0;
  if (!empty && *application != kApplicationId) {
    return absl::UnimplementedError(
        absl::StrCat("sqlite: ", database.name(), " is a database of another program"));
  }
  if (*version > newest) {
    return absl::UnimplementedError(
        absl::StrCat("sqlite: ", database.name(), " has schema version ", *version,
                     ", made by a newer semaphored; this one knows versions up to ", newest));
  }
  if (!empty && *version < 1) {
    return absl::DataLossError(absl::StrCat("sqlite: ", database.name(), " has no schema version"));
  }
  if (!empty && !database.can_shrink()) {
    spdlog::warn(
        "sqlite: {} was made by an earlier build, and keeps its size when tickets go; "
        "docs/operations.md says how to change that",
        database.name());
  }
  if (*version == newest) return absl::OkStatus();
  if (!empty) {
    if (absl::Status status = KeepCopy(database, *version); !status.ok()) return status;
  }
  return Migrate(database, static_cast<size_t>(*version), migrations);
}

}  // namespace semaphored::sqlite
