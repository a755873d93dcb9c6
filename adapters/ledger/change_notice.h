// A change notice: what one commit did to one semaphore, in a form that an engine can deliver to
// another daemon. That daemon need not read the semaphore again before it reports a grant to its
// client. Like every push, a notice may be lost, late or delivered twice, and is then of no use.
//
// It names claims by their slots and their places in the queue, not by their ids: a program that
// knows an id can release the lease, and a push may be overheard. So a notice describes no changes
// but those of claims that the other daemon knows already.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "adapters/ledger/state/state.h"
#include "adapters/ledger/state/transaction.h"
#include "adapters/types.h"

namespace semaphored::ledger {

// Reports that another client of the engine has changed a semaphore.
struct ChangeNotice {
  std::string semaphore;
  uint64_t revision = 0;  // Its revision is now at least this; 0: not given.
  std::string details;    // What LedgerStore::ReadDetails reads; empty: none.
};

// Only for a daemon that knows the semaphore as it was one revision before.
struct ChangeDetails {
  struct End {
    uint32_t slot = 0;  // The first of the lease that has ended.
    EndCause cause = EndCause::kNone;
  };
  struct Grant {
    QueuePlace place;  // Of the waiter that became a lease.
    Slots slots;
    uint64_t token = 0;
    int64_t granted_at_unix_ms = 0;
  };
  struct Leave {
    QueuePlace place;
    EndCause cause = EndCause::kNone;
  };
  std::string semaphore;
  uint64_t revision = 0;
  uint64_t next_order = 0;
  std::vector<End> ended;
  std::vector<Grant> granted;
  std::vector<Leave> left;
};

// The leases that were granted, in the order of ChangeDetails::granted, for their tokens.
struct DetailsAndGrants {
  ChangeDetails details;
  std::vector<LeasePtr> grants;
};

// nullopt: the delta has a change that details cannot describe, or more than `claims_max` changed claims.
std::optional<DetailsAndGrants> DetailsOf(const Transaction& transaction,
                                          const SemaphoreDelta& delta, size_t claims_max);

// Applies the details to the state, and returns the change as a delta. nullopt: the state does not have the semaphore at
// the revision before, and nothing is changed.
std::optional<SemaphoreDelta> Apply(const ChangeDetails& details, LedgerState* state);

}  // namespace semaphored::ledger
