// A transaction of the ledger as the arguments of commit_1 (schema_1.sql).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "adapters/ledger/state/transaction.h"
#include "adapters/postgres/connection.h"

namespace semaphored::postgres {

struct CommitPlace {
  NodeRef node;
  uint32_t lane = 0;
  uint64_t number = 0;   // Of the commits before.
  std::string row = {};  // Where the last commit left the lane's row; empty: not known.
};

// `client_id` gives the names of clients by number. Semaphores, requests and floors are sent in the
// order of their names: no two batches wait for each other in a circle.
Arguments ArgumentsFor(const ledger::Transaction& transaction, const CommitPlace& place,
                       const std::function<const std::string&(uint32_t)>& client_id);

// Into the transaction, what the commit gave: tokens in the order in which leases were granted,
// revisions of new semaphores in the order of their names.
void TakeGiven(const std::string& tokens, const std::string& revisions,
               ledger::Transaction* transaction);

}  // namespace semaphored::postgres
