// A ticket as the value of a key of its own: JSON, for us and for people who look into Consul. Its
// payload is another key's value, as it was given.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "adapters/types.h"

namespace semaphored::consul {

std::string WriteTicket(const Ticket& ticket);

// `id`: its key says which it is. DATA_LOSS: it is not understood.
absl::StatusOr<TicketPtr> ReadTicket(const Id& id, const std::string& value);

}  // namespace semaphored::consul
