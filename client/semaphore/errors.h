// What a status of the client says beyond its code.
//
// The daemon explains every error by a google.rpc.ErrorInfo; the client keeps it in the
// absl::Status that it gives back, also for the errors that it finds itself.
#ifndef SEMAPHORED_CLIENT_SEMAPHORE_ERRORS_H_
#define SEMAPHORED_CLIENT_SEMAPHORE_ERRORS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace semaphore {

// The reason, as in the Reason enum of the .proto without REASON_: "FULL", "WAIT_EXPIRED",
// "LIMIT_MISMATCH" … The client's own is "UNREACHABLE": no endpoint answered. Empty if the status
// carries none.
std::string ErrorReason(const absl::Status& status);

// A detail of the error: `key` is "semaphore", "adapter" or "advice". Empty if there is none.
std::string ErrorDetail(const absl::Status& status, absl::string_view key);

}  // namespace semaphore

#endif  // SEMAPHORED_CLIENT_SEMAPHORE_ERRORS_H_
