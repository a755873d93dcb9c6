// What dead nodes left behind: kept until its clients come or its TTL is over.
#include <algorithm>
#include <utility>

#include "server/sessions/sessions_impl.h"

namespace semaphored {

void SessionsImpl::Absorb(const Orphan& orphan) {
  const bool detached =
      orphan.claims.size() == 1 && (orphan.claims[0].lease ? orphan.claims[0].lease->detached()
                                                           : orphan.claims[0].waiter->detached());
  Liveness life;
  life.ttl_ms = orphan.ttl_ms;
  life.epoch = orphan.epoch;
  life.hosted = false;
  // An earlier life of ours may still run, and vouches until its next heartbeat is due.
  const int64_t keep_ms =
      orphan.replaced ? std::max(orphan.ttl_ms, options_.node_ttl_ms) : orphan.ttl_ms;
  life.expires_at = Now() + Milliseconds(keep_ms);
  // Of a node that was seen to be dead all that it vouched for is over. An exclusive engine's former owner
  // has vouched by the TTL.
  const int64_t vouched_ms = exclusive()       ? orphan.ttl_ms
                             : orphan.replaced ? std::min(orphan.ttl_ms, options_.node_ttl_ms)
                                               : 0;
  life.vouched_until = Now() + Milliseconds(vouched_ms);
  // It had moved to the daemon that is dead now. The daemon that it came from perhaps does not know yet.
  if (orphan.epoch > 1) vouching_.KeepAfterMove(&life, orphan.ttl_ms);
  life.expires_at = std::max(life.expires_at, life.keep_until);
  return detached ? AbsorbDetached(orphan, life) : AbsorbSession(orphan, life);
}

// A session that is known with this epoch came with another page, perhaps another lane's, or has been
// adopted meanwhile. One that is known with an earlier epoch had moved away, to the daemon that is dead now,
// and this daemon has not heard of that.
void SessionsImpl::AbsorbSession(const Orphan& orphan, const Liveness& life) {
  SessionRecord* known = sessions_.Find(orphan.session);
  if (known != nullptr && known->life.epoch < orphan.epoch) {
    closings_.Drop(known, MovedRefusal(""));
    known = nullptr;
  }
  const bool is_new = known == nullptr;
  if (!is_new && (known->life.epoch > orphan.epoch || known->life.hosted || known->life.expiring ||
                  known->closing))
    return;
  // What is known already is as it was, or newer.
  std::vector<ClaimInfo> claims;
  for (const ClaimInfo& info : orphan.claims) {
    const ClaimRecord* claim = claims_.Find(info.lease ? info.lease->id : info.waiter->id);
    if (is_new || claim == nullptr || claim->session != known) claims.push_back(info);
  }
  ends_.LeaveOthers(orphan.session, claims);
  SessionRecord* const record = sessions_.FindOrAdd(orphan.session);
  if (is_new) {
    record->life = life;
    record->owner = orphan.owner;
  }
  AddClaims(record, claims);
  deadlines_.ArmTtl(record);
}

void SessionsImpl::AbsorbDetached(const Orphan& orphan, const Liveness& life) {
  if (ClaimRecord* known = claims_.Find(orphan.session)) {
    if (known->life.epoch >= orphan.epoch) return;
    if (known->session != nullptr) {
      ends_.Leave(known);
    } else {
      ends_.Refuse(known, MovedRefusal(known->semaphore));
    }
  }
  const ClaimInfo& info = orphan.claims[0];
  ClaimRecord* record = claims_.Add(orphan.session, info.semaphore, nullptr);
  record->life = life;
  record->remembered = true;
  record->state = info.lease ? ClaimRecord::State::kHeld : ClaimRecord::State::kWaiting;
  record->lease = info.lease;
  const bool moves = info.lease && info.lease->moved_from != 0;
  if (moves) grants_.BecomeMoving(record, info.lease, vouching_.MoveOverAt(*info.lease));
  grants_.Found(record);
  if (record->state == ClaimRecord::State::kHeld) recalls_.ArmLongestHold(*record);
  recalls_.Arm(record);
  deadlines_.ArmTtl(record);
}

}  // namespace semaphored
