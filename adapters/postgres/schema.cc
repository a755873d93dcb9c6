#include "adapters/postgres/schema.h"

#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "postgres_schema_sql.h"

namespace semaphored::postgres {
namespace {

constexpr std::array<const char*, kSchemaVersion> kMigrations = {kSchema1};

struct Version {
  bool exists = false;
  int version = 0;
  int oldest_daemon = 0;
};

absl::StatusOr<Version> ReadVersion(Connection& connection, const std::string& schema) {
  const Answered exists =
      connection.Run(absl::StrCat("SELECT to_regclass('", schema, ".store') IS NOT NULL"));
  if (!exists.ok) return exists.failure.status;
  Version version;
  version.exists = exists.rows[0][0].as<bool>();
  if (!version.exists) return version;
  const Answered row =
      connection.Run(absl::StrCat("SELECT version, oldest_daemon FROM ", schema, ".store"));
  if (!row.ok) return row.failure.status;
  if (row.rows.empty())
    return absl::DataLossError(absl::StrCat("postgres: the table ", schema, ".store has no row"));
  version.version = row.rows[0][0].as<int>();
  version.oldest_daemon = row.rows[0][1].as<int>();
  return version;
}

absl::Status Judge(const Version& version, const std::string& schema, int known) {
  if (version.oldest_daemon > known) {
    return absl::UnimplementedError(
        absl::StrCat("postgres: schema ", schema, " has version ", version.version,
                     ", made by a newer semaphored, and takes daemons that know version ",
                     version.oldest_daemon, " or later; this one knows ", known));
  }
  return absl::OkStatus();
}

// To the next version, in a transaction of its own: what one migration has locked no daemon that is
// at work waits for while the next waits for that daemon.
absl::Status Migrate(Connection& connection, const std::string& schema, const char* migration) {
  // An existing schema needs no right to make one.
  std::string step = ForSchema(migration, schema);
  const Answered there =
      connection.Run(absl::StrCat("SELECT to_regnamespace('", schema, "') IS NOT NULL"));
  if (!there.ok) return there.failure.status;
  if (there.rows[0][0].as<bool>()) {
    step = absl::StrReplaceAll(step,
                               {{absl::StrCat("CREATE SCHEMA IF NOT EXISTS ", schema, ";"), ""}});
  }
  if (Answered begun = connection.Run("BEGIN"); !begun.ok) return begun.failure.status;
  const Answered done = connection.Run(step);
  if (!done.ok) {
    if (done.failure.state != "42501") return done.failure.status;
    return absl::PermissionDeniedError(absl::StrCat(
        done.failure.status.message(), ": to make the schema ", schema,
        " this user needs CREATE on the database, or on the schema if it exists; or run what "
        "`semaphored schema --print` prints as its owner"));
  }
  const Answered committed = connection.Run("COMMIT");
  return committed.ok ? absl::OkStatus() : committed.failure.status;
}

}  // namespace

Migrations OwnMigrations() { return kMigrations; }

std::string ForSchema(std::string sql, const std::string& schema) {
  if (schema == "semaphored") return sql;
  return absl::StrReplaceAll(
      sql, {{"semaphored.", absl::StrCat(schema, ".")},
            {"'semaphored_'", absl::StrCat("'", schema, "_'")},
            {"SCHEMA IF NOT EXISTS semaphored", absl::StrCat("SCHEMA IF NOT EXISTS ", schema)}});
}

std::string SchemaSql(const std::string& schema) {
  std::string sql;
  for (const char* each : kMigrations) sql += each;
  return ForSchema(std::move(sql), schema);
}

absl::Status PrepareSchema(Connection& connection, const std::string& schema, bool manage,
                           Migrations migrations) {
  const auto known = static_cast<int>(migrations.size());
  absl::StatusOr<Version> version = ReadVersion(connection, schema);
  if (!version.ok()) return version.status();
  if (version->exists && version->version >= known) return Judge(*version, schema, known);
  if (!manage) {
    return absl::FailedPreconditionError(absl::StrCat(
        "postgres: schema ", schema,
        version->exists ? absl::StrCat(" has version ", version->version) : " is absent",
        "; the URL says manage_schema=no: run what `semaphored schema --print` prints, as its "
        "owner"));
  }
  // One daemon after the other: the second finds it done.
  // (A lock of the session, taken before the transaction: the transaction then reads what the first
  // daemon has left, not what was remembered of the catalogue.)
  const std::string lock = absl::StrCat("(hashtext('semaphored'), hashtext('", schema, "'))");
  // Making a schema takes longer than a commit: it is waited for until the statement's own time is over.
  if (Answered locked = connection.Run(
          "BEGIN; SET LOCAL lock_timeout = 0; SELECT pg_advisory_lock" + lock + "; COMMIT");
      !locked.ok) {
    connection.Run("ROLLBACK");
    return absl::UnavailableError(
        absl::StrCat("postgres: another process makes or changes the schema ", schema,
                     " right now, or keeps its advisory lock: ", locked.failure.status.message()));
  }
  const auto give_up = [&](absl::Status status) {
    connection.Run("ROLLBACK; SELECT pg_advisory_unlock" + lock);
    return status;
  };
  version = ReadVersion(connection, schema);
  if (!version.ok()) return give_up(version.status());
  for (int from = version->exists ? version->version : 0; from < known; ++from) {
    if (absl::Status status = Migrate(connection, schema, migrations[from]); !status.ok())
      return give_up(std::move(status));
  }
  if (Answered done = connection.Run("SELECT pg_advisory_unlock" + lock); !done.ok)
    return done.failure.status;
  version = ReadVersion(connection, schema);
  return version.ok() ? Judge(*version, schema, known) : version.status();
}

}  // namespace semaphored::postgres
