// Tickets as they are read, and their payloads.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "adapters/common/hex.h"
#include "adapters/ledger/rules/rules.h"
#include "adapters/postgres/array.h"
#include "adapters/postgres/commit_tickets.h"
#include "adapters/postgres/reader.h"
#include "adapters/postgres/statements.h"

namespace semaphored::postgres {

using ledger::LoadedSemaphore;

namespace {

constexpr char kEndedElsewhere[] = "its lease was ended by a program that does not know of tickets";

// The ticket, whose lease is not there, as a daemon that knows of tickets leaves it when it ends
// the lease. Every daemon that reads it gets the same result.
TicketPtr GivenBack(const Ticket& ticket) {
  auto back = std::make_shared<Ticket>(ticket);
  const bool was_last = ticket.max_attempts != 0 && ticket.attempt >= ticket.max_attempts;
  back->state = was_last ? TicketState::kDead : TicketState::kQueued;
  back->lease = Id();
  if (back->reasons.size() >= ledger::kReasonsMax) back->reasons.erase(back->reasons.begin());
  // When the lease ended is not known.
  TicketReason& reason = back->reasons.emplace_back();
  reason.attempt = ticket.attempt;
  reason.text = kEndedElsewhere;
  reason.at_unix_ms = ticket.enqueued_at_unix_ms;
  return back;
}

}  // namespace

void PostgresStore::Reader::AddTicket(const pqxx::row& row) {
  const std::vector<int64_t> n = ReadNumbers(row[7].c_str());
  auto ticket = std::make_shared<Ticket>();
  ticket->id = ReadId(row[2].c_str());
  if (!row[3].is_null()) ticket->lease = ReadId(row[3].c_str());
  ticket->content_type = row[5].as<std::string>();
  ticket->trace = row[6].as<std::string>();
  ticket->order = static_cast<uint64_t>(n[0]);
  ticket->priority = static_cast<int32_t>(n[1]);
  ticket->state = static_cast<TicketState>(n[2]);
  ticket->attempt = static_cast<uint32_t>(n[3]);
  ticket->delay_ms = n[4];
  ticket->delays = static_cast<uint32_t>(n[5]);
  ticket->host = {static_cast<uint32_t>(n[6]), static_cast<uint32_t>(n[7])};
  ticket->max_attempts = static_cast<uint32_t>(n[8]);
  ticket->back_off = {n[9], static_cast<uint32_t>(n[10]), n[11]};
  ticket->payload_bytes = static_cast<uint32_t>(n[12]);
  ticket->enqueued_at_unix_ms = n[13];
  ticket->owner = row[8].as<std::string>();
  if (*row[9].c_str() != '\0') ticket->reasons = ReadReasons(row[9].as<std::string>());
  changed_[row[1].as<std::string>()].push_back(std::move(ticket));
}

void PostgresStore::Reader::TakeTickets(LoadedSemaphore* semaphore) {
  const std::string& name = semaphore->row.name;
  std::optional<std::vector<int64_t>> places;
  if (const auto found = places_.find(name); found != places_.end())
    places = std::move(found->second);
  std::vector<TicketPtr> changed;
  if (const auto found = changed_.find(name); found != changed_.end())
    changed = std::move(found->second);
  std::optional<std::vector<TicketPtr>> all =
      store_->tickets_.Update(name, semaphore->row.revision, std::move(changed), places);
  if (!all) {
    again_ = true;
    return;
  }
  semaphore->tickets = *std::move(all);
  absl::flat_hash_map<Id, LeasePtr> leases;
  for (TicketPtr& ticket : semaphore->tickets) {
    if (ticket->state != TicketState::kAssigned) continue;
    if (leases.empty()) {
      for (const LeasePtr& lease : semaphore->leases) leases[lease->id] = lease;
    }
    ticket = TieToLease(ticket, &leases);
  }
}

TicketPtr PostgresStore::Reader::TieToLease(const TicketPtr& ticket,
                                            absl::flat_hash_map<Id, LeasePtr>* leases) {
  const auto found = leases->find(ticket->lease);
  if (found == leases->end() || found->second->foreign || !found->second->ticket.empty())
    return GivenBack(*ticket);
  found->second->ticket = ticket->id;
  found->second->attempt = ticket->attempt;
  return ticket;
}

void PostgresStore::Reader::FinishLook() {
  FinishLeases();
  for (LoadedSemaphore& semaphore : image_.semaphores) {
    const auto counts = counts_.find(semaphore.row.name);
    if (counts == counts_.end()) continue;
    for (size_t state = 1; state <= counts->second.size(); ++state) {
      auto one = std::make_shared<Ticket>();
      one->state = static_cast<TicketState>(state);
      semaphore.tickets.insert(semaphore.tickets.end(),
                               static_cast<size_t>(counts->second[state - 1]), one);
    }
  }
}

absl::StatusOr<std::vector<PayloadPtr>> PostgresStore::ReadPayloads(
    absl::Span<const TicketAt> tickets) {
  Array wanted;
  for (const TicketAt& at : tickets) wanted.Add(at.ticket);
  const Answered read = Query(sql_->payloads, {wanted.Take()});
  if (!read.ok) return read.failure.status;
  std::vector<PayloadPtr> payloads;
  for (const auto& row : read.rows) {
    PayloadPtr& payload = payloads.emplace_back();
    if (row[0].is_null()) continue;
    std::optional<std::string> bytes = BytesOfHex(row[0].c_str());
    if (!bytes) return absl::DataLossError("postgres: a payload that is no text of encode()");
    payload = std::make_shared<const std::string>(*std::move(bytes));
  }
  return payloads;
}

}  // namespace semaphored::postgres
