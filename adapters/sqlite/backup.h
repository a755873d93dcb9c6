// A copy of the store's file, made while the daemon commits to it, by SQLite's own online back-up.
//
// The daemon has the file for itself, so the copy is made on the daemon's own connection: the pages
// that its log and its buffers have are in it. SQLite writes each later change of a page that was
// copied into the copy as well, in the commit that makes it. The copy is therefore the store as it
// stands when the last page is copied: every commit that won before is in it.
//
// The copy lies in the store's folder, under no name: it is gone with the process, however that
// ends. It is there, and not where the operator wants it, since commits write to it: a disk that
// hangs elsewhere must not delay them. The caller copies it on from its descriptor.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "adapters/common/descriptor.h"
#include "adapters/sqlite/database.h"

namespace semaphored::sqlite {

struct BackUpOptions {
  int64_t bytes_per_second = 0;  // Of what is copied; more than 0.
  // Called after each step, of some ms at most, without the database's mutex; with the bytes that
  // are copied, and that there are. False: stop.
  std::function<bool(int64_t done_bytes, int64_t all_bytes)> progress;
};

// The complete copy, on disk, open for reading. Runs on a thread of its own: it takes the
// database's mutex for a few ms at a time, and leaves it alone for at least as long.
//   FAILED_PRECONDITION  the store is in memory
//   CANCELLED            progress returned false
//   RESOURCE_EXHAUSTED   the folder's disk has no room for the copy and kRoomKept beside it
//   UNAVAILABLE, DATA_LOSS, PERMISSION_DENIED  a file cannot be read or written
absl::StatusOr<Descriptor> BackUp(Database* database, const BackUpOptions& options);

// What the copy leaves free on the disk, for the commits to come. Bytes.
inline constexpr int64_t kRoomKept = int64_t{64} << 20;

}  // namespace semaphored::sqlite
