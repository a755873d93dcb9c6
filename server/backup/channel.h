// How `semaphored backup` speaks with the daemon that has the store: over a Unix socket beside the
// store's file, which only the daemon's user and root can open. Each message is one packet of text,
// and may carry a file descriptor.
//
//   client → daemon  backup 1 BYTES_PER_SECOND
//   daemon → client  progress DONE_BYTES ALL_BYTES    any number of them
//                    done BYTES                       with the copy's descriptor; the last one
//                    failed MESSAGE                   the last one
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "adapters/common/descriptor.h"
#include "server/base/clock.h"

namespace semaphored {

inline constexpr size_t kBackUpMessageBytesMax = 2'000;

struct BackUpMessage {
  std::string text;
  Descriptor file;  // Of "done".
};

// The socket's path for the store in this file; symbolic links are followed.
std::string BackUpSocketOf(const std::string& store_file);

// A socket that listens at `path`, in the place of what is there, for this user alone. UNAVAILABLE,
// PERMISSION_DENIED, NOT_FOUND: and why.
absl::StatusOr<Descriptor> ListenForBackUps(const std::string& path);

// NOT_FOUND: no daemon has the store. PERMISSION_DENIED: this user may not.
absl::StatusOr<Descriptor> ConnectForBackUp(const std::string& path);

// Sends a message whole, within `time`; 0: if there is room at once. False: it could not be sent.
// `file` -1: none.
bool SendBackUpMessage(int channel, const std::string& text, int file, Milliseconds time);

// nullopt: the other side has gone, or nothing has come within `time`. Blocks.
std::optional<BackUpMessage> ReceiveBackUpMessage(int channel, Milliseconds time);

}  // namespace semaphored
