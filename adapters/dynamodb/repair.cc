// Of the store: what was changed by hand in a semaphore's partition is counted again.
#include <optional>
#include <vector>

#include "adapters/common/random.h"
#include "adapters/dynamodb/store.h"
#include "adapters/dynamodb/table.h"

namespace semaphored::dynamodb {
namespace {

constexpr size_t kPutBackAtOnce = 90;

// Tickets that no worker has any more: their leases were deleted by hand.
std::vector<Ticket> StuckTickets(const Folder& folder) {
  absl::flat_hash_set<Id> held;
  for (const LeasePtr& lease : folder.leases) {
    if (!lease->ticket.empty()) held.insert(lease->id);
  }
  std::vector<Ticket> stuck;
  for (const TicketPtr& ticket : folder.tickets) {
    if (ticket->state == TicketState::kAssigned && !held.contains(ticket->lease))
      stuck.push_back(*ticket);
  }
  return stuck;
}

}  // namespace

absl::StatusOr<std::optional<ledger::Pruned>> DynamoStore::Repair(const std::string& name) {
  const absl::StatusOr<std::vector<Folder>> read = folders_.Read({name});
  if (!read.ok()) return read.status();
  const Folder& folder = read->front();
  std::vector<Ticket> stuck = StuckTickets(folder);
  if (!folder.exists || (folder.is_moment && stuck.empty())) return std::optional<ledger::Pruned>();
  // What stands there counts from now on.
  Head head = folder.head;
  head.digest = 0;
  for (const LeasePtr& lease : folder.leases) head.digest ^= DigestOf(*lease, lease->token);
  for (const WaiterPtr& waiter : folder.waiters) head.digest ^= DigestOf(*waiter);
  for (const TicketPtr& ticket : folder.tickets) head.digest ^= DigestOf(*ticket);
  head.counts = ledger::CountsOf(folder.leases, folder.waiters, folder.tickets);
  size_t put_back = 0;
  do {
    TransactionRequest request(table_);
    const uint64_t before = head.row.revision++;
    for (size_t i = 0; i < kPutBackAtOnce && put_back < stuck.size(); ++i, ++put_back) {
      Ticket& ticket = stuck[put_back];
      head.digest ^= DigestOf(ticket);
      ticket.state = TicketState::kQueued;
      ticket.lease = {};
      head.digest ^= DigestOf(ticket);
      --head.counts.tickets.assigned;
      ++head.counts.tickets.queued;
      request.Put(WriteTicket(TicketKey(name, ticket), ticket));
    }
    request.Put(WriteHead(head), Condition::Is("revision", before));
    const Reply reply = client_.Repeat(request.ToRequest(RandomToken()), Deadline());
    // Others were first: what is left to do is found by the next.
    if (ReadCancelled(reply)) break;
    if (!reply.answered()) return reply.status;
  } while (put_back < stuck.size());
  std::optional<ledger::Pruned> pruned(std::in_place);
  pruned->message = "items had been changed by hand; what stands there now was counted again";
  return pruned;
}

}  // namespace semaphored::dynamodb
