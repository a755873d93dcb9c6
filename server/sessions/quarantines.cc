// Semaphores in quarantine. The daemon vouches for the leases of one that it cannot read only for as long
// as its last read allows. Before that is over the leases of sessions are lost to their holders: the
// session goes on with its other leases. They stay held, since what becomes of them in the engine is not
// seen, and are ended once the semaphore can be changed again.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "server/sessions/sessions_impl.h"

namespace semaphored {
namespace {

using State = ClaimRecord::State;

}  // namespace

void SessionsImpl::OnQuarantines(const std::vector<Quarantine>& quarantines, SteadyTime read_at) {
  // Those that have claims there now, and those that had when it began. Once each: a session may have a
  // million claims in one semaphore.
  absl::btree_set<Id> sessions;
  bool any_read = false;
  for (const Quarantine& quarantine : quarantines) {
    // No other daemon changes what is in an exclusive engine.
    const bool unread = !quarantine.why.ok() && quarantine.unread && !exclusive();
    if (unread == unread_.contains(quarantine.semaphore)) continue;
    if (unread) {
      timers_.Add(unread_.Add(quarantine.semaphore, read_at), TimerKind::kDisown, Id());
    } else {
      unread_.Remove(quarantine.semaphore);
    }
    any_read = any_read || !unread;
    for (const Id& id : claims_.At(quarantine.semaphore)) {
      ClaimRecord* record = claims_.Find(id);
      if (record->session != nullptr) sessions.insert(record->session->id);
      if (record->session == nullptr) vouching_.Bound(record);
      if (!unread && record->lost) ends_.EndLost(record);
    }
  }
  for (const auto& [id, session] : sessions_.records()) {
    const bool was_bound = session->life.vouch_max != SteadyTime::max();
    if (was_bound || sessions.contains(id)) vouching_.Bound(session.get());
  }
  if (any_read) dead_nodes_.TakeOverAgain();
}

// ---- Sessions that moved here ----

void SessionsImpl::OnReadAgainDue() {
  for (const Id& id : read_again_.TakeDue()) ReadAgain(id);
}

void SessionsImpl::ReadAgain(const Id& session) {
  const SessionRecord* record = sessions_.Find(session);
  if (record == nullptr || !record->life.hosted || record->closing || record->life.expiring) return;
  const uint32_t epoch = record->life.epoch;
  adoptions_.Begin(session);
  host_->Submit(0, Job{AdoptSessionCommand{session, epoch},
                       [this, session, epoch](absl::StatusOr<Outcome> outcome) {
                         OnReadAgain(session, epoch, std::move(outcome));
                       }});
}

void SessionsImpl::OnReadAgain(const Id& session, uint32_t epoch, absl::StatusOr<Outcome> outcome) {
  const Adoptions::Changes changes = adoptions_.Take(session);
  SessionRecord* record = sessions_.Find(session);
  if (record == nullptr || record->life.epoch != epoch) return;
  if (!outcome.ok() || outcome->kind == OutcomeKind::kReading) return read_again_.Add(session);
  // It has moved, or ended: its lanes tell of that.
  if (outcome->kind != OutcomeKind::kDone) return;
  // The answer to a request that is under way may be one of these claims.
  absl::btree_set<std::string> asked;
  for (const Id& id : record->claims) {
    const ClaimRecord* claim = claims_.Find(id);
    if (claim != nullptr && claim->state == State::kAsked) asked.insert(claim->semaphore);
  }
  bool again = outcome->report->unread;
  std::vector<ClaimInfo>& claims = outcome->report->claims;
  changes.BringUpToDate(&claims);
  std::erase_if(claims, [&](const ClaimInfo& info) {
    if (claims_.Find(RowOf(info).id) != nullptr || marks_.Find(RowOf(info).id) != nullptr)
      return true;
    again = again || asked.contains(info.semaphore);
    return asked.contains(info.semaphore);
  });
  if (again) read_again_.Add(session);
  AddClaims(record, claims);
  // Waits go first, so that the end of a lease lets none of them in.
  std::stable_partition(claims.begin(), claims.end(),
                        [](const ClaimInfo& info) { return !info.lease; });
  for (const ClaimInfo& info : claims) {
    if (ClaimRecord* claim = claims_.Find(RowOf(info).id)) ends_.EndUntold(claim);
  }
}

}  // namespace semaphored
