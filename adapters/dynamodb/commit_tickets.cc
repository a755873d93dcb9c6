// What a commit does to tickets: each is an item among the waiters, and its payload one apart, so
// that an assignment does not rewrite 64 KiB, and a reading of the queue does not read them.
#include "adapters/dynamodb/commit.h"
#include "adapters/dynamodb/fold.h"

namespace semaphored::dynamodb {

using ledger::SemaphoreDelta;
using ledger::TicketChange;

void DynamoStore::Writer::AddTickets(const SemaphoreDelta& delta, Planned* planned) {
  if (delta.tickets.empty()) return;
  uint64_t& digest = planned->head.digest;
  absl::flat_hash_map<Id, std::string_view> payloads;
  for (const TicketChange& change : delta.tickets) {
    if (change.payload) payloads[change.after->id] = *change.payload;
  }
  for (const auto& ticket : Fold<TicketPtr>(delta.tickets)) {
    if (ticket.before) {
      digest ^= DigestOf(*ticket.before);
      planned->gone.push_back(ticket.before->id);
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
    if (store_->IsCountedHere(*ticket.after)) {
      planned->counted.push_back(ticket.after->id);
      IndexHosted(delta.name);
    }
    const Key key = TicketKey(delta.name, *ticket.after);
    if (!ticket.before || *ticket.before != *ticket.after)
      PutOnce(key, WriteTicket(key, *ticket.after));
    if (ticket.before) continue;
    const Key payload_key = PayloadKey(delta.name, ticket.after->id);
    PutOnce(payload_key, WritePayload(payload_key, payloads[ticket.after->id]));
  }
}

}  // namespace semaphored::dynamodb
