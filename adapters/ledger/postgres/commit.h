// A transaction of the ledger as the arguments of commit_1 (schema_1.sql).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "adapters/ledger/postgres/connection.h"
#include "adapters/ledger/transaction.h"

namespace semaphored::postgres {

// The statement that commits, for the schema "semaphored".
std::string CommitSql();

struct CommitPlace {
  NodeRef node;
  uint32_t lane = 0;
  uint64_t number = 0;  // Of the commits before.
};

// Its arguments. `client_id` gives the names of clients by number. Semaphores are sent in the order
// of their names.
Arguments CommitArguments(const ledger::Transaction& transaction, const CommitPlace& place,
                          const std::function<const std::string&(uint32_t)>& client_id);

// Into the transaction, what the commit gave: tokens in the order in which leases were granted,
// revisions of new semaphores in the order of their names.
void TakeGiven(const std::string& tokens, const std::string& revisions,
               ledger::Transaction* transaction);

}  // namespace semaphored::postgres
