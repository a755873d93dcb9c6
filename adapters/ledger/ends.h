// The causes for which recent leases ended, so that a request about such a lease returns its cause.
#pragma once

#include <deque>

#include "absl/container/flat_hash_map.h"
#include "adapters/ledger/state/transaction.h"
#include "adapters/types.h"

namespace semaphored::ledger {

// Bounded: the oldest are dropped, and then are kUnknown.
class RecentEnds {
 public:
  explicit RecentEnds(size_t capacity) : capacity_(capacity) {}

  void Add(const Id& claim, EndCause cause);
  EndCause Find(const Id& claim) const;
  // The same, after what this transaction has ended so far.
  EndCause Find(const Id& claim, const Transaction& transaction) const;

 private:
  size_t capacity_;
  absl::flat_hash_map<Id, EndCause> causes_;
  std::deque<Id> order_;
};

}  // namespace semaphored::ledger
