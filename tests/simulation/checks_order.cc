// Promise 6: whom a grant may leave behind, with backfill and caps of holders too.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/simulation/checks.h"
#include "tests/simulation/moment.h"

namespace semaphored::simulation {

using ledger::LeaseChange;
using ledger::SemaphoreDelta;
using ledger::WaiterChange;

namespace {

// A worker is served in its ticket's place.
ledger::QueuePlace PlaceOfGrant(const SemaphoreDelta& delta, const Lease& lease) {
  for (const ledger::TicketChange& change : delta.tickets) {
    if (change.after && change.after->lease == lease.id)
      return {lease.priority, change.after->order};
  }
  return ledger::PlaceOf(lease);
}

bool IsBehindOwn(const Waiter& waiter, const Waiter& other) {
  return !other.works && other.holder == waiter.holder &&
         ledger::PlaceOf(other) < ledger::PlaceOf(waiter);
}

// A waiter of the same holder stands before: this one stands behind it whatever it asks for.
bool BehindOwn(const Waiter& waiter, const StoredSemaphore& semaphore) {
  return std::ranges::any_of(semaphore.waiters,
                             [&](const auto& each) { return IsBehindOwn(waiter, each.second); });
}

// The same of one that came and went within the batch.
bool BehindOwn(const Waiter& waiter, const SemaphoreDelta& delta) {
  return std::ranges::any_of(delta.waiters, [&](const WaiterChange& change) {
    return change.after && IsBehindOwn(waiter, *change.after);
  });
}

}  // namespace

void Checks::CheckFiling(const SemaphoreDelta& delta, const StoredSemaphore* before,
                         const StoredSemaphore& after) const {
  for (const WaiterChange& change : delta.waiters) {
    if (before == nullptr || change.before || !change.after) continue;
    const auto waiter = after.waiters.find(change.after->id);
    if (waiter == after.waiters.end() || delta.before == std::nullopt) continue;
    for (const auto& [id, other] : before->waiters) {
      if (!after.waiters.contains(id) || other.order < waiter->second.order) continue;
      Fail(absl::StrCat(delta.name, ": ", waiter->second.holder, " came after ", other.holder,
                        " and is filed before"));
    }
  }
}

void Checks::CheckOrder(const SemaphoreDelta& delta, const StoredSemaphore* before,
                        const StoredSemaphore& after) const {
  CheckFiling(delta, before, after);
  // Destroyed and made again in one batch: the orders are those of two queues.
  if (before != nullptr && IsRemade(before->row, after.row)) return;
  // With other settings in the middle of the batch, it is not known by which each grant was made. What the batch
  // makes may have been made by a grant, with the default settings.
  if ((before == nullptr ? Settings() : before->row.settings) != after.row.settings) return;
  GrantScene scene;
  scene.delta = &delta;
  scene.before = before;
  scene.after = &after;
  scene.limit = before == nullptr ? after.row.limit : std::min(before->row.limit, after.row.limit);
  for (const WaiterChange& change : delta.waiters) {
    if (!change.before && change.after) scene.queued_now.insert(change.after->id);
  }
  Moment moment(before);
  for (const LeaseChange& change : delta.leases) {
    if (!change.before && change.after) CheckGrant(scene, *change.after, moment);
    moment.Apply(change);
  }
}

void Checks::CheckGrant(const GrantScene& scene, const Lease& lease, const Moment& moment) const {
  const StoredSemaphore& after = *scene.after;
  const std::string& name = scene.delta->name;
  const Settings& settings = after.row.settings;
  const uint32_t cap = settings.permits_per_holder;
  if (scene.before != nullptr && scene.before->row.paused && after.row.paused)
    Fail(absl::StrCat(name, ": ", lease.holder, " is granted a lease while it is paused"));
  if (scene.before != nullptr && scene.before->row.destroying && after.row.destroying)
    Fail(absl::StrCat(name, ": ", lease.holder, " is granted a lease while it is destroyed"));
  if (cap != 0 && moment.HeldBy(lease.holder) + lease.permits > cap) {
    Fail(absl::StrCat(name, ": ", lease.holder, " has ", moment.HeldBy(lease.holder),
                      " permits and is granted ", lease.permits, ", the cap is ", cap));
  }
  const ledger::QueuePlace granted = PlaceOfGrant(*scene.delta, lease);
  for (const auto& [id, waiter] : after.waiters) {
    if (waiter.works || !(ledger::PlaceOf(waiter) < granted) || IsLeaving(waiter)) continue;
    if (HasLeft(scene.before, waiter)) continue;
    // One of higher priority may have come after the grant, in the same batch.
    if (scene.queued_now.contains(id) && waiter.priority > lease.priority) continue;
    const bool own = cap != 0 && waiter.holder == lease.holder && lease.ticket.empty();
    const bool at_cap = cap != 0 && (moment.HeldBy(waiter.holder) + waiter.permits > cap ||
                                     BehindOwn(waiter, after) || BehindOwn(waiter, *scene.delta) ||
                                     (scene.before != nullptr && BehindOwn(waiter, *scene.before)));
    const bool too_large = settings.backfill && moment.held() + waiter.permits > scene.limit;
    if (!own && (at_cap || too_large)) continue;
    Fail(absl::StrCat(name, ": ", lease.holder, " (priority ", lease.priority, ", order ",
                      lease.order, ") was served before ", waiter.holder, " (priority ",
                      waiter.priority, ", order ", waiter.order, ", ", waiter.permits, " permits)",
                      own ? ", its own" : "", settings.backfill ? ", backfill" : "",
                      cap != 0 ? ", capped" : ""));
  }
}

// Nothing is given to it any more; the end of its session removes it.
bool Checks::IsLeaving(const Waiter& waiter) const {
  const auto session = engine_->sessions().find(waiter.session);
  return session != engine_->sessions().end() && session->second.closing;
}

// It was leaving with its session, or that has ended, and a later command of the batch has moved it out of it.
bool Checks::HasLeft(const StoredSemaphore* before, const Waiter& waiter) const {
  if (before == nullptr) return false;
  const auto former = before->waiters.find(waiter.id);
  if (former == before->waiters.end() || former->second.detached()) return false;
  if (former->second.session == waiter.session) return false;
  return !engine_->sessions().contains(former->second.session) || IsLeaving(former->second);
}

// Permits for the waiter or ticket whose turn it is, if there is room; 0: for none. What holders that are
// dead have left behind counts as room: a daemon is to end it.
uint32_t Checks::Servable(const StoredSemaphore& semaphore, std::string* who) const {
  const SemaphoreRow& row = semaphore.row;
  if (row.paused || row.destroying) return 0;
  std::map<std::string, uint32_t> held_by;
  uint32_t held = 0;
  for (const auto& [id, lease] : semaphore.leases) {
    if (engine_->IsLeftBehind(id)) continue;
    held += lease.permits;
    held_by[lease.holder] += lease.permits;
  }
  const uint32_t cap = row.settings.permits_per_holder;
  const auto at_cap = [&](const Waiter& waiter) {
    return cap != 0 && held_by[waiter.holder] + waiter.permits > cap;
  };
  const bool works = std::ranges::any_of(semaphore.waiters, [&](const auto& each) {
    return each.second.works && !at_cap(each.second);
  });
  const Ticket* ticket = works ? semaphore.NextTicket() : nullptr;
  std::set<std::string> passed_over;  // Holders at their cap.
  uint32_t too_large = 0;
  for (const Waiter* waiter : semaphore.Queue()) {
    if (IsLeaving(*waiter)) continue;
    if (ticket != nullptr && ledger::PlaceOf(*ticket) < ledger::PlaceOf(*waiter)) break;
    if (cap != 0 && (passed_over.contains(waiter->holder) || at_cap(*waiter))) {
      passed_over.insert(waiter->holder);
      continue;
    }
    *who = waiter->holder;
    if (held + waiter->permits <= row.limit) return waiter->permits;
    if (!row.settings.backfill || ++too_large > limits_.backfill_depth) return 0;
  }
  *who = "a ticket";
  return ticket != nullptr && held < row.limit ? 1 : 0;
}

}  // namespace semaphored::simulation
