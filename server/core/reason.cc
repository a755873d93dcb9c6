#include "server/core/reason.h"

namespace semaphored {

std::string_view ReasonName(Reason reason) {
  switch (reason) {
    case Reason::kUnspecified:
      return "UNSPECIFIED";
    case Reason::kInvalidField:
      return "INVALID_FIELD";
    case Reason::kFull:
      return "FULL";
    case Reason::kHolderCap:
      return "HOLDER_CAP";
    case Reason::kWaitExpired:
      return "WAIT_EXPIRED";
    case Reason::kLimitMismatch:
      return "LIMIT_MISMATCH";
    case Reason::kExceedsLimit:
      return "EXCEEDS_LIMIT";
    case Reason::kPaused:
      return "PAUSED";
    case Reason::kInUse:
      return "IN_USE";
    case Reason::kWouldOvershoot:
      return "WOULD_OVERSHOOT";
    case Reason::kNoSuchSemaphore:
      return "NO_SUCH_SEMAPHORE";
    case Reason::kNotHeld:
      return "NOT_HELD";
    case Reason::kSessionLost:
      return "SESSION_LOST";
    case Reason::kRequestTooOld:
      return "REQUEST_TOO_OLD";
    case Reason::kRevisionMismatch:
      return "REVISION_MISMATCH";
    case Reason::kAlreadyExists:
      return "ALREADY_EXISTS";
    case Reason::kLimitReached:
      return "LIMIT_REACHED";
    case Reason::kNotSupported:
      return "NOT_SUPPORTED";
    case Reason::kEngineUnavailable:
      return "ENGINE_UNAVAILABLE";
    case Reason::kShuttingDown:
      return "SHUTTING_DOWN";
    case Reason::kNotVouched:
      return "NOT_VOUCHED";
    case Reason::kBelongsToSession:
      return "BELONGS_TO_SESSION";
    case Reason::kDestroyed:
      return "DESTROYED";
    case Reason::kSlowReader:
      return "SLOW_READER";
    case Reason::kWaitCancelled:
      return "WAIT_CANCELLED";
    case Reason::kRequestIdReused:
      return "REQUEST_ID_REUSED";
    case Reason::kEngineCorrupt:
      return "ENGINE_CORRUPT";
    case Reason::kEngineFull:
      return "ENGINE_FULL";
    case Reason::kUnusable:
      return "UNUSABLE";
    case Reason::kNoSuchTicket:
      return "NO_SUCH_TICKET";
    case Reason::kUnauthenticated:
      return "UNAUTHENTICATED";
    case Reason::kPermissionDenied:
      return "PERMISSION_DENIED";
    case Reason::kQuota:
      return "QUOTA";
    case Reason::kMoving:
      return "MOVING";
    case Reason::kCount:
      break;
  }
  return "UNSPECIFIED";
}

Refusal InvalidField(std::string_view field, std::string_view right) {
  Refusal refusal;
  refusal.code = absl::StatusCode::kInvalidArgument;
  refusal.reason = Reason::kInvalidField;
  refusal.message = std::string(field).append(": ").append(right);
  return refusal;
}

}  // namespace semaphored
