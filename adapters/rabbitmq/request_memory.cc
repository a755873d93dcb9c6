#include "adapters/rabbitmq/request_memory.h"

#include <iterator>

namespace semaphored::rabbitmq {

absl::StatusOr<std::vector<ledger::RequestRows::FoundRequest>> RequestMemory::FindRequests(
    absl::Span<const ledger::NamedRequest> requests, uint64_t) {
  std::vector<FoundRequest> found(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    if (const ledger::RequestRow* row = At(requests[i].request)) found[i].row = *row;
  }
  return found;
}

const ledger::RequestRow* RequestMemory::At(const RequestKey& request) const {
  if (!request.one_shot.empty()) {
    const auto row = one_shots_.find(request.one_shot);
    return row == one_shots_.end() ? nullptr : &row->second;
  }
  const auto client = requests_.find(request.client);
  if (client == requests_.end()) return nullptr;
  const auto row = client->second.find(request.sequence);
  return row == client->second.end() ? nullptr : &row->second;
}

void RequestMemory::Keep(const ledger::Transaction& transaction) {
  for (const ledger::RequestChange& change : transaction.requests) {
    const RequestKey& request = change.row.request;
    const bool goes = change.op == ledger::RequestChange::Op::kRemove;
    if (!request.one_shot.empty() && goes) {
      one_shots_.erase(request.one_shot);
    } else if (!request.one_shot.empty()) {
      one_shots_[request.one_shot] = change.row;
    } else if (goes) {
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
  for (const Id& one_shot : transaction.forgotten_requests) one_shots_.erase(one_shot);
}

}  // namespace semaphored::rabbitmq
