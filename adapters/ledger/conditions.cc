#include "adapters/ledger/conditions.h"

#include <string_view>
#include <utility>

#include "adapters/ledger/rules/steps.h"

namespace semaphored::ledger {
namespace {

// The hosts of so many leases of a semaphore are notified of a new waiter; a wide one has more.
constexpr int kHoldersTold = 64;

}  // namespace

// A session that moves here is read again after that (ReadAfterMove): that its semaphores stand still meanwhile is no
// condition, and they may be more than a commit of the engine tests.
void Conditions::AddReadToAdopt(const Transaction& transaction) {
  absl::flat_hash_set<Id> moved;
  for (const SessionChange& change : transaction.sessions) {
    if (change.before && change.after && change.before->host != change.after->host)
      moved.insert(change.after->id);
  }
  for (const auto& [session, names] : read_to_adopt_) {
    if (moved.contains(session)) continue;
    read_.insert(names.begin(), names.end());
    decided_on_.insert(names.begin(), names.end());
  }
}

void Conditions::AddTo(Transaction* transaction) {
  AddReadToAdopt(*transaction);
  const bool writes = !transaction->empty();
  absl::flat_hash_set<std::string_view> touched;
  for (const SemaphoreDelta& delta : transaction->semaphores) touched.insert(delta.name);
  for (const std::string& name : read_) {
    if (touched.contains(name) || core_->damaged.contains(name)) continue;
    // What is only read, and was read for this batch, holds at the moment of that reading: a semaphore that changes
    // all the time is then read once.
    if (mirror_->IsReadInRun(name) && (!writes || !decided_on_.contains(name))) continue;
    const Semaphore* semaphore = core_->state.Find(name);
    transaction->reads.push_back({name, semaphore == nullptr ? 0 : semaphore->row.revision});
  }
  for (SemaphoreDelta& delta : transaction->semaphores) {
    const Semaphore* semaphore = core_->state.Find(delta.name);
    if (semaphore != nullptr) delta.counts = CountsOf(*semaphore);
    AddConcerned(delta, transaction);
  }
  absl::flat_hash_set<RequestKey> written;
  for (const RequestChange& change : transaction->requests) written.insert(change.row.request);
  for (NamedRequest& asked : core_->requests.assumed_new()) {
    if (!written.contains(asked.request)) transaction->absent_requests.push_back(std::move(asked));
  }
}

void Conditions::AddConcerned(const SemaphoreDelta& delta, Transaction* transaction) const {
  absl::flat_hash_set<uint32_t> concerned;
  const auto concern = [&](const Claim& claim) {
    const uint32_t node = HostOf(core_->state, claim).number;
    if (node == 0 || node == core_->options.self.number || !concerned.insert(node).second) return;
    transaction->concerns.emplace_back(node, delta.name);
  };
  for (const LeaseChange& change : delta.leases) {
    if (change.before) concern(*change.before);
    if (change.after) concern(*change.after);
  }
  for (const WaiterChange& change : delta.waiters) {
    if (change.before) concern(*change.before);
    if (change.after) concern(*change.after);
  }
  // Where a request waits, a holder is the next to commit: without a notice its release would be
  // decided on an older queue, and lost.
  const Semaphore* semaphore = core_->state.Find(delta.name);
  if (semaphore == nullptr || semaphore->waiters.empty()) return;
  int looked_at = 0;
  for (const auto& [id, lease] : semaphore->leases) {
    if (++looked_at > kHoldersTold) break;
    concern(*lease);
  }
  // The daemon of the next waiter hears everything, so that it has nothing to read at the grant.
  if (!semaphore->queue.empty()) concern(*semaphore->queue.begin()->second);
  if (!semaphore->offers.empty()) concern(*semaphore->offers.begin()->second);
}

CommitResult Conditions::Check(const Transaction& transaction) {
  CommitResult result;
  if (!transaction.reads.empty()) {
    absl::StatusOr<std::vector<std::string>> changed = store_->StaleOf(transaction.reads);
    if (!changed.ok()) return Failed(changed.status());
    result.stale = *std::move(changed);
  }
  if (!transaction.absent_requests.empty()) {
    absl::StatusOr<std::vector<LedgerStore::FoundRequest>> found =
        store_->FindRequests(transaction.absent_requests, core_->options.request_window);
    if (!found.ok()) return Failed(found.status());
    for (const LedgerStore::FoundRequest& each : *found) {
      result.requests_lost = result.requests_lost || each.row.has_value() || each.too_old;
    }
  }
  if (result.requests_lost || !result.stale.empty()) result.kind = CommitResult::Kind::kLost;
  return result;
}

}  // namespace semaphored::ledger
