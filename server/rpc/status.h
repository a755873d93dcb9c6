// Refusals on the wire.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <cstddef>
#include <string_view>

#include "proto/google/rpc/status.pb.h"
#include "server/base/reason.h"

namespace semaphored {

// Code, message, and in the details a google.rpc.ErrorInfo: domain "semaphored", the reason's name, and in
// its metadata "semaphore", "adapter" and "advice" where they are not empty. A BadRequest if a field is
// wrong, and a RetryInfo if waiting helps.
void ToProto(const Refusal& refusal, std::string_view adapter, google::rpc::Status* status);

// The same as the end of a call.
grpc::Status ToStatus(const Refusal& refusal, std::string_view adapter);

// Ends a call whose client does not take what was sent: a status that waits behind that would never
// leave. What has not left is lost; the client sees the code and message of `status`, or
// RESOURCE_EXHAUSTED if that is OK.
void CutOff(grpc::ServerContext* context, const grpc::Status& status);

// ---- Refusals of the service itself ----

// The bytes are not a message of the method.
Refusal Unreadable();
Refusal ShuttingDown();
// All streams together leave more than so many bytes unread, and this one most of them.
Refusal FullestStream(size_t streams_bytes_max);
// More than `most` of `what` ("streams"), which the setting `name` bounds.
Refusal TooMany(std::string_view name, std::string_view what, size_t most, std::string_view advice);

}  // namespace semaphored
