// Semaphores in quarantine. The daemon vouches for the leases of one that it cannot read only for as long
// as its last read allows. Before that is over the leases of sessions are lost to their holders: the
// session goes on with its other leases. They stay held, since what becomes of them in the engine is not
// seen, and are ended once the semaphore can be changed again.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "server/core/sessions_impl.h"

namespace semaphored {
namespace {

using State = ClaimRecord::State;

}  // namespace

std::vector<Id> SessionsImpl::ClaimsAt(const std::string& semaphore) const {
  std::vector<Id> claims;
  for (const auto& [id, record] : claims_) {
    if (record->semaphore == semaphore && record->leads_to.empty()) claims.push_back(id);
  }
  // In an order that does not hang on addresses, so that a simulation replays.
  std::ranges::sort(claims);
  return claims;
}

void SessionsImpl::OnQuarantines(const std::vector<Quarantine>& quarantines, SteadyTime read_at) {
  for (const Quarantine& quarantine : quarantines) {
    // No other daemon changes what is in an exclusive engine.
    const bool unread = !quarantine.why.ok() && quarantine.unread && !exclusive();
    if (unread == unread_.contains(quarantine.semaphore)) continue;
    if (unread) {
      const Milliseconds vouch(options_.read_vouch_ms);
      // Half of the time is left to sessions to hear of it, while they are vouched for without a gap.
      unread_[quarantine.semaphore] = {read_at + vouch / 2, read_at + vouch};
      timers_.Add(read_at + vouch / 2, TimerKind::kDisown, Id());
    } else {
      unread_.erase(quarantine.semaphore);
    }
    for (const Id& id : ClaimsAt(quarantine.semaphore)) {
      ClaimRecord* record = FindClaim(id);
      BoundVouching(record);
      if (!unread && record->lost) EndLost(record);
    }
  }
}

void SessionsImpl::BoundVouching(ClaimRecord* record) {
  Liveness* life = LifeOf(record);
  life->vouch_max = SteadyTime::max();
  const auto bound_by = [&](const ClaimRecord* claim) {
    if (claim == nullptr || claim->lost) return;
    const auto found = unread_.find(claim->semaphore);
    if (found != unread_.end())
      life->vouch_max = std::min(life->vouch_max, found->second.vouched_until);
  };
  if (record->session == nullptr) return bound_by(record);
  if (unread_.empty()) return;
  for (const Id& id : record->session->claims) bound_by(FindClaim(id));
}

void SessionsImpl::OnDisownDue() {
  std::vector<std::string> due;
  for (const auto& [semaphore, unread] : unread_) {
    if (unread.disown_at <= Now()) due.push_back(semaphore);
  }
  for (const std::string& semaphore : due) {
    for (const Id& id : ClaimsAt(semaphore)) {
      if (ClaimRecord* record = FindClaim(id)) Disown(record);
    }
  }
}

void SessionsImpl::Disown(ClaimRecord* record) {
  // Of a wait nothing was ever vouched for.
  if (record->state != State::kHeld || record->lost) return;
  ClaimListener* listener = record->offers ? ListenerOfOffer(*record) : record->listener;
  record->listener = nullptr;
  const Id id = record->id;
  const uint64_t tag = record->tag;
  const std::string semaphore = record->semaphore;
  if (record->session == nullptr) {
    // It is renewed when the semaphore can be read in time.
    if (listener != nullptr) listener->OnRefused(tag, NotVouchedRefusal(semaphore));
    return;
  }
  record->lost = record->finishing = true;
  BoundVouching(record);
  if (listener != nullptr) listener->OnEnded(tag, id, semaphore, EndCause::kEngineLost);
}

void SessionsImpl::EndLost(ClaimRecord* record) {
  if (!stopping_ && record->lost) EndClaim(record, EndCause::kDisconnected, false);
}

}  // namespace semaphored
