// LedgerState::CheckInvariants: everything is counted again from the rows.
#include "absl/strings/str_cat.h"
#include "adapters/ledger/state/state.h"

namespace semaphored::ledger {
namespace {

// Each row that has a place is there under its id, and stands where it says.
template <typename Row>
std::string CheckPlaces(const ByPlace<Row>& places, const absl::flat_hash_map<Id, Row>& rows) {
  for (const auto& [place, row] : places) {
    const auto found = rows.find(row->id);
    if (found == rows.end() || found->second != row) return "places and rows differ";
    const QueuePlace own = PlaceOf(*row);
    if (own < place || place < own) return "a row stands at another's place";
  }
  return "";
}

std::string CheckTickets(const Semaphore& semaphore) {
  TicketCounts counts;
  uint64_t payload_bytes = 0;
  for (const auto& [id, ticket] : semaphore.tickets) {
    if (ticket->id != id) return "a ticket is filed under another id";
    ++CountOf(ticket->state, &counts);
    payload_bytes += ticket->payload_bytes;
    if ((ticket->state == TicketState::kDelayed) != (ticket->delay_ms > 0))
      return "a ticket's delay does not fit its state";
    if ((ticket->state == TicketState::kAssigned) == ticket->lease.empty())
      return "a ticket's lease does not fit its state";
    if (ticket->lease.empty()) continue;
    const LeasePtr lease = semaphore.FindLease(ticket->lease);
    if (!lease || lease->ticket != id) return "a ticket is assigned to a lease that is not its own";
    if (lease->attempt != ticket->attempt) return "lease and ticket differ in the attempt";
  }
  if (counts != semaphore.ticket_counts) return "the tickets are counted wrongly";
  if (payload_bytes != semaphore.payload_bytes) return "the payloads' bytes are counted wrongly";
  if (semaphore.eligible.size() != counts.queued) return "a queued ticket is not eligible";
  uint64_t leases = 0;
  for (const auto& [id, lease] : semaphore.leases) leases += lease->ticket.empty() ? 0 : 1;
  if (leases != counts.assigned) return "a lease names a ticket that does not name it";
  return CheckPlaces(semaphore.eligible, semaphore.tickets);
}

std::string CheckSemaphore(const Semaphore& semaphore) {
  uint64_t held = 0;
  absl::flat_hash_map<uint32_t, Id> slots;
  for (const auto& [id, lease] : semaphore.leases) {
    if (lease->id != id) return "a lease is filed under another id";
    if (semaphore.waiters.contains(id)) return "a claim is both lease and waiter";
    if (lease->slots.size() != lease->permits) return "a lease has not as many slots as permits";
    held += lease->permits;
    for (uint32_t slot : lease->slots) {
      if (slot == 0) return "slot 0 is taken";
      if (!slots.try_emplace(slot, id).second)
        return absl::StrCat("slot ", slot, " is taken twice");
      if (semaphore.slots.At(slot) != id) return absl::StrCat("slot ", slot, " is filed wrongly");
    }
  }
  if (held != semaphore.held)
    return absl::StrCat("held is ", semaphore.held, ", the leases say ", held);
  if (semaphore.queue.size() + semaphore.offers.size() != semaphore.waiters.size())
    return "queue, offers and waiters differ in number";
  std::string wrong = CheckPlaces(semaphore.queue, semaphore.waiters);
  if (wrong.empty()) wrong = CheckPlaces(semaphore.offers, semaphore.waiters);
  for (const auto& [place, waiter] : semaphore.queue) {
    if (waiter->works) wrong = "an offer stands in the queue";
  }
  for (const auto& [place, offer] : semaphore.offers) {
    if (!offer->works) wrong = "a waiter stands among the offers";
  }
  return wrong.empty() ? CheckTickets(semaphore) : wrong;
}

bool HeldByIsRight(const Semaphore& semaphore) {
  absl::flat_hash_map<std::string, uint32_t> held_by;
  for (const auto& [id, lease] : semaphore.leases) held_by[lease->holder] += lease->permits;
  if (semaphore.row.settings.permits_per_holder == 0) held_by.clear();
  return held_by == semaphore.held_by;
}

// Recounted: each holder's first, and whether it is let through.
std::string CheckTurns(const Semaphore& semaphore, const Queue& all, const Turns& turns) {
  std::map<std::string, Queue> lines;
  for (const auto& [place, waiter] : all) {
    if (semaphore.capped() && !waiter->foreign) lines[waiter->holder][place] = waiter;
  }
  if (lines.size() != turns.of_holder.size()) return "the turns of the holders are filed wrongly";
  size_t ready = 0;
  for (const auto& [holder, line] : lines) {
    const auto found = turns.of_holder.find(holder);
    if (found == turns.of_holder.end() || found->second.size() != line.size())
      return "a holder's turns are filed wrongly";
    const auto held = semaphore.held_by.find(holder);
    const WaiterPtr& first = line.begin()->second;
    const uint64_t with = (held == semaphore.held_by.end() ? 0 : held->second) + first->permits;
    if (with > semaphore.row.settings.permits_per_holder) continue;
    ++ready;
    const auto turn = turns.ready.find(line.begin()->first);
    if (turn == turns.ready.end() || turn->second != first) return "a turn is missing";
  }
  return ready == turns.ready.size() ? "" : "a turn is too many";
}

}  // namespace

std::string LedgerState::CheckOwners() const {
  LedgerState counted({.book = nullptr, .lane = counting_.lane, .lanes = counting_.lanes});
  for (const auto& [name, semaphore] : semaphores_) {
    counted.CountSemaphore(semaphore->row, true);
    for (const auto& [id, ticket] : semaphore->tickets)
      counted.CountTicket(*semaphore, *ticket, true);
  }
  return counted.of_owner_ == of_owner_ ? "" : "what the owners have is counted wrongly";
}

std::string LedgerState::CheckIndexes() const {
  absl::flat_hash_map<Id, absl::flat_hash_map<Id, Semaphore*>> claims_of;
  absl::flat_hash_map<RequestKey, std::pair<Semaphore*, Id>> waiting;
  absl::flat_hash_map<RequestKey, std::pair<Semaphore*, Id>> granted;
  absl::flat_hash_map<uint32_t, size_t> claims_of_client;
  for (const auto& [name, semaphore] : semaphores_) {
    const auto count = [&, at = semaphore.get()](const Claim& claim) {
      if (!claim.detached() && !claim.session.empty()) claims_of[claim.session][claim.id] = at;
      if (claim.request.remembered()) ++claims_of_client[claim.request.client];
    };
    for (const auto& [id, lease] : semaphore->leases) {
      count(*lease);
      const RequestKey& request = lease->request;
      if (request.remembered()) granted[request] = {semaphore.get(), id};
    }
    for (const auto& [id, waiter] : semaphore->waiters) {
      count(*waiter);
      const RequestKey& request = waiter->request;
      if (request.remembered()) {
        waiting[request] = {semaphore.get(), id};
      }
    }
    if (!HeldByIsRight(*semaphore)) return absl::StrCat(name, ": permits by holder are wrong");
    std::string wrong = CheckTurns(*semaphore, semaphore->queue, semaphore->queue_turns);
    if (wrong.empty()) wrong = CheckTurns(*semaphore, semaphore->offers, semaphore->offer_turns);
    if (!wrong.empty()) return absl::StrCat(name, ": ", wrong);
  }
  if (claims_of != claims_of_) return "the sessions' claims are filed wrongly";
  if (waiting != waiting_) return "the waiting requests are filed wrongly";
  if (granted != granted_) return "the granted requests are filed wrongly";
  if (claims_of_client != claims_of_client_) return "the clients' claims are counted wrongly";
  return "";
}

std::string LedgerState::CheckInvariants() const {
  size_t leases = 0;
  size_t waiters = 0;
  size_t tickets = 0;
  uint64_t payload_bytes = 0;
  for (const auto& [name, semaphore] : semaphores_) {
    if (semaphore->row.name != name) return absl::StrCat(name, ": filed under another name");
    const std::string wrong = CheckSemaphore(*semaphore);
    if (!wrong.empty()) return absl::StrCat(name, ": ", wrong);
    leases += semaphore->leases.size();
    waiters += semaphore->waiters.size();
    tickets += semaphore->tickets.size();
    payload_bytes += semaphore->payload_bytes;
  }
  if (by_name_.size() != semaphores_.size()) return "names are filed wrongly";
  if (leases != lease_count_) return "lease_count is wrong";
  if (waiters != waiter_count_) return "waiter_count is wrong";
  if (tickets != ticket_count_) return "ticket_count is wrong";
  if (std::string wrong = CheckOwners(); !wrong.empty()) return wrong;
  if (payload_bytes != payload_bytes_) return "payload_bytes is wrong";
  return CheckIndexes();
}

}  // namespace semaphored::ledger
