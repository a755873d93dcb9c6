#include "server/sessions/session_closings.h"

#include <utility>
#include <vector>

#include "server/sessions/refusals.h"

namespace semaphored {

void SessionClosings::End(SessionRecord* session, EndCause cause, Done done) {
  session->closing = cause != EndCause::kExpired;
  const Id id = session->id;
  const uint32_t epoch = session->life.epoch;
  if (std::vector<EndCommand> asked = parts_.session_ends->OfAsked(*session, cause);
      !asked.empty()) {
    return parts_.session_ends->Submit(std::move(asked),
                                       [this, id, epoch, cause, done = std::move(done)]() mutable {
                                         SessionRecord* again = parts_.sessions->Find(id);
                                         if (again == nullptr || again->life.epoch != epoch)
                                           return CloseRow(id, epoch, cause, std::move(done));
                                         End(again, cause, std::move(done));
                                       });
  }
  if (const SteadyTime at = parts_.moves->OverAt(*session); at > Now())
    return EndLater(session, cause, at, std::move(done));
  // Other lanes' claims first; the row stays until they are gone. Of very many claims those of the row's lane too: one
  // commit is not to be as large as a session may be.
  SessionEnds::Ending ending{
      id, epoch, cause, parts_.session_ends->InOrder(*session, /*lane_left_out=*/0), 0, {}};
  ending.done = [this, id, epoch, cause, done = std::move(done)]() mutable {
    CloseRow(id, epoch, cause, std::move(done));
  };
  parts_.session_ends->SubmitInPages(std::move(ending));
}

void SessionClosings::OnTtl(SessionRecord* session) {
  session->life.armed = false;
  if (session->life.expiring || session->closing) return;
  if (session->listener != nullptr && session->listener->unread())
    parts_.vouching->Revive(&session->life);
  if (session->life.expires_at > Now()) return parts_.deadlines->ArmTtl(session);
  session->life.expiring = true;
  End(session, EndCause::kExpired, [] {});
}

// ---- While leases move ----

void SessionClosings::EndLater(SessionRecord* session, EndCause cause, SteadyTime at, Done done) {
  session->closing = true;
  session->end_cause = cause;
  parts_.timers->Add(at, TimerKind::kSessionEnd, session->id);
  parts_.session_ends->Submit(parts_.session_ends->OfUnmoved(*session, cause), std::move(done));
}

void SessionClosings::OnMovesOver(SessionRecord* session) {
  if (!session->closing || session->end_cause == EndCause::kNone) return;
  End(session, std::exchange(session->end_cause, EndCause::kNone), [] {});
}

// ---- The row ----

void SessionClosings::CloseRow(const Id& session, uint32_t epoch, EndCause cause, Done done) {
  parts_.host->Submit(kSessionsLane, Job{CloseSessionCommand{session, epoch, cause},
                                         [this, session, epoch, cause, done = std::move(done)](
                                             const absl::StatusOr<Outcome>& outcome) mutable {
                                           SessionRecord* record = parts_.sessions->Find(session);
                                           if (record != nullptr)
                                             OnRowClosed(record, epoch, cause, outcome);
                                           done();
                                         }});
}

void SessionClosings::OnRowClosed(SessionRecord* session, uint32_t epoch, EndCause cause,
                                  const absl::StatusOr<Outcome>& outcome) {
  // Adopted again while this was under way: whatever became of it, it is not for what has come back.
  const bool undone = !outcome.ok() || outcome->kind == OutcomeKind::kStale;
  if (undone && session->life.epoch != epoch) {
    session->life.expiring = session->closing = false;
    parts_.vouching->Revive(&session->life);
    parts_.deadlines->ArmTtl(session);
  } else if (!outcome.ok() || outcome->kind == OutcomeKind::kLimitReached) {
    // Not done: looked at again soon, as one whose TTL has passed.
    session->life.expiring = false;
    session->life.expires_at = session->closing ? Now() : session->life.expires_at;
    session->closing = false;
    session->life.armed = true;
    parts_.timers->Add(Now() + kTryAgainAfter, TimerKind::kSessionTtl, session->id);
  } else if (IsUndone(outcome)) {
    OnPartlyClosed(session, *outcome);
  } else {
    Finish(session, cause, /*moved=*/outcome->kind == OutcomeKind::kStale);
  }
}

void SessionClosings::Finish(SessionRecord* session, EndCause cause, bool moved) {
  // The claims' own events come after this; their listeners hear of them before they hear of the session.
  std::vector<std::pair<Id, std::string>> claims;
  for (const Id& id : std::exchange(session->claims, {})) {
    const ClaimRecord* claim = parts_.claims->Find(id);
    claims.emplace_back(id, claim != nullptr ? claim->semaphore : "");
  }
  SessionListener* listener = session->listener;
  const Id session_id = session->id;
  parts_.sessions->ForgetListener(listener);
  for (const auto& [id, semaphore] : claims) {
    ClaimRecord* claim = parts_.claims->Find(id);
    if (claim == nullptr) continue;
    const bool held = claim->state == ClaimRecord::State::kHeld;
    if (!moved) parts_.ends->Count(claim, cause);
    parts_.ends->Drop(claim);
    if (listener != nullptr && held && !moved)
      listener->OnEnded(0, id, semaphore, EndCause::kExpired);
  }
  parts_.sessions->Erase(session_id);
  if (listener != nullptr)
    listener->OnSessionEnded(moved ? MovedRefusal("") : SessionLostRefusal());
}

void SessionClosings::OnPartlyClosed(SessionRecord* session, const Outcome& outcome) {
  session->life.epoch = outcome.closing_epoch();
  session->life.expiring = session->closing = false;
  session->end_cause = EndCause::kExpired;  // It is not resumed.
  session->life.expires_at = Now();
  session->life.armed = true;
  parts_.timers->Add(Now() + kTryDamagedAfter, TimerKind::kSessionTtl, session->id);
  SessionListener* listener = session->listener;
  if (listener == nullptr) return;
  unlisten_(session);
  listener->OnSessionEnded(SessionLostRefusal());
}

void SessionClosings::Drop(SessionRecord* session, Refusal refusal) {
  SessionListener* listener = session->listener;
  parts_.sessions->ForgetListener(listener);
  // (What is left of it is of no interest to the claims that go.)
  for (const Id& id : std::exchange(session->claims, {})) {
    if (ClaimRecord* claim = parts_.claims->Find(id)) parts_.ends->Drop(claim);
  }
  const Id id = session->id;
  parts_.sessions->Erase(id);
  if (listener != nullptr) listener->OnSessionEnded(std::move(refusal));
}

}  // namespace semaphored
