// Inside the client: from the statuses of gRPC and of a session's results to absl's, details
// included.
#ifndef SEMAPHORED_CLIENT_SEMAPHORE_STATUS_CONVERSION_H_
#define SEMAPHORED_CLIENT_SEMAPHORE_STATUS_CONVERSION_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/google/rpc/status.pb.h"

namespace semaphore {

// The same code and message, with what is in the details, if anything.
absl::Status ToAbslStatus(const grpc::Status& status);

// Of one command of a stream. `error.code()` of 0 would be a fault of the daemon and becomes INTERNAL.
absl::Status ToAbslStatus(const ::google::rpc::Status& error);

// A status that carries an ErrorInfo with this reason.
absl::Status MakeError(absl::StatusCode code, absl::string_view message, absl::string_view reason);

// What ErrorDetail() then returns.
void SetErrorDetail(absl::string_view key, absl::string_view value, absl::Status* status);

}  // namespace semaphore

#endif  // SEMAPHORED_CLIENT_SEMAPHORE_STATUS_CONVERSION_H_
