// The events that a committed transaction, or a reload, causes for holders, waiters and watchers.
#pragma once

#include <vector>

#include "adapters/adapter.h"
#include "adapters/ledger/state/transaction.h"
#include "adapters/ledger/store.h"
#include "adapters/watched_names.h"

namespace semaphored::ledger {

// Appends in the order in which things happened, semaphore by semaphore. A grant that was the
// immediate outcome of its own command is no event, nor is a move to transaction.node.
void AppendEvents(const Transaction& transaction, std::vector<Event>* events);

// The delays that `transaction` has begun, and transaction.node is to count.
void AppendDelays(const Transaction& transaction, std::vector<DelayedTicket>* delayed);

// As AppendEvents, for watchers: also immediate grants and changes of rows. Only of the semaphores that are
// watched. `state`: after the transaction.
void AppendChanges(const Transaction& transaction, const LedgerState& state,
                   const WatchedNames& watched, std::vector<SemaphoreChange>* changes);

// Brings `semaphore` (nullptr: there is none) of `state` to what the store has (nullptr: there is
// none), and returns the difference as a delta, for AppendEvents. Leases that are gone have cause
// kUnknown.
SemaphoreDelta ReplaceWith(const LoadedSemaphore* loaded, const std::string& name,
                           LedgerState* state);

}  // namespace semaphored::ledger
