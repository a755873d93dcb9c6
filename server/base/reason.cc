#include "server/base/reason.h"

#include <array>

namespace semaphored {
namespace {

// By number.
constexpr std::array<std::string_view, static_cast<size_t>(Reason::kCount)> kNames = {
    "UNSPECIFIED",
    "INVALID_FIELD",
    "FULL",
    "HOLDER_CAP",
    "WAIT_EXPIRED",
    "LIMIT_MISMATCH",
    "EXCEEDS_LIMIT",
    "PAUSED",
    "IN_USE",
    "WOULD_OVERSHOOT",
    "NO_SUCH_SEMAPHORE",
    "NOT_HELD",
    "SESSION_LOST",
    "REQUEST_TOO_OLD",
    "REVISION_MISMATCH",
    "ALREADY_EXISTS",
    "LIMIT_REACHED",
    "NOT_SUPPORTED",
    "ENGINE_UNAVAILABLE",
    "SHUTTING_DOWN",
    "NOT_VOUCHED",
    "BELONGS_TO_SESSION",
    "DESTROYED",
    "SLOW_READER",
    "WAIT_CANCELLED",
    "REQUEST_ID_REUSED",
    "ENGINE_CORRUPT",
    "ENGINE_FULL",
    "UNUSABLE",
    "NO_SUCH_TICKET",
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
    "QUOTA",
    "MOVING",
};
static_assert(!kNames.back().empty(), "a reason without a name");

}  // namespace

std::string_view ReasonName(Reason reason) {
  const auto number = static_cast<size_t>(reason);
  return number < kNames.size() ? kNames.at(number) : kNames.front();
}

Refusal InvalidField(std::string_view field, std::string_view right) {
  Refusal refusal;
  refusal.code = absl::StatusCode::kInvalidArgument;
  refusal.reason = Reason::kInvalidField;
  refusal.message = std::string(field).append(": ").append(right);
  refusal.field = field;
  refusal.right = right;
  return refusal;
}

Refusal Within(std::string_view parent, Refusal refusal) {
  refusal.message.insert(0, std::string(parent) + ".");
  if (!refusal.field.empty()) refusal.field.insert(0, std::string(parent) + ".");
  return refusal;
}

std::string MessageOf(const Refusal& refusal) {
  if (refusal.semaphore.empty() || refusal.message.find(refusal.semaphore) != std::string::npos)
    return refusal.message;
  return refusal.semaphore + ": " + refusal.message;
}

int64_t RetryAfter(const Refusal& refusal) {
  constexpr int64_t kSoonMs = 200;
  constexpr int64_t kLaterMs = 1'000;
  if (refusal.retry_after_ms > 0) return refusal.retry_after_ms;
  switch (refusal.reason) {
    case Reason::kFull:
    case Reason::kHolderCap:
    case Reason::kPaused:
    case Reason::kInUse:
    case Reason::kLimitReached:
    case Reason::kEngineFull:
    case Reason::kQuota:
    case Reason::kShuttingDown:
      return kLaterMs;
    case Reason::kEngineUnavailable:
    case Reason::kNotVouched:
    case Reason::kMoving:
      return kSoonMs;
    case Reason::kUnspecified:
    case Reason::kInvalidField:
    case Reason::kWaitExpired:
    case Reason::kLimitMismatch:
    case Reason::kExceedsLimit:
    case Reason::kWouldOvershoot:
    case Reason::kNoSuchSemaphore:
    case Reason::kNotHeld:
    case Reason::kSessionLost:
    case Reason::kRequestTooOld:
    case Reason::kRevisionMismatch:
    case Reason::kAlreadyExists:
    case Reason::kNotSupported:
    case Reason::kBelongsToSession:
    case Reason::kDestroyed:
    case Reason::kSlowReader:
    case Reason::kWaitCancelled:
    case Reason::kRequestIdReused:
    case Reason::kEngineCorrupt:
    case Reason::kUnusable:
    case Reason::kNoSuchTicket:
    case Reason::kUnauthenticated:
    case Reason::kPermissionDenied:
    case Reason::kCount:
      return 0;
  }
  return 0;
}

}  // namespace semaphored
