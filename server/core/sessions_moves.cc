// Claims that move from one session to another, from a session to a detached call, or back, because
// their client has repeated the request there.
//
// A waiter moves at once. The row of a lease moves at once too, but the daemon grants the lease
// only when no former holder can count on it any more. Until then the record has a Move, and
// neither the TTL nor the end of a session ends the lease.
#include <algorithm>
#include <utility>
#include <vector>

#include "server/core/sessions_impl.h"

namespace semaphored {
namespace {

using State = ClaimRecord::State;

const Claim& RowOf(const ClaimInfo& info) {
  if (info.lease) return *info.lease;
  return *info.waiter;
}

}  // namespace

// ---- Leaving ----

void SessionsImpl::Leave(ClaimRecord* record) {
  ClaimListener* listener = record->listener;
  const State state = record->state;
  const Id claim = record->id;
  const std::string semaphore = record->semaphore;
  const uint64_t tag = record->tag;
  if (state == State::kHeld)
    lease_log_.Lost(semaphore, *record->lease, EndCause::kMoved, record->trace);
  Drop(record);
  if (listener == nullptr || state == State::kMoving) return;
  if (state == State::kHeld) return listener->OnEnded(tag, claim, semaphore, EndCause::kMoved);
  listener->OnRefused(tag, MovedRefusal(semaphore));
}

void SessionsImpl::LeaveOthers(const Id& session, const std::vector<ClaimInfo>& claims) {
  for (const ClaimInfo& info : claims) {
    const Claim& row = RowOf(info);
    ClaimRecord* known = FindClaim(row.id);
    if (known != nullptr && known->owner() != session && known->life.epoch < row.epoch)
      Leave(known);
  }
}

// ---- Coming ----

SteadyTime SessionsImpl::MoveOverAt(const Lease& lease) const {
  // The row's TTL is the longest that any former holder had. A daemon that does not know of the
  // move reads the engine within a sweep interval, and vouches for at most a node TTL after a read.
  const int64_t left_ms =
      exclusive() ? lease.ttl_ms
                  : std::min(lease.ttl_ms, options_.node_ttl_ms) + options_.sweep_interval_ms;
  return Now() + Milliseconds(left_ms);
}

Refusal SessionsImpl::MovingRefusalOf(const ClaimRecord& record) const {
  const SteadyTime::duration left = record.move->over_at - Now();
  const auto left_ms = std::chrono::ceil<Milliseconds>(left).count();
  return MovingRefusal(record.semaphore, std::max<int64_t>(left_ms, 0));
}

// The former listener hears the loss before the record of the new owner is made.
void SessionsImpl::OnMoving(ClaimRecord* record, const Asked& asked, const LeasePtr& lease) {
  const Id asked_id = record->id;
  SteadyTime over_at = MoveOverAt(*lease);
  ClaimRecord* claim = FindClaim(lease->id);
  const Move* const move = claim != nullptr ? claim->move.get() : nullptr;
  const bool repeated =
      move != nullptr && claim->session == record->session && claim->life.epoch == lease->epoch;
  if (claim != nullptr && !repeated) {
    // The lease was moved from this very owner, so this record says until when it was vouched for.
    const bool was_here =
        lease->moved_from == lease->host.number && claim->life.epoch + 1 == lease->epoch;
    if (was_here) {
      over_at = move != nullptr ? move->over_at : std::max(LifeOf(claim)->vouched_until, Now());
    }
    // A record of the same request that waits: the request is refused below, once.
    if (claim->listener == record->listener && claim->tag == record->tag && !claim->has_lease())
      claim->listener = nullptr;
    Leave(claim);
    record = FindClaim(asked_id);
    if (record == nullptr) return;
  }
  if (!repeated) {
    claim = AddClaim(lease->id, record->semaphore, record->session);
    claim->remembered = true;
    claim->trace = record->trace;
    claim->life.hosted = true;
    claim->charge = std::move(record->charge);
  }
  record->charge.reset();
  BecomeMoving(claim, lease, over_at);
  CountFound(claim);
  Count(claim, nullptr);
  if (!repeated) ArmRecall(claim);
  if (asked.requester.remembered()) {
    Requester& requester = claim->move->requester;
    requester = asked.requester;
    if (record->session != nullptr && requester.one_shot.empty())
      requester.client_id = record->session->client_id;
    moving_[requester] = claim->id;
  }
  Refuse(record, MovingRefusalOf(*claim));
}

void SessionsImpl::BecomeMoving(ClaimRecord* record, LeasePtr lease, SteadyTime over_at) {
  if (record->move == nullptr) {
    record->move = std::make_unique<Move>();
    record->move->over_at = over_at;
    ++moves_;
    if (lease->longest_hold_ms > 0) {
      timers_.Add(Now() + Milliseconds(lease->longest_hold_ms), TimerKind::kLongestHold,
                  record->id);
    }
  }
  record->state = State::kMoving;
  record->lease = std::move(lease);
  record->life.epoch = record->lease->epoch;
  if (record->session != nullptr) {
    KeepUntil(&record->session->life, TimerKind::kSessionTtl, record->session->id,
              record->move->over_at);
    return;
  }
  record->life.ttl_ms = record->lease->ttl_ms;
  // The time of a claim that has just come does not run yet.
  if (record->life.expires_at == SteadyTime::max()) record->life.expires_at = SteadyTime::min();
  // A detached client gives no sign of life until it repeats the request, when the move is over.
  KeepUntil(&record->life, TimerKind::kTtl, record->id,
            record->move->over_at + Milliseconds(record->life.ttl_ms));
}

void SessionsImpl::KeepUntil(Liveness* life, TimerKind kind, const Id& id, SteadyTime until) {
  life->keep_until = std::max(life->keep_until, until);
  life->expires_at = std::max(life->expires_at, until);
  ArmTtl(life, kind, id);
}

void SessionsImpl::EndMove(ClaimRecord* record) {
  if (record->move == nullptr) return;
  --moves_;
  const auto found = moving_.find(record->move->requester);
  if (found != moving_.end() && found->second == record->id) moving_.erase(found);
  record->move = nullptr;
}

void SessionsImpl::FillInMove(const ClaimRecord& record, AcquireCommand* command) const {
  if (moving_.empty()) return;
  const auto found = moving_.find(command->requester);
  const ClaimRecord* claim = found == moving_.end() ? nullptr : FindClaim(found->second);
  if (claim == nullptr || claim->session != record.session || claim->semaphore != record.semaphore)
    return;
  command->moved_is_over = claim->move->over_at <= Now();
  command->moved_epoch = claim->life.epoch;
}

// ---- A session that ends while leases of it move ----

SteadyTime SessionsImpl::MovesOverAt(const SessionRecord& record) const {
  SteadyTime over_at = SteadyTime::min();
  if (moves_ == 0) return over_at;
  for (const Id& id : record.claims) {
    const ClaimRecord* claim = FindClaim(id);
    if (claim != nullptr && claim->move != nullptr)
      over_at = std::max(over_at, claim->move->over_at);
  }
  return over_at;
}

void SessionsImpl::EndSessionLater(SessionRecord* record, EndCause cause, SteadyTime at,
                                   absl::AnyInvocable<void()> done) {
  record->closing = true;
  record->end_cause = cause;
  timers_.Add(at, TimerKind::kSessionEnd, record->id);
  std::vector<EndCommand> ends;
  for (const Id& id : record->claims) {
    const ClaimRecord* claim = FindClaim(id);
    if (claim != nullptr && claim->move == nullptr) ends.push_back(EndWithSession(*claim, cause));
  }
  SubmitEnds(std::move(ends), std::move(done));
}

void SessionsImpl::OnSessionEnd(SessionRecord* record) {
  if (!record->closing || record->end_cause == EndCause::kNone) return;
  EndSession(record, std::exchange(record->end_cause, EndCause::kNone), [] {});
}

}  // namespace semaphored
