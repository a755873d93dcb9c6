// The rows of requests, for as long as the daemon lives, as long as its claims do.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "adapters/ledger/request_rows.h"
#include "adapters/ledger/state/transaction.h"

namespace semaphored::rabbitmq {

class RequestMemory : public ledger::RequestRows {
 public:
  absl::StatusOr<std::vector<FoundRequest>> FindRequests(
      absl::Span<const ledger::NamedRequest> requests, uint64_t window) override;

  // For a commit that stands: its requests from now on, without those that it says are forgotten.
  void Keep(const ledger::Transaction& transaction);

 private:
  // nullptr: there is none.
  const ledger::RequestRow* At(const RequestKey& request) const;

  // By client and sequence. The request book bounds both: it raises a client's floor, and forgets
  // clients; and it says which one-shot requests go.
  std::map<uint32_t, std::map<uint64_t, ledger::RequestRow>> requests_;
  absl::flat_hash_map<Id, ledger::RequestRow> one_shots_;
};

}  // namespace semaphored::rabbitmq
