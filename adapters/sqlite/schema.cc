#include "adapters/sqlite/schema.h"

#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"

namespace semaphored::sqlite {
namespace {

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
    return absl::FailedPreconditionError(
        absl::StrCat("sqlite: ", database.name(), " is a database of another program"));
  }
  if (*version > newest) {
    return absl::FailedPreconditionError(
        absl::StrCat("sqlite: ", database.name(), " has schema version ", *version,
                     ", made by a newer semaphored; this one knows versions up to ", newest));
  }
  if (!empty && *version < 1) {
    return absl::DataLossError(absl::StrCat("sqlite: ", database.name(), " has no schema version"));
  }
  if (*version == newest) return absl::OkStatus();
  return Migrate(database, static_cast<size_t>(*version), migrations);
}

}  // namespace semaphored::sqlite
