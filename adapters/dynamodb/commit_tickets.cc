// What a commit does to tickets: each is an item among the waiters, and its payload one apart, so
// that an assignment does not rewrite 64 KiB, and a reading of the queue does not read them.
#include "adapters/dynamodb/commit.h"
#include "adapters/ledger/state/net_changes.h"

namespace semaphored::dynamodb {

using ledger::SemaphoreDelta;

void DynamoStore::Writer::AddTickets(const SemaphoreDelta& delta, Planned* planned) {
  if (delta.tickets.empty()) return;
  uint64_t& digest = planned->head.digest;
  for (const auto& ticket : ledger::NetChanges(delta.tickets)) {
    if (ticket.before) {
      digest ^= DigestOf(*ticket.before);
      planned->written.gone.push_back(ticket.before->id);
      const Key key = TicketKey(delta.name, *ticket.before);
      // With another priority it has another place.
      if (!ticket.after || TicketKey(delta.name, *ticket.after) != key) items_[key] = std::nullopt;
      if (!ticket.after) {
        items_[PayloadKey(delta.name, ticket.before->id)] = std::nullopt;
        request_.Weigh(ticket.before->payload_bytes);
      }
    }
    if (!ticket.after) continue;
    digest ^= DigestOf(*ticket.after);
    if (store_->memory_.Counts(*ticket.after)) {
      planned->written.counted.push_back(ticket.after->id);
      IndexHosted(delta.name);
    }
    const Key key = TicketKey(delta.name, *ticket.after);
    if (!ticket.before || *ticket.before != *ticket.after)
      PutOnce(key, WriteTicket(key, *ticket.after));
    if (ticket.before) continue;
    const PayloadPtr& payload = ticket.steps.front()->payload;
    const Key payload_key = PayloadKey(delta.name, ticket.after->id);
    PutOnce(payload_key, WritePayload(payload_key, payload ? *payload : std::string_view()));
  }
}

}  // namespace semaphored::dynamodb
