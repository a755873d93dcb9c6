#include "adapters/rabbitmq/request_memory.h"

#include <iterator>

namespace semaphored::rabbitmq {

absl::StatusOr<std::vector<ledger::RequestRows::FoundRequest>> RequestMemory::FindRequests(
    absl::Span<const ledger::NamedRequest> requests, uint64_t) {
  std::vector<FoundRequest> found(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto client = requests_.find(requests[i].request.client);
    if (client == requests_.end()) continue;
    const auto row = client->second.find(requests[i].request.sequence);
    if (row != client->second.end()) found[i].row = row->second;
  }
  return found;
}

void RequestMemory::Keep(const ledger::Transaction& transaction) {
  for (const ledger::RequestChange& change : transaction.requests) {
    const RequestKey& request = change.row.request;
    if (change.op == ledger::RequestChange::Op::kRemove) {
      requests_[request.client].erase(request.sequence);
    } else {
      requests_[request.client][request.sequence] = change.row;
    }
  }
  for (const ledger::RequestFloor& floor : transaction.request_floors) {
    auto& rows = requests_[floor.client];
    const auto end = rows.lower_bound(floor.below);
    for (auto row = rows.begin(); row != end;)
      row = row->second.pinned() ? std::next(row) : rows.erase(row);
  }
  for (const uint32_t client : transaction.forgotten_clients) requests_.erase(client);
}

}  // namespace semaphored::rabbitmq
