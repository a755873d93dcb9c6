// Credentials that a program prints: `credential_process` of a profile.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "adapters/dynamodb/credential_places.h"

namespace semaphored::dynamodb {

// Runs `command` by /bin/sh, in a process group of its own, and reads what it prints, 64 KiB at most. Its
// standard error goes nowhere, since it may hold a secret. "Expiration" is not heeded, as only a wall clock could
// compare it: the program runs again every ten minutes, and when the engine refuses what it has printed. Blocks until it has ended, and kills its group at
// lookup.deadline. UNAUTHENTICATED: it failed, or printed no credentials. UNAVAILABLE: it took too long.
absl::StatusOr<Found> FindByProcess(const std::string& command, const Lookup& lookup);

}  // namespace semaphored::dynamodb
