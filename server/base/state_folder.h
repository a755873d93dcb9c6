// Where the daemon keeps its state when no store is named: a folder for the embedded store.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace semaphored {

struct StateFolder {
  std::string path;
  std::string why;  // For the log: "$STATE_DIRECTORY", "…".
};

// The first folder of $STATE_DIRECTORY (systemd sets it); else /var/lib/semaphored, where `may_write` says
// so; else $XDG_STATE_HOME/semaphored, or ~/.local/state/semaphored. INVALID_ARGUMENT: there is none of
// them.
absl::StatusOr<StateFolder> FindStateFolder(
    const std::vector<std::pair<std::string, std::string>>& environment,
    const std::function<bool(const std::string& path)>& may_write);

// This process may write in the folder, or may make it.
bool MayWriteIn(const std::string& path);

// Makes the folder, and those above it, unless it is there; for this user alone.
absl::Status MakeStateFolder(const std::string& path);

}  // namespace semaphored
