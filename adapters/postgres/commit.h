// A transaction of the ledger as the arguments of commit_1 (schema_1.sql), and of commit_tickets_1
// (schema_3.sql) where it has to do with tickets.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "adapters/postgres/connection.h"
#include "adapters/ledger/state/transaction.h"

namespace semaphored::postgres {

// The statements that commit a batch, for the schema "semaphored". Both answer with tokens,
// revisions and a refusal; the second, for a batch with tickets or offers, may fail with SM004
// instead.
std::string CommitSql();
std::string CommitWithTicketsSql();

struct CommitPlace {
  NodeRef node;
  uint32_t lane = 0;
  uint64_t number = 0;  // Of the commits before.
};

struct CommitCall {
  bool with_tickets = false;  // Which of the statements.
  Arguments arguments;
};

// `client_id` gives the names of clients by number. Semaphores are sent in the order of their
// names.
CommitCall CallFor(const ledger::Transaction& transaction, const CommitPlace& place,
                   const std::function<const std::string&(uint32_t)>& client_id);

// Into the transaction, what the commit gave: tokens in the order in which leases were granted,
// revisions of new semaphores in the order of their names.
void TakeGiven(const std::string& tokens, const std::string& revisions,
               ledger::Transaction* transaction);

}  // namespace semaphored::postgres
