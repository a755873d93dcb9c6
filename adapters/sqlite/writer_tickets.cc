// What a commit does to tickets, each written once however often it changed, and their payloads.
#include "absl/strings/str_cat.h"
#include "adapters/sqlite/record.h"
#include "adapters/sqlite/writer.h"

namespace semaphored::sqlite {

using ledger::TicketChange;

absl::Status SqliteStore::Writer::WriteTickets(uint32_t semaphore,
                                               const std::vector<TicketChange>& changes) {
  if (changes.empty()) return absl::OkStatus();
  tickets_pending_.clear();
  tickets_pending_at_.clear();
  for (const TicketChange& change : changes) {
    const Id& id = change.before ? change.before->id : change.after->id;
    const auto [at, is_first] = tickets_pending_at_.try_emplace(id, tickets_pending_.size());
    if (is_first) tickets_pending_.push_back({change.before.get(), nullptr, nullptr});
    PendingTicket& pending = tickets_pending_[at->second];
    pending.after = change.after.get();
    if (change.payload) pending.payload = change.payload.get();
  }
  for (const PendingTicket& pending : tickets_pending_) {
    absl::Status status = pending.before == nullptr ? AddTicket(semaphore, pending)
                                                    : ChangeTicket(semaphore, pending);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status SqliteStore::Writer::AddTicket(uint32_t semaphore, const PendingTicket& pending) {
  if (pending.after == nullptr) return absl::OkStatus();  // It has come and gone.
  if (index_.tickets.contains(pending.after->id))
    return Lost("", absl::StrCat("ticket ", pending.after->id.Hex(), " is there"));
  const int64_t key = counters_.next_ticket++;
  bytes_.clear();
  WriteTicket(static_cast<uint64_t>(key), semaphore, *pending.after, &bytes_);
  statements_.add_ticket.Bind(1, key).BindBlob(2, bytes_);
  if (absl::Status status = Run(statements_.add_ticket, "add a ticket"); !status.ok())
    return status;
  bytes_.clear();
  WritePayload(static_cast<uint64_t>(key),
               pending.payload == nullptr ? std::string_view() : *pending.payload, &bytes_);
  statements_.add_payload.Bind(1, key).BindBlob(2, bytes_);
  tickets_added_.emplace_back(pending.after->id, key);
  return Run(statements_.add_payload, "add a payload");
}

absl::Status SqliteStore::Writer::ChangeTicket(uint32_t semaphore, const PendingTicket& pending) {
  const auto known = index_.tickets.find(pending.before->id);
  if (known == index_.tickets.end())
    return Lost("", absl::StrCat("ticket ", pending.before->id.Hex(), " is not there"));
  const int64_t key = known->second;
  if (pending.after != nullptr) {
    bytes_.clear();
    WriteTicket(static_cast<uint64_t>(key), semaphore, *pending.after, &bytes_);
    statements_.set_ticket.BindBlob(1, bytes_).Bind(2, key);
    return RunOnOne(statements_.set_ticket, "change a ticket");
  }
  tickets_removed_.push_back(pending.before->id);
  statements_.remove_ticket.Bind(1, key);
  absl::Status status = RunOnOne(statements_.remove_ticket, "remove a ticket");
  if (!status.ok()) return status;
  statements_.remove_payload.Bind(1, key);
  return RunOnOne(statements_.remove_payload, "remove a payload");
}

}  // namespace semaphored::sqlite
