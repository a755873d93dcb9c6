#include "adapters/ledger/store.h"

#include <utility>

namespace semaphored::ledger {

absl::StatusOr<std::vector<PayloadPtr>> LedgerStore::ReadPayloads(absl::Span<const TicketAt>) {
  return absl::UnimplementedError("this store keeps no tickets");
}

absl::StatusOr<std::vector<LedgerStore::Found>> LedgerStore::FindAnswers(
    absl::Span<const AskedRequest> requests, uint64_t) {
  std::vector<Found> found;
  for (const AskedRequest& asked : requests) {
    absl::StatusOr<std::optional<Answer>> answer = FindAnswer(asked.request, asked.client_id);
    if (!answer.ok()) return answer.status();
    found.push_back({*std::move(answer), false});
  }
  return found;
}

}  // namespace semaphored::ledger
