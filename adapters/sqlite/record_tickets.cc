// Tickets and their payloads as records.
#include <memory>
#include <utility>

#include "adapters/sqlite/codec.h"
#include "adapters/sqlite/record.h"

namespace semaphored::sqlite {

void WriteTicket(uint64_t key, uint32_t semaphore, const Ticket& ticket, std::string* out) {
  size_t start = out->size();
  ByteWriter writer(out);
  writer.Number(semaphore);
  writer.Byte(static_cast<uint8_t>(ticket.state));
  writer.Name(ticket.id);
  writer.Signed(ticket.priority);
  writer.Number(ticket.order);
  writer.Number(ticket.attempt);
  writer.Number(ticket.max_attempts);
  writer.Signed(ticket.back_off.initial_ms);
  writer.Number(ticket.back_off.multiplier_percent);
  writer.Signed(ticket.back_off.max_ms);
  writer.Signed(ticket.delay_ms);
  writer.Number(ticket.delays);
  writer.Number(ticket.host.number);
  writer.Number(ticket.host.incarnation);
  writer.Name(ticket.lease);
  writer.Text(ticket.content_type);
  writer.Number(ticket.payload_bytes);
  writer.Text(ticket.trace);
  writer.Number(ticket.reasons.size());
  for (const TicketReason& reason : ticket.reasons) {
    writer.Number(reason.attempt);
    writer.Text(reason.text);
    writer.Signed(reason.at_unix_ms);
  }
  writer.Signed(ticket.enqueued_at_unix_ms);
  writer.Text(ticket.owner);
  writer.Seal(RecordKind::kTicket, key, start);
}

absl::StatusOr<TicketRecord> ReadTicket(uint64_t key, std::string_view record) {
  ByteReader in(record);
  in.Unseal(RecordKind::kTicket, key);
  const uint32_t semaphore = in.Number32();
  auto ticket = std::make_shared<Ticket>();
  ticket->state = static_cast<TicketState>(in.Number(static_cast<uint64_t>(TicketState::kQueued),
                                                     static_cast<uint64_t>(TicketState::kDead)));
  ticket->id = in.Name();
  int64_t priority = in.Signed();
  if (priority < INT32_MIN || priority > INT32_MAX) in.Fail();
  ticket->priority = static_cast<int32_t>(priority);
  ticket->order = in.Number();
  ticket->attempt = in.Number32();
  ticket->max_attempts = in.Number32();
  ticket->back_off.initial_ms = in.Signed();
  ticket->back_off.multiplier_percent = in.Number32();
  ticket->back_off.max_ms = in.Signed();
  ticket->delay_ms = in.Signed();
  ticket->delays = in.Number32();
  ticket->host.number = in.Number32();
  ticket->host.incarnation = in.Number32();
  ticket->lease = in.Name();
  ticket->content_type = in.Text(kTicketTextBytesMax);
  ticket->payload_bytes = static_cast<uint32_t>(in.Number(0, kPayloadBytesMax));
  ticket->trace = in.Text(kTicketTextBytesMax);
  const uint64_t reasons = in.Number(0, kTicketReasonsMax);
  for (uint64_t i = 0; i < reasons && in.ok(); ++i) {
    TicketReason& reason = ticket->reasons.emplace_back();
    reason.attempt = in.Number32();
    reason.text = in.Text(kTicketTextBytesMax);
    reason.at_unix_ms = in.Signed();
  }
  ticket->enqueued_at_unix_ms = in.Signed();
  ticket->owner = in.Text(kOwnerBytesMax);
  if (!Whole(in) || ticket->id.empty()) return Damaged("ticket", key);
  return TicketRecord{semaphore, std::move(ticket)};
}

void WritePayload(uint64_t key, std::string_view payload, std::string* out) {
  size_t start = out->size();
  out->append(payload);
  ByteWriter(out).Seal(RecordKind::kPayload, key, start);
}

absl::StatusOr<std::string_view> ReadPayload(uint64_t key, std::string_view record) {
  ByteReader in(record);
  in.Unseal(RecordKind::kPayload, key);
  if (!in.ok()) return Damaged("payload", key);
  return record.substr(0, in.left());
}

}  // namespace semaphored::sqlite
