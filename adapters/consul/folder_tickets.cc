#include "adapters/consul/folder_tickets.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/consul/format.h"
#include "adapters/ledger/rules/ticket_ends.h"

namespace semaphored::consul {
namespace {

// The lease carries out the ticket, and the ticket says so.
bool Agree(const Lease& lease, const Ticket& ticket) {
  return ticket.state == TicketState::kAssigned && ticket.lease == lease.id &&
         lease.ticket == ticket.id && lease.attempt == ticket.attempt;
}

bool AllAgree(const Folder& folder) {
  const auto& leases = folder.document.leases;
  for (const auto& [id, lease] : leases) {
    if (lease->ticket.empty()) continue;
    const auto ticket = folder.tickets.find(lease->ticket);
    if (ticket == folder.tickets.end() || !Agree(*lease, *ticket->second.ticket)) return false;
  }
  return std::ranges::all_of(folder.tickets, [&](const auto& each) {
    const Ticket& ticket = *each.second.ticket;
    return ticket.state != TicketState::kAssigned || leases.contains(ticket.lease);
  });
}

// Empty: the tickets agree with the document and its leases.
std::string WhatIsWrong(const Folder& folder) {
  if (!folder.garbled_tickets.empty())
    return absl::StrCat("the ticket in the key ", folder.garbled_tickets.front(), " (",
                        folder.garbled_tickets.size(),
                        " in all) is not understood: put it back as it was; or delete the key and "
                        "prune the semaphore, which makes a dead letter of its payload");
  if (!folder.has_document())
    return folder.tickets.empty()
               ? ""
               : absl::StrCat("there are ", folder.tickets.size(),
                              " tickets, and no document; put it back as it was");
  if (folder.tickets.size() != folder.document.ticket_count)
    return absl::StrCat("it has ", folder.document.ticket_count, " tickets, and ",
                        folder.tickets.size(),
                        " are there: their keys were changed by hand; put them back, or prune the "
                        "semaphore, which goes on with those that are there");
  return AllAgree(folder) ? ""
                          : "a ticket and the lease under which it is carried out do not agree: "
                            "its key was changed by hand; prune the semaphore";
}

}  // namespace

bool ReadTicketEntry(const std::string& under, const Entry& entry, const Folder* known,
                     Folder* folder) {
  if (!entry.key.starts_with(under)) return false;
  const std::optional<Id> id = Keys::IdIn(entry.key, under);
  if (id && known != nullptr) {
    const auto before = known->tickets.find(*id);
    if (before != known->tickets.end() && before->second.index == entry.modify_index) {
      folder->tickets.emplace(*id, before->second);
      return true;
    }
  }
  absl::StatusOr<TicketPtr> ticket =
      id ? ReadTicket(*id, entry.value) : absl::StatusOr<TicketPtr>(absl::DataLossError("its id"));
  if (ticket.ok()) {
    folder->tickets.emplace(*id, StoredTicket{*std::move(ticket), entry.modify_index});
  } else {
    folder->garbled_tickets.push_back(entry.key);
  }
  return true;
}

void CheckTickets(Folder* folder) {
  if (!folder->damage.ok()) return;
  const std::string wrong = WhatIsWrong(*folder);
  if (wrong.empty()) return;
  folder->tickets_damaged = true;
  folder->damage = absl::DataLossError(absl::StrCat("consul: ", folder->name, ": ", wrong));
}

void CountTickets(Folder* folder) {
  Document& document = folder->document;
  document.ticket_count = folder->tickets.size();
  document.delays.clear();
  for (const auto& [id, stored] : folder->tickets) {
    const Ticket& ticket = *stored.ticket;
    if (ticket.state == TicketState::kDelayed &&
        std::ranges::find(document.delays, ticket.host) == document.delays.end())
      document.delays.push_back(ticket.host);
  }
}

std::vector<Id> ReturnTickets(Folder* folder, const std::string& why, int64_t now_unix_ms,
                              size_t most) {
  auto& leases = folder->document.leases;
  std::vector<Id> returned;
  for (auto& [id, stored] : folder->tickets) {
    if (returned.size() == most) break;
    const Ticket& ticket = *stored.ticket;
    const auto lease = leases.find(ticket.lease);
    if (ticket.state != TicketState::kAssigned ||
        (lease != leases.end() && Agree(*lease->second, ticket)))
      continue;
    stored.ticket = ledger::AfterLostLease(ticket, why, now_unix_ms);
    returned.push_back(id);
  }
  for (auto& [id, lease] : leases) {
    if (lease->ticket.empty()) continue;
    const auto ticket = folder->tickets.find(lease->ticket);
    if (ticket != folder->tickets.end() && Agree(*lease, *ticket->second.ticket)) continue;
    auto plain = std::make_shared<Lease>(*lease);
    plain->ticket = Id();
    plain->attempt = 0;
    lease = std::move(plain);
  }
  return returned;
}

TicketPtr TicketOfPayload(const Id& id, uint32_t payload_bytes, uint64_t order,
                          int64_t now_unix_ms) {
  auto ticket = std::make_shared<Ticket>();
  ticket->id = id;
  ticket->order = order;
  ticket->state = TicketState::kDead;
  ticket->payload_bytes = payload_bytes;
  ticket->reasons = {{0, "its key was removed from Consul by hand", now_unix_ms}};
  ticket->enqueued_at_unix_ms = now_unix_ms;
  return ticket;
}

}  // namespace semaphored::consul
