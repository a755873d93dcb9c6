#include "adapters/ledger/permit_store.h"

namespace semaphored::ledger {
namespace {

absl::Status NotAsked() {
  return absl::UnimplementedError("a store that hands out permits is not asked for that");
}

}  // namespace

absl::StatusOr<std::vector<LedgerStore::FoundRequest>> PermitStore::FindRequests(
    absl::Span<const NamedRequest> requests, uint64_t) {
  std::vector<FoundRequest> found(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto client = requests_.find(requests[i].request.client);
    if (client == requests_.end()) continue;
    const auto row = client->second.find(requests[i].request.sequence);
    if (row != client->second.end()) found[i].row = row->second;
  }
  return found;
}

void PermitStore::KeepRequests(const Transaction& transaction) {
  for (const RequestChange& change : transaction.requests) {
    const RequestKey& request = change.row.request;
    if (change.op == RequestChange::Op::kRemove) {
      requests_[request.client].erase(request.sequence);
    } else {
      requests_[request.client][request.sequence] = change.row;
    }
  }
  for (const RequestFloor& floor : transaction.request_floors) {
    auto& rows = requests_[floor.client];
    const auto end = rows.lower_bound(floor.below);
    for (auto row = rows.begin(); row != end;)
      row = row->second.pinned() ? std::next(row) : rows.erase(row);
  }
  for (const uint32_t client : transaction.forgotten_clients) requests_.erase(client);
}

absl::StatusOr<std::vector<std::string>> PermitStore::Changed(
    absl::Span<const SemaphoreRow* const>) {
  return NotAsked();
}
absl::StatusOr<LedgerStore::SessionAt> PermitStore::LoadSession(const Id&) { return NotAsked(); }
absl::StatusOr<LedgerStore::Hosted> PermitStore::HostedBy(absl::Span<const NodeRef>) {
  return NotAsked();
}
absl::StatusOr<std::vector<std::string>> PermitStore::Names(const std::string&, const std::string&,
                                                            uint32_t) {
  return NotAsked();
}
absl::StatusOr<std::vector<HistoryRow>> PermitStore::ReadHistory(const std::string&, uint64_t,
                                                                 uint32_t) {
  return NotAsked();
}

}  // namespace semaphored::ledger
