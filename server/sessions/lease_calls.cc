// Renew, release and verify: requests that name a lease by its id.
#include <algorithm>
#include <utility>

#include "server/sessions/sessions_impl.h"

namespace semaphored {
namespace {

using State = ClaimRecord::State;

}  // namespace

// ---- Living ----

Vouch SessionsImpl::Touch(const Id& claim) {
  ClaimRecord* record = claims_.Find(claim);
  if (record == nullptr || record->session != nullptr || record->state != State::kHeld ||
      !record->life.hosted)
    return {};
  if (host_->vouch_until() <= Now()) return {0, record->life.epoch};
  vouching_.Revive(&record->life);
  return vouching_.For(record);
}

void SessionsImpl::AcknowledgeRecall(const Id& session, const Id& claim, uint64_t recall) {
  ClaimRecord* record = claims_.Find(claim);
  if (record != nullptr && record->session != nullptr && record->session->id == session)
    recalls_.Acknowledge(record, recall);
}

void SessionsImpl::Renew(RenewParams params, Reply<RenewAnswer> reply) {
  if (stopping_) return reply({std::make_unique<Refusal>(ShuttingDownRefusal()), {}});
  const auto refuse = [&](Refusal refusal) {
    reply({std::make_unique<Refusal>(std::move(refusal)), {}});
  };
  const std::string& semaphore = params.semaphore;
  ClaimRecord* record = claims_.Find(params.claim);
  if (record != nullptr && record->semaphore == semaphore && record->has_lease()) {
    if (record->session != nullptr) {
      Outcome outcome;
      outcome.kind = OutcomeKind::kBelongsToSession;
      return refuse(RefusalOf(outcome, semaphore, ""));
    }
    if (record->move != nullptr) return refuse(moves_.RefusalOf(*record));
    if (record->life.hosted) {
      recalls_.Acknowledge(record, params.acknowledged_recall);
      const Vouch vouch = Touch(record->id);
      if (vouch.none()) return refuse(NotVouchedRefusal(semaphore));
      return reply({nullptr, {record->lease, semaphore, vouch}});
    }
  }
  Submit(semaphore, static_cast<const AdoptCommand&>(params),
         [this, semaphore, claim = params.claim, acknowledged_recall = params.acknowledged_recall,
          tenant = std::move(params.tenant),
          reply = std::move(reply)](absl::StatusOr<Outcome> outcome) mutable {
           const auto refuse_late = [&](Refusal refusal) {
             reply({std::make_unique<Refusal>(std::move(refusal)), {}});
           };
           if (!outcome.ok()) return refuse_late(RefusalOf(outcome.status(), semaphore));
           if (outcome->kind == OutcomeKind::kStillWaiting)
             return refuse_late(NotHeldRefusal(EndCause::kUnknown, semaphore));
           if (outcome->kind != OutcomeKind::kHeld)
             return refuse_late(RefusalOf(*outcome, semaphore, host_->guarantees().adapter));
           ClaimRecord* adopted = claims_.Find(claim);
           if (adopted != nullptr && adopted->session != nullptr) {
             ends_.Leave(adopted);
             adopted = nullptr;
           }
           if (adopted == nullptr) adopted = claims_.Add(claim, semaphore, nullptr);
           adopted->remembered = true;
           adopted->life.hosted = true;
           if (outcome->changed) {
             vouching_.KeepAfterMove(&adopted->life, outcome->lease->ttl_ms);
             Recalls::Forget(adopted);
           }
           if (outcome->lease->moved_from != 0) {
             grants_.BecomeMoving(adopted, outcome->lease, vouching_.MoveOverAt(*outcome->lease));
             grants_.Found(adopted);
           } else {
             grants_.BecomeHeld(adopted, outcome->lease);
           }
           if (adopted->charge == nullptr) Grants::ChargeTenant(adopted, tenant);
           if (adopted->move != nullptr) return refuse_late(moves_.RefusalOf(*adopted));
           recalls_.Acknowledge(adopted, acknowledged_recall);
           const Vouch vouch = Touch(claim);
           if (vouch.none()) return refuse_late(NotVouchedRefusal(semaphore));
           reply({nullptr, {adopted->lease, semaphore, vouch}});
         });
}

void SessionsImpl::Release(ReleaseCommand command, Reply<ReleaseAnswer> reply) {
  if (stopping_) return reply({std::make_unique<Refusal>(ShuttingDownRefusal()), {}});
  const std::string semaphore = command.semaphore;
  const Id claim = command.claim;
  Submit(
      semaphore, std::move(command),
      [this, semaphore, claim, reply = std::move(reply)](absl::StatusOr<Outcome> outcome) mutable {
        if (!outcome.ok()) {
          return reply({std::make_unique<Refusal>(RefusalOf(outcome.status(), semaphore)), {}});
        }
        if (outcome->kind == OutcomeKind::kNotHeld)
          return reply({nullptr, {0, 0, outcome->cause, {}}});
        if (outcome->kind != OutcomeKind::kReleased) {
          return reply({std::make_unique<Refusal>(
                            RefusalOf(*outcome, semaphore, host_->guarantees().adapter)),
                        {}});
        }
        if (outcome->lease != nullptr) adoptions_.KeepLease(outcome->lease);
        ClaimRecord* record = claims_.Find(claim);
        if (record != nullptr && outcome->lease != nullptr &&
            outcome->lease->epoch >= record->life.epoch) {
          record->lease = outcome->lease;
          metrics_.Changed(&record->figures, record->lease->permits);
          Grants::ChargeTenant(record, nullptr);
        }
        reply({nullptr,
               {outcome->released(), outcome->remaining(), EndCause::kNone,
                outcome->former_owner()}});
      });
}

void SessionsImpl::Verify(VerifyCommand command, Reply<VerifyAnswer> reply) {
  if (stopping_) return reply({std::make_unique<Refusal>(ShuttingDownRefusal()), {}});
  const std::string semaphore = command.semaphore;
  const bool by_holder = !command.claim.empty();
  Submit(
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
        if (host_->vouch_until() <= Now()) {
          return reply({std::make_unique<Refusal>(NotVouchedRefusal(semaphore)), {}});
        }
        ClaimRecord* record = claims_.Find(outcome->lease->id);
        // A lease whose liveness is kept elsewhere stands, but for how long only that daemon
        // knows.
        answer.held = true;
        answer.lease =
            record != nullptr && record->lease != nullptr ? record->lease : outcome->lease;
        if (record != nullptr && !moves) answer.vouch = vouching_.For(record);
        // How much is left of the grace only that daemon knows.
        const Recall& recall = answer.lease->recall;
        if (record == nullptr && recall.pending())
          answer.vouch.recall = {RecallIdOf(recall), recall.reason, 0};
        reply({nullptr, std::move(answer)});
      });
}

}  // namespace semaphored
