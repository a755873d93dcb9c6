#include "server/sessions/orphans.h"

#include <algorithm>
#include <vector>

#include "server/sessions/refusals.h"

namespace semaphored {

void Orphans::Absorb(const Orphan& orphan) {
  const bool detached =
      orphan.claims.size() == 1 && (orphan.claims[0].lease ? orphan.claims[0].lease->detached()
                                                           : orphan.claims[0].waiter->detached());
  return detached ? AbsorbDetached(orphan, LifeOf(orphan)) : AbsorbSession(orphan, LifeOf(orphan));
}

Liveness Orphans::LifeOf(const Orphan& orphan) const {
  Liveness life;
  life.ttl_ms = orphan.ttl_ms;
  life.epoch = orphan.epoch;
  life.hosted = false;
  // An earlier life of ours may still run, and vouches until its next heartbeat is due.
  const int64_t keep_ms = orphan.replaced ? std::max(orphan.ttl_ms, node_ttl_ms_) : orphan.ttl_ms;
  life.expires_at = Now() + Milliseconds(keep_ms);
  // Of a node that was seen to be dead all that it vouched for is over. An exclusive engine's former owner
  // has vouched by the TTL.
  const int64_t vouched_ms = parts_.host->guarantees().exclusive ? orphan.ttl_ms
                             : orphan.replaced ? std::min(orphan.ttl_ms, node_ttl_ms_)
                                               : 0;
  life.vouched_until = Now() + Milliseconds(vouched_ms);
  // It had moved to the daemon that is dead now. The daemon that it came from perhaps does not know yet.
  if (orphan.epoch > 1) parts_.vouching->KeepAfterMove(&life, orphan.ttl_ms);
  life.expires_at = std::max(life.expires_at, life.keep_until);
  return life;
}

// A session that is known with this epoch came with another page, perhaps another lane's, or has been
// adopted meanwhile. One that is known with an earlier epoch had moved away, to the daemon that is dead now,
// and this daemon has not heard of that.
void Orphans::AbsorbSession(const Orphan& orphan, const Liveness& life) {
  SessionRecord* known = parts_.sessions->Find(orphan.session);
  if (known != nullptr && known->life.epoch < orphan.epoch) {
    parts_.closings->Drop(known, MovedRefusal(""));
    known = nullptr;
  }
  const bool is_new = known == nullptr;
  if (!is_new && (known->life.epoch > orphan.epoch || known->life.hosted || known->life.expiring ||
                  known->closing))
    return;
  // What is known already is as it was, or newer.
  std::vector<ClaimInfo> claims;
  for (const ClaimInfo& info : orphan.claims) {
    const ClaimRecord* claim = parts_.claims->Find(info.lease ? info.lease->id : info.waiter->id);
    if (is_new || claim == nullptr || claim->session != known) claims.push_back(info);
  }
  parts_.ends->LeaveOthers(orphan.session, claims);
  SessionRecord* const record = parts_.sessions->FindOrAdd(orphan.session);
  if (is_new) {
    record->life = life;
    record->owner = orphan.owner;
  }
  parts_.found->Add(record, claims);
  parts_.deadlines->ArmTtl(record);
}

void Orphans::AbsorbDetached(const Orphan& orphan, const Liveness& life) {
  if (ClaimRecord* known = parts_.claims->Find(orphan.session)) {
    if (known->life.epoch >= orphan.epoch) return;
    if (known->session != nullptr) {
      parts_.ends->Leave(known);
    } else {
      parts_.ends->Refuse(known, MovedRefusal(known->semaphore));
    }
  }
  const ClaimInfo& info = orphan.claims[0];
  ClaimRecord* record = parts_.claims->Add(orphan.session, info.semaphore, nullptr);
  record->life = life;
  record->remembered = true;
  record->state = info.lease ? ClaimRecord::State::kHeld : ClaimRecord::State::kWaiting;
  record->lease = info.lease;
  const bool moves = info.lease && info.lease->moved_from != 0;
  if (moves)
    parts_.grants->BecomeMoving(record, info.lease, parts_.vouching->MoveOverAt(*info.lease));
  parts_.grants->Found(record);
  if (record->state == ClaimRecord::State::kHeld) parts_.recalls->ArmLongestHold(*record);
  parts_.recalls->Arm(record);
  parts_.deadlines->ArmTtl(record);
}

}  // namespace semaphored
