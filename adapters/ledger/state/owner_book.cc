#include "adapters/ledger/state/owner_book.h"

namespace semaphored::ledger {

void CountUsage(const std::string& owner, const OwnerUsage& usage, bool comes, UsageByOwner* book) {
  OwnerUsage& all = (*book)[owner];
  const auto count = [comes](uint64_t* sum, uint64_t each) {
    *sum = comes ? *sum + each : *sum - each;
  };
  count(&all.semaphores, usage.semaphores);
  count(&all.tickets, usage.tickets);
  count(&all.ticket_bytes, usage.ticket_bytes);
  if (all == OwnerUsage()) book->erase(owner);
}

OwnerUsage OwnerBook::Of(const std::string& owner) const {
  const std::scoped_lock lock(mutex_);
  const auto found = usage_.find(owner);
  return found == usage_.end() ? OwnerUsage() : found->second;
}

void OwnerBook::Count(const std::string& owner, const OwnerUsage& usage, bool comes) {
  const std::scoped_lock lock(mutex_);
  CountUsage(owner, usage, comes, &usage_);
}

}  // namespace semaphored::ledger
