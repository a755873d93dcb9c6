#include "adapters/ledger/store.h"

#include <utility>

namespace semaphored::ledger {

SemaphoreCounts CountsOf(const std::vector<LeasePtr>& leases, const std::vector<WaiterPtr>& waiters,
                         const std::vector<TicketPtr>& tickets) {
  SemaphoreCounts counts;
  for (const LeasePtr& lease : leases) counts.held += lease->permits;
  for (const WaiterPtr& waiter : waiters) ++(waiter->works ? counts.offers : counts.waiting);
  for (const TicketPtr& ticket : tickets) ++CountOf(ticket->state, &counts.tickets);
  return counts;
}

std::vector<std::string> NamesIn(const Transaction& transaction) {
  std::vector<std::string> names;
  for (const SemaphoreDelta& delta : transaction.semaphores) names.push_back(delta.name);
  for (const ReadCondition& read : transaction.reads) names.push_back(read.semaphore);
  return names;
}

absl::StatusOr<std::vector<PayloadPtr>> LedgerStore::ReadPayloads(absl::Span<const TicketAt>) {
  return absl::UnimplementedError("this store keeps no tickets");
}

}  // namespace semaphored::ledger
