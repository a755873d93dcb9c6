// Files of the embedded store that are moved as a whole, so that a power failure leaves the old one or the new one.
#pragma once

#include <string>
#include <system_error>

#include "absl/status/status.h"

namespace semaphored::sqlite {

// "cannot DOING: …" as NOT_FOUND, PERMISSION_DENIED or UNAVAILABLE.
absl::Status FromCode(const std::string& doing, const std::error_code& code);

// So that a change of the file, or of the folder, outlives a power failure. Blocks.
absl::Status Sync(const std::string& path);
absl::Status SyncFolderOf(const std::string& path);

// In the place of what is there. Blocks.
absl::Status Rename(const std::string& from, const std::string& to);

}  // namespace semaphored::sqlite
