#include "server/rpc/status.h"

#include <grpc/grpc.h>

#include <string>

#include "proto/google/rpc/error_details.pb.h"

namespace semaphored {
namespace {

constexpr char kDomain[] = "semaphored";

// Trailers travel in a header block, whose size peers bound (8 KiB by default); the message is in
// it up to three times.
constexpr size_t kMessageBytesMax = 1024;

std::string Bounded(const std::string& text) {
  if (text.size() <= kMessageBytesMax) return text;
  size_t end = kMessageBytesMax;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80)
    --end;  // Whole characters.
  return text.substr(0, end) + "…";
}

void Put(std::string_view key, std::string_view value, google::rpc::ErrorInfo* info) {
  if (!value.empty()) (*info->mutable_metadata())[std::string(key)] = std::string(value);
}

}  // namespace

void ToProto(const Refusal& refusal, std::string_view adapter, google::rpc::Status* status) {
  google::rpc::ErrorInfo info;
  info.set_domain(kDomain);
  info.set_reason(std::string(ReasonName(refusal.reason)));
  Put("semaphore", refusal.semaphore, &info);
  Put("adapter", adapter, &info);
  Put("advice", Bounded(refusal.advice), &info);

  status->set_code(static_cast<int>(refusal.code));
  status->set_message(Bounded(MessageOf(refusal)));
  status->add_details()->PackFrom(info);
  if (!refusal.field.empty()) {
    google::rpc::BadRequest bad;
    google::rpc::BadRequest::FieldViolation* violation = bad.add_field_violations();
    violation->set_field(Bounded(refusal.field));
    violation->set_description(Bounded(refusal.right));
    status->add_details()->PackFrom(bad);
  }
  if (const int64_t retry_ms = RetryAfter(refusal); retry_ms > 0) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(retry_ms / 1000);
    retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(retry_ms % 1000 * 1'000'000));
    status->add_details()->PackFrom(retry);
  }
}

grpc::Status ToStatus(const Refusal& refusal, std::string_view adapter) {
  google::rpc::Status status;
  ToProto(refusal, adapter, &status);
  return grpc::Status(static_cast<grpc::StatusCode>(refusal.code), status.message(),
                      status.SerializeAsString());
}

void CutOff(grpc::ServerContext* context, const grpc::Status& status) {
  const bool known = !status.ok();
  const std::string message =
      known ? status.error_message() : "the client has not read what was sent last, and is cut off";
  grpc_call_cancel_with_status(
      context->c_call(),
      static_cast<grpc_status_code>(known ? status.error_code()
                                          : grpc::StatusCode::RESOURCE_EXHAUSTED),
      message.c_str(), nullptr);
}

Refusal Unreadable() {
  return {absl::StatusCode::kInvalidArgument, Reason::kInvalidField,
          "the request is not a message of this method: its bytes cannot be parsed", "", ""};
}

Refusal ShuttingDown() {
  return {absl::StatusCode::kUnavailable, Reason::kShuttingDown, "the daemon is shutting down", "",
          "repeat the request, here later or at another endpoint"};
}

Refusal FullestStream(size_t streams_bytes_max) {
  return {absl::StatusCode::kResourceExhausted, Reason::kSlowReader,
          "all streams leave more than streams_bytes_max (" + std::to_string(streams_bytes_max) +
              ") bytes unread, and this one most of them",
          "", "read the stream faster, or ask for less on it"};
}

Refusal TooMany(std::string_view name, std::string_view what, size_t most,
                std::string_view advice) {
  Refusal refusal{absl::StatusCode::kResourceExhausted, Reason::kLimitReached, std::string(name),
                  "", std::string(advice)};
  refusal.message += ": this daemon serves no more than " + std::to_string(most) + " ";
  refusal.message += what;
  refusal.message += " at once";
  return refusal;
}

}  // namespace semaphored
