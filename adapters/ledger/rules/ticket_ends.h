// What becomes of tickets beyond the rules' own commands: for stores whose leases may end by
// themselves.
#pragma once

#include <cstdint>
#include <string_view>

#include "adapters/types.h"

namespace semaphored::ledger {

// Of an assigned ticket whose lease is gone: it comes back, the attempt is counted, with `why`
// among its reasons; after the last attempt it is a dead letter.
TicketPtr AfterLostLease(const Ticket& ticket, std::string_view why, int64_t now_unix_ms);

}  // namespace semaphored::ledger
