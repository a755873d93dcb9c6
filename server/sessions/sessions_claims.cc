// Requests that make claims and tickets.
#include <memory>
#include <utility>

#include "server/sessions/sessions_impl.h"

namespace semaphored {
namespace {

using State = ClaimRecord::State;

}  // namespace

// ---- Asking ----

Id SessionsImpl::Acquire(AcquireParams params, ClaimListener* listener, uint64_t tag) {
  const Id id = host_->NewId();
  if (stopping_) {
    listener->OnRefused(tag, ShuttingDownRefusal());
    return id;
  }
  // It might be granted, and the client could not rely on it.
  if (host_->vouch_until() <= Now()) {
    metrics_.Denied(params.semaphore, nullptr, Reason::kNotVouched);
    listener->OnRefused(tag, NotVouchedRefusal(params.semaphore));
    return id;
  }
  if (params.holder.empty()) {
    params.holder = "client-" + host_->NewId().Hex().substr(16);
    params.holder_is_default = true;
  }
  ClaimRecord* record = claims_.Add(id, params.semaphore, nullptr);
  record->listener = listener;
  record->tag = tag;
  record->life.ttl_ms = params.ttl_ms;
  grants_.Ask(record, std::move(params));
  return id;
}

void SessionsImpl::AcquireIn(const Id& session, AcquireParams params, uint64_t tag,
                             bool report_queued) {
  SessionRecord* owner = sessions_.Find(session);
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
  ClaimRecord* record = claims_.Add(host_->NewId(), params.semaphore, owner);
  record->listener = owner->listener;
  record->tag = tag;
  record->report_queued = report_queued;
  owner->by_tag[tag] = record->id;
  grants_.Ask(record, std::move(params));
}

// ---- Going away ----

void SessionsImpl::Detach(const Id& claim) {
  if (ClaimRecord* record = claims_.Find(claim)) record->listener = nullptr;
}

void SessionsImpl::Abandon(const Id& claim, bool end_lease) {
  ClaimRecord* record = claims_.Find(claim);
  if (record == nullptr) return;
  record->listener = nullptr;
  if (stopping_) return;
  if (record->state == State::kHeld) {
    if (end_lease) ends_.End(record, EndCause::kDisconnected, false);
    return;
  }
  record->abandoned = true;
  record->end_lease = end_lease;
  if (record->state == State::kWaiting) ends_.EndAbandoned(record);
}

// ---- Tickets ----

void SessionsImpl::Enqueue(EnqueueCommand command, Reply<EnqueueAnswer> reply) {
  if (stopping_) return reply({std::make_unique<Refusal>(ShuttingDownRefusal()), {}});
  command.ticket = host_->NewId();
  const std::string semaphore = command.semaphore;
  Submit(semaphore, std::move(command),
         [this, semaphore, reply = std::move(reply)](absl::StatusOr<Outcome> outcome) mutable {
           if (!outcome.ok())
             return reply({std::make_unique<Refusal>(RefusalOf(outcome.status(), semaphore)), {}});
           if (outcome->kind != OutcomeKind::kEnqueued) {
             return reply({std::make_unique<Refusal>(
                               RefusalOf(*outcome, semaphore, host_->guarantees().adapter)),
                           {}});
           }
           reply({nullptr, {outcome->claim, outcome->position()}});
           work_.OnTicketsAt(semaphore);
         });
}

}  // namespace semaphored
