#include "server/sessions/recalls.h"

#include <algorithm>

namespace semaphored {

void Recalls::ArmPending(ClaimRecord* record) {
  RecallState& state = record->recall;
  state.id = RecallIdOf(record->lease->recall);
  const SteadyTime grace_until = Now() + Milliseconds(record->lease->recall.grace_ms);
  if (grace_until >= state.grace_until) return;
  state.grace_until = grace_until;
  // What was vouched for before. Of a lease that moves only a former holder may count on it.
  const Move* const move = record->move.get();
  const SteadyTime vouched_until =
      move != nullptr ? move->over_at : record->owner_life()->vouched_until;
  // What the session was vouched for since an earlier recall does not count for this lease.
  state.end_at = std::min(state.end_at, std::max(grace_until, vouched_until));
  ArmEnd(record);
  if (record->session == nullptr) {
    record->life.recalled_until = state.end_at;
  } else {
    record->session->has_recalls = record->session->recalls_changed = true;
  }
}

void Recalls::ArmEnd(ClaimRecord* record) {
  RecallState& state = record->recall;
  if (state.end_at >= state.armed_for) return;
  state.armed_for = state.end_at;
  timers_->Add(state.end_at, TimerKind::kRecall, record->id);
}

void Recalls::Forget(ClaimRecord* record) {
  record->recall = {};
  record->life.recalled_until = SteadyTime::max();
}

void Recalls::Acknowledge(ClaimRecord* record, uint64_t recall) {
  RecallState& state = record->recall;
  // Of a lease that moves the former holder would have to acknowledge it.
  if (record->state != ClaimRecord::State::kHeld) return;
  if (recall == 0 || state.id != recall || state.end_at <= state.grace_until) return;
  state.end_at = state.grace_until;
  ArmEnd(record);
  if (record->session == nullptr) record->life.recalled_until = state.end_at;
  if (record->session != nullptr) record->session->recalls_changed = true;
}

void Recalls::OnOver(ClaimRecord* record) {
  if (!record->has_lease() || record->recall.end_at > Now()) return;
  record->recall.armed_for = SteadyTime::max();
  // Of an orphan, too: its client may have come to another daemon meanwhile, whose epoch it has then.
  end_(record, EndCauseOf(record->lease->recall.reason));
}

void Recalls::ArmLongestHold(const ClaimRecord& record) {
  if (record.lease->longest_hold_ms <= 0) return;
  timers_->Add(Now() + Milliseconds(record.lease->longest_hold_ms), TimerKind::kLongestHold,
               record.id);
}

void Recalls::OnLongestHold(const ClaimRecord& record) {
  if (!record.has_lease() || record.lease->recall.pending()) return;
  Submit(record, {Recall::Reason::kLongestHold, Recall::kOwnGrace}, TimerKind::kLongestHold);
}

void Recalls::Submit(const ClaimRecord& record, Recall recall, TimerKind again) {
  RecallCommand command;
  command.semaphore = record.semaphore;
  command.claim = record.id;
  command.recall = recall;
  host_->SubmitAt(record.semaphore, command,
                  [this, id = record.id, again](const absl::StatusOr<Outcome>& outcome) {
                    if (IsUndone(outcome) && claims_->Find(id) != nullptr)
                      timers_->Add(Now() + TryAgainAfter(outcome), again, id);
                  });
}

}  // namespace semaphored
