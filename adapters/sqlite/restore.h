// Puts a back-up of the embedded store in the store's place, so that the promises hold of it:
// no holder has a grant any more that the back-up does not know, and all tokens to come are above
// those of such grants.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace semaphored::sqlite {

struct RestoreOptions {
  std::string path;  // Of the store.
  // Of the back-up; beside it, as FILE-wal, the log that was copied with it, if there was one. Only
  // read.
  std::string from;
  // The new epoch, the high bits of every token. 0: above the highest that is known of, from the
  // back-up, the store that is replaced, and the files PATH.epoch and FROM.epoch, where each restore
  // notes its own. By how much is random: of two copies of one back-up, restored where neither knows
  // of the other, the tokens hardly meet.
  int64_t epoch = 0;
  // Called when all is ready and checked, with the longest TTL of what the back-up knows: sessions,
  // leases and waiters; 0 if there are none. Returns when the longest TTL has passed since, so that
  // every holder of a grant has stopped. The store's lock is held meanwhile: nothing is granted.
  std::function<void(int64_t longest_ttl_ms)> wait;
};

struct Restored {
  int64_t epoch = 0;
  std::string aside;  // Where the store that was replaced is now. Empty: there was none.
};

// At each moment the store is the old one, the new one, or cannot be opened at all, whatever kills
// this: then it is called again. Called by root, it gives what it makes to the owner of the store that
// is replaced; of the folder, if there is none. Blocks.
//   FAILED_PRECONDITION  a daemon has the store; a store that was put aside before is still there
//   UNIMPLEMENTED        the back-up is another program's, or a newer daemon's
//   DATA_LOSS            the back-up is damaged
//   INVALID_ARGUMENT     epoch is not above those known of, or over 32767
//   NOT_FOUND, UNAVAILABLE, PERMISSION_DENIED  a file cannot be read, or written
absl::StatusOr<Restored> Restore(const RestoreOptions& options);

}  // namespace semaphored::sqlite
