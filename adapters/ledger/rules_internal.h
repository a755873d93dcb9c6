// What the rules of claims, sessions and administration share. Included by the rules' own files
// only.
#pragma once

#include <string>

#include "adapters/ledger/rules.h"

namespace semaphored::ledger {

inline Outcome Simply(OutcomeKind kind) {
  Outcome outcome;
  outcome.kind = kind;
  return outcome;
}

inline Outcome LimitReached(std::string message) {
  Outcome outcome;
  outcome.kind = OutcomeKind::kLimitReached;
  outcome.message = std::move(message);
  return outcome;
}

// The epoch of the session on which the claim hangs; 0 if that session is gone.
uint32_t EpochOf(const LedgerState& state, const Claim& claim);

// Where the claim's liveness is kept.
NodeRef HostOf(const LedgerState& state, const Claim& claim);

// Takes a waiter out of the queue, and remembers the answer if its client is told one.
void EndWait(Editor& editor, Semaphore* semaphore, const WaiterPtr& waiter, EndCause cause);

// Waiters that could never be served with the present limit and cap are told so.
void TellHopeless(Editor& editor, Semaphore* semaphore);

// All waiters are told that the semaphore is destroyed.
void DismissWaiters(Editor& editor, Semaphore* semaphore);

// Asks for a lease back, or with no grace ends it at once (kRecalled, or kRevoked for an
// administrator's).
void RecallOrEnd(Editor& editor, Semaphore* semaphore, const LeasePtr& lease, const Recall& recall,
                 const Context& context);

// After anything that may have made room or emptied the semaphore: grants to waiters, or, if the
// last lease of one that is being destroyed has gone, destroys it. The pointer may be dangling
// afterwards.
void AfterRoom(Editor& editor, Semaphore* semaphore, const Context& context);

}  // namespace semaphored::ledger
