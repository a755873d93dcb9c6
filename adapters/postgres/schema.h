// The tables, as plain SQL, and how a database comes to have them. A version is a file
// schema_<n>.sql, which takes a database from the version before to this one and never changes once
// it is released.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "adapters/postgres/connection.h"

namespace semaphored::postgres {

inline constexpr int kSchemaVersion = 1;

// Each takes a database from the version of its index to the next.
using Migrations = absl::Span<const char* const>;
Migrations OwnMigrations();

// What `semaphored schema --print` shows: everything, for an empty database.
std::string SchemaSql(const std::string& schema);

// `sql`, written for the schema "semaphored", for another one.
std::string ForSchema(std::string sql, const std::string& schema);

// Makes or migrates the schema under an advisory lock, if `manage`; otherwise only looks.
// FAILED_PRECONDITION: it is absent or too old. UNIMPLEMENTED: it is too new. PERMISSION_DENIED: what right is missing.
// What `migrations` make, a daemon knows.
absl::Status PrepareSchema(Connection& connection, const std::string& schema, bool manage,
                           Migrations migrations = OwnMigrations());

}  // namespace semaphored::postgres
