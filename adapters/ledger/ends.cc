#include "adapters/ledger/ends.h"

namespace semaphored::ledger {

void RecentEnds::Add(const Id& claim, EndCause cause) {
  if (!causes_.insert_or_assign(claim, cause).second) return;
  order_.push_back(claim);
  if (order_.size() <= capacity_) return;
  causes_.erase(order_.front());
  order_.pop_front();
}

EndCause RecentEnds::Find(const Id& claim) const {
  const auto found = causes_.find(claim);
  return found == causes_.end() ? EndCause::kUnknown : found->second;
}

EndCause RecentEnds::Find(const Id& claim, const Transaction& transaction) const {
  for (auto row = transaction.history.rbegin(); row != transaction.history.rend(); ++row) {
    if (row->lease->id == claim) return row->cause;
  }
  return Find(claim);
}

}  // namespace semaphored::ledger
