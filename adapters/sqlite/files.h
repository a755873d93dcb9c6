// Files of the embedded store that are moved as a whole, so that a power failure leaves the old one or the new one.
#pragma once

#include <sys/types.h>

#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace semaphored::sqlite {

// "cannot DOING: …" as NOT_FOUND, PERMISSION_DENIED or UNAVAILABLE.
absl::Status FromCode(const std::string& doing, const std::error_code& code);

// So that a change of the file, or of the folder, outlives a power failure. Blocks.
absl::Status Sync(const std::string& path);
absl::Status SyncFolderOf(const std::string& path);

// In the place of what is there. Blocks.
absl::Status Rename(const std::string& from, const std::string& to);

// The user and the group that a file belongs to.
struct Owner {
  uid_t user = 0;
  gid_t group = 0;
};
absl::StatusOr<Owner> OwnerOf(const std::string& path);
// Only root can give a file away: for others, whose files are their own, this does nothing. Follows
// no link, which the folder's owner may have put there. Durable as of the next Sync of the file.
absl::Status GiveTo(const Owner& owner, const std::string& path);

}  // namespace semaphored::sqlite
