#include "adapters/ledger/news.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace semaphored::ledger {
namespace {

// Something else than claims has changed.
bool RowChanged(const SemaphoreRow& before, const SemaphoreRow& after) {
  SemaphoreRow same = before;
  same.next_order = after.next_order;
  same.revision = after.revision;
  return same != after;
}

// All that happened to each claim as one change. False: one came and went at once.
template <typename Change, typename Each>
bool Fold(const std::vector<Change>& changes, size_t claims_max, std::vector<Each>* folded) {
  absl::flat_hash_map<Id, std::pair<size_t, bool>> places;  // In `folded`; and if it is new.
  for (const Change& change : changes) {
    const Id id = (change.before ? change.before : change.after)->id;
    const auto [at, is_first] =
        places.try_emplace(id, folded->size(), static_cast<bool>(!change.before));
    if (!change.after && at->second.second) return false;
    if (is_first && folded->size() == claims_max) return false;
    if (is_first) folded->emplace_back().id = id;
    Each& each = (*folded)[at->second.first];
    each = Each{id, change.after, change.cause};
  }
  return true;
}

// Whether every slot that is taken is free, or is given up by a claim of the news.
bool SlotsFit(const News& news, const Semaphore& semaphore) {
  absl::flat_hash_set<Id> spoken_of;
  for (const NewsOfLease& each : news.leases) spoken_of.insert(each.id);
  for (const NewsOfLease& each : news.leases) {
    if (!each.lease) continue;
    for (const uint32_t slot : each.lease->slots) {
      const LeasePtr& at = semaphore.slots.At(slot);
      if (at && !spoken_of.contains(at->id)) return false;
    }
  }
  return true;
}

}  // namespace

std::optional<News> NewsOf(const Transaction& transaction, const SemaphoreDelta& delta,
                           size_t claims_max) {
  if (!delta.before || !delta.after || RowChanged(*delta.before, *delta.after)) return std::nullopt;
  // A session that moves or ends takes with it claims of semaphores that are not touched here.
  if (std::ranges::any_of(transaction.sessions,
                          [](const auto& each) { return each.before != nullptr; }))
    return std::nullopt;
  News news;
  news.semaphore = delta.name;
  news.revision = delta.before->revision + 1;
  news.next_order = delta.after->next_order;
  if (!Fold(delta.leases, claims_max, &news.leases)) return std::nullopt;
  if (!Fold(delta.waiters, claims_max, &news.waiters)) return std::nullopt;
  absl::flat_hash_set<Id> sessions;
  for (const NewsOfLease& each : news.leases) {
    if (each.lease) sessions.insert(each.lease->session);
  }
  for (const NewsOfWaiter& each : news.waiters) {
    if (each.waiter) sessions.insert(each.waiter->session);
  }
  for (const SessionPtr& session : transaction.sessions_of_concern) {
    if (sessions.contains(session->id)) news.sessions.push_back(session);
  }
  return news;
}

std::optional<SemaphoreDelta> Apply(const News& news, LedgerState* state) {
  Semaphore* semaphore = state->Find(news.semaphore);
  if (semaphore == nullptr || semaphore->row.revision + 1 != news.revision) return std::nullopt;
  SemaphoreDelta delta;
  delta.name = news.semaphore;
  delta.before = semaphore->row;
  for (const NewsOfWaiter& each : news.waiters) {
    WaiterPtr before = semaphore->FindWaiter(each.id);
    if (!before && !each.waiter) return std::nullopt;
    delta.waiters.push_back({std::move(before), each.waiter, each.cause});
  }
  for (const NewsOfLease& each : news.leases) {
    LeasePtr before = semaphore->FindLease(each.id);
    if (!before && !each.lease) return std::nullopt;
    delta.leases.push_back({std::move(before), each.lease, each.cause});
  }
  if (!SlotsFit(news, *semaphore)) return std::nullopt;
  ApplyAtOnce(delta, semaphore, state);
  SemaphoreRow row = semaphore->row;
  row.revision = news.revision;
  row.next_order = news.next_order;
  state->SetRow(semaphore, row);
  delta.after = row;
  return delta;
}

}  // namespace semaphored::ledger
