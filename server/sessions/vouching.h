// Until when clients may count on their leases. The bounds are the TTL, the time until which the host may vouch
// (SessionsHost::vouch_until), the recalls of the leases, and semaphores that cannot be read. Single-threaded (the
// reactor's).
#pragma once

#include <cstdint>

#include "server/sessions/claim_book.h"
#include "server/sessions/records.h"
#include "server/sessions/sessions.h"
#include "server/sessions/unread_semaphores.h"

namespace semaphored {

class Vouching {
 public:
  // Both times as in SessionsOptions. All pointers outlive it.
  Vouching(const SessionsHost* host, const ClaimBook* claims, const UnreadSemaphores* unread,
           int64_t node_ttl_ms, int64_t sweep_interval_ms)
      : host_(host),
        claims_(claims),
        unread_(unread),
        node_ttl_ms_(node_ttl_ms),
        sweep_interval_ms_(sweep_interval_ms) {}

  // The validity to report to the client. Notes it in Liveness::vouched_until.
  Vouch For(ClaimRecord* record) const;
  Vouch For(SessionRecord* session) const;
  // The recall of the lease, with what is left of its grace now; none: it is not recalled.
  RecallNotice NoticeOf(const ClaimRecord& record) const;

  // A sign of life: the TTL begins again. Without effect on what is expiring.
  void Revive(Liveness* life) const;
  // It was moved here from another daemon, which may not know that yet: it is not ended before that daemon's validity has
  // passed.
  void KeepAfterMove(Liveness* life, int64_t ttl_ms) const;
  // Until when former holders may count on a lease that was moved here, if only its row is known.
  SteadyTime MoveOverAt(const Lease& lease) const;

  // A semaphore in which it has leases has become unread, or can be read; or it has other leases than before: computes
  // Liveness::vouch_max again.
  void Bound(ClaimRecord* record) const;
  void Bound(SessionRecord* session) const;

 private:
  SteadyTime Now() const { return host_->clock().Now(); }
  Vouch For(Liveness* life) const;
  void BoundByRecalls(SessionRecord* session) const;
  SteadyTime VouchedUntil(const ClaimRecord& claim) const;

  const SessionsHost* host_;
  const ClaimBook* claims_;
  const UnreadSemaphores* unread_;
  const int64_t node_ttl_ms_;
  const int64_t sweep_interval_ms_;
};

}  // namespace semaphored
