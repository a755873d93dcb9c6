// Outcomes and errors of adapters, as refusals that a person and a program can read.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "adapters/adapter.h"
#include "server/base/reason.h"

namespace semaphored {

// REQUIRES: the outcome is none of the good ones (kGranted, kQueued, kReleased, kHeld,
// kStillWaiting, kDone).
Refusal RefusalOf(const Outcome& outcome, const std::string& semaphore, const std::string& adapter);
// An error of the engine.
Refusal RefusalOf(const absl::Status& status, const std::string& semaphore);
// A wait that has come to its end without a grant.
Refusal WaitEnded(EndCause cause, const std::string& semaphore);

// The rules no longer allow what was asked for.
Refusal NotAllowedRefusal(const std::string& semaphore);
Refusal NotHeldRefusal(EndCause cause, const std::string& semaphore);
Refusal SessionLostRefusal();
// The session may have moved to another daemon unknown to this one; else it is about to be lost.
Refusal EndingRefusal();
Refusal NotVouchedRefusal(const std::string& semaphore);
Refusal ShuttingDownRefusal();
Refusal MovedRefusal(const std::string& semaphore);
// The lease of a repeated request moves here from another session. `left_ms`: for how long its
// former holder may still count on it.
Refusal MovingRefusal(const std::string& semaphore, int64_t left_ms);

// "released", "expired", …: for messages.
const char* CauseText(EndCause cause);

}  // namespace semaphored
