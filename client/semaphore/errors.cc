#include "client/semaphore/errors.h"

#include "absl/strings/cord.h"
#include "client/semaphore/status_conversion.h"
#include "proto/google/rpc/error_details.pb.h"
#include "proto/google/rpc/status.pb.h"

namespace semaphore {
namespace {

constexpr char kErrorInfoUrl[] = "type.googleapis.com/google.rpc.ErrorInfo";

// Default values if the status carries no ErrorInfo, or one that cannot be read.
google::rpc::ErrorInfo InfoOf(const absl::Status& status) {
  google::rpc::ErrorInfo info;
  const absl::optional<absl::Cord> payload = status.GetPayload(kErrorInfoUrl);
  if (payload.has_value() && !info.ParseFromString(std::string(*payload))) info.Clear();
  return info;
}

}  // namespace

std::string ErrorReason(const absl::Status& status) { return InfoOf(status).reason(); }

std::string ErrorDetail(const absl::Status& status, absl::string_view key) {
  const google::rpc::ErrorInfo info = InfoOf(status);
  const auto found = info.metadata().find(std::string(key));
  return found == info.metadata().end() ? std::string() : found->second;
}

void SetErrorDetail(absl::string_view key, absl::string_view value, absl::Status* status) {
  google::rpc::ErrorInfo info = InfoOf(*status);
  (*info.mutable_metadata())[std::string(key)] = std::string(value);
  status->SetPayload(kErrorInfoUrl, absl::Cord(info.SerializeAsString()));
}

absl::Status MakeError(absl::StatusCode code, absl::string_view message, absl::string_view reason) {
  absl::Status result(code, message);
  if (reason.empty()) return result;
  google::rpc::ErrorInfo info;
  info.set_domain("semaphored");
  info.set_reason(std::string(reason));
  result.SetPayload(kErrorInfoUrl, absl::Cord(info.SerializeAsString()));
  return result;
}

absl::Status ToAbslStatus(const google::rpc::Status& error) {
  if (error.code() == 0) return absl::InternalError("the daemon sent an error without a code");
  absl::Status result(static_cast<absl::StatusCode>(error.code()), error.message());
  for (const google::protobuf::Any& detail : error.details())
    result.SetPayload(detail.type_url(), absl::Cord(detail.value()));
  return result;
}

absl::Status ToAbslStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  google::rpc::Status error;
  if (!error.ParseFromString(status.error_details())) error.Clear();
  // What the call ended with holds, whatever its details say.
  error.set_code(status.error_code());
  error.set_message(status.error_message());
  return ToAbslStatus(error);
}

}  // namespace semaphore
