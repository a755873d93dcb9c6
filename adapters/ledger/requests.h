// Which command may be repeated, and what makes two commands the same request.
#pragma once

#include "adapters/commands.h"
#include "adapters/types.h"

namespace semaphored::ledger {

// The client and sequence number of a command that may be repeated; nullptr: it has none.
const Requester* RequesterOf(const Command& command);

// True: only the answer to an earlier request with its id is asked for; see AcquireCommand.
bool IsOnlyIfRepeated(const Command& command);

// 128 bits over the effect that the command asks for, the same in every version of the daemon that
// writes kFingerprintVersion: the act, the semaphore, and every field that changes what is done. Not
// over what a client may change between two attempts (the wait, the TTL, the session, the trace), nor
// over what the server makes up (the ids of claims and tickets).
// REQUIRES: RequesterOf(command) is not nullptr.
Id FingerprintOf(const Command& command);

inline constexpr uint8_t kFingerprintVersion = 1;

}  // namespace semaphored::ledger
