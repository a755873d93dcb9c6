#include "adapters/consul/claim_states.h"

#include <algorithm>
#include <string>
#include <vector>

#include "adapters/consul/format.h"

namespace semaphored::consul {
namespace {

using ledger::RequestRow;

}  // namespace

void AskForClaim(const Keys& keys, const RequestRow& row, TransactionRequest* request) {
  request->GetTree(keys.Document(row.semaphore));
  request->GetTree(keys.Pages(row.semaphore));
}

void ReadClaimState(const Keys& keys, absl::Span<const Entry> entries, RequestRow* row) {
  const std::string document_key = keys.Document(row->semaphore);
  const std::string pages_key = keys.Pages(row->semaphore);
  const auto gone = [&] {
    row->state = RequestRow::State::kEnded;
    row->cause = EndCause::kEngineLost;
  };
  const auto found = std::ranges::find(entries, document_key, &Entry::key);
  if (found == entries.end()) return gone();
  absl::StatusOr<Document> document = ReadDocument(
      row->semaphore, found->value, found->create_index, found->modify_index, NoNumber);
  if (!document.ok()) return;
  for (const Entry& entry : entries) {
    const std::optional<uint64_t> number = Keys::BlockIn(entry.key, pages_key);
    const auto page = number ? document->pages.find(*number) : document->pages.end();
    if (page == document->pages.end()) continue;
    absl::StatusOr<std::vector<WaiterPtr>> waiters =
        ReadPage(row->semaphore, entry.value, NoNumber);
    if (!waiters.ok()) return;
    page->second.waiters = *std::move(waiters);
  }
  // One that is not there: the semaphore is damaged.
  const bool whole = std::ranges::all_of(
      document->pages, [](const auto& each) { return !each.second.waiters.empty(); });
  if (!whole) return;
  const auto is_it = [&](const WaiterPtr& waiter) { return waiter->id == row->claim; };
  if (document->leases.contains(row->claim)) {
    row->state = RequestRow::State::kGranted;
  } else if (document->AnyWaiter(is_it)) {
    row->state = RequestRow::State::kWaiting;
  } else {
    gone();
  }
}

}  // namespace semaphored::consul
