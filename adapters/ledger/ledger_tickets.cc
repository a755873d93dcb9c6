// Tickets beyond the rules: which stores keep them, and their payloads, which only the store has.
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/ledger_adapter_impl.h"

namespace semaphored::ledger {
namespace {

struct ConcernsTickets {
  bool operator()(const EnqueueCommand&) const { return true; }
  bool operator()(const TakeCommand&) const { return true; }
  bool operator()(const FinishCommand&) const { return true; }
  bool operator()(const RipenCommand&) const { return true; }
  bool operator()(const AdminListTickets&) const { return true; }
  bool operator()(const AdminShowTicket&) const { return true; }
  bool operator()(const AdminCancelTicket&) const { return true; }
  bool operator()(const AdminPrioritizeTicket&) const { return true; }
  bool operator()(const AdminRequeue&) const { return true; }
  bool operator()(const AdminPurge&) const { return true; }
  bool operator()(const AdminCommand& command) const { return std::visit(*this, command.act); }
  template <typename Other>
  bool operator()(const Other&) const {
    return false;
  }
};

}  // namespace

std::optional<Outcome> LedgerAdapter::UnsupportedTicket(const Command& command) const {
  if (guarantees().durable_tickets || !std::visit(ConcernsTickets{}, command)) return std::nullopt;
  Outcome outcome = Simply(OutcomeKind::kUnsupported);
  outcome.message = absl::StrCat("the adapter ", guarantees().adapter, " keeps no tickets");
  return outcome;
}

bool LedgerAdapter::WantsPayload(const Command& command, const Outcome& outcome) {
  if (std::holds_alternative<TakeCommand>(command)) return outcome.kind == OutcomeKind::kGranted;
  const auto* admin = std::get_if<AdminCommand>(&command);
  return admin != nullptr && std::holds_alternative<AdminShowTicket>(admin->act) &&
         outcome.kind == OutcomeKind::kDone;
}

std::vector<PayloadPtr> LedgerAdapter::ReadPayloads(
    const std::vector<LedgerStore::TicketAt>& tickets, absl::Status* why) {
  absl::StatusOr<std::vector<PayloadPtr>> all = store_->ReadPayloads(tickets);
  if (all.ok()) return *std::move(all);
  *why = all.status();
  std::vector<PayloadPtr> payloads(tickets.size());
  if (!ConcernsOneOnly(all.status())) return payloads;
  // One that is damaged is not to keep back the others.
  for (size_t i = 0; i < tickets.size(); ++i) {
    absl::StatusOr<std::vector<PayloadPtr>> one = store_->ReadPayloads({&tickets[i], 1});
    if (one.ok()) payloads[i] = std::move(one->front());
  }
  return payloads;
}

void LedgerAdapter::TellTickets(const std::vector<PayloadWanted>& wanted, StepResult* result) {
  std::vector<LedgerStore::TicketAt> asked;
  std::vector<PayloadPtr*> places;
  for (Event& event : result->events) {
    if (event.kind != Event::Kind::kGranted || event.lease->ticket.empty()) continue;
    if (HostOf(state_, *event.lease) != options_.self) continue;
    const Semaphore* semaphore = state_.Find(event.semaphore);
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
  std::vector<PayloadPtr> payloads = ReadPayloads(asked, &why);
  for (size_t i = 0; i < places.size(); ++i) *places[i] = std::move(payloads[i]);
  for (size_t i = granted; i < places.size() && !why.ok(); ++i) {
    if (*places[i] == nullptr)
      result->outcomes[wanted[i - granted].outcome].message = std::string(why.message());
  }
}

}  // namespace semaphored::ledger
