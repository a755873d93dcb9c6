// Tickets: how they come, and which workers have them.
#include <utility>

#include "server/core/sessions_impl.h"

namespace semaphored {
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
           OnTicketsAt(semaphore);
         });
}

void SessionsImpl::FillInHolders(const Report& report, AdminAnswer* answer) const {
  for (const TicketInfo& info : report.tickets) {
    if (info.ticket == nullptr || info.ticket->state != TicketState::kAssigned) continue;
    const ClaimRecord* claim = FindClaim(info.ticket->lease);
    if (claim != nullptr && claim->lease != nullptr)
      answer->ticket_holders[info.ticket->id] = claim->lease->holder;
  }
}

}  // namespace semaphored
