// Why a request was refused: what becomes of a gRPC status and its ErrorInfo.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace semaphored {

// The numbers are those of semaphore.v1.Reason.
enum class Reason : uint8_t {
  kUnspecified = 0,
  kInvalidField = 1,
  kFull = 2,
  kHolderCap = 3,
  kWaitExpired = 4,
  kLimitMismatch = 5,
  kExceedsLimit = 6,
  kPaused = 7,
  kInUse = 8,
  kWouldOvershoot = 9,
  kNoSuchSemaphore = 10,
  kNotHeld = 11,
  kSessionLost = 12,
  kRequestTooOld = 13,
  kRevisionMismatch = 14,
  kAlreadyExists = 15,
  kLimitReached = 16,
  kNotSupported = 17,
  kEngineUnavailable = 18,
  kShuttingDown = 19,
  kNotVouched = 20,
  kBelongsToSession = 21,
  kDestroyed = 22,
  kSlowReader = 23,
  kWaitCancelled = 24,
  kRequestIdReused = 25,
  kEngineCorrupt = 26,
  kEngineFull = 27,
  kUnusable = 28,
  kNoSuchTicket = 29,
  kUnauthenticated = 30,
  kPermissionDenied = 31,
  kQuota = 32,
  kMoving = 33,
  kCount  // The number of reasons.
};

// "FULL", "LIMIT_MISMATCH", …: the name without REASON_.
std::string_view ReasonName(Reason reason);

struct Refusal {
  absl::StatusCode code = absl::StatusCode::kUnknown;
  Reason reason = Reason::kUnspecified;
  std::string message;
  std::string semaphore;  // May be empty.
  std::string advice;     // What to do; may be empty.
  // The field of the request that is wrong, and what would be right. Empty: it is not about a field.
  std::string field = {};
  std::string right = {};
  // Of a refusal that passes: when it is worth to try again. 0: RetryAfter(reason) says.
  int64_t retry_after_ms = 0;
};

// INVALID_ARGUMENT, INVALID_FIELD: "<field>: <what would be right>".
Refusal InvalidField(std::string_view field, std::string_view right);
// The same about the field of a message within the request: "<parent>.<field>: …".
Refusal Within(std::string_view parent, Refusal refusal);

// The text for the client. It names the semaphore, if the refusal is about one.
std::string MessageOf(const Refusal& refusal);
// After how many milliseconds it is worth to try again; 0: waiting alone does not help.
int64_t RetryAfter(const Refusal& refusal);

}  // namespace semaphored
