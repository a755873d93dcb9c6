// The end of a ticket's attempt without a command: for stores whose engine may end leases.
#pragma once

#include <cstdint>
#include <string_view>

#include "adapters/types.h"

namespace semaphored::ledger {

// An assigned ticket whose lease is gone returns to the queue. The attempt counts, with `why` among its reasons; after
// the last attempt the ticket is a dead letter.
TicketPtr AfterLostLease(const Ticket& ticket, std::string_view why, int64_t now_unix_ms);

}  // namespace semaphored::ledger
