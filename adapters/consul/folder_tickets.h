// Tickets in their keys, and the document that counts them: every commit that changes one writes
// the document too, so that its index is the condition for both.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "adapters/consul/folder.h"
#include "adapters/consul/keys.h"
#include "adapters/consul/transaction_request.h"

namespace semaphored::consul {

// False: it is no ticket of this folder, whose tickets' keys begin with `under` (Keys::Tickets).
// `known`: as for ReadFolder.
bool ReadTicketEntry(const std::string& under, const Entry& entry, const Folder* known,
                     Folder* folder);

// Compares the tickets with the document and its leases: if their keys were changed by hand, the
// folder is damaged, and the message says what can be done. REQUIRES: they were read.
void CheckTickets(Folder* folder);

// What the document says of its tickets, from those that are there.
void CountTickets(Folder* folder);

// Tickets whose lease is gone, though they name one, come back as they do when a lease ends, `most` of
// them; `why` goes to their reasons. Leases that name a ticket that is not theirs do so no more. The
// ids of the tickets that have changed.
std::vector<Id> ReturnTickets(Folder* folder, const std::string& why, int64_t now_unix_ms,
                              size_t most);

// A dead letter of which only the payload is left.
TicketPtr TicketOfPayload(const Id& id, uint32_t payload_bytes, uint64_t order,
                          int64_t now_unix_ms);

}  // namespace semaphored::consul
