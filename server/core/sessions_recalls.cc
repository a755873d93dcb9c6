// Recalls. A lease that is recalled is ended by the daemon that hosts it, and by no other: it knows for how
// long the client may count on the lease.
#include <algorithm>

#include "server/core/sessions_impl.h"

namespace semaphored {
namespace {

using State = ClaimRecord::State;

}  // namespace

void SessionsImpl::ArmRecall(ClaimRecord* record) {
  if (record->lease == nullptr || !record->lease->recall.pending()) return;
  RecallState& state = record->recall;
  state.id = RecallIdOf(record->lease->recall);
  const SteadyTime grace_until = Now() + Milliseconds(record->lease->recall.grace_ms);
  if (grace_until >= state.grace_until) return;
  state.grace_until = grace_until;
  // What was vouched for before. Of a lease that moves only a former holder may count on it.
  const Move* const move = record->move.get();
  const SteadyTime vouched_until = move != nullptr ? move->over_at : LifeOf(record)->vouched_until;
  // What the session was vouched for since an earlier recall does not count for this lease.
  state.end_at = std::min(state.end_at, std::max(grace_until, vouched_until));
  timers_.Add(state.end_at, TimerKind::kRecall, record->id);
  if (record->session == nullptr) {
    record->life.recalled_until = state.end_at;
  } else {
    record->session->has_recalls = record->session->recalls_changed = true;
  }
}

void SessionsImpl::ForgetRecall(ClaimRecord* record) {
  record->recall = {};
  record->life.recalled_until = SteadyTime::max();
}

void SessionsImpl::OnRecalled(ClaimRecord* record, const LeasePtr& lease) {
  record->lease = lease;
  metrics_.Recalled(&record->figures);
  ArmRecall(record);
  ClaimListener* listener = record->offers ? ListenerOfOffer(*record) : record->listener;
  if (record->state != State::kHeld || listener == nullptr) return;
  listener->OnRecalled(record->tag, record->id, record->semaphore, NoticeOf(*record));
}

void SessionsImpl::AcknowledgeRecall(const Id& session, const Id& claim, uint64_t recall) {
  ClaimRecord* record = FindClaim(claim);
  if (record != nullptr && record->session != nullptr && record->session->id == session)
    Acknowledge(record, recall);
}

void SessionsImpl::Acknowledge(ClaimRecord* record, uint64_t recall) {
  RecallState& state = record->recall;
  // Of a lease that moves the former holder would have to acknowledge it.
  if (record->state != State::kHeld) return;
  if (recall == 0 || state.id != recall || state.end_at <= state.grace_until) return;
  state.end_at = state.grace_until;
  timers_.Add(state.end_at, TimerKind::kRecall, record->id);
  if (record->session == nullptr) record->life.recalled_until = state.end_at;
  if (record->session != nullptr) record->session->recalls_changed = true;
}

void SessionsImpl::OnRecallOver(ClaimRecord* record) {
  if (!record->has_lease() || record->recall.end_at > Now()) return;
  // Of an orphan, too: its client may have come to another daemon meanwhile, whose epoch it has then.
  EndClaim(record, EndCauseOf(record->lease->recall.reason), false);
}

void SessionsImpl::OnLongestHold(ClaimRecord* record) {
  if (!record->has_lease() || record->lease->recall.pending()) return;
  RecallLease(record, {Recall::Reason::kLongestHold, Recall::kOwnGrace}, TimerKind::kLongestHold);
}

void SessionsImpl::RecallLease(ClaimRecord* record, Recall recall, TimerKind again) {
  RecallCommand command;
  command.semaphore = record->semaphore;
  command.claim = record->id;
  command.recall = recall;
  Submit(record->semaphore, command,
         [this, id = record->id, again](const absl::StatusOr<Outcome>& outcome) {
           if (IsUndone(outcome) && FindClaim(id) != nullptr)
             timers_.Add(Now() + TryAgainAfter(outcome), again, id);
         });
}

RecallNotice SessionsImpl::NoticeOf(const ClaimRecord& record) const {
  if (record.recall.id == 0 || record.lease == nullptr) return {};
  const auto left = std::chrono::duration_cast<Milliseconds>(record.recall.grace_until - Now());
  return {record.recall.id, record.lease->recall.reason, std::max<int64_t>(left.count(), 0)};
}

void SessionsImpl::BoundByRecalls(SessionRecord* session) {
  if (!session->recalls_changed) return;
  session->recalls_changed = false;
  SteadyTime last_end = SteadyTime::min();
  for (const Id& id : session->claims) {
    const ClaimRecord* claim = FindClaim(id);
    if (claim == nullptr || claim->state != State::kHeld || claim->lost) continue;
    last_end = std::max(last_end, claim->recall.end_at);
    if (last_end == SteadyTime::max()) break;  // One that is not recalled.
  }
  session->life.recalled_until = last_end == SteadyTime::min() ? SteadyTime::max() : last_end;
}

// ---- What is vouched for ----

Vouch SessionsImpl::VouchFor(ClaimRecord* record) {
  Vouch vouch = record->session != nullptr ? VouchFor(record->session) : VouchFor(&record->life);
  vouch.recall = NoticeOf(*record);
  return vouch;
}

Vouch SessionsImpl::VouchFor(SessionRecord* session) {
  BoundByRecalls(session);
  return VouchFor(&session->life);
}

}  // namespace semaphored
