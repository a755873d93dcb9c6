#include "server/sessions/ticket_delays.h"

#include <utility>

namespace semaphored {

void TicketDelays::Count(const DelayedTicket& delayed) {
  const auto known = delays_.find(delayed.ticket->id);
  if (known != delays_.end() && known->second.number == delayed.ticket->delays) return;
  const SteadyTime until = host_->clock().Now() + Milliseconds(delayed.ticket->delay_ms);
  delays_[delayed.ticket->id] = {delayed.semaphore, delayed.ticket->delays, until};
  timers_->Add(until, TimerKind::kRipen, delayed.ticket->id);
}

void TicketDelays::Ripen(const Id& ticket) {
  const auto found = delays_.find(ticket);
  // A later delay of the same ticket has a timer of its own.
  if (found == delays_.end() || found->second.until > host_->clock().Now()) return;
  RipenCommand ripen;
  ripen.semaphore = found->second.semaphore;
  ripen.ticket = ticket;
  ripen.delay = found->second.number;
  host_->SubmitAt(found->second.semaphore, ripen,
                  [this, ticket, number = ripen.delay](const absl::StatusOr<Outcome>& outcome) {
                    OnRipened(ticket, number, outcome);
                  });
}

void TicketDelays::OnRipened(const Id& ticket, uint32_t number,
                             const absl::StatusOr<Outcome>& outcome) {
  const auto found = delays_.find(ticket);
  if (found == delays_.end() || found->second.number != number) return;
  if (IsUndone(outcome)) {
    found->second.until = host_->clock().Now() + TryAgainAfter(outcome);
    timers_->Add(found->second.until, TimerKind::kRipen, ticket);
    return;
  }
  const std::string semaphore = std::move(found->second.semaphore);
  delays_.erase(found);
  if (outcome->kind == OutcomeKind::kDone) ripe_(semaphore);
}

}  // namespace semaphored
