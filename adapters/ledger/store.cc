#include "adapters/ledger/store.h"

#include <utility>

namespace semaphored::ledger {

absl::StatusOr<std::vector<PayloadPtr>> LedgerStore::ReadPayloads(absl::Span<const TicketAt>) {
  return absl::UnimplementedError("this store keeps no tickets");
}

}  // namespace semaphored::ledger
