// How the parts of Sessions hand commands to the lanes, and when they try a command again that was not carried out.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "server/base/clock.h"
#include "server/lanes/lane.h"
#include "server/sessions/sessions.h"

namespace semaphored {

inline constexpr size_t kSessionsLane = 0;  // It has the rows of sessions.
inline constexpr Milliseconds kTryAgainAfter{500};
inline constexpr Milliseconds kTryDamagedAfter{5000};

// Hands the command to the lane of the semaphore. `done` runs later, on the reactor's thread; a lane answers in order.
inline void Submit(SessionsHost* host, const std::string& semaphore, Command command,
                   Completion done) {
  host->Submit(LaneOf(semaphore, host->lane_count()), Job{std::move(command), std::move(done)});
}

// The command was not carried out, and is still due.
inline bool IsUndone(const absl::StatusOr<Outcome>& outcome) {
  return !outcome.ok() || outcome->kind == OutcomeKind::kDamaged;
}

// Of a command that IsUndone. A semaphore that is damaged is not tried as often as an engine that is away.
inline Milliseconds TryAgainAfter(const absl::StatusOr<Outcome>& outcome) {
  return outcome.ok() ? kTryDamagedAfter : kTryAgainAfter;
}

}  // namespace semaphored
