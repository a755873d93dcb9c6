// What an administrator does with tickets and dead letters.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/rules/rules.h"
#include "adapters/ledger/rules/steps.h"

namespace semaphored::ledger {
namespace {

Outcome Affected(uint32_t affected) {
  Outcome outcome = Simply(OutcomeKind::kDone);
  outcome.changed = affected > 0;
  outcome.detail = Outcome::Affected{affected};
  return outcome;
}

bool ByAge(const TicketPtr& a, const TicketPtr& b) { return a->order < b->order; }

}  // namespace

std::vector<TicketPtr> DeadLetters(const Semaphore& semaphore, const Id& id) {
  std::vector<TicketPtr> dead;
  if (!id.empty()) {
    TicketPtr ticket = semaphore.FindTicket(id);
    if (ticket && ticket->state == TicketState::kDead) dead.push_back(std::move(ticket));
    return dead;
  }
  if (semaphore.ticket_counts.dead == 0) return dead;
  for (const auto& [each, ticket] : semaphore.tickets) {
    if (ticket->state == TicketState::kDead) dead.push_back(ticket);
  }
  std::ranges::sort(dead, ByAge);
  return dead;
}

Outcome ListTickets(const Semaphore& semaphore, const AdminListTickets& act) {
  const auto wanted = [&](const Ticket& ticket) {
    return ticket.order > act.after_order &&
           (act.states.empty() || std::ranges::count(act.states, ticket.state) > 0);
  };
  std::vector<TicketPtr> tickets;
  for (const auto& [id, ticket] : semaphore.tickets) {
    if (wanted(*ticket)) tickets.push_back(ticket);
  }
  Outcome outcome = Simply(OutcomeKind::kDone);
  outcome.report = std::make_unique<Report>();
  outcome.report->more = tickets.size() > act.rows_max;
  const size_t count = std::min<size_t>(act.rows_max, tickets.size());
  std::ranges::partial_sort(tickets, tickets.begin() + static_cast<ptrdiff_t>(count), ByAge);
  tickets.resize(count);
  for (TicketPtr& ticket : tickets) {
    const uint64_t position = semaphore.PositionOf(*ticket);
    outcome.report->tickets.push_back({std::move(ticket), position, nullptr});
  }
  return outcome;
}

Outcome ShowTicket(const Semaphore& semaphore, const AdminShowTicket& act) {
  TicketPtr ticket = semaphore.FindTicket(act.ticket);
  if (!ticket) return Simply(OutcomeKind::kNoSuchTicket);
  Outcome outcome = Simply(OutcomeKind::kDone);
  outcome.report = std::make_unique<Report>();
  const uint64_t position = semaphore.PositionOf(*ticket);
  outcome.report->tickets.push_back({std::move(ticket), position, nullptr});
  return outcome;
}

Outcome CancelTicket(Editor& editor, Semaphore* semaphore, const AdminCancelTicket& act,
                     const Context& context) {
  const TicketPtr ticket = semaphore->FindTicket(act.ticket);
  if (!ticket) return Simply(OutcomeKind::kNoSuchTicket);
  if (ticket->state == TicketState::kAssigned && !act.force) {
    Outcome outcome = Simply(OutcomeKind::kInUse);
    outcome.message = "the ticket is being carried out; force revokes its lease";
    return outcome;
  }
  editor.Remove(semaphore, ticket);
  if (const LeasePtr lease = semaphore->FindLease(ticket->lease))
    editor.End(semaphore, lease, EndCause::kRevoked, context.now_unix_ms);
  return Affected(1);
}

Outcome PrioritizeTicket(Editor& editor, Semaphore* semaphore, const AdminPrioritizeTicket& act) {
  const TicketPtr ticket = semaphore->FindTicket(act.ticket);
  if (!ticket) return Simply(OutcomeKind::kNoSuchTicket);
  if (ticket->priority == act.priority) return Affected(0);
  auto moved = std::make_shared<Ticket>(*ticket);
  moved->priority = act.priority;
  editor.Replace(semaphore, ticket, std::move(moved));
  return Affected(1);
}

Outcome Requeue(Editor& editor, Semaphore* semaphore, const AdminRequeue& act,
                const Context& context) {
  const std::vector<TicketPtr> dead = DeadLetters(*semaphore, act.ticket);
  if (dead.empty() && !act.ticket.empty()) return Simply(OutcomeKind::kNoSuchTicket);
  const uint32_t tickets_max = context.limits.tickets_per_semaphore_max;
  if (semaphore->ticket_counts.living() + dead.size() > tickets_max && !dead.empty())
    return LimitReached(
        absl::StrCat("with them this semaphore had more tickets than it may (", tickets_max, ")"));
  for (const TicketPtr& ticket : dead) {
    auto requeued = std::make_shared<Ticket>(*ticket);
    requeued->state = TicketState::kQueued;
    requeued->attempt = 0;
    editor.Replace(semaphore, ticket, std::move(requeued));
  }
  return Affected(static_cast<uint32_t>(dead.size()));
}

Outcome Purge(Editor& editor, Semaphore* semaphore, const AdminPurge& act) {
  const std::vector<TicketPtr> dead = DeadLetters(*semaphore, act.ticket);
  if (dead.empty() && !act.ticket.empty()) return Simply(OutcomeKind::kNoSuchTicket);
  for (const TicketPtr& ticket : dead) editor.Remove(semaphore, ticket);
  return Affected(static_cast<uint32_t>(dead.size()));
}

}  // namespace semaphored::ledger
