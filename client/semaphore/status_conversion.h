// Inside the client: from the statuses of gRPC and of a session's results to absl's, details
// included.
#ifndef SEMAPHORED_CLIENT_SEMAPHORE_STATUS_CONVERSION_H_
#define SEMAPHORED_CLIENT_SEMAPHORE_STATUS_CONVERSION_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/semaphore/v1/semaphore.pb.h"

namespace semaphore {

// The same code and message, with the ErrorInfo that is in the details, if any.
absl::Status ToAbslStatus(const grpc::Status& status);

// `error.code()` of 0 would be a fault of the daemon and becomes INTERNAL.
absl::Status ToAbslStatus(const ::semaphore::v1::SessionError& error);

// A status that carries an ErrorInfo with this reason.
absl::Status MakeError(absl::StatusCode code, absl::string_view message, absl::string_view reason);

// "FULL" for REASON_FULL; empty for REASON_UNSPECIFIED.
std::string ReasonName(::semaphore::v1::Reason reason);

}  // namespace semaphore

#endif  // SEMAPHORED_CLIENT_SEMAPHORE_STATUS_CONVERSION_H_
