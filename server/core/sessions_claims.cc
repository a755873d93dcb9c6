// Claims: asked for, waiting, held, ended.
#include <algorithm>
#include <utility>

#include "server/core/sessions_impl.h"

namespace semaphored {
namespace {

using State = ClaimRecord::State;

}  // namespace

ClaimRecord* SessionsImpl::FindClaim(const Id& id) {
  const auto found = claims_.find(id);
  if (found == claims_.end()) return nullptr;
  return found->second->leads_to.empty() ? found->second.get() : FindClaim(found->second->leads_to);
}

const ClaimRecord* SessionsImpl::FindClaim(const Id& id) const {
  return const_cast<SessionsImpl*>(this)->FindClaim(id);
}

ClaimRecord* SessionsImpl::AddClaim(const Id& id, const std::string& semaphore,
                                    SessionRecord* session) {
  auto& place = claims_[id];
  place = std::make_unique<ClaimRecord>();
  place->id = id;
  place->semaphore = semaphore;
  place->session = session;
  if (session != nullptr) session->claims.insert(id);
  return place.get();
}

void SessionsImpl::Drop(ClaimRecord* record) {
  EndMove(record);
  metrics_.Forget(&record->figures);
  if (Worker* worker = WorkerOf(*record)) worker->OnGone(record->id);
  if (record->session != nullptr) {
    record->session->claims.erase(record->id);
    const auto found = record->session->by_tag.find(record->tag);
    if (found != record->session->by_tag.end() && found->second == record->id)
      record->session->by_tag.erase(found);
    if (unread_.contains(record->semaphore)) BoundVouching(record->session);
    record->session->recalls_changed = record->session->has_recalls;
  }
  if (!record->led_from.empty()) claims_.erase(record->led_from);
  const Id id = record->id;  // The key must not lie in what is erased.
  claims_.erase(id);
}

void SessionsImpl::Refuse(ClaimRecord* record, Refusal refusal) {
  if (record->offers) return DropOffer(record);
  ClaimListener* listener = record->listener;
  const uint64_t tag = record->tag;
  if (!record->has_lease()) metrics_.Denied(record->semaphore, &record->figures, refusal.reason);
  Drop(record);
  if (listener != nullptr) listener->OnRefused(tag, std::move(refusal));
}

void SessionsImpl::TellEnded(ClaimRecord* record, EndCause cause) {
  CountEnd(record, cause);
  if (record->offers) return EndAssignment(record, cause);
  // No client has received a grant of a lease that moves.
  ClaimListener* listener = record->state == State::kHeld ? record->listener : nullptr;
  const Id claim = record->id;
  const std::string semaphore = record->semaphore;
  const uint64_t tag = record->tag;
  Drop(record);
  if (listener != nullptr) listener->OnEnded(tag, claim, semaphore, cause);
}

void SessionsImpl::TellGone(ClaimRecord* record, EndCause cause) {
  if (record->has_lease())
    return TellEnded(record, cause == EndCause::kNone ? EndCause::kUnknown : cause);
  Refuse(record, NotHeldRefusal(cause, record->semaphore));
}

// ---- Asking ----

Id SessionsImpl::Acquire(AcquireParams params, ClaimListener* listener, uint64_t tag) {
  const Id id = host_->NewId();
  if (stopping_) {
    listener->OnRefused(tag, ShuttingDownRefusal());
    return id;
  }
  // It might be granted, and nobody could rely on it.
  if (host_->vouch_until() <= Now()) {
    metrics_.Denied(params.semaphore, nullptr, Reason::kNotVouched);
    listener->OnRefused(tag, NotVouchedRefusal(params.semaphore));
    return id;
  }
  ClaimRecord* record = AddClaim(id, params.semaphore, nullptr);
  record->listener = listener;
  record->tag = tag;
  record->life.ttl_ms = params.ttl_ms;
  SubmitAcquire(record, std::move(params));
  return id;
}

void SessionsImpl::AcquireIn(const Id& session, AcquireParams params, uint64_t tag,
                             bool report_queued) {
  SessionRecord* owner = FindSession(session);
  if (owner == nullptr) return;
  if (stopping_ || owner->closing || owner->life.expiring) {
    if (owner->listener != nullptr)
      owner->listener->OnRefused(tag, stopping_ ? ShuttingDownRefusal() : SessionLostRefusal());
    return;
  }
  if (params.holder.empty()) {
    params.holder = owner->holder;
    params.holder_is_default = true;
  }
  params.requester.client_id = owner->client_id;
  ClaimRecord* record = AddClaim(host_->NewId(), params.semaphore, owner);
  record->listener = owner->listener;
  record->tag = tag;
  record->report_queued = report_queued;
  owner->by_tag[tag] = record->id;
  SubmitAcquire(record, std::move(params));
}

void SessionsImpl::SubmitAcquire(ClaimRecord* record, AcquireParams params) {
  record->remembered = params.requester.remembered();
  record->trace = params.trace;
  if (record->session != nullptr && !record->trace.present())
    record->trace = record->session->trace;
  metrics_.Asked(&record->figures);
  record->charge = std::move(params.charge);
  record->unless_repeated = std::move(params.unless_repeated);
  if (params.wait_ms > 0) {
    record->wait_until = Now() + Milliseconds(params.wait_ms);
    ArmWait(record);
  }
  AcquireCommand command;
  command.requester = std::move(params.requester);
  command.semaphore = std::move(params.semaphore);
  command.claim = record->id;
  command.session = record->session != nullptr ? record->session->id : record->id;
  if (record->session != nullptr) command.epoch = record->session->life.epoch;
  command.permits = params.permits;
  command.limit = params.limit;
  command.adopt_limit = params.adopt_limit;
  command.must_exist = params.must_exist;
  command.wait = params.wait_ms != 0;
  command.priority = params.priority;
  command.ttl_ms = record->session != nullptr ? record->session->life.ttl_ms : params.ttl_ms;
  command.holder = std::move(params.holder);
  command.owner = record->session != nullptr ? record->session->owner : TenantName(record->charge);
  if (record->charge != nullptr) command.quotas = record->charge->tenant()->quotas.made;
  command.holder_is_default = params.holder_is_default;
  command.only_if_repeated = record->unless_repeated != nullptr;
  FillInMove(*record, &command);
  Asked asked{params.permits, {"", command.requester.sequence, command.requester.one_shot}};
  if (record->session == nullptr && record->remembered) asked.requester = command.requester;
  Submit(record->semaphore, std::move(command),
         [this, id = record->id, asked = std::move(asked)](absl::StatusOr<Outcome> outcome) {
           OnAcquireOutcome(id, asked, std::move(outcome));
         });
}

void SessionsImpl::OnAcquireOutcome(const Id& id, const Asked& asked,
                                    absl::StatusOr<Outcome> outcome) {
  ClaimRecord* record = FindClaim(id);
  if (record == nullptr) return;
  const std::shared_ptr<const Refusal> unless_repeated = std::move(record->unless_repeated);
  if (!outcome.ok()) return Refuse(record, RefusalOf(outcome.status(), record->semaphore));
  if (outcome->kind == OutcomeKind::kMoving) return OnMoving(record, asked, outcome->lease);
  if (outcome->kind == OutcomeKind::kGranted) {
    if (const EndCause* cause = marks_.Find(outcome->lease->id))
      return Refuse(record, NotHeldRefusal(*cause, record->semaphore));
    if (outcome->lease->id != id)
      record = LeadTo(record, outcome->lease->id, outcome->lease->epoch);
    if (record == nullptr) return;
    if (record->lost) return RefuseLost(record);
    if (outcome->changed) KeepAfterMove(&record->life, outcome->lease->ttl_ms);
    BecomeHeld(record, outcome->lease);
    return;
  }
  if (outcome->kind == OutcomeKind::kQueued) {
    if (const EndCause* cause = marks_.Find(outcome->claim))
      return Refuse(record, WaitEnded(*cause, record->semaphore));
    if (outcome->claim != id)
      record = LeadTo(record, outcome->claim, std::max(outcome->epoch(), 1u));
    if (record == nullptr) return;
    if (record->charge != nullptr && record->charge->usage() == Usage())
      record->charge->Set({asked.permits, /*waiters=*/1, /*sessions=*/0});
    BecomeWaiting(record, outcome->position(), outcome->wait_reason());
    return;
  }
  if (outcome->kind == OutcomeKind::kNotAskedBefore) return Refuse(record, *unless_repeated);
  Refuse(record, RefusalOf(*outcome, record->semaphore, host_->guarantees().adapter));
}

// The engine answered with the claim that the same request made earlier. If that claim has a record
// with the same owner (this daemon has served the client before), the new listener takes the record
// over. If its record has another owner, the claim has left that owner. Otherwise the record goes
// on under the real id.
ClaimRecord* SessionsImpl::LeadTo(ClaimRecord* record, const Id& real, uint32_t epoch) {
  const Id asked_id = record->id;
  ClaimRecord* earlier = FindClaim(real);
  if (earlier != nullptr && earlier->session != record->session) {
    Leave(earlier);
  } else if (earlier != nullptr && earlier->listener != nullptr &&
             earlier->listener != record->listener) {
    earlier->listener->OnRefused(earlier->tag, MovedRefusal(earlier->semaphore));
    if (FindClaim(real) == nullptr) return nullptr;
  }
  record = FindClaim(asked_id);
  if (record == nullptr) return nullptr;
  earlier = FindClaim(real);
  if (earlier == nullptr) earlier = AddClaim(real, record->semaphore, record->session);
  if (!earlier->led_from.empty()) claims_.erase(earlier->led_from);
  earlier->life.epoch = std::max(epoch, earlier->life.epoch);
  if (earlier->session == nullptr) {
    earlier->life.ttl_ms = earlier->life.ttl_ms != 0 ? earlier->life.ttl_ms : record->life.ttl_ms;
    earlier->life.hosted = true;
  } else {
    earlier->session->by_tag[record->tag] = real;
  }
  earlier->listener = record->listener;
  earlier->tag = record->tag;
  earlier->remembered = true;
  earlier->abandoned = record->abandoned;
  earlier->end_lease = record->end_lease;
  earlier->cancel_asked = record->cancel_asked;
  earlier->report_queued = record->report_queued;
  earlier->wait_until = record->wait_until;
  earlier->trace = record->trace;
  ArmWait(earlier);
  if (earlier->charge == nullptr) earlier->charge = std::move(record->charge);
  record->charge.reset();
  if (record->session != nullptr) {
    const Id id = record->id;
    record->session->claims.erase(id);
    claims_.erase(id);
    return earlier;
  }
  // The caller knows the claim by the id that it was given.
  record->leads_to = real;
  record->listener = nullptr;
  earlier->led_from = record->id;
  return earlier;
}

void SessionsImpl::BecomeWaiting(ClaimRecord* record, uint64_t position, WaitReason reason) {
  record->state = State::kWaiting;
  metrics_.Waiting(record->semaphore, &record->figures);
  record->life.expires_at = SteadyTime::max();  // While the call stands, its client lives.
  if (record->abandoned) return EndAbandoned(record);
  if (EndUnwanted(record)) return;
  if (record->listener != nullptr && record->report_queued) {
    record->listener->OnQueued(record->tag, position, reason,
                               paces_.ExpectedWaitMs(record->semaphore, position));
  }
}

bool SessionsImpl::EndUnwanted(ClaimRecord* record) {
  const SessionRecord* session = record->session;
  const bool forsaken = session != nullptr && session->listener == nullptr &&
                        session->life.hosted && session->opened && Now() >= session->grace_until;
  record->given_up = forsaken && !record->cancel_asked && !record->denied;
  if (!record->cancel_asked && !record->denied && !forsaken) return false;
  EndClaim(record, EndCause::kCancelled, true);
  return true;
}

void SessionsImpl::BecomeHeld(ClaimRecord* record, LeasePtr lease) {
  if (record->state == State::kWaiting) paces_.OnGrant(record->semaphore);
  EndMove(record);
  const bool first = record->state != State::kHeld;
  record->state = State::kHeld;
  record->lease = std::move(lease);
  if (record->figures.stage == ClaimFigures::Stage::kNone) {
    CountFound(record);
  } else {
    metrics_.Granted(record->semaphore, &record->figures, record->lease->permits);
  }
  Count(record, nullptr);
  if (record->session != nullptr) {
    record->life.epoch = record->lease->epoch;
    record->session->by_tag.erase(record->tag);
  } else if (record->life.hosted) {
    record->life.ttl_ms = record->lease->ttl_ms;
    record->life.epoch = record->lease->epoch;
    Revive(&record->life);
    ArmTtl(&record->life, TimerKind::kTtl, record->id);
  }
  if (first && record->lease->longest_hold_ms > 0) {
    timers_.Add(Now() + Milliseconds(record->lease->longest_hold_ms), TimerKind::kLongestHold,
                record->id);
  }
  ArmRecall(record);
  if (record->session != nullptr && record->session->has_recalls)
    record->session->recalls_changed = true;
  if (record->abandoned) return EndAbandoned(record);
  if (record->denied) return EndDenied(record);
  if (unread_.contains(record->semaphore)) BoundVouching(record);
  TellGranted(record);
}

void SessionsImpl::TellGranted(ClaimRecord* record) {
  if (record->listener == nullptr) return;
  const Vouch vouch = VouchFor(record);
  if (!vouch.none()) {
    lease_log_.Granted(record->semaphore, *record->lease, record->trace);
    record->listener->OnGranted(record->tag, record->lease, record->semaphore, vouch);
    return;
  }
  // It is granted, but nobody may rely on it now. The same request id finds it again.
  ClaimListener* listener =
      record->session != nullptr ? record->listener : std::exchange(record->listener, nullptr);
  listener->OnRefused(record->tag, NotVouchedRefusal(record->semaphore));
}

// ---- Going away ----

void SessionsImpl::Detach(const Id& claim) {
  if (ClaimRecord* record = FindClaim(claim)) record->listener = nullptr;
}

void SessionsImpl::Abandon(const Id& claim, bool end_lease) {
  ClaimRecord* record = FindClaim(claim);
  if (record == nullptr) return;
  record->listener = nullptr;
  if (stopping_) return;
  if (record->state == State::kHeld) {
    if (end_lease) EndClaim(record, EndCause::kDisconnected, false);
    return;
  }
  record->abandoned = true;
  record->end_lease = end_lease;
  if (record->state == State::kWaiting) EndAbandoned(record);
}

// Nobody has been told of a grant. Without a request id nobody can ever learn of it, so a lease is
// ended as well.
void SessionsImpl::EndAbandoned(ClaimRecord* record) {
  const bool lease_too = record->end_lease || !record->remembered;
  if (record->state == State::kHeld && !lease_too) {
    record->abandoned = false;
    return;
  }
  EndClaim(record, record->state == State::kHeld ? EndCause::kDisconnected : EndCause::kCancelled,
           !lease_too);
}

void SessionsImpl::EndClaim(ClaimRecord* record, EndCause cause, bool only_waiting) {
  EndCommand end = EndOf(*record, cause);
  end.only_waiting = only_waiting;
  const bool recall = record->recall.end_at <= Now();
  Submit(
      record->semaphore, end,
      [this, id = record->id, owner = end.session, cause, recall](absl::StatusOr<Outcome> outcome) {
        ClaimRecord* again = FindClaim(id);
        if (again == nullptr || again->owner() != owner) return;
        if (IsUndone(outcome)) {
          again->given_up = false;
          // It is still due. Which kind it was decides who looks at it again.
          const TimerKind kind = again->lost ? TimerKind::kEndLost
                                 : recall    ? TimerKind::kRecall
                                             : TimerKind::kWait;
          if (cause == EndCause::kWaitExpired || recall || again->lost) {
            timers_.Add(Now() + TryAgainAfter(outcome), kind, id);
          } else if (!stopping_ && again->session == nullptr && again->state != State::kHeld) {
            // Given up: its TTL ends it, if the engine comes back.
            Revive(&again->life);
            ArmTtl(&again->life, TimerKind::kTtl, id);
          } else if (again->state == State::kWaiting && !again->offers) {
            timers_.Add(Now() + TryAgainAfter(outcome), TimerKind::kWait, id);
          }
          return;
        }
        if (outcome->kind != OutcomeKind::kNotHeld) return;
        if (again->given_up) return Drop(again);
        TellGone(again, outcome->cause);
      });
}

// ---- Events ----

void SessionsImpl::OnGrantEvent(ClaimRecord* record, const Event& event) {
  const Lease& lease = *event.lease;
  if (record->offers) return OnAssigned(record, event.lease, event.ticket, event.payload);
  // The claim has moved since, and this daemon knows it.
  if (lease.epoch < record->life.epoch || record->has_lease()) return;
  if (const EndCause* cause = marks_.Find(record->id))
    return Refuse(record, NotHeldRefusal(*cause, record->semaphore));
  if (lease.session != record->owner()) return Leave(record);
  // The grant followed a move to another daemon.
  if (record->session == nullptr && lease.epoch > record->life.epoch)
    return Refuse(record, MovedRefusal(record->semaphore));
  BecomeHeld(record, event.lease);
}

void SessionsImpl::OnEvent(const Event& event) {
  adoptions_.Keep(event);
  ClaimRecord* record = FindClaim(event.claim);
  if (record == nullptr) {
    SessionRecord* session = event.kind == Event::Kind::kMoved ? FindSession(event.claim) : nullptr;
    if (session != nullptr && event.epoch > session->life.epoch)
      DropSession(session, MovedRefusal(""));
    const bool ticket = event.kind == Event::Kind::kGranted && event.ticket != nullptr;
    if (ticket && marks_.Find(event.claim) == nullptr) OnStrayOffer(event);
    return;
  }
  switch (event.kind) {
    case Event::Kind::kGranted:
      return OnGrantEvent(record, event);
    case Event::Kind::kRecalled:
      if (event.lease->epoch < record->life.epoch || !record->has_lease()) return;
      return OnRecalled(record, event.lease);
    case Event::Kind::kWaitEnded:
      if (record->given_up && event.cause == EndCause::kCancelled) return Drop(record);
      return Refuse(record, record->denied && event.cause == EndCause::kCancelled
                                ? NotAllowedRefusal(record->semaphore)
                                : WaitEnded(event.cause, record->semaphore));
    case Event::Kind::kMoved:
      if (event.epoch <= record->life.epoch) return;  // It is back already, or has moved again.
      if (!event.session.empty()) return event.session == record->owner() ? Leave(record) : void();
      return Refuse(record, MovedRefusal(record->semaphore));
    case Event::Kind::kEnded:
      return TellEnded(record, event.cause);
  }
}

}  // namespace semaphored
