// What a commit does to tickets: the key of each that has changed is written once, by the index at
// which it was read, so that whatever people have done to it is seen and not written over.
#include <algorithm>

#include "adapters/consul/commit.h"
#include "adapters/consul/folder_tickets.h"
#include "adapters/consul/format.h"

namespace semaphored::consul {

using ledger::SemaphoreDelta;
using ledger::TicketChange;

namespace {

// Of payloads without a ticket there are 40 at most.
constexpr size_t kMendedAtOnce = 40;

}  // namespace

bool ConsulStore::Writer::ApplyTickets(const SemaphoreDelta& delta, Planned* planned) {
  auto& tickets = planned->folder.tickets;
  for (const TicketChange& change : delta.tickets) {
    const Id& id = (change.before ? change.before : change.after)->id;
    const auto stored = tickets.find(id);
    const auto [at, is_first] = planned->tickets.try_emplace(id);
    PlannedTicket& ticket = at->second;
    if (is_first && stored != tickets.end())
      ticket = {stored->second.index, stored->second.ticket, nullptr};
    if ((stored != tickets.end()) != (change.before != nullptr)) return false;
    if (change.payload) ticket.payload = change.payload;
    if (change.after) {
      tickets[id] = {change.after, ticket.index};
    } else {
      tickets.erase(id);
    }
  }
  return true;
}

void ConsulStore::Writer::WriteTickets(Planned* planned) {
  if (planned->tickets.empty()) return;
  Folder& folder = planned->folder;
  const Keys& keys = store_->keys_;
  // To write what stands there already does not raise its index.
  absl::erase_if(planned->tickets, [&](const auto& each) {
    const auto stored = folder.tickets.find(each.first);
    return each.second.before && stored != folder.tickets.end() &&
           *each.second.before == *stored->second.ticket;
  });
  for (const auto& [id, ticket] : planned->tickets) {
    const auto stored = folder.tickets.find(id);
    if (stored != folder.tickets.end()) {
      request_.Cas(keys.Ticket(folder.name, id), WriteTicket(*stored->second.ticket), ticket.index);
      if (ticket.payload != nullptr && !ticket.payload->empty())
        request_.Set(keys.Payload(folder.name, id), *ticket.payload);
    } else if (ticket.index != 0) {
      request_.DeleteCas(keys.Ticket(folder.name, id), ticket.index);
      request_.Delete(keys.Payload(folder.name, id));
    }
  }
  CountTickets(&folder);
  Own(About::kSemaphore, folder.name);
}

absl::Status ConsulStore::Writer::BuildTicketMending(
    const Folder& folder, const std::vector<std::pair<Id, uint32_t>>& payloads) {
  Planned planned;
  planned.folder = folder;
  Folder& mended = planned.folder;
  if (store_->url_.ends_with_daemon) EndLost(&planned);
  const int64_t now_unix_ms = store_->now_unix_ms_();
  const size_t most = kMendedAtOnce - std::min(kMendedAtOnce, payloads.size());
  for (const Id& id :
       ReturnTickets(&mended, "its lease was gone, or not its own", now_unix_ms, most))
    planned.tickets[id] = {mended.tickets.at(id).index, nullptr, nullptr};
  for (const auto& [id, bytes] : payloads) {
    const uint64_t order = mended.document.row.next_order++;
    mended.tickets[id] = {TicketOfPayload(id, bytes, order, now_unix_ms), 0};
    planned.tickets[id] = {};  // The payload is there.
  }
  CountTickets(&mended);
  ++mended.document.changes;
  if (absl::Status status = Write(&planned); !status.ok()) return status;
  if (!request_.FitsConsul())
    return absl::OutOfRangeError("consul: that is more to mend than a transaction of Consul takes");
  return absl::OkStatus();
}

}  // namespace semaphored::consul
