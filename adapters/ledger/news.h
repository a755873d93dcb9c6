// What one commit did to one semaphore, in a form that an engine can tell another daemon, so that
// it need not read the semaphore again. A hint like every push: it may be lost, late or told twice,
// and is then of no use, but it is never wrong.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "adapters/ledger/state.h"
#include "adapters/ledger/transaction.h"
#include "adapters/types.h"

namespace semaphored::ledger {

// That others have changed a semaphore.
struct Hint {
  std::string semaphore;
  uint64_t revision = 0;  // Which it has since, at least; 0: not told.
  std::string details;    // What LedgerStore::ReadNews reads; empty: none.
};

struct NewsOfLease {
  Id id;
  LeasePtr lease;  // As it is now; nullptr: it has ended.
  EndCause cause = EndCause::kNone;
};

struct NewsOfWaiter {
  Id id;
  WaiterPtr waiter;  // As it is now; nullptr: it has left. cause kNone: because it was granted.
  EndCause cause = EndCause::kNone;
};

struct NewsOfClient {
  uint32_t number = 0;  // This store object's.
  std::string client_id;
};

// Only for whoever knows the semaphore as it was one revision before.
struct News {
  std::string semaphore;
  uint64_t revision = 0;
  uint64_t next_order = 0;
  std::vector<NewsOfLease> leases;  // Each once.
  std::vector<NewsOfWaiter> waiters;
  std::vector<SessionPtr> sessions;   // Of the claims above that are still there.
  std::vector<NewsOfClient> clients;  // Of the rows above. Set by the store that reads it.
};

// Tokens are as in the transaction. nullopt: more has happened than news can say (its settings have
// changed, it was made or destroyed, a lease was granted and ended at once), or more than
// `claims_max` claims are concerned.
std::optional<News> NewsOf(const Transaction& transaction, const SemaphoreDelta& delta,
                           size_t claims_max);

// Carries it out; what it comes to, as a delta. nullopt: the state does not know the semaphore as
// it was before, and is as it was. Sessions are the caller's to apply, before.
std::optional<SemaphoreDelta> Apply(const News& news, LedgerState* state);

}  // namespace semaphored::ledger
