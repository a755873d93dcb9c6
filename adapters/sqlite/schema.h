// The tables, and how a file of an earlier version becomes one of this version.
//
//   meta        numbers of the whole store, by name (below)
//   nodes       a row for each node id that ever had the file, with its incarnation
//   semaphores  name and record (record.h) by number; all else refers to a semaphore by its number
//   revisions   what changes with every commit, apart from the rest so that hundreds fit on a page
//   leases      by token, so that rows are added at the end
//   waiters, sessions   by a number that rises, for the same reason: random keys cost a factor of
//               three
//   clients     names of the clients whose requests are remembered; `since` is the first row of
//               `requests` that can hold any of theirs, for a client's number is used again once it
//               is forgotten
//   tickets     by a number that rises
//   payloads    by the ticket's number, apart, since a ticket is written with each step of its way
//               and its payload once
//   requests, history   logs: one row for each commit, with all that it adds (record.h); cut at the
//               front
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "adapters/sqlite/database.h"

namespace semaphored::sqlite {

// In the file's header (PRAGMA application_id), for `file` and for us: "SemD".
inline constexpr int64_t kApplicationId = 0x53656d44;
// In the header as PRAGMA user_version.
inline constexpr int64_t kSchemaVersion = 1;

// Rows of `meta`.
// High bits of every token; raised when a back-up is restored.
inline constexpr char kMetaEpoch[] = "store_epoch";
// No token's counter has been above this; see store.h.
inline constexpr char kMetaTokens[] = "tokens_reserved";
// No semaphore that was destroyed had a higher revision.
inline constexpr char kMetaRevisions[] = "revision_floor";

// The scripts that lead from each version to the next; the first one makes the tables.
absl::Span<const char* const> Migrations();

// Makes the tables in an empty file, or migrates, in one transaction; what was there before is kept as
// FILE.version-N, and the log says so. `migrations` is another list in
// tests only.
// UNIMPLEMENTED: the file is of a newer version, or it is another program's database.
// DATA_LOSS: damaged.
absl::Status PrepareSchema(Database& database,
                           absl::Span<const char* const> migrations = Migrations());

}  // namespace semaphored::sqlite
