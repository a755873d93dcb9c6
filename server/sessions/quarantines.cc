#include "server/sessions/quarantines.h"

#include "absl/container/btree_set.h"

namespace semaphored {

bool Quarantines::On(const std::vector<Quarantine>& quarantines, SteadyTime read_at) {
  // Those that have claims there now, and those that had when it began. Once each: a session may have a
  // million claims in one semaphore.
  absl::btree_set<Id> sessions;
  bool any_read = false;
  for (const Quarantine& quarantine : quarantines) {
    // No other daemon changes what is in an exclusive engine.
    const bool unread =
        !quarantine.why.ok() && quarantine.unread && !parts_.host->guarantees().exclusive;
    if (unread == parts_.unread->contains(quarantine.semaphore)) continue;
    if (unread) {
      parts_.timers->Add(parts_.unread->Add(quarantine.semaphore, read_at), TimerKind::kDisown,
                         Id());
    } else {
      parts_.unread->Remove(quarantine.semaphore);
    }
    any_read = any_read || !unread;
    for (const Id& id : parts_.claims->At(quarantine.semaphore)) {
      ClaimRecord* record = parts_.claims->Find(id);
      if (record->session != nullptr) sessions.insert(record->session->id);
      if (record->session == nullptr) parts_.vouching->Bound(record);
      if (!unread && record->lost) parts_.ends->EndLost(record);
    }
  }
  for (const auto& [id, session] : parts_.sessions->records()) {
    const bool was_bound = session->life.vouch_max != SteadyTime::max();
    if (was_bound || sessions.contains(id)) parts_.vouching->Bound(session.get());
  }
  return any_read;
}

}  // namespace semaphored
