// Tickets and their payloads as items.
#include <memory>
#include <stdexcept>
#include <utility>

#include "absl/strings/escaping.h"
#include "adapters/dynamodb/items.h"

namespace semaphored::dynamodb {
namespace {

constexpr uint64_t kDigestKind = 4;  // Leases have 1, waiters 2, offers 3.

TicketState StateIn(const json& item) {
  const uint64_t number = NumberIn(item, "state");
  if (number < static_cast<uint64_t>(TicketState::kQueued) ||
      number > static_cast<uint64_t>(TicketState::kDead))
    throw std::invalid_argument("state");
  return static_cast<TicketState>(number);
}

json WriteReasons(const std::vector<TicketReason>& reasons) {
  json rows = json::array();
  for (const TicketReason& reason : reasons) {
    json row = json::object();
    SetNumber(&row, "attempt", reason.attempt);
    SetText(&row, "text", reason.text);
    SetSigned(&row, "at_unix_ms", reason.at_unix_ms);
    rows.push_back({{"M", std::move(row)}});
  }
  return {{"L", std::move(rows)}};
}

std::vector<TicketReason> ReadReasons(const json& item) {
  std::vector<TicketReason> reasons;
  const auto found = item.find("reasons");
  if (found == item.end()) return reasons;
  for (const json& each : found->at("L")) {
    const json& row = each.at("M");
    reasons.push_back({static_cast<uint32_t>(NumberIn(row, "attempt")), TextIn(row, "text"),
                       SignedIn(row, "at_unix_ms")});
  }
  return reasons;
}

}  // namespace

bool IsTicket(const json& item) { return item.contains("state"); }

json WriteTicket(const Key& key, const Ticket& ticket) {
  json item = ItemWith(key);
  SetText(&item, "ticket", ticket.id.Hex());
  SetNumber(&item, "state", static_cast<uint64_t>(ticket.state));
  SetSigned(&item, "priority", ticket.priority);
  SetNumber(&item, "queue_order", ticket.order);
  SetNumber(&item, "attempt", ticket.attempt);
  SetNumber(&item, "max_attempts", ticket.max_attempts);
  SetSigned(&item, "back_off_initial_ms", ticket.back_off.initial_ms);
  SetNumber(&item, "back_off_percent", ticket.back_off.multiplier_percent);
  SetSigned(&item, "back_off_max_ms", ticket.back_off.max_ms);
  SetSigned(&item, "delay_ms", ticket.delay_ms);
  SetNumber(&item, "delays", ticket.delays);
  SetNumber(&item, "node", ticket.host.number);
  SetNumber(&item, "incarnation", ticket.host.incarnation);
  if (!ticket.lease.empty()) SetText(&item, "claim", ticket.lease.Hex());
  SetText(&item, "content_type", ticket.content_type);
  SetNumber(&item, "payload_bytes", ticket.payload_bytes);
  SetText(&item, "trace", ticket.trace);
  SetText(&item, "owner", ticket.owner);
  if (!ticket.reasons.empty()) item["reasons"] = WriteReasons(ticket.reasons);
  SetSigned(&item, "enqueued_at_unix_ms", ticket.enqueued_at_unix_ms);
  return item;
}

TicketPtr ReadTicket(const json& item) {
  auto ticket = std::make_shared<Ticket>();
  ticket->id = IdIn(item, "ticket");
  ticket->state = StateIn(item);
  ticket->priority = static_cast<int32_t>(SignedIn(item, "priority"));
  ticket->order = NumberIn(item, "queue_order");
  ticket->attempt = static_cast<uint32_t>(NumberIn(item, "attempt"));
  ticket->max_attempts = static_cast<uint32_t>(NumberIn(item, "max_attempts"));
  ticket->back_off = {SignedIn(item, "back_off_initial_ms"),
                      static_cast<uint32_t>(NumberIn(item, "back_off_percent")),
                      SignedIn(item, "back_off_max_ms")};
  ticket->delay_ms = SignedIn(item, "delay_ms");
  ticket->delays = static_cast<uint32_t>(NumberIn(item, "delays"));
  ticket->host = {static_cast<uint32_t>(NumberIn(item, "node")),
                  static_cast<uint32_t>(NumberIn(item, "incarnation"))};
  if (item.contains("claim")) ticket->lease = IdIn(item, "claim");
  if ((ticket->state == TicketState::kAssigned) == ticket->lease.empty())
    throw std::invalid_argument("a ticket that is assigned has a lease, and no other");
  ticket->content_type = TextIn(item, "content_type");
  ticket->payload_bytes = static_cast<uint32_t>(NumberIn(item, "payload_bytes"));
  ticket->trace = TextIn(item, "trace");
  ticket->owner = TextIn(item, "owner");
  ticket->reasons = ReadReasons(item);
  ticket->enqueued_at_unix_ms = SignedIn(item, "enqueued_at_unix_ms");
  return ticket;
}

json WritePayload(const Key& key, std::string_view payload) {
  json item = ItemWith(key);
  if (!payload.empty()) item["payload"] = Binary(payload);
  return item;
}

PayloadPtr ReadPayload(const json& item) {
  std::string payload;
  const auto found = item.find("payload");
  if (found != item.end() && !absl::Base64Unescape(found->at("B").get<std::string>(), &payload))
    throw std::invalid_argument("a payload");
  return std::make_shared<const std::string>(std::move(payload));
}

// All that changes in a ticket's life. What it was enqueued with stays.
uint64_t DigestOf(const Ticket& ticket) {
  uint64_t hash = Mixed(kDigestKind, ticket.id.high);
  for (const uint64_t part :
       {ticket.id.low, uint64_t{static_cast<uint32_t>(ticket.priority)}, ticket.order,
        static_cast<uint64_t>(ticket.state), uint64_t{ticket.attempt},
        static_cast<uint64_t>(ticket.delay_ms), uint64_t{ticket.delays},
        uint64_t{ticket.host.number}, uint64_t{ticket.host.incarnation}, ticket.lease.high,
        ticket.lease.low, uint64_t{ticket.reasons.size()}})
    hash = Mixed(hash, part);
  for (const TicketReason& reason : ticket.reasons)
    hash = Mixed(Mixed(hash, reason.attempt), static_cast<uint64_t>(reason.at_unix_ms));
  return hash;
}

}  // namespace semaphored::dynamodb
