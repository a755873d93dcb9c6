#include "adapters/postgres/commit_tickets.h"

#include <array>
#include <initializer_list>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"

namespace semaphored::postgres {

using ledger::SemaphoreDelta;
using ledger::TicketChange;
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

void TicketArguments::AddOffer(const std::string& semaphore, const WaiterPtr& before,
                               const WaiterPtr& after, const std::string& client_id) {
  if (before) {
    d_semaphore_.Add(semaphore);
    d_order_.Add(Signed(before->order));
  }
  if (!after) return;
  n_semaphore_.Add(semaphore);
  n_claim_.Add(after->id);
  n_holder_.Add(after->holder);
  n_session_.Add(after->session);
  n_client_.Add(client_id);
  AddAll(&n_number_, {Signed(after->order), after->priority, after->permits,
                      Signed(after->request.sequence), after->host.number, after->host.incarnation,
                      after->epoch, after->ttl_ms, after->queued_at_unix_ms});
}

std::vector<TicketArguments::Folded> TicketArguments::Fold(
    const std::vector<TicketChange>& changes) {
  std::vector<Folded> folded;
  absl::flat_hash_map<Id, size_t> places;
  for (const TicketChange& change : changes) {
    const Id& id = (change.before ? change.before : change.after)->id;
    const auto [at, is_new] = places.try_emplace(id, folded.size());
    if (is_new) folded.push_back({change.before, nullptr, nullptr});
    Folded& ticket = folded[at->second];
    ticket.after = change.after;
    if (change.payload) ticket.payload = change.payload;
  }
  return folded;
}

void TicketArguments::AddTickets(const SemaphoreDelta& delta) {
  if (delta.tickets.empty()) return;
  for (const Folded& ticket : Fold(delta.tickets)) {
    if (ticket.before && ticket.after) {
      Change(delta, *ticket.before, *ticket.after);
    } else if (ticket.before) {
      x_semaphore_.Add(delta.name);
      x_order_.Add(Signed(ticket.before->order));
      x_ticket_.Add(ticket.before->id);
    } else if (ticket.after) {
      Bring(delta, *ticket.after, ticket.payload);
    }
  }
}

void TicketArguments::Change(const SemaphoreDelta& delta, const Ticket& before,
                             const Ticket& after) {
  u_semaphore_.Add(delta.name);
  u_ticket_.Add(after.id);
  u_lease_.Add(after.lease);
  // (They may be news to the database though this batch did not add to them: see GivenBack.)
  const bool none = before.reasons.empty() && after.reasons.empty();
  u_reasons_.Add(none ? "" : WriteReasons(after.reasons));
  AddState(&u_number_, delta, after);
}

void TicketArguments::Bring(const SemaphoreDelta& delta, const Ticket& ticket,
                            const PayloadPtr& payload) {
  t_semaphore_.Add(delta.name);
  t_ticket_.Add(ticket.id);
  t_lease_.Add(ticket.lease);
  t_reasons_.Add(WriteReasons(ticket.reasons));
  t_content_type_.Add(ticket.content_type);
  t_trace_.Add(ticket.trace);
  AddState(&t_number_, delta, ticket);
  // The first byte is 1.
  AddAll(&t_number_,
         {ticket.max_attempts, ticket.back_off.initial_ms, ticket.back_off.multiplier_percent,
          ticket.back_off.max_ms, payload == nullptr ? 0 : Signed(payload->size()),
          ticket.enqueued_at_unix_ms, Signed(payloads_.size() + 1)});
  if (payload != nullptr) payloads_ += *payload;
}

bool TicketArguments::empty() const {
  return made_.size() == 0 && d_order_.size() == 0 && n_claim_.size() == 0 &&
         x_ticket_.size() == 0 && u_ticket_.size() == 0 && t_ticket_.size() == 0;
}

void TicketArguments::Take(Arguments* arguments) {
  // In the order of the function's arguments.
  const std::array<Array*, kCount - 1> arrays = {
      &made_,        &d_semaphore_, &d_order_,   &n_semaphore_,    &n_claim_,  &n_holder_,
      &n_session_,   &n_client_,    &n_number_,  &x_semaphore_,    &x_order_,  &x_ticket_,
      &u_semaphore_, &u_ticket_,    &u_lease_,   &u_reasons_,      &u_number_, &t_semaphore_,
      &t_ticket_,    &t_lease_,     &t_reasons_, &t_content_type_, &t_trace_,  &t_number_};
  for (Array* array : arrays) arguments->push_back(array->TakeOrNull());
  arguments->push_back("\\x" + absl::BytesToHexString(payloads_));
}

}  // namespace semaphored::postgres
