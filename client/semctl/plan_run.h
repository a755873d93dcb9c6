// Reads what stands at the daemon, and carries a plan out.
#ifndef SEMAPHORED_CLIENT_SEMCTL_PLAN_RUN_H_
#define SEMAPHORED_CLIENT_SEMCTL_PLAN_RUN_H_

#include <cstddef>
#include <functional>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "client/semctl/plan.h"

namespace semaphore {
class UnaryCaller;
}  // namespace semaphore

namespace semaphore::semctl {

// All below block, and return the daemon's errors as they are.

// Those of `declared` that stand; with `prune` also all that the prefixes cover.
absl::StatusOr<Semaphores> ReadCurrent(UnaryCaller* caller, const Declarations& declared,
                                       bool prune);

// All semaphores whose names begin with `prefix`.
absl::StatusOr<Semaphores> ReadAll(UnaryCaller* caller, const std::string& prefix);

// Does one step after the other until one fails. Each is done only if the definition still is what
// the plan began from: a semaphore that merely was used meanwhile is no matter, one that another
// client has changed is ABORTED. `done`: how many were done; the one after them, of an error, may
// be done nevertheless if its answer was lost (UNAVAILABLE, DEADLINE_EXCEEDED).
absl::Status RunSteps(UnaryCaller* caller, const Plan& plan, Semaphores* current,
                      const std::function<void(const Step&)>& on_done, std::size_t* done);

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_PLAN_RUN_H_
