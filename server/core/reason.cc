#include "server/core/reason.h"

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
  return refusal;
}

}  // namespace semaphored
