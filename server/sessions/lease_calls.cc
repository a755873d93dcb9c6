#include "server/sessions/lease_calls.h"

#include <memory>
#include <string>
#include <utility>

#include "server/sessions/refusals.h"

namespace semaphored {
namespace {

using State = ClaimRecord::State;

}  // namespace

// ---- Living ----

Vouch LeaseCalls::Touch(const Id& claim) {
  ClaimRecord* record = parts_.claims->Find(claim);
  if (record == nullptr || record->session != nullptr || record->state != State::kHeld ||
      !record->life.hosted)
    return {};
  if (parts_.host->vouch_until() <= Now()) return {0, record->life.epoch};
  parts_.vouching->Revive(&record->life);
  return parts_.vouching->For(record);
}

void LeaseCalls::Acknowledge(const Id& session, const Id& claim, uint64_t recall) {
  ClaimRecord* record = parts_.claims->Find(claim);
  if (record != nullptr && record->session != nullptr && record->session->id == session)
    parts_.recalls->Acknowledge(record, recall);
}

void LeaseCalls::Renew(RenewParams params, Reply<RenewAnswer> reply) {
  if (stopping_) return reply({std::make_unique<Refusal>(ShuttingDownRefusal()), {}});
  const auto refuse = [&](Refusal refusal) {
    reply({std::make_unique<Refusal>(std::move(refusal)), {}});
  };
  const std::string& semaphore = params.semaphore;
  ClaimRecord* record = parts_.claims->Find(params.claim);
  if (record != nullptr && record->semaphore == semaphore && record->has_lease()) {
    if (record->session != nullptr) {
      Outcome outcome;
      outcome.kind = OutcomeKind::kBelongsToSession;
      return refuse(RefusalOf(outcome, semaphore, ""));
    }
    if (record->move != nullptr) return refuse(parts_.moves->RefusalOf(*record));
    if (record->life.hosted) {
      parts_.recalls->Acknowledge(record, params.acknowledged_recall);
      const Vouch vouch = Touch(record->id);
      if (vouch.none()) return refuse(NotVouchedRefusal(semaphore));
      return reply({nullptr, {record->lease, semaphore, vouch}});
    }
  }
  parts_.host->SubmitAt(
      semaphore, static_cast<const AdoptCommand&>(params),
      [this, semaphore, claim = params.claim, acknowledged_recall = params.acknowledged_recall,
       tenant = std::move(params.tenant),
       reply = std::move(reply)](absl::StatusOr<Outcome> outcome) mutable {
        const auto refuse = [&](Refusal refusal) {
          reply({std::make_unique<Refusal>(std::move(refusal)), {}});
        };
        if (!outcome.ok()) return refuse(RefusalOf(outcome.status(), semaphore));
        if (outcome->kind == OutcomeKind::kStillWaiting)
          return refuse(NotHeldRefusal(EndCause::kUnknown, semaphore));
        if (outcome->kind != OutcomeKind::kHeld)
          return refuse(RefusalOf(*outcome, semaphore, parts_.host->guarantees().adapter));
        ClaimRecord* adopted = OnAdopted(claim, semaphore, tenant, *outcome);
        if (adopted->move != nullptr) return refuse(parts_.moves->RefusalOf(*adopted));
        parts_.recalls->Acknowledge(adopted, acknowledged_recall);
        const Vouch vouch = Touch(claim);
        if (vouch.none()) return refuse(NotVouchedRefusal(semaphore));
        reply({nullptr, {adopted->lease, semaphore, vouch}});
      });
}

ClaimRecord* LeaseCalls::OnAdopted(const Id& claim, const std::string& semaphore,
                                   const TenantPtr& tenant, const Outcome& outcome) {
  ClaimRecord* adopted = parts_.claims->Find(claim);
  if (adopted != nullptr && adopted->session != nullptr) {
    parts_.ends->Leave(adopted);
    adopted = nullptr;
  }
  if (adopted == nullptr) adopted = parts_.claims->Add(claim, semaphore, nullptr);
  adopted->remembered = true;
  adopted->life.hosted = true;
  if (outcome.changed) {
    parts_.vouching->KeepAfterMove(&adopted->life, outcome.lease->ttl_ms);
    Recalls::Forget(adopted);
  }
  if (outcome.lease->moved_from != 0) {
    parts_.grants->BecomeMoving(adopted, outcome.lease,
                                parts_.vouching->MoveOverAt(*outcome.lease));
    parts_.grants->Found(adopted);
  } else {
    parts_.grants->BecomeHeld(adopted, outcome.lease);
  }
  if (adopted->charge == nullptr) Grants::ChargeTenant(adopted, tenant);
  return adopted;
}

void LeaseCalls::Release(ReleaseCommand command, Reply<ReleaseAnswer> reply) {
  if (stopping_) return reply({std::make_unique<Refusal>(ShuttingDownRefusal()), {}});
  const std::string semaphore = command.semaphore;
  const Id claim = command.claim;
  parts_.host->SubmitAt(
      semaphore, std::move(command),
      [this, semaphore, claim, reply = std::move(reply)](absl::StatusOr<Outcome> outcome) mutable {
        if (!outcome.ok()) {
          return reply({std::make_unique<Refusal>(RefusalOf(outcome.status(), semaphore)), {}});
        }
        if (outcome->kind == OutcomeKind::kNotHeld)
          return reply({nullptr, {0, 0, outcome->cause, {}}});
        if (outcome->kind != OutcomeKind::kReleased) {
          return reply({std::make_unique<Refusal>(
                            RefusalOf(*outcome, semaphore, parts_.host->guarantees().adapter)),
                        {}});
        }
        if (outcome->lease != nullptr) parts_.adoptions->KeepLease(outcome->lease);
        ClaimRecord* record = parts_.claims->Find(claim);
        if (record != nullptr && outcome->lease != nullptr &&
            outcome->lease->epoch >= record->life.epoch) {
          record->lease = outcome->lease;
          parts_.metrics->Changed(&record->figures, record->lease->permits);
          Grants::ChargeTenant(record, nullptr);
        }
        reply({nullptr,
               {outcome->released(), outcome->remaining(), EndCause::kNone,
                outcome->former_owner()}});
      });
}

void LeaseCalls::Verify(VerifyCommand command, Reply<VerifyAnswer> reply) {
  if (stopping_) return reply({std::make_unique<Refusal>(ShuttingDownRefusal()), {}});
  const std::string semaphore = command.semaphore;
  const bool by_holder = !command.claim.empty();
  parts_.host->SubmitAt(
      semaphore, std::move(command),
      [this, semaphore, by_holder,
       reply = std::move(reply)](absl::StatusOr<Outcome> outcome) mutable {
        if (!outcome.ok()) {
          return reply({std::make_unique<Refusal>(RefusalOf(outcome.status(), semaphore)), {}});
        }
        // The former holder has lost the lease, and the new one has not received it yet.
        const bool moves = outcome->kind == OutcomeKind::kHeld && outcome->lease->moved_from != 0;
        if (moves && by_holder) {
          outcome->kind = OutcomeKind::kNotHeld;
          outcome->cause = EndCause::kMoved;
        }
        VerifyAnswer answer;
        answer.slot_token = outcome->slot_token();
        answer.semaphore = semaphore;
        answer.ended = outcome->kind == OutcomeKind::kNotHeld && outcome->cause == EndCause::kNone
                           ? EndCause::kUnknown
                           : outcome->cause;
        if (outcome->kind != OutcomeKind::kHeld) return reply({nullptr, std::move(answer)});
        if (parts_.host->vouch_until() <= Now()) {
          return reply({std::make_unique<Refusal>(NotVouchedRefusal(semaphore)), {}});
        }
        ClaimRecord* record = parts_.claims->Find(outcome->lease->id);
        // A lease whose liveness is kept elsewhere stands, but for how long only that daemon
        // knows.
        answer.held = true;
        answer.lease =
            record != nullptr && record->lease != nullptr ? record->lease : outcome->lease;
        if (record != nullptr && !moves) answer.vouch = parts_.vouching->For(record);
        // How much is left of the grace only that daemon knows.
        const Recall& recall = answer.lease->recall;
        if (record == nullptr && recall.pending())
          answer.vouch.recall = {RecallIdOf(recall), recall.reason, 0};
        reply({nullptr, std::move(answer)});
      });
}

}  // namespace semaphored
