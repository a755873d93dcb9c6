// A virtual file system for SQLite that hands a transaction's part of the write-ahead log to the
// system in one write, where SQLite makes two for each page: a tenth of what a small commit costs.
//
// What is appended to the log is kept in memory until the log is synced, read, cut, measured or
// closed, or the next write does not continue it. So the sync returns the error of a write: for a
// full disk SQLITE_FULL, and then the end of the transaction is not in the log, since it comes
// last. Only for connections with synchronous=FULL, which sync the log in each commit. All other
// files are the underlying system's own.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace semaphored::sqlite {

// The name of the one above `base` (empty: SQLite's first choice), which is registered when it is
// asked for first, and stays. NOT_FOUND: there is no `base`. Any thread.
absl::StatusOr<std::string> LogBufferVfs(const std::string& base);

}  // namespace semaphored::sqlite
