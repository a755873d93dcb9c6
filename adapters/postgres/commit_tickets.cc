#include "adapters/postgres/commit_tickets.h"

#include <array>
#include <initializer_list>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"
#include "adapters/ledger/state/net_changes.h"

namespace semaphored::postgres {

using ledger::SemaphoreDelta;
using nlohmann::json;

namespace {

int64_t Signed(uint64_t number) { return static_cast<int64_t>(number); }

void AddAll(Array* array, std::initializer_list<int64_t> numbers) {
  for (const int64_t number : numbers) array->Add(number);
}

// By which the ticket became as it is; 0: only the database will know.
int64_t RevisionAfter(const SemaphoreDelta& delta) {
  return delta.before ? Signed(delta.before->revision + 1) : 0;
}

void AddState(Array* array, const SemaphoreDelta& delta, const Ticket& ticket) {
  AddAll(array, {Signed(ticket.order), ticket.priority, static_cast<int64_t>(ticket.state),
                 ticket.attempt, ticket.delay_ms, ticket.delays, ticket.host.number,
                 ticket.host.incarnation, RevisionAfter(delta)});
}

}  // namespace

std::string WriteReasons(const std::vector<TicketReason>& reasons) {
  json list = json::array();
  for (const TicketReason& reason : reasons) {
    // jsonb holds no zero byte.
    const std::string text =
        absl::StrReplaceAll(reason.text, {{absl::string_view("\0", 1), "\xef\xbf\xbd"}});
    list.push_back({{"attempt", reason.attempt}, {"text", text}, {"at", reason.at_unix_ms}});
  }
  return list.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<TicketReason> ReadReasons(const std::string& text) {
  std::vector<TicketReason> reasons;
  const json list = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) return reasons;
  for (const json& each : list) {
    try {
      reasons.push_back({each.at("attempt").get<uint32_t>(), each.at("text").get<std::string>(),
                         each.at("at").get<int64_t>()});
    } catch (const json::exception&) {
      continue;
    }
  }
  return reasons;
}

void TicketArguments::AddTickets(const SemaphoreDelta& delta) {
  if (delta.tickets.empty()) return;
  for (const auto& ticket : ledger::NetChanges(delta.tickets)) {
    if (ticket.before && ticket.after) {
      Change(delta, *ticket.before, *ticket.after);
    } else if (ticket.before) {
      h_semaphore_.Add(delta.name);
      h_order_.Add(Signed(ticket.before->order));
      h_ticket_.Add(ticket.before->id);
    } else if (ticket.after) {
      Bring(delta, *ticket.after, ticket.steps.front()->payload);
    }
  }
}

void TicketArguments::Change(const SemaphoreDelta& delta, const Ticket& before,
                             const Ticket& after) {
  j_semaphore_.Add(delta.name);
  j_ticket_.Add(after.id);
  j_lease_.Add(after.lease);
  // (They may be news to the database though this batch did not add to them: see GivenBack.)
  const bool none = before.reasons.empty() && after.reasons.empty();
  j_reasons_.Add(none ? "" : WriteReasons(after.reasons));
  AddState(&j_number_, delta, after);
}

void TicketArguments::Bring(const SemaphoreDelta& delta, const Ticket& ticket,
                            const PayloadPtr& payload) {
  k_semaphore_.Add(delta.name);
  k_ticket_.Add(ticket.id);
  k_lease_.Add(ticket.lease);
  k_reasons_.Add(WriteReasons(ticket.reasons));
  k_content_type_.Add(ticket.content_type);
  k_trace_.Add(ticket.trace);
  k_owner_.Add(ticket.owner);
  AddState(&k_number_, delta, ticket);
  // The first byte is 1.
  AddAll(&k_number_,
         {ticket.max_attempts, ticket.back_off.initial_ms, ticket.back_off.multiplier_percent,
          ticket.back_off.max_ms, payload == nullptr ? 0 : Signed(payload->size()),
          ticket.enqueued_at_unix_ms, Signed(payloads_.size() + 1)});
  if (payload != nullptr) payloads_ += *payload;
}

void TicketArguments::Take(Arguments* arguments) {
  const bool some_come = k_ticket_.size() != 0;
  // In the order of the function's arguments.
  const std::array<Array*, kCount - 1> arrays = {
      &h_semaphore_,    &h_order_,  &h_ticket_,    &j_semaphore_, &j_ticket_, &j_lease_,
      &j_reasons_,      &j_number_, &k_semaphore_, &k_ticket_,    &k_lease_,  &k_reasons_,
      &k_content_type_, &k_trace_,  &k_owner_,     &k_number_};
  for (Array* array : arrays) arguments->push_back(array->TakeOrNull());
  // NULL, as an empty array, costs the server nothing.
  arguments->push_back(some_come ? std::optional("\\x" + absl::BytesToHexString(payloads_))
                                 : std::nullopt);
}

}  // namespace semaphored::postgres
