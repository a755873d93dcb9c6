// The unary protocol of Connect (connectrpc.com/docs/protocol) as far as it is words: codes, errors,
// time limits and messages as JSON. Any thread.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/status.h>

#include <optional>
#include <string>
#include <string_view>

#include "proto/google/rpc/status.pb.h"
#include "server/base/clock.h"
#include "server/base/reason.h"
#include "server/http/message.h"

namespace semaphored::web {

// "resource_exhausted", and the status of HTTP that goes with it.
std::string_view CodeName(grpc::StatusCode code);
http::Status HttpStatus(grpc::StatusCode code);

// {"code", "message", "details": [{"type", "value", "debug"}]}.
std::string ErrorJson(const google::rpc::Status& status);
// Of the end of a call: with the details that came along.
google::rpc::Status StatusOf(const grpc::Status& status);

// An answer that is an error; `status` instead of the code's own where it is given.
http::Response ErrorResponse(const google::rpc::Status& status,
                             std::optional<http::Status> http_status = std::nullopt);
http::Response ErrorResponse(const Refusal& refusal,
                             std::optional<http::Status> http_status = std::nullopt);

// What the server of HTTP refuses by itself (http::ServerOptions::refusal), with the status that it has chosen. The codes are
// those of gRPC's refusals for the same cause. `body_bytes_max`: of one body.
http::Response EarlyRefusal(http::Status status, size_t body_bytes_max);

// Compressed, if that is worth it and the client takes it.
http::Response JsonResponse(std::string json, bool takes_gzip);

// With every scalar field, also where it has its default: "held": false.
std::string ToJson(const google::protobuf::Message& message);
// Names of fields in either form. Refused: INVALID_ARGUMENT, with the path of the field. A field that the message does
// not have is refused, too: a wrong name would otherwise be the default.
// So is what is not JSON, and a field that stands twice.
std::optional<Refusal> FromJson(std::string_view json, google::protobuf::Message* message);

// Connect-Protocol-Version. Refused: it is there, and not 1.
std::optional<Refusal> CheckVersion(const http::Request& request);
// Connect-Timeout-Ms: nullopt if it is not there. Refused: it is no number of at most ten digits.
std::optional<Refusal> TimeoutOf(const http::Request& request,
                                 std::optional<Milliseconds>* timeout);

}  // namespace semaphored::web
