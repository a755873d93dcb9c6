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

  void Add(const Id& claim, EndCause cause) {
    if (!causes_.insert_or_assign(claim, cause).second) return;
    order_.push_back(claim);
    if (order_.size() <= capacity_) return;
    causes_.erase(order_.front());
    order_.pop_front();
  }

  EndCause Find(const Id& claim) const {
    const auto found = causes_.find(claim);
    return found == causes_.end() ? EndCause::kUnknown : found->second;
  }

  // The same, after what this transaction has ended so far.
  EndCause Find(const Id& claim, const Transaction& transaction) const {
    for (auto row = transaction.history.rbegin(); row != transaction.history.rend(); ++row) {
      if (row->lease->id == claim) return row->cause;
    }
    return Find(claim);
  }

 private:
  size_t capacity_;
  absl::flat_hash_map<Id, EndCause> causes_;
  std::deque<Id> order_;
};

}  // namespace semaphored::ledger
