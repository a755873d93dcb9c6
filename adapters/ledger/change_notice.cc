#include "adapters/ledger/change_notice.h"

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

WaiterPtr At(const Semaphore& semaphore, const QueuePlace& place) {
  const auto found = semaphore.queue.find(place);
  return found == semaphore.queue.end() ? nullptr : found->second;
}

// The lease that the waiter became.
LeasePtr LeaseOf(const Waiter& waiter, const ChangeDetails::Grant& grant, int64_t longest_hold_ms) {
  auto lease = std::make_shared<Lease>();
  static_cast<Claim&>(*lease) = static_cast<const Claim&>(waiter);
  lease->slots = grant.slots;
  lease->token = grant.token;
  lease->granted_at_unix_ms = grant.granted_at_unix_ms;
  lease->longest_hold_ms = longest_hold_ms;
  return lease;
}

// Each slot that is granted is free, or becomes free with a lease that ends; and no two get one.
bool SlotsFit(const SemaphoreDelta& delta, const Semaphore& semaphore) {
  absl::flat_hash_set<Id> ending;
  for (const LeaseChange& change : delta.leases) {
    if (change.before) ending.insert(change.before->id);
  }
  absl::flat_hash_set<uint32_t> given;
  for (const LeaseChange& change : delta.leases) {
    if (!change.after) continue;
    for (const uint32_t slot : change.after->slots) {
      const Id at = semaphore.slots.At(slot);
      if (slot == 0 || (!at.empty() && !ending.contains(at)) || !given.insert(slot).second)
        return false;
    }
  }
  return true;
}

}  // namespace

std::optional<DetailsAndGrants> DetailsOf(const Transaction& transaction,
                                          const SemaphoreDelta& delta, size_t claims_max) {
  if (delta.touched || !delta.before || !delta.after || RowChanged(*delta.before, *delta.after))
    return std::nullopt;
  // A session that moves or ends takes with it claims of semaphores that are not touched here.
  if (std::ranges::any_of(transaction.sessions,
                          [](const auto& each) { return each.before != nullptr; }))
    return std::nullopt;
  // A daemon whose worker gets a ticket must read what has become of it anyway.
  if (!delta.tickets.empty()) return std::nullopt;
  if (delta.leases.size() + delta.waiters.size() > claims_max) return std::nullopt;
  DetailsAndGrants result;
  ChangeDetails& details = result.details;
  details.semaphore = delta.name;
  details.revision = delta.before->revision + 1;
  details.next_order = delta.after->next_order;
  absl::flat_hash_map<Id, QueuePlace> granted;  // Waiters that became leases.
  for (const WaiterChange& change : delta.waiters) {
    if (!change.before || change.after || change.before->works) return std::nullopt;
    const QueuePlace place = PlaceOf(*change.before);
    if (change.cause == EndCause::kNone) {
      granted[change.before->id] = place;
    } else {
      details.left.push_back({place, change.cause});
    }
  }
  for (const LeaseChange& change : delta.leases) {
    if (change.before && change.after) return std::nullopt;
    if (!change.after) {
      details.ended.push_back({change.before->slots.front(), change.cause});
      // Granted by this very batch.
      if (granted.contains(change.before->id)) return std::nullopt;
      continue;
    }
    const auto waiter = granted.find(change.after->id);
    if (waiter == granted.end()) return std::nullopt;
    details.granted.push_back(
        {waiter->second, change.after->slots, 0, change.after->granted_at_unix_ms});
    result.grants.push_back(change.after);
  }
  if (details.granted.size() != granted.size()) return std::nullopt;
  return result;
}

std::optional<SemaphoreDelta> Apply(const ChangeDetails& details, LedgerState* state) {
  Semaphore* semaphore = state->Find(details.semaphore);
  if (semaphore == nullptr || semaphore->row.revision + 1 != details.revision) return std::nullopt;
  SemaphoreDelta delta;
  delta.name = details.semaphore;
  delta.before = semaphore->row;
  absl::flat_hash_set<Id> seen;
  for (const ChangeDetails::Leave& leave : details.left) {
    WaiterPtr waiter = At(*semaphore, leave.place);
    if (!waiter || !seen.insert(waiter->id).second) return std::nullopt;
    delta.waiters.push_back({std::move(waiter), nullptr, leave.cause});
  }
  for (const ChangeDetails::End& end : details.ended) {
    const LeasePtr lease = semaphore->LeaseAt(end.slot);
    if (!lease || !seen.insert(lease->id).second) return std::nullopt;
    delta.leases.push_back({lease, nullptr, end.cause});
  }
  for (const ChangeDetails::Grant& grant : details.granted) {
    WaiterPtr waiter = At(*semaphore, grant.place);
    if (!waiter || !seen.insert(waiter->id).second || grant.slots.size() != waiter->permits)
      return std::nullopt;
    delta.leases.push_back(
        {nullptr, LeaseOf(*waiter, grant, semaphore->row.settings.longest_hold_ms)});
    delta.waiters.push_back({std::move(waiter), nullptr, EndCause::kNone});
  }
  if (!SlotsFit(delta, *semaphore)) return std::nullopt;
  ApplyAtOnce(delta, semaphore, state);
  SemaphoreRow row = semaphore->row;
  row.revision = details.revision;
  row.next_order = details.next_order;
  state->SetRow(semaphore, row);
  delta.after = row;
  return delta;
}

}  // namespace semaphored::ledger
