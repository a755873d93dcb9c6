// The results of the lanes. Each semaphore belongs to one lane, which reports what happens to its
// claims. A lane that adopts or closes a session sees events of other lanes' semaphores too. Of
// those only an end counts, and it counts whatever the claim's own lane reports later; every other
// event makes Sessions read the claim in its own lane.
#include <utility>

#include "server/core/sessions_impl.h"

namespace semaphored {
namespace {

using State = ClaimRecord::State;

}  // namespace

void SessionsImpl::OnLaneResults(size_t, LaneResults results) {
  if (!results.quarantines.empty()) OnQuarantines(results.quarantines, results.quarantined_at);
  for (Finished& finished : results.finished) finished.done(std::move(finished.outcome));
  for (const Event& event : results.events) OnEvent(event);
  for (const Event& event : results.elsewhere) OnElsewhere(event);
  for (const DelayedTicket& delayed : results.delayed) delays_.Count(delayed);
  if (!results.changes.empty()) OnChanges(results.changes);
  marks_.Age(/*go_on=*/!stopping_);
}

// ---- Claims of other lanes ----

void SessionsImpl::OnElsewhere(const Event& event) {
  if (stopping_) return;
  ClaimRecord* record = FindClaim(event.claim);
  // An end is final, whichever lane reports it first.
  const bool ended = event.kind == Event::Kind::kEnded;
  if (ended || event.kind == Event::Kind::kWaitEnded) MarkEnded(event);
  if (ended && record != nullptr && record->has_lease()) return TellEnded(record, event.cause);
  if (record != nullptr && record->state != State::kAsked) return Probe(*record);
  const bool assigns = event.kind == Event::Kind::kGranted && event.ticket != nullptr;
  if (assigns && record == nullptr && marks_.Find(event.claim) == nullptr) OnStrayOffer(event);
}

void SessionsImpl::Probe(const ClaimRecord& record) {
  VerifyCommand verify;
  verify.semaphore = record.semaphore;
  verify.claim = record.id;
  Submit(record.semaphore, std::move(verify),
         [this, id = record.id, owner = record.owner()](absl::StatusOr<Outcome> outcome) {
           OnProbed(id, owner, std::move(outcome));
         });
}

void SessionsImpl::OnProbed(const Id& id, const Id& owner, absl::StatusOr<Outcome> outcome) {
  ClaimRecord* record = FindClaim(id);
  if (record == nullptr || record->owner() != owner || record->state == State::kAsked) return;
  if (IsUndone(outcome)) {
    if (!stopping_) timers_.Add(Now() + TryAgainAfter(outcome), TimerKind::kProbe, id);
    return;
  }
  if (outcome->kind == OutcomeKind::kNotHeld) return TellGone(record, outcome->cause);
  if (outcome->kind != OutcomeKind::kHeld) return;
  const LeasePtr& lease = outcome->lease;
  if (lease->epoch < record->life.epoch) return;
  if (lease->session != owner) return Leave(record);
  // A detached claim has moved to another daemon, which counts its TTL.
  if (record->session == nullptr && lease->epoch > record->life.epoch)
    return Refuse(record, MovedRefusal(record->semaphore));
  if (record->state == State::kWaiting) return OnFoundGranted(record, lease);
  if (lease->recall.pending() && lease->recall != record->lease->recall)
    return OnRecalled(record, lease);
  record->lease = lease;
}

// The claim's lane has loaded the semaphore after the grant, and so reports no event.
void SessionsImpl::OnFoundGranted(ClaimRecord* record, const LeasePtr& lease) {
  if (lease->moved_from != 0) return Leave(record);
  if (!record->offers) return BecomeHeld(record, lease);
  AdminCommand show;
  show.semaphore = record->semaphore;
  show.act = AdminShowTicket{lease->ticket};
  Submit(record->semaphore, std::move(show),
         [this, id = record->id, lease](absl::StatusOr<Outcome> outcome) {
           ClaimRecord* again = FindClaim(id);
           if (again == nullptr || again->state != State::kWaiting) return;
           if (IsUndone(outcome)) {
             if (!stopping_) timers_.Add(Now() + TryAgainAfter(outcome), TimerKind::kProbe, id);
             return;
           }
           if (outcome->kind != OutcomeKind::kDone) return;
           TicketInfo& info = outcome->report->tickets.front();
           if (info.ticket->lease != id) return;  // The lease has ended; its lane reports that.
           OnAssigned(again, lease, std::move(info.ticket), std::move(info.payload));
         });
}

// ---- Ends that are known before their grants ----

void SessionsImpl::MarkEnded(const Event& event) {
  const Id& session = event.lease ? event.lease->session : event.session;
  if (session != event.claim && FindSession(session) == nullptr) return;  // Of another daemon.
  marks_.Add(event.claim, event.cause);
}

}  // namespace semaphored
