#include "adapters/ledger/ticket_payloads.h"

#include <utility>
#include <variant>

#include "adapters/ledger/faults.h"
#include "adapters/ledger/rules/steps.h"

namespace semaphored::ledger {
namespace {

// Null where one cannot be read; `why` then says so, if it is not that it is gone.
std::vector<PayloadPtr> ReadPayloads(const std::vector<LedgerStore::TicketAt>& tickets,
                                     LedgerStore* store, absl::Status* why) {
  absl::StatusOr<std::vector<PayloadPtr>> all = store->ReadPayloads(tickets);
  if (all.ok()) return *std::move(all);
  *why = all.status();
  std::vector<PayloadPtr> payloads(tickets.size());
  if (!ConcernsOneOnly(all.status())) return payloads;
  // One that is damaged is not to keep back the others.
  for (size_t i = 0; i < tickets.size(); ++i) {
    absl::StatusOr<std::vector<PayloadPtr>> one = store->ReadPayloads({&tickets[i], 1});
    if (one.ok()) payloads[i] = std::move(one->front());
  }
  return payloads;
}

}  // namespace

bool WantsPayload(const Command& command, const Outcome& outcome) {
  if (std::holds_alternative<TakeCommand>(command)) return outcome.kind == OutcomeKind::kGranted;
  const auto* admin = std::get_if<AdminCommand>(&command);
  return admin != nullptr && std::holds_alternative<AdminShowTicket>(admin->act) &&
         outcome.kind == OutcomeKind::kDone;
}

void AddPayloads(const std::vector<PayloadWanted>& wanted, const LedgerState& state,
                 const NodeRef& self, LedgerStore* store, StepResult* result) {
  std::vector<LedgerStore::TicketAt> asked;
  std::vector<PayloadPtr*> places;
  for (Event& event : result->events) {
    if (event.kind != Event::Kind::kGranted || event.lease->ticket.empty()) continue;
    if (HostOf(state, *event.lease) != self) continue;
    const Semaphore* semaphore = state.Find(event.semaphore);
    const TicketPtr ticket =
        semaphore == nullptr ? nullptr : semaphore->FindTicket(event.lease->ticket);
    if (!ticket || ticket->lease != event.lease->id) continue;
    event.ticket = ticket;
    asked.push_back({std::string(event.semaphore), ticket->id});
    places.push_back(&event.payload);
  }
  const size_t granted = asked.size();
  for (const PayloadWanted& each : wanted) {
    TicketInfo& info = result->outcomes[each.outcome].report->tickets.front();
    asked.push_back({each.semaphore, info.ticket->id});
    places.push_back(&info.payload);
  }
  if (asked.empty()) return;
  absl::Status why;
  std::vector<PayloadPtr> payloads = ReadPayloads(asked, store, &why);
  for (size_t i = 0; i < places.size(); ++i) *places[i] = std::move(payloads[i]);
  for (size_t i = granted; i < places.size() && !why.ok(); ++i) {
    if (*places[i] == nullptr)
      result->outcomes[wanted[i - granted].outcome].message = std::string(why.message());
  }
}

}  // namespace semaphored::ledger
