#include "adapters/ledger/state/state.h"

#include <algorithm>

#include "adapters/commands.h"

namespace semaphored::ledger {

// ---- Semaphore ----

LeasePtr Semaphore::FindLease(const Id& id) const {
  const auto found = leases.find(id);
  return found == leases.end() ? nullptr : found->second;
}

WaiterPtr Semaphore::FindWaiter(const Id& id) const {
  const auto found = waiters.find(id);
  return found == waiters.end() ? nullptr : found->second;
}

TicketPtr Semaphore::FindTicket(const Id& id) const {
  const auto found = tickets.find(id);
  return found == tickets.end() ? nullptr : found->second;
}

bool Semaphore::AtCap(const std::string& holder, uint32_t permits) const {
  if (!capped()) return false;
  const auto held = held_by.find(holder);
  const uint64_t has = held == held_by.end() ? 0 : held->second;
  return has + permits > row.settings.permits_per_holder;
}

uint64_t Semaphore::PositionOf(const Waiter& waiter) const {
  const QueuePlace place = PlaceOf(waiter);
  if (waiter.works) return offers.order_of_key(place) + 1;
  const uint64_t taken_before =
      offers.empty() ? 0 : std::min<uint64_t>(eligible.order_of_key(place), offers.size());
  return queue.order_of_key(place) + taken_before + 1;
}

uint64_t Semaphore::PositionOf(const Ticket& ticket) const {
  if (ticket.state != TicketState::kQueued) return 0;
  const QueuePlace place = PlaceOf(ticket);
  return queue.order_of_key(place) + eligible.order_of_key(place) + 1;
}

uint64_t& CountOf(TicketState state, TicketCounts* counts) {
  switch (state) {
    case TicketState::kQueued:
      return counts->queued;
    case TicketState::kDelayed:
      return counts->delayed;
    case TicketState::kAssigned:
      return counts->assigned;
    case TicketState::kDead:
      break;
  }
  return counts->dead;
}

SemaphoreCounts CountsOf(const Semaphore& semaphore) {
  return {semaphore.held + semaphore.held_elsewhere, semaphore.queue.size(),
          semaphore.offers.size(), semaphore.ticket_counts};
}

// ---- LedgerState: looking ----

LedgerState::LedgerState(OwnerCounting counting) : counting_(std::move(counting)) {}
LedgerState::~LedgerState() = default;

Semaphore* LedgerState::Find(std::string_view name) {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

const Semaphore* LedgerState::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

const SessionPtr& LedgerState::FindSession(const Id& id) const {
  static const SessionPtr kNone;
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? kNone : found->second;
}

const absl::flat_hash_map<Id, Semaphore*>& LedgerState::ClaimsOf(const Id& session) const {
  static const absl::flat_hash_map<Id, Semaphore*> kNone;
  const auto found = claims_of_.find(session);
  return found == claims_of_.end() ? kNone : found->second;
}

std::pair<Semaphore*, WaiterPtr> LedgerState::FindWaiting(const RequestKey& request) const {
  const auto found = waiting_.find(request);
  if (found == waiting_.end()) return {nullptr, nullptr};
  return {found->second.first, found->second.first->FindWaiter(found->second.second)};
}

std::pair<Semaphore*, LeasePtr> LedgerState::FindGranted(const RequestKey& request) const {
  const auto found = granted_.find(request);
  if (found == granted_.end()) return {nullptr, nullptr};
  return {found->second.first, found->second.first->FindLease(found->second.second)};
}

size_t LedgerState::ClaimCountOf(uint32_t client) const {
  const auto found = claims_of_client_.find(client);
  return found == claims_of_client_.end() ? 0 : found->second;
}

// ---- LedgerState: changing ----

Semaphore* LedgerState::Insert(SemaphoreRow row) {
  auto [at, inserted] = semaphores_.try_emplace(row.name);
  if (inserted) {
    at->second = std::make_unique<Semaphore>();
    by_name_[at->first] = at->second.get();
  } else {
    CountSemaphore(at->second->row, false);
  }
  at->second->row = std::move(row);
  CountSemaphore(at->second->row, true);
  return at->second.get();
}

void LedgerState::Erase(std::string_view name) {
  const auto found = semaphores_.find(name);
  if (found == semaphores_.end()) return;
  ticket_count_ -= found->second->tickets.size();
  for (const auto& [id, ticket] : found->second->tickets)
    CountTicket(*found->second, *ticket, false);
  CountSemaphore(found->second->row, false);
  payload_bytes_ -= found->second->payload_bytes;
  by_name_.erase(found->first);
  semaphores_.erase(found);
}

void LedgerState::SetRow(Semaphore* semaphore, const SemaphoreRow& row) {
  const bool cap_changed =
      semaphore->row.settings.permits_per_holder != row.settings.permits_per_holder;
  const bool owner_changed = semaphore->row.owner != row.owner;
  if (owner_changed) CountSemaphore(semaphore->row, false);
  semaphore->row = row;
  if (owner_changed) CountSemaphore(semaphore->row, true);
  if (cap_changed) RebuildCap(semaphore);
}

OwnerUsage LedgerState::UsageOf(const std::string& owner) const {
  if (counting_.book != nullptr) return counting_.book->Of(owner);
  const auto found = of_owner_.find(owner);
  return found == of_owner_.end() ? OwnerUsage() : found->second;
}

void LedgerState::CountSemaphore(const SemaphoreRow& row, bool comes) {
  Count(row.name, row.owner, {.semaphores = 1}, comes);
}

void LedgerState::CountTicket(const Semaphore& semaphore, const Ticket& ticket, bool comes) {
  Count(semaphore.row.name, ticket.owner, {.tickets = 1, .ticket_bytes = ticket.payload_bytes},
        comes);
}

void LedgerState::Count(const std::string& semaphore, const std::string& owner,
                        const OwnerUsage& usage, bool comes) {
  if (owner.empty() || LaneOf(semaphore, counting_.lanes) != counting_.lane) return;
  CountUsage(owner, usage, comes, &of_owner_);
  if (counting_.book != nullptr) counting_.book->Count(owner, usage, comes);
}

void LedgerState::RebuildCap(Semaphore* semaphore) {
  semaphore->held_by.clear();
  semaphore->queue_turns = {};
  semaphore->offer_turns = {};
  if (!semaphore->capped()) return;
  for (const auto& [id, lease] : semaphore->leases)
    semaphore->held_by[lease->holder] += lease->permits;
  for (const auto& [id, waiter] : semaphore->waiters) AddTurn(semaphore, waiter);
}

namespace {

// After anything that concerns the holder has changed.
void UpdateTurn(const Semaphore& semaphore, const std::string& holder, Turns* turns) {
  if (const auto known = turns->ready_of.find(holder); known != turns->ready_of.end()) {
    turns->ready.erase(known->second);
    turns->ready_of.erase(known);
  }
  const auto line = turns->of_holder.find(holder);
  if (line == turns->of_holder.end()) return;
  const auto& [place, first] = *line->second.begin();
  if (semaphore.AtCap(holder, first->permits)) return;
  turns->ready[place] = first;
  turns->ready_of[holder] = place;
}

}  // namespace

void LedgerState::AddTurn(Semaphore* semaphore, const WaiterPtr& waiter) {
  if (!semaphore->capped() || waiter->foreign) return;
  Turns* turns = waiter->works ? &semaphore->offer_turns : &semaphore->queue_turns;
  turns->of_holder[waiter->holder][PlaceOf(*waiter)] = waiter;
  UpdateTurn(*semaphore, waiter->holder, turns);
}

void LedgerState::RemoveTurn(Semaphore* semaphore, const Waiter& waiter) {
  if (!semaphore->capped() || waiter.foreign) return;
  Turns* turns = waiter.works ? &semaphore->offer_turns : &semaphore->queue_turns;
  const auto line = turns->of_holder.find(waiter.holder);
  line->second.erase(PlaceOf(waiter));
  if (line->second.empty()) turns->of_holder.erase(line);
  UpdateTurn(*semaphore, waiter.holder, turns);
}

void LedgerState::CountHeld(Semaphore* semaphore, const std::string& holder, int64_t permits) {
  if (!semaphore->capped() || permits == 0) return;
  uint32_t& held = semaphore->held_by[holder];
  held = static_cast<uint32_t>(held + permits);
  if (held == 0) semaphore->held_by.erase(holder);
  UpdateTurn(*semaphore, holder, &semaphore->queue_turns);
  UpdateTurn(*semaphore, holder, &semaphore->offer_turns);
}

void LedgerState::Index(const Claim& claim, Semaphore* semaphore) {
  if (!claim.detached() && !claim.session.empty()) claims_of_[claim.session][claim.id] = semaphore;
  if (claim.request.remembered()) ++claims_of_client_[claim.request.client];
}

void LedgerState::Unindex(const Claim& claim) {
  if (!claim.detached() && !claim.session.empty()) {
    const auto found = claims_of_.find(claim.session);
    if (found != claims_of_.end()) {
      found->second.erase(claim.id);
      if (found->second.empty()) claims_of_.erase(found);
    }
  }
  if (claim.request.remembered()) {
    const auto found = claims_of_client_.find(claim.request.client);
    if (found != claims_of_client_.end() && --found->second == 0) claims_of_client_.erase(found);
  }
}

namespace {

// Frees what the change gives up and takes what it adds; a lease of a million slots that gives one
// back costs one.
void MoveSlots(const LeaseChange& change, SlotMap* slots) {
  const bool same = change.before && change.after && change.before->id == change.after->id;
  if (same && change.before->slots == change.after->slots) return;
  if (same) {
    slots->Free(change.before->slots.Without(change.after->slots), change.before->id);
    slots->Take(change.after->slots.Without(change.before->slots), change.after->id);
    return;
  }
  if (change.before) slots->Free(change.before->slots, change.before->id);
  if (change.after) slots->Take(change.after->slots, change.after->id);
}

}  // namespace

void LedgerState::Apply(Semaphore* semaphore, const LeaseChange& change) {
  MoveSlots(change, &semaphore->slots);
  if (change.before) {
    const Lease& lease = *change.before;
    semaphore->leases.erase(lease.id);
    if (lease.listed_slot != 0) semaphore->listed_apart.erase(ListPlaceOf(lease));
    semaphore->held -= lease.permits;
    --lease_count_;
    if (lease.request.remembered()) {
      const auto granted = granted_.find(lease.request);
      if (granted != granted_.end() && granted->second.second == lease.id) granted_.erase(granted);
    }
    Unindex(lease);
  }
  if (change.after) {
    const Lease& lease = *change.after;
    semaphore->leases[lease.id] = change.after;
    if (lease.listed_slot != 0) semaphore->listed_apart[ListPlaceOf(lease)] = change.after;
    semaphore->held += lease.permits;
    ++lease_count_;
    if (lease.request.remembered()) granted_[lease.request] = {semaphore, lease.id};
    Index(lease, semaphore);
  }
  // (A holder's text never changes.)
  if (change.before) CountHeld(semaphore, change.before->holder, -int64_t{change.before->permits});
  if (change.after) CountHeld(semaphore, change.after->holder, change.after->permits);
}

void LedgerState::Apply(Semaphore* semaphore, const WaiterChange& change) {
  if (change.before) {
    const Waiter& waiter = *change.before;
    RemoveTurn(semaphore, waiter);
    (waiter.works ? semaphore->offers : semaphore->queue).erase(PlaceOf(waiter));
    if (waiter.foreign) semaphore->foreign.erase(PlaceOf(waiter));
    semaphore->waiters.erase(waiter.id);
    --waiter_count_;
    if (waiter.request.remembered()) {
      // The id may stand for a later wait by now, of which this lane has heard first.
      const auto waiting = waiting_.find(waiter.request);
      if (waiting != waiting_.end() && waiting->second.second == waiter.id) waiting_.erase(waiting);
    }
    Unindex(waiter);
  }
  if (change.after) {
    const Waiter& waiter = *change.after;
    (waiter.works ? semaphore->offers : semaphore->queue)[PlaceOf(waiter)] = change.after;
    if (waiter.foreign) semaphore->foreign[PlaceOf(waiter)] = change.after;
    AddTurn(semaphore, change.after);
    semaphore->waiters[waiter.id] = change.after;
    ++waiter_count_;
    if (waiter.request.remembered()) {
      waiting_[waiter.request] = {semaphore, waiter.id};
    }
    Index(waiter, semaphore);
  }
}

void LedgerState::Apply(Semaphore* semaphore, const TicketChange& change) {
  if (change.before) {
    const Ticket& ticket = *change.before;
    if (ticket.state == TicketState::kQueued) semaphore->eligible.erase(PlaceOf(ticket));
    --CountOf(ticket.state, &semaphore->ticket_counts);
    if (!change.after) semaphore->tickets.erase(ticket.id);
    --ticket_count_;
    CountTicket(*semaphore, ticket, false);
    semaphore->payload_bytes -= ticket.payload_bytes;
    payload_bytes_ -= ticket.payload_bytes;
  }
  if (change.after) {
    const Ticket& ticket = *change.after;
    if (ticket.state == TicketState::kQueued) semaphore->eligible[PlaceOf(ticket)] = change.after;
    ++CountOf(ticket.state, &semaphore->ticket_counts);
    semaphore->tickets[ticket.id] = change.after;
    ++ticket_count_;
    CountTicket(*semaphore, ticket, true);
    semaphore->payload_bytes += ticket.payload_bytes;
    payload_bytes_ += ticket.payload_bytes;
  }
}

void LedgerState::Apply(const SessionChange& change) {
  if (change.after) {
    sessions_[change.after->id] = change.after;
  } else if (change.before) {
    sessions_.erase(change.before->id);
  }
}

}  // namespace semaphored::ledger
