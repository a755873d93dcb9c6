#include "adapters/consul/ticket_row.h"

#include <exception>
#include <memory>
#include <stdexcept>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "adapters/consul/transaction_request.h"

namespace semaphored::consul {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;

TicketState StateOf(const Json& json) {
  const int number = json.get<int>();
  const bool known = number >= static_cast<int>(TicketState::kQueued) &&
                     number <= static_cast<int>(TicketState::kDead);
  if (!known) throw std::out_of_range("state");
  return static_cast<TicketState>(number);
}

// The library throws where a thing is missing or of another kind.
std::shared_ptr<Ticket> ReadFields(const Json& json) {
  auto ticket = std::make_shared<Ticket>();
  ticket->state = StateOf(json.at("state"));
  ticket->priority = json.at("priority").get<int32_t>();
  ticket->order = json.at("order").get<uint64_t>();
  ticket->attempt = json.at("attempt").get<uint32_t>();
  ticket->max_attempts = json.at("max_attempts").get<uint32_t>();
  const Json& back_off = json.at("back_off");
  ticket->back_off = {back_off.at(0).get<int64_t>(), back_off.at(1).get<uint32_t>(),
                      back_off.at(2).get<int64_t>()};
  ticket->delay_ms = json.at("delay_ms").get<int64_t>();
  ticket->delays = json.at("delays").get<uint32_t>();
  const Json& host = json.at("host");
  ticket->host = {host.at(0).get<uint32_t>(), host.at(1).get<uint32_t>()};
  const std::string& lease = json.at("lease").get_ref<const std::string&>();
  if (!lease.empty()) ticket->lease = Id::FromHex(lease).value();
  ticket->content_type = json.at("content_type").get<std::string>();
  ticket->payload_bytes = json.at("payload_bytes").get<uint32_t>();
  ticket->trace = json.at("trace").get<std::string>();
  ticket->owner = json.at("owner").get<std::string>();
  for (const Json& reason : json.at("reasons"))
    ticket->reasons.push_back({reason.at(0).get<uint32_t>(), reason.at(1).get<std::string>(),
                               reason.at(2).get<int64_t>()});
  ticket->enqueued_at_unix_ms = json.at("enqueued").get<int64_t>();
  return ticket;
}

}  // namespace

std::string WriteTicket(const Ticket& ticket) {
  const BackOff& back_off = ticket.back_off;
  std::string text =
      absl::StrCat("{\"version\":", kVersion, ",\"state\":", static_cast<int>(ticket.state),
                   ",\"priority\":", ticket.priority, ",\"order\":", ticket.order,
                   ",\"attempt\":", ticket.attempt, ",\"max_attempts\":", ticket.max_attempts);
  absl::StrAppend(&text, ",\"back_off\":[", back_off.initial_ms, ",", back_off.multiplier_percent,
                  ",", back_off.max_ms, "],\"delay_ms\":", ticket.delay_ms,
                  ",\"delays\":", ticket.delays, ",\"host\":[", ticket.host.number, ",",
                  ticket.host.incarnation, "],\"lease\":\"",
                  ticket.lease.empty() ? "" : ticket.lease.Hex(), "\"");
  absl::StrAppend(&text, ",\"content_type\":", JsonText(ticket.content_type),
                  ",\"payload_bytes\":", ticket.payload_bytes,
                  ",\"trace\":", JsonText(ticket.trace), ",\"owner\":", JsonText(ticket.owner),
                  ",\"reasons\":[");
  for (const TicketReason& reason : ticket.reasons)
    absl::StrAppend(&text, text.back() == '[' ? "[" : ",[", reason.attempt, ",",
                    JsonText(reason.text), ",", reason.at_unix_ms, "]");
  return absl::StrCat(text, "],\"enqueued\":", ticket.enqueued_at_unix_ms, "}");
}

absl::StatusOr<TicketPtr> ReadTicket(const Id& id, const std::string& value) {
  const auto damaged = [&](const char* why) {
    return absl::DataLossError(
        absl::StrCat("consul: the ticket ", id.Hex(), " is not understood: ", why));
  };
  const Json json = Json::parse(value, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return damaged("it is no JSON");
  try {
    if (json.at("version").get<int>() != kVersion) return damaged("another version wrote it");
    std::shared_ptr<Ticket> ticket = ReadFields(json);
    ticket->id = id;
    return ticket;
  } catch (const std::exception& error) {
    return damaged(error.what());
  }
}

}  // namespace semaphored::consul
