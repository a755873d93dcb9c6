// What the URL of a Postgres store says.
//
//   postgres://user:password@host:port/database?schema=semaphored&lanes=2&sslmode=verify-full
//   postgres:///?service=name          (a service of libpq)
//   postgres://user@one,two/database   (whichever of them takes writes)
//
// Options of ours: schema, lanes, history_rows, history_age_ms, timeout_ms, password_file,
// manage_schema. All others are libpq's, as is the form of the rest, and so are its environment
// variables (PGPASSFILE, PGSERVICEFILE, PGSSLROOTCERT …).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace semaphored::postgres {

struct Url {
  std::string connection;  // For libpq; may hold a password.
  std::string schema = "semaphored";
  uint32_t lanes = 2;
  uint64_t history_rows = 100'000;  // Leases that have ended, to keep. 0: none.
  int64_t history_age_ms = int64_t{30} * 24 * 3'600'000;  // And for how long.
  // For each answer of the server; after that the connection is given up.
  std::chrono::milliseconds timeout{2500};
  bool manage_schema = true;  // Make and migrate the schema; false: it must be there.
};

// INVALID_ARGUMENT: what is wrong, without a password.
absl::StatusOr<Url> ReadUrl(const std::string& text);

}  // namespace semaphored::postgres
