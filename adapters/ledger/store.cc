#include "adapters/ledger/store.h"

#include <utility>

#include "adapters/ledger/shared_store.h"

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

absl::StatusOr<std::vector<std::string>> SharedStore::StaleOf(
    absl::Span<const ReadCondition> reads) {
  std::vector<SemaphoreRow> rows(reads.size());
  std::vector<const SemaphoreRow*> pointers;
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].name = reads[i].semaphore;
    rows[i].revision = reads[i].revision;
    pointers.push_back(&rows[i]);
  }
  return Changed(pointers);
}

absl::StatusOr<std::vector<PayloadPtr>> LedgerStore::ReadPayloads(absl::Span<const TicketAt>) {
  return absl::UnimplementedError("this store keeps no tickets");
}

}  // namespace semaphored::ledger
