// Errors in semctl's own words: the daemon speaks of fields of its protocol, a user typed options.
#ifndef SEMAPHORED_CLIENT_SEMCTL_WORDING_H_
#define SEMAPHORED_CLIENT_SEMCTL_WORDING_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/semaphore/v1/semaphore.pb.h"

namespace semaphore::semctl {

// Whether the command that was called has an option of this name ("--limit").
using HasOption = std::function<bool(const std::string& option)>;

// What is wrong, with options in the place of fields: "ttl_ms: must be 1000 to 86400000, not 5"
// becomes "--ttl: must be 1s to 24h, not 5ms". The semaphore that it is about comes first, unless
// the message names it.
std::string MessageOf(const absl::Status& status, const HasOption& has_option);

// What to do, in options that the command has. Empty if there is nothing to say.
std::string AdviceOf(const absl::Status& status, const HasOption& has_option);

// What the user types for a field of the protocol: "--ttl" for "ttl_ms" or "open.ttl_ms"; the name
// of a positional for others. Empty: the user types nothing for it.
std::string OptionOf(absl::string_view field, const HasOption& has_option);

// "expired", "wait expired"; empty when unspecified.
std::string Text(v1::EndCause cause);

// "granted", "wait ended".
std::string Text(v1::WatchEventKind kind);

// Why a request waits: "the semaphore is paused"; empty when unspecified.
std::string Text(v1::WaitReason reason);

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_WORDING_H_
