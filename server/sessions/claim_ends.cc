#include "server/sessions/claim_ends.h"

#include <string>
#include <utility>

#include "server/sessions/refusals.h"

namespace semaphored {
namespace {

using State = ClaimRecord::State;

}  // namespace

// ---- It has ended ----

void ClaimEnds::Drop(ClaimRecord* record) {
  parts_.moves->End(record);
  parts_.metrics->Forget(&record->figures);
  if (Worker* worker = WorkDesk::WorkerOf(*record)) worker->OnGone(record->id);
  SessionRecord* const session = record->session;
  const bool unread = session != nullptr && parts_.unread->contains(record->semaphore);
  parts_.claims->Remove(record);
  if (session == nullptr) return;
  if (unread) parts_.vouching->Bound(session);
  session->recalls_changed = session->has_recalls;
}

void ClaimEnds::Refuse(ClaimRecord* record, Refusal refusal) {
  if (record->offers) return parts_.work->DropOffer(record);
  ClaimListener* listener = record->listener;
  const uint64_t tag = record->tag;
  if (!record->has_lease())
    parts_.metrics->Denied(record->semaphore, &record->figures, refusal.reason);
  parts_.lease_log->spans().Refused(record->semaphore, ReasonName(refusal.reason),
                                    record->spans.get());
  Drop(record);
  if (listener != nullptr) listener->OnRefused(tag, std::move(refusal));
}

void ClaimEnds::TellEnded(ClaimRecord* record, EndCause cause) {
  Count(record, cause);
  if (record->offers) return parts_.work->EndAssignment(record, cause);
  // No client has received a grant of a lease that moves.
  ClaimListener* listener = record->state == State::kHeld ? record->listener : nullptr;
  const Id claim = record->id;
  const std::string semaphore = record->semaphore;
  const uint64_t tag = record->tag;
  Drop(record);
  if (listener != nullptr) listener->OnEnded(tag, claim, semaphore, cause);
}

void ClaimEnds::TellGone(ClaimRecord* record, EndCause cause) {
  if (record->has_lease())
    return TellEnded(record, cause == EndCause::kNone ? EndCause::kUnknown : cause);
  Refuse(record, NotHeldRefusal(cause, record->semaphore));
}

void ClaimEnds::Leave(ClaimRecord* record) {
  ClaimListener* listener = record->listener;
  const State state = record->state;
  const Id claim = record->id;
  const std::string semaphore = record->semaphore;
  const uint64_t tag = record->tag;
  if (state == State::kHeld) {
    parts_.lease_log->spans().Ended(semaphore, *record->lease, EndCause::kMoved,
                                    record->spans.get());
    parts_.lease_log->Lost(semaphore, *record->lease, EndCause::kMoved, record->trace);
  }
  Drop(record);
  if (listener == nullptr || state == State::kMoving) return;
  if (state == State::kHeld) return listener->OnEnded(tag, claim, semaphore, EndCause::kMoved);
  listener->OnRefused(tag, MovedRefusal(semaphore));
}

void ClaimEnds::LeaveOthers(const Id& session, const std::vector<ClaimInfo>& claims) {
  for (const ClaimInfo& info : claims) {
    const Claim& row = RowOf(info);
    ClaimRecord* known = parts_.claims->Find(row.id);
    if (known != nullptr && known->owner() != session && known->life.epoch < row.epoch)
      Leave(known);
  }
}

void ClaimEnds::Count(ClaimRecord* record, EndCause cause) {
  parts_.metrics->Ended(&record->figures, cause);
  if (record->lease == nullptr) return;
  parts_.lease_log->spans().Ended(record->semaphore, *record->lease, cause, record->spans.get());
  if (cause == EndCause::kReleased) return;
  parts_.lease_log->Lost(record->semaphore, *record->lease, cause, record->trace);
}

// ---- It is to end ----

void ClaimEnds::End(ClaimRecord* record, EndCause cause, bool only_waiting) {
  EndCommand end = EndOf(*record, cause);
  end.only_waiting = only_waiting;
  const bool recall = record->recall.end_at <= Now();
  parts_.host->SubmitAt(
      record->semaphore, end,
      [this, id = record->id, owner = end.session, cause, recall](absl::StatusOr<Outcome> outcome) {
        ClaimRecord* again = parts_.claims->Find(id);
        if (again == nullptr || again->owner() != owner) return;
        if (IsUndone(outcome)) return OnUndone(again, cause, recall, TryAgainAfter(outcome));
        if (outcome->kind != OutcomeKind::kNotHeld) return;
        if (again->given_up) return Drop(again);
        TellGone(again, outcome->cause);
      });
}

// It is still due. Which kind it was decides which timer looks at it again.
void ClaimEnds::OnUndone(ClaimRecord* record, EndCause cause, bool recall,
                         Milliseconds again_after) {
  record->given_up = false;
  const TimerKind kind = record->lost ? TimerKind::kEndLost
                         : recall     ? TimerKind::kRecall
                                      : TimerKind::kWait;
  const SteadyTime at = Now() + again_after;
  if (kind == TimerKind::kRecall) {
    if (record->recall.end_at > Now()) return;  // Forgotten meanwhile; a later one has its timer.
    record->recall.armed_for = at;
  }
  if (cause == EndCause::kWaitExpired || recall || record->lost) {
    parts_.timers->Add(at, kind, record->id);
  } else if (!stopping_ && record->session == nullptr && record->state != State::kHeld) {
    // Given up: its TTL ends it, if the engine comes back.
    parts_.vouching->Revive(&record->life);
    parts_.deadlines->ArmTtl(record);
  } else if (record->state == State::kWaiting && !record->offers) {
    parts_.timers->Add(at, TimerKind::kWait, record->id);
  }
}

void ClaimEnds::Abandon(ClaimRecord* record, bool end_lease) {
  record->listener = nullptr;
  if (stopping_) return;
  if (record->state == State::kHeld) {
    if (end_lease) End(record, EndCause::kDisconnected, false);
    return;
  }
  record->abandoned = true;
  record->end_lease = end_lease;
  if (record->state == State::kWaiting) EndAbandoned(record);
}

void ClaimEnds::EndAbandoned(ClaimRecord* record) {
  const bool lease_too = record->end_lease || !record->remembered;
  if (record->state == State::kHeld && !lease_too) {
    record->abandoned = false;
    return;
  }
  End(record, record->state == State::kHeld ? EndCause::kDisconnected : EndCause::kCancelled,
      !lease_too);
}

void ClaimEnds::EndDenied(ClaimRecord* record) {
  ClaimListener* listener = std::exchange(record->listener, nullptr);
  End(record, EndCause::kRevoked, false);
  // If the engine cannot be asked now, the session's pings must not keep it: then it is recalled. (A detached lease
  // has its TTL.)
  if (record->session != nullptr)
    parts_.timers->Add(Now() + Milliseconds(record->session->life.ttl_ms), TimerKind::kDenied,
                       record->id);
  if (listener != nullptr) listener->OnRefused(record->tag, NotAllowedRefusal(record->semaphore));
}

bool ClaimEnds::EndUnwanted(ClaimRecord* record) {
  const SessionRecord* session = record->session;
  const bool forsaken = session != nullptr && session->listener == nullptr &&
                        session->life.hosted && session->opened && Now() >= session->grace_until;
  record->given_up = forsaken && !record->cancel_asked && !record->denied;
  if (!record->cancel_asked && !record->denied && !forsaken) return false;
  End(record, EndCause::kCancelled, true);
  return true;
}

void ClaimEnds::EndUntold(ClaimRecord* record) {
  if (stopping_ || record->state == State::kMoving)
    return;  // (Its client has to repeat the request.)
  if (record->session == nullptr) {
    record->life.expires_at = Now();
    return OnTtl(record);
  }
  if (record->state == State::kHeld && record->offers) return parts_.work->PutBack(record);
  if (record->state == State::kHeld) {
    record->lost = record->finishing = true;
    parts_.vouching->Bound(record);
    return EndLost(record);
  }
  // If its client asks again, what becomes of that is the answer. If it is granted before, the lease ends.
  record->given_up = record->abandoned = record->end_lease = true;
  End(record, EndCause::kCancelled, true);
}

void ClaimEnds::OnTtl(ClaimRecord* record) {
  record->life.armed = false;
  if (record->session != nullptr || record->life.expiring) return;
  if (record->life.expires_at > Now()) return parts_.deadlines->ArmTtl(record);
  record->life.expiring = true;
  const EndCommand end = EndOf(*record, EndCause::kExpired);
  parts_.host->SubmitAt(
      record->semaphore, end,
      [this, id = record->id, epoch = end.epoch](absl::StatusOr<Outcome> outcome) {
        ClaimRecord* again = parts_.claims->Find(id);
        if (again != nullptr && again->session == nullptr) OnExpired(again, epoch, outcome);
      });
}

void ClaimEnds::OnExpired(ClaimRecord* record, uint32_t epoch,
                          const absl::StatusOr<Outcome>& outcome) {
  const bool undone = IsUndone(outcome) || outcome->kind == OutcomeKind::kStale;
  if (undone && record->life.epoch != epoch) {
    if (!record->life.expiring) return;  // Its request was repeated: it waits, or its TTL runs.
    // It left and has come back, adopted again, while this was under way.
    record->life.expiring = false;
    parts_.vouching->Revive(&record->life);
    parts_.deadlines->ArmTtl(record);
  } else if (IsUndone(outcome)) {
    record->life.expiring = false;
    record->life.armed = true;
    parts_.timers->Add(Now() + TryAgainAfter(outcome), TimerKind::kTtl, record->id);
  } else if (outcome->kind == OutcomeKind::kStale) {
    Refuse(record, MovedRefusal(record->semaphore));
  } else if (outcome->kind == OutcomeKind::kNotHeld) {
    TellGone(record, outcome->cause);
  }
}

void ClaimEnds::OnWaitOver(ClaimRecord* record) {
  record->wait_armed_for = SteadyTime::max();
  if (record->has_lease()) return;
  if (record->state == State::kWaiting && EndUnwanted(record)) return;
  if (record->wait_until > Now()) return parts_.deadlines->ArmWait(record);
  if (record->state == State::kAsked) {
    // The lane is slower than the wait: looked at again when it has answered.
    return parts_.deadlines->ArmWait(record, Now() + kTryAgainAfter);
  }
  End(record, EndCause::kWaitExpired, true);
}

// ---- Its semaphore cannot be read ----

void ClaimEnds::DisownDue() {
  for (const std::string& semaphore : parts_.unread->LostBy(Now())) {
    for (const Id& id : parts_.claims->At(semaphore)) {
      if (ClaimRecord* record = parts_.claims->Find(id)) Disown(record);
    }
  }
}

void ClaimEnds::Disown(ClaimRecord* record) {
  // Of a wait nothing was ever vouched for.
  if (record->state != State::kHeld || record->lost) return;
  ClaimListener* listener = record->lease_listener();
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
  parts_.vouching->Bound(record);
  if (listener != nullptr) listener->OnEnded(tag, id, semaphore, EndCause::kEngineLost);
}

void ClaimEnds::EndLost(ClaimRecord* record) {
  if (!stopping_ && record->lost) End(record, EndCause::kDisconnected, false);
}

void ClaimEnds::RefuseLost(ClaimRecord* record) {
  record->session->by_tag.erase(record->tag);
  ClaimListener* listener = std::exchange(record->listener, nullptr);
  if (listener == nullptr) return;
  listener->OnRefused(record->tag, NotHeldRefusal(EndCause::kEngineLost, record->semaphore));
}

}  // namespace semaphored
