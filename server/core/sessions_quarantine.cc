// Semaphores in quarantine. The daemon vouches for the leases of one that it cannot read only for as long
// as its last read allows. Before that is over the leases of sessions are lost to their holders: the
// session goes on with its other leases. They stay held, since what becomes of them in the engine is not
// seen, and are ended once the semaphore can be changed again.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "server/core/sessions_impl.h"

namespace semaphored {
namespace {

using State = ClaimRecord::State;

// Sessions that are read again at the same time.
constexpr size_t kReadAgainAtOnce = 16;

const Id& IdOf(const ClaimInfo& info) { return info.lease ? info.lease->id : info.waiter->id; }

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
  // Those that have claims there now, and those that had when it began. Once each: a session may have a
  // million claims in one semaphore.
  absl::btree_set<Id> sessions;
  bool any_read = false;
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
    any_read = any_read || !unread;
    for (const Id& id : ClaimsAt(quarantine.semaphore)) {
      ClaimRecord* record = FindClaim(id);
      if (record->session != nullptr) sessions.insert(record->session->id);
      if (record->session == nullptr) BoundVouching(record);
      if (!unread && record->lost) EndLost(record);
    }
  }
  for (const auto& [id, session] : sessions_) {
    const bool was_bound = session->life.vouch_max != SteadyTime::max();
    if (was_bound || sessions.contains(id)) BoundVouching(session.get());
  }
  if (any_read) TakeOverAgain();
}

void SessionsImpl::BoundVouching(ClaimRecord* record) {
  if (record->session != nullptr) return BoundVouching(record->session);
  record->life.vouch_max = VouchedUntil(*record);
}

void SessionsImpl::BoundVouching(SessionRecord* session) {
  session->life.vouch_max = SteadyTime::max();
  if (unread_.empty()) return;
  for (const Id& id : session->claims) {
    const ClaimRecord* claim = FindClaim(id);
    if (claim != nullptr)
      session->life.vouch_max = std::min(session->life.vouch_max, VouchedUntil(*claim));
  }
}

// Of a wait nothing was ever vouched for.
SteadyTime SessionsImpl::VouchedUntil(const ClaimRecord& claim) const {
  if (claim.state != State::kHeld || claim.lost) return SteadyTime::max();
  const auto found = unread_.find(claim.semaphore);
  return found == unread_.end() ? SteadyTime::max() : found->second.vouched_until;
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

void SessionsImpl::NoteDead(const std::vector<NodeRef>& dead) {
  for (const NodeRef& node : dead) {
    const auto known = std::ranges::find(dead_, node.number, &NodeRef::number);
    if (known == dead_.end()) {
      dead_.push_back(node);
    } else {
      known->incarnation = std::max(known->incarnation, node.incarnation);
    }
  }
}

void SessionsImpl::TakeOverAgain() {
  if (stopping_) return;
  TakeOver(dead_, [this](const absl::Status& status) {
    if (!status.ok() && !stopping_) timers_.Add(Now() + kTryAgainAfter, TimerKind::kTakeOver, Id());
  });
}

void SessionsImpl::EndLost(ClaimRecord* record) {
  if (!stopping_ && record->lost) EndClaim(record, EndCause::kDisconnected, false);
}

void SessionsImpl::RefuseLost(ClaimRecord* record) {
  record->session->by_tag.erase(record->tag);
  ClaimListener* listener = std::exchange(record->listener, nullptr);
  if (listener == nullptr) return;
  listener->OnRefused(record->tag, NotHeldRefusal(EndCause::kEngineLost, record->semaphore));
}

// ---- Sessions that moved here ----

void SessionsImpl::ReadAgainLater(const Id& session) {
  unread_sessions_.insert(session);
  if (std::exchange(read_again_armed_, true)) return;
  timers_.Add(Now() + kTryDamagedAfter, TimerKind::kReadAgain, Id());
}

void SessionsImpl::OnReadAgainDue() {
  read_again_armed_ = false;
  std::vector<Id> due;
  auto next = unread_sessions_.upper_bound(read_again_after_);
  while (due.size() < std::min(kReadAgainAtOnce, unread_sessions_.size())) {
    if (next == unread_sessions_.end()) next = unread_sessions_.begin();
    due.push_back(*next++);
  }
  for (const Id& id : due) {
    unread_sessions_.erase(id);
    ReadAgain(id);
    read_again_after_ = id;
  }
  if (!unread_sessions_.empty()) ReadAgainLater(*unread_sessions_.begin());
}

void SessionsImpl::ReadAgain(const Id& session) {
  const SessionRecord* record = FindSession(session);
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
  SessionRecord* record = FindSession(session);
  if (record == nullptr || record->life.epoch != epoch) return;
  if (!outcome.ok()) return ReadAgainLater(session);
  // It has moved, or ended: its lanes tell of that.
  if (outcome->kind != OutcomeKind::kDone) return;
  // The answer to a request that is under way may be one of these claims.
  absl::btree_set<std::string> asked;
  for (const Id& id : record->claims) {
    const ClaimRecord* claim = FindClaim(id);
    if (claim != nullptr && claim->state == State::kAsked) asked.insert(claim->semaphore);
  }
  bool again = outcome->report->unread;
  std::vector<ClaimInfo>& claims = outcome->report->claims;
  changes.BringUpToDate(&claims);
  std::erase_if(claims, [&](const ClaimInfo& info) {
    if (FindClaim(IdOf(info)) != nullptr || marks_.Find(IdOf(info)) != nullptr) return true;
    again = again || asked.contains(info.semaphore);
    return asked.contains(info.semaphore);
  });
  if (again) ReadAgainLater(session);
  AddClaims(record, claims);
  // Waits go first, so that the end of a lease lets none of them in.
  std::stable_partition(claims.begin(), claims.end(),
                        [](const ClaimInfo& info) { return !info.lease; });
  for (const ClaimInfo& info : claims) {
    if (ClaimRecord* claim = FindClaim(IdOf(info))) EndUntold(claim);
  }
}

void SessionsImpl::EndUntold(ClaimRecord* record) {
  if (stopping_ || record->state == State::kMoving)
    return;  // (Its client has to repeat the request.)
  if (record->state == State::kHeld && record->offers) return PutBack(record);
  if (record->state == State::kHeld) {
    record->lost = record->finishing = true;
    return EndLost(record);
  }
  // If its client asks again, what becomes of that is the answer. If it is granted before, the lease ends.
  record->given_up = record->abandoned = record->end_lease = true;
  EndClaim(record, EndCause::kCancelled, true);
}

}  // namespace semaphored
