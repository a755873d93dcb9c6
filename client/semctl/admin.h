// The call behind all of semctl's administration.
#ifndef SEMAPHORED_CLIENT_SEMCTL_ADMIN_H_
#define SEMAPHORED_CLIENT_SEMCTL_ADMIN_H_

#include <chrono>

#include "absl/status/statusor.h"
#include "client/semctl/context.h"
#include "proto/semaphore/v1/semaphore.pb.h"

namespace semaphore::semctl {

// Calls Administer. `wait` is how long the act itself may wait; negative: for ever.
absl::StatusOr<v1::AdministerResponse> Administer(
    const Context& context, v1::AdministerRequest request,
    std::chrono::milliseconds wait = std::chrono::milliseconds(0));

// The same over a connection that is kept for the next call.
absl::StatusOr<v1::AdministerResponse> Administer(
    UnaryCaller* caller, v1::AdministerRequest request,
    std::chrono::milliseconds wait = std::chrono::milliseconds(0));

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_ADMIN_H_
