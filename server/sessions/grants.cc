#include "server/sessions/grants.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "server/sessions/refusals.h"

namespace semaphored {
namespace {

using State = ClaimRecord::State;

}  // namespace

// ---- Asking ----

Id Grants::Acquire(AcquireParams params, ClaimListener* listener, uint64_t tag) {
  const Id id = parts_.host->NewId();
  if (stopping_) {
    listener->OnRefused(tag, ShuttingDownRefusal());
    return id;
  }
  // It might be granted, and the client could not rely on it.
  if (parts_.host->vouch_until() <= Now()) {
    parts_.metrics->Denied(params.semaphore, nullptr, Reason::kNotVouched);
    listener->OnRefused(tag, NotVouchedRefusal(params.semaphore));
    return id;
  }
  if (params.holder.empty()) {
    params.holder = "client-" + parts_.host->NewId().Hex().substr(16);
    params.holder_is_default = true;
  }
  ClaimRecord* record = parts_.claims->Add(id, params.semaphore, nullptr);
  record->listener = listener;
  record->tag = tag;
  record->life.ttl_ms = params.ttl_ms;
  Ask(record, std::move(params));
  return id;
}

void Grants::AcquireIn(SessionRecord* owner, AcquireParams params, uint64_t tag,
                       bool report_queued) {
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
  ClaimRecord* record = parts_.claims->Add(parts_.host->NewId(), params.semaphore, owner);
  record->listener = owner->listener;
  record->tag = tag;
  record->report_queued = report_queued;
  owner->by_tag[tag] = record->id;
  Ask(record, std::move(params));
}

void Grants::Ask(ClaimRecord* record, AcquireParams params) {
  record->remembered = params.requester.remembered();
  record->trace = params.trace;
  if (record->session != nullptr && !record->trace.present())
    record->trace = record->session->trace;
  record->spans = parts_.lease_log->spans().Asked(record->trace);
  parts_.metrics->Asked(&record->figures);
  record->charge = std::move(params.charge);
  record->unless_repeated = std::move(params.unless_repeated);
  // One that does not wait may be the repeat of one that does, whose wait is then over.
  if (params.wait_ms >= 0) record->wait_until = Now() + Milliseconds(params.wait_ms);
  if (params.wait_ms > 0) parts_.deadlines->ArmWait(record);
  const bool wait = params.wait_ms != 0;
  AcquireCommand command = std::move(params);
  Complete(*record, wait, &command);
  Asked asked{command.permits, {"", command.requester.sequence, command.requester.one_shot}};
  if (record->session == nullptr && record->remembered) asked.requester = command.requester;
  parts_.host->SubmitAt(
      record->semaphore, std::move(command),
      [this, id = record->id, asked = std::move(asked)](absl::StatusOr<Outcome> outcome) {
        OnOutcome(id, asked, std::move(outcome));
      });
}

void Grants::Complete(const ClaimRecord& record, bool wait, AcquireCommand* command) const {
  command->claim = record.id;
  command->session = record.owner();
  command->wait = wait;
  if (record.session != nullptr) {
    command->epoch = record.session->life.epoch;
    command->ttl_ms = record.session->life.ttl_ms;
    command->owner = record.session->owner;
  } else {
    command->owner = TenantName(record.charge);
  }
  if (record.charge != nullptr) command->quotas = record.charge->tenant()->quotas.made;
  command->only_if_repeated = record.unless_repeated != nullptr;
  parts_.moves->FillIn(record, command);
}

void Grants::OnOutcome(const Id& id, const Asked& asked, absl::StatusOr<Outcome> outcome) {
  ClaimRecord* record = parts_.claims->Find(id);
  if (record == nullptr) return;
  const std::shared_ptr<const Refusal> unless_repeated = std::move(record->unless_repeated);
  if (!outcome.ok())
    return parts_.ends->Refuse(record, RefusalOf(outcome.status(), record->semaphore));
  if (outcome->kind == OutcomeKind::kMoving) return OnMoving(record, asked, outcome->lease);
  if (outcome->kind == OutcomeKind::kGranted) return OnGranted(record, *outcome);
  if (outcome->kind == OutcomeKind::kQueued) return OnQueued(record, asked, *outcome);
  if (outcome->kind == OutcomeKind::kNotAskedBefore)
    return parts_.ends->Refuse(record, *unless_repeated);
  parts_.ends->Refuse(record,
                      RefusalOf(*outcome, record->semaphore, parts_.host->guarantees().adapter));
}

void Grants::OnGranted(ClaimRecord* record, const Outcome& outcome) {
  const LeasePtr& lease = outcome.lease;
  if (const EndCause* cause = parts_.marks->Find(lease->id))
    return parts_.ends->Refuse(record, NotHeldRefusal(*cause, record->semaphore));
  if (lease->id != record->id) record = LeadTo(record, lease->id, lease->epoch);
  if (record == nullptr) return;
  if (record->lost) return ClaimEnds::RefuseLost(record);
  if (outcome.changed) {
    parts_.vouching->KeepAfterMove(&record->life, lease->ttl_ms);
    Recalls::Forget(record);  // Of before it was elsewhere.
  }
  BecomeHeld(record, lease);
}

void Grants::OnQueued(ClaimRecord* record, const Asked& asked, const Outcome& outcome) {
  if (const EndCause* cause = parts_.marks->Find(outcome.claim))
    return parts_.ends->Refuse(record, WaitEnded(*cause, record->semaphore));
  if (outcome.claim != record->id)
    record = LeadTo(record, outcome.claim, std::max(outcome.epoch(), 1u));
  if (record == nullptr) return;
  // The list of a resume has the lease already, and the lane has not heard of its grant yet. A client would take the
  // lease for one that it does not know, and release it.
  if (record->state == State::kHeld && record->lease != nullptr) {
    if (record->lost) return ClaimEnds::RefuseLost(record);
    return BecomeHeld(record, record->lease);
  }
  if (record->charge != nullptr && record->charge->usage() == Usage())
    record->charge->Set({asked.permits, /*waiters=*/1, /*sessions=*/0});
  BecomeWaiting(record, outcome.position(), outcome.wait_reason());
}

ClaimRecord* Grants::LeadTo(ClaimRecord* record, const Id& real, uint32_t epoch) {
  const Id asked_id = record->id;
  ClaimRecord* earlier = parts_.claims->Find(real);
  if (earlier != nullptr && earlier->session != record->session) {
    parts_.ends->Leave(earlier);
  } else if (earlier != nullptr && earlier->listener != nullptr &&
             earlier->listener != record->listener) {
    earlier->listener->OnRefused(earlier->tag, MovedRefusal(earlier->semaphore));
    if (parts_.claims->Find(real) == nullptr) return nullptr;
  }
  record = parts_.claims->Find(asked_id);
  if (record == nullptr) return nullptr;
  earlier = parts_.claims->Find(real);
  if (earlier == nullptr) earlier = parts_.claims->Add(real, record->semaphore, record->session);
  parts_.claims->RemoveLeadTo(earlier);
  // The end of an earlier epoch, which may be under way, is stale.
  if (epoch > earlier->life.epoch) earlier->life.expiring = false;
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
  // Of a request that is repeated, the first one's spans go on.
  if (earlier->spans == nullptr) earlier->spans = std::move(record->spans);
  parts_.deadlines->ArmWait(earlier);
  if (earlier->charge == nullptr) earlier->charge = std::move(record->charge);
  record->charge.reset();
  if (record->session != nullptr) {
    parts_.claims->Remove(record);
    return earlier;
  }
  // The caller knows the claim by the id that it was given.
  record->leads_to = real;
  record->listener = nullptr;
  earlier->led_from = record->id;
  return earlier;
}

// ---- Waiting, moving and held ----

void Grants::BecomeWaiting(ClaimRecord* record, uint64_t position, WaitReason reason) {
  record->state = State::kWaiting;
  parts_.metrics->Waiting(record->semaphore, &record->figures);
  record->life.expires_at = SteadyTime::max();  // While the call stands, its client lives.
  if (record->abandoned) return parts_.ends->EndAbandoned(record);
  if (parts_.ends->EndUnwanted(record)) return;
  if (record->listener != nullptr && record->report_queued) {
    record->listener->OnQueued(record->tag, position, reason,
                               parts_.paces->ExpectedWaitMs(record->semaphore, position));
  }
}

// The former listener hears the loss before the record of the new owner is made.
void Grants::OnMoving(ClaimRecord* record, const Asked& asked, const LeasePtr& lease) {
  const Id asked_id = record->id;
  SteadyTime over_at = parts_.vouching->MoveOverAt(*lease);
  ClaimRecord* claim = parts_.claims->Find(lease->id);
  const Move* const move = claim != nullptr ? claim->move.get() : nullptr;
  const bool repeated =
      move != nullptr && claim->session == record->session && claim->life.epoch == lease->epoch;
  if (claim != nullptr && !repeated) {
    // The lease was moved from this very owner, so this record says until when it was vouched for.
    const bool was_here =
        lease->moved_from == lease->host.number && claim->life.epoch + 1 == lease->epoch;
    if (was_here) {
      over_at =
          move != nullptr ? move->over_at : std::max(claim->owner_life()->vouched_until, Now());
    }
    // A record of the same request that waits: the request is refused below, once.
    if (claim->listener == record->listener && claim->tag == record->tag && !claim->has_lease())
      claim->listener = nullptr;
    parts_.ends->Leave(claim);
    record = parts_.claims->Find(asked_id);
    if (record == nullptr) return;
  }
  if (!repeated) {
    claim = parts_.claims->Add(lease->id, record->semaphore, record->session);
    claim->remembered = true;
    claim->trace = record->trace;
    claim->life.hosted = true;
    claim->charge = std::move(record->charge);
  }
  record->charge.reset();
  BecomeMoving(claim, lease, over_at);
  Found(claim);
  ChargeTenant(claim, nullptr);
  if (!repeated) parts_.recalls->Arm(claim);
  if (asked.requester.remembered()) {
    Requester requester = asked.requester;
    if (record->session != nullptr && requester.one_shot.empty())
      requester.client_id = record->session->client_id;
    parts_.moves->SetRequester(claim, std::move(requester));
  }
  parts_.ends->Refuse(record, parts_.moves->RefusalOf(*claim));
}

void Grants::BecomeMoving(ClaimRecord* record, LeasePtr lease, SteadyTime over_at) {
  const bool begins = parts_.moves->Begin(record, over_at);
  record->state = State::kMoving;
  record->lease = std::move(lease);
  if (begins) parts_.recalls->ArmLongestHold(*record);
  record->life.epoch = record->lease->epoch;
  if (record->session != nullptr) {
    parts_.deadlines->KeepUntil(record->session, record->move->over_at);
    return;
  }
  record->life.ttl_ms = record->lease->ttl_ms;
  // The time of a claim that has just come does not run yet.
  if (record->life.expires_at == SteadyTime::max()) record->life.expires_at = SteadyTime::min();
  // A detached client gives no sign of life until it repeats the request, when the move is over.
  parts_.deadlines->KeepUntil(record, record->move->over_at + Milliseconds(record->life.ttl_ms));
}

void Grants::BecomeHeld(ClaimRecord* record, LeasePtr lease) {
  if (record->state == State::kWaiting) parts_.paces->OnGrant(record->semaphore);
  parts_.moves->End(record);
  const bool first = record->state != State::kHeld;
  record->state = State::kHeld;
  record->lease = std::move(lease);
  if (first)
    parts_.lease_log->spans().Granted(record->semaphore, *record->lease, record->spans.get());
  if (record->figures.stage == ClaimFigures::Stage::kNone) {
    Found(record);
  } else {
    parts_.metrics->Granted(record->semaphore, &record->figures, record->lease->permits);
  }
  ChargeTenant(record, nullptr);
  if (record->session != nullptr) {
    record->life.epoch = record->lease->epoch;
    record->session->by_tag.erase(record->tag);
  } else if (record->life.hosted) {
    record->life.ttl_ms = record->lease->ttl_ms;
    record->life.epoch = record->lease->epoch;
    parts_.vouching->Revive(&record->life);
    parts_.deadlines->ArmTtl(record);
  }
  if (first) parts_.recalls->ArmLongestHold(*record);
  parts_.recalls->Arm(record);
  if (record->session != nullptr && record->session->has_recalls)
    record->session->recalls_changed = true;
  if (record->abandoned) return parts_.ends->EndAbandoned(record);
  if (record->denied) return parts_.ends->EndDenied(record);
  if (parts_.unread->contains(record->semaphore)) parts_.vouching->Bound(record);
  Tell(record);
}

void Grants::Tell(ClaimRecord* record) {
  if (record->listener == nullptr) return;
  const Vouch vouch = parts_.vouching->For(record);
  if (!vouch.none() && parts_.marks->has_all()) {
    parts_.lease_log->Granted(record->semaphore, *record->lease, record->trace);
    record->listener->OnGranted(record->tag, record->lease, record->semaphore, vouch);
    return;
  }
  // It is granted, but the client may not rely on it now. The same request id finds it again; only a detached claim may
  // have none.
  const bool stays = record->session != nullptr;
  ClaimListener* listener = stays ? record->listener : std::exchange(record->listener, nullptr);
  if (!stays && !record->remembered) parts_.ends->EndUntold(record);
  listener->OnRefused(record->tag, NotVouchedRefusal(record->semaphore));
}

// ---- What is counted ----

void Grants::Found(ClaimRecord* record) {
  if (!parts_.metrics->on()) return;
  if (record->lease != nullptr) {
    parts_.metrics->Found(record->semaphore, &record->figures, record->lease->permits);
  } else if (!record->offers) {
    parts_.metrics->Waiting(record->semaphore, &record->figures);
  }
}

void Grants::ChargeTenant(ClaimRecord* record, const TenantPtr& tenant) {
  if (record->offers || (record->charge == nullptr && tenant == nullptr)) return;
  Usage usage;
  if (record->has_lease()) {
    usage.permits = record->lease->permits;
  } else {
    usage.waiters = 1;
  }
  if (record->charge == nullptr) {
    record->charge = std::make_shared<Charge>(tenant, usage);
  } else if (record->has_lease()) {
    record->charge->Set(usage);
  }
}

}  // namespace semaphored
