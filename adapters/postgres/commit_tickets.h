// What a batch does to tickets, as rows of commit_1.
#pragma once

#include <string>
#include <vector>

#include "adapters/postgres/commit_rows.h"

namespace semaphored::postgres {

void AddTickets(const ledger::SemaphoreDelta& delta, CommitRows* commit);

// As the column tickets.reasons has them, and back. The text may hold anything.
std::string WriteReasons(const std::vector<TicketReason>& reasons);
// What is not understood is left out.
std::vector<TicketReason> ReadReasons(const std::string& text);

}  // namespace semaphored::postgres
