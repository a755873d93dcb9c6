#include "server/sessions/claim_events.h"

#include <utility>

#include "server/sessions/refusals.h"

namespace semaphored {
namespace {

using State = ClaimRecord::State;

}  // namespace

void ClaimEvents::OnEvent(const Event& event) {
  parts_.adoptions->Keep(event);
  ClaimRecord* record = parts_.claims->Find(event.claim);
  if (record == nullptr) {
    SessionRecord* session =
        event.kind == Event::Kind::kMoved ? parts_.sessions->Find(event.claim) : nullptr;
    if (session != nullptr && event.epoch > session->life.epoch)
      parts_.closings->Drop(session, MovedRefusal(""));
    const bool ticket = event.kind == Event::Kind::kGranted && event.ticket != nullptr;
    if (ticket && parts_.marks->Find(event.claim) == nullptr) parts_.work->OnStrayTicket(event);
    return;
  }
  switch (event.kind) {
    case Event::Kind::kGranted:
      return OnGrantEvent(record, event);
    case Event::Kind::kRecalled:
      if (event.lease->epoch < record->life.epoch || !record->has_lease()) return;
      return OnRecalled(record, event.lease);
    case Event::Kind::kWaitEnded:
      if (record->given_up && event.cause == EndCause::kCancelled) return parts_.ends->Drop(record);
      return parts_.ends->Refuse(record, record->denied && event.cause == EndCause::kCancelled
                                             ? NotAllowedRefusal(record->semaphore)
                                             : WaitEnded(event.cause, record->semaphore));
    case Event::Kind::kMoved:
      if (event.epoch <= record->life.epoch) return;  // It is back already, or has moved again.
      if (!event.session.empty())
        return event.session == record->owner() ? parts_.ends->Leave(record) : void();
      return parts_.ends->Refuse(record, MovedRefusal(record->semaphore));
    case Event::Kind::kEnded:
      return parts_.ends->TellEnded(record, event.cause);
  }
}

void ClaimEvents::OnGrantEvent(ClaimRecord* record, const Event& event) {
  const Lease& lease = *event.lease;
  if (record->offers)
    return parts_.work->OnAssigned(record, event.lease, event.ticket, event.payload);
  // The claim has moved since, and this daemon knows it.
  if (lease.epoch < record->life.epoch || record->has_lease()) return;
  if (const EndCause* cause = parts_.marks->Find(record->id))
    return parts_.ends->Refuse(record, NotHeldRefusal(*cause, record->semaphore));
  if (lease.session != record->owner()) return parts_.ends->Leave(record);
  // The grant followed a move to another daemon.
  if (record->session == nullptr && lease.epoch > record->life.epoch)
    return parts_.ends->Refuse(record, MovedRefusal(record->semaphore));
  parts_.grants->BecomeHeld(record, event.lease);
}

void ClaimEvents::OnRecalled(ClaimRecord* record, const LeasePtr& lease) {
  record->lease = WithRecallOf(lease, record->lease);
  parts_.metrics->Recalled(&record->figures);
  parts_.recalls->Arm(record);
  ClaimListener* listener = record->lease_listener();
  if (record->state != ClaimRecord::State::kHeld || listener == nullptr) return;
  listener->OnRecalled(record->tag, record->id, record->semaphore,
                       parts_.vouching->NoticeOf(*record));
}

// ---- Claims of other lanes ----

void ClaimEvents::OnElsewhere(const Event& event) {
  if (stopping_) return;
  ClaimRecord* record = parts_.claims->Find(event.claim);
  // An end is final, whichever lane reports it first.
  const bool ended = event.kind == Event::Kind::kEnded;
  if (ended || event.kind == Event::Kind::kWaitEnded) MarkEnded(event);
  if (ended && record != nullptr && record->has_lease())
    return parts_.ends->TellEnded(record, event.cause);
  if (record != nullptr && record->state != State::kAsked) return Probe(*record);
  const bool assigns = event.kind == Event::Kind::kGranted && event.ticket != nullptr;
  if (assigns && record == nullptr && parts_.marks->Find(event.claim) == nullptr)
    parts_.work->OnStrayTicket(event);
}

void ClaimEvents::Probe(const ClaimRecord& record) {
  VerifyCommand verify;
  verify.semaphore = record.semaphore;
  verify.claim = record.id;
  parts_.host->SubmitAt(
      record.semaphore, std::move(verify),
      [this, id = record.id, owner = record.owner()](absl::StatusOr<Outcome> outcome) {
        OnProbed(id, owner, std::move(outcome));
      });
}

void ClaimEvents::OnProbed(const Id& id, const Id& owner, absl::StatusOr<Outcome> outcome) {
  ClaimRecord* record = parts_.claims->Find(id);
  if (record == nullptr || record->owner() != owner || record->state == State::kAsked) return;
  if (IsUndone(outcome)) {
    if (!stopping_) parts_.timers->Add(Now() + TryAgainAfter(outcome), TimerKind::kProbe, id);
    return;
  }
  if (outcome->kind == OutcomeKind::kNotHeld) return parts_.ends->TellGone(record, outcome->cause);
  if (outcome->kind != OutcomeKind::kHeld) return;
  const LeasePtr& lease = outcome->lease;
  if (lease->epoch < record->life.epoch) return;
  if (lease->session != owner) return parts_.ends->Leave(record);
  // A detached claim has moved to another daemon, which counts its TTL.
  if (record->session == nullptr && lease->epoch > record->life.epoch)
    return parts_.ends->Refuse(record, MovedRefusal(record->semaphore));
  if (record->state == State::kWaiting) return OnFoundGranted(record, lease);
  if (lease->recall.pending() && lease->recall != record->lease->recall)
    return OnRecalled(record, lease);
  record->lease = lease;
}

// The claim's lane has loaded the semaphore after the grant, and so reports no event.
void ClaimEvents::OnFoundGranted(ClaimRecord* record, const LeasePtr& lease) {
  if (lease->moved_from != 0) return parts_.ends->Leave(record);
  if (!record->offers) return parts_.grants->BecomeHeld(record, lease);
  AdminCommand show;
  show.semaphore = record->semaphore;
  show.act = AdminShowTicket{lease->ticket};
  parts_.host->SubmitAt(
      record->semaphore, std::move(show),
      [this, id = record->id, lease](absl::StatusOr<Outcome> outcome) {
        ClaimRecord* again = parts_.claims->Find(id);
        if (again == nullptr || again->state != State::kWaiting) return;
        if (IsUndone(outcome)) {
          if (!stopping_) parts_.timers->Add(Now() + TryAgainAfter(outcome), TimerKind::kProbe, id);
          return;
        }
        if (outcome->kind != OutcomeKind::kDone) return;
        TicketInfo& info = outcome->report->tickets.front();
        if (info.ticket->lease != id) return;  // The lease has ended; its lane reports that.
        parts_.work->OnAssigned(again, lease, std::move(info.ticket), std::move(info.payload));
      });
}

void ClaimEvents::MarkEnded(const Event& event) {
  const Id& session = event.lease ? event.lease->session : event.session;
  if (session != event.claim && parts_.sessions->Find(session) == nullptr)
    return;  // Of another daemon.
  parts_.marks->Add(event.claim, event.cause);
}

}  // namespace semaphored
