#include "server/sessions/vouching.h"

#include <algorithm>

namespace semaphored {

// ---- What is vouched for ----

Vouch Vouching::For(ClaimRecord* record) const {
  Vouch vouch = record->session != nullptr ? For(record->session) : For(&record->life);
  vouch.recall = NoticeOf(*record);
  return vouch;
}

Vouch Vouching::For(SessionRecord* session) const {
  BoundByRecalls(session);
  return For(&session->life);
}

Vouch Vouching::For(Liveness* life) const {
  if (!life->hosted || life->expiring) return {0, life->epoch};
  const SteadyTime now = Now();
  const SteadyTime until = std::min(
      {life->expires_at, host_->vouch_until(), life->vouch_max, now + Milliseconds(life->ttl_ms)});
  if (until <= now) return {0, life->epoch};
  const SteadyTime bound = std::clamp(life->recalled_until, now, until);
  life->vouched_until = std::max(life->vouched_until, bound);
  Vouch vouch{std::chrono::duration_cast<Milliseconds>(bound - now).count(), life->epoch};
  vouch.recalled = life->recalled_until != SteadyTime::max();
  return vouch;
}

RecallNotice Vouching::NoticeOf(const ClaimRecord& record) const {
  if (record.recall.id == 0 || record.lease == nullptr) return {};
  const auto left = std::chrono::duration_cast<Milliseconds>(record.recall.grace_until - Now());
  return {record.recall.id, record.lease->recall.reason, std::max<int64_t>(left.count(), 0)};
}

// ---- Living ----

void Vouching::Revive(Liveness* life) const {
  if (life->expiring) return;
  life->expires_at = std::max(Now() + Milliseconds(life->ttl_ms), life->keep_until);
}

void Vouching::KeepAfterMove(Liveness* life, int64_t ttl_ms) const {
  if (host_->guarantees().exclusive) return;
  // Its last host looks at the engine once in a sweep, and vouches for no more than a node TTL
  // after it has looked.
  const int64_t unaware_ms = node_ttl_ms_ + sweep_interval_ms_;
  life->keep_until = std::max(life->keep_until, Now() + Milliseconds(ttl_ms + unaware_ms));
  life->vouched_until = std::max(life->vouched_until, Now() + Milliseconds(unaware_ms));
}

SteadyTime Vouching::MoveOverAt(const Lease& lease) const {
  // The row's TTL is the longest that any former holder had. A daemon that does not know of the
  // move reads the engine within a sweep interval, and vouches for at most a node TTL after a read; also
  // if it has read nothing since, and its client pings all the time.
  const int64_t left_ms =
      host_->guarantees().exclusive ? lease.ttl_ms : node_ttl_ms_ + sweep_interval_ms_;
  return Now() + Milliseconds(left_ms);
}

// ---- What binds it ----

void Vouching::BoundByRecalls(SessionRecord* session) const {
  if (!session->recalls_changed) return;
  session->recalls_changed = false;
  SteadyTime last_end = SteadyTime::min();
  for (const Id& id : session->claims) {
    const ClaimRecord* claim = claims_->Find(id);
    if (claim == nullptr || claim->state != ClaimRecord::State::kHeld || claim->lost) continue;
    last_end = std::max(last_end, claim->recall.end_at);
    if (last_end == SteadyTime::max()) break;  // One that is not recalled.
  }
  session->life.recalled_until = last_end == SteadyTime::min() ? SteadyTime::max() : last_end;
}

void Vouching::Bound(ClaimRecord* record) const {
  if (record->session != nullptr) return Bound(record->session);
  record->life.vouch_max = VouchedUntil(*record);
}

void Vouching::Bound(SessionRecord* session) const {
  session->life.vouch_max = SteadyTime::max();
  if (unread_->empty()) return;
  for (const Id& id : session->claims) {
    const ClaimRecord* claim = claims_->Find(id);
    if (claim != nullptr)
      session->life.vouch_max = std::min(session->life.vouch_max, VouchedUntil(*claim));
  }
}

// Of a wait nothing was ever vouched for.
SteadyTime Vouching::VouchedUntil(const ClaimRecord& claim) const {
  if (claim.state != ClaimRecord::State::kHeld || claim.lost) return SteadyTime::max();
  return unread_->VouchedUntil(claim.semaphore);
}

}  // namespace semaphored
