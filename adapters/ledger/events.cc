#include "adapters/ledger/events.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "adapters/ledger/rules/rules.h"

namespace semaphored::ledger {
namespace {

absl::flat_hash_set<Id> GrantedWaiters(const SemaphoreDelta& delta) {
  absl::flat_hash_set<Id> granted;
  for (const WaiterChange& change : delta.waiters) {
    if (!change.after && change.cause == EndCause::kNone) granted.insert(change.before->id);
  }
  return granted;
}

// Moved away from where it was, and not to `self`, who knows of it from the outcome.
bool MovedAway(const NodeRef& before, const NodeRef& after, const NodeRef& self) {
  return before != after && after != self;
}

void AppendMove(const Claim& before, const Claim& after, const NodeRef& self,
                std::string_view semaphore, std::vector<Event>* events) {
  const bool leaves_session = before.session != after.session;
  if (!leaves_session && !MovedAway(before.host, after.host, self)) return;
  Event& event = events->emplace_back();
  event.kind = Event::Kind::kMoved;
  event.claim = after.id;
  event.semaphore = semaphore;
  event.epoch = after.epoch;
  if (leaves_session) event.session = before.session;
}

void AppendLeaseEvent(const LeaseChange& change, const absl::flat_hash_set<Id>& granted,
                      const NodeRef& self, std::string_view semaphore, std::vector<Event>* events) {
  if (!change.before) {
    if (granted.contains(change.after->id)) {
      events->push_back(
          {Event::Kind::kGranted, EndCause::kNone, change.after->id, semaphore, change.after});
    }
    return;
  }
  if (!change.after) {
    events->push_back(
        {Event::Kind::kEnded, change.cause, change.before->id, semaphore, change.before});
    return;
  }
  if (change.after->recall.pending() && change.after->recall != change.before->recall) {
    events->push_back(
        {Event::Kind::kRecalled, EndCause::kNone, change.after->id, semaphore, change.after});
  }
  const size_t known = events->size();
  AppendMove(*change.before, *change.after, self, semaphore, events);
  if (events->size() > known) events->back().lease = change.after;
}

// A delay has begun, and `self` is to count it.
bool DelayBegins(const TicketChange& change, const NodeRef& self) {
  return change.after && change.after->state == TicketState::kDelayed &&
         change.after->host == self &&
         (!change.before || change.before->delays != change.after->delays);
}

SemaphoreChange::Kind KindOf(const LeaseChange& change) {
  if (!change.before) return SemaphoreChange::Kind::kGranted;
  if (!change.after) return SemaphoreChange::Kind::kEnded;
  return change.after->recall != change.before->recall ? SemaphoreChange::Kind::kRecalled
                                                       : SemaphoreChange::Kind::kChanged;
}

bool SameLease(const Lease& a, const Lease& b) {
  return a.slots == b.slots && a.token == b.token && a.host == b.host && a.epoch == b.epoch &&
         a.session == b.session && a.moved_from == b.moved_from && a.recall == b.recall &&
         a.permits == b.permits && a.ticket == b.ticket && a.attempt == b.attempt;
}

void CompareTickets(const Semaphore& semaphore, const LoadedSemaphore* loaded,
                    SemaphoreDelta* delta) {
  absl::flat_hash_map<Id, TicketPtr> tickets;
  if (loaded != nullptr) {
    for (const TicketPtr& ticket : loaded->tickets) tickets[ticket->id] = ticket;
  }
  for (const auto& [id, ticket] : semaphore.tickets) {
    const auto found = tickets.find(id);
    if (found == tickets.end()) {
      delta->tickets.push_back({ticket, nullptr, nullptr});
      continue;
    }
    // A store may give back the same ones.
    if (found->second != ticket && *found->second != *ticket)
      delta->tickets.push_back({ticket, found->second, nullptr});
    tickets.erase(found);
  }
  for (auto& [id, ticket] : tickets) delta->tickets.push_back({nullptr, ticket, nullptr});
}

}  // namespace

void AppendEvents(const Transaction& transaction, std::vector<Event>* events) {
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    const absl::flat_hash_set<Id> granted =
        delta.waiters.empty() ? absl::flat_hash_set<Id>() : GrantedWaiters(delta);
    for (const LeaseChange& change : delta.leases)
      AppendLeaseEvent(change, granted, transaction.node, delta.name, events);
    for (const WaiterChange& change : delta.waiters) {
      if (change.before && !change.after && change.cause != EndCause::kNone) {
        events->push_back(
            {Event::Kind::kWaitEnded, change.cause, change.before->id, delta.name, nullptr});
        events->back().session = change.before->session;
      }
      if (change.before && change.after)
        AppendMove(*change.before, *change.after, transaction.node, delta.name, events);
    }
  }
  for (const SessionChange& change : transaction.sessions) {
    if (change.before && change.after &&
        MovedAway(change.before->host, change.after->host, transaction.node)) {
      events->push_back({Event::Kind::kMoved,
                         EndCause::kNone,
                         change.after->id,
                         {},
                         nullptr,
                         change.after->epoch});
    }
  }
}

void AppendDelays(const Transaction& transaction, std::vector<DelayedTicket>* delayed) {
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    for (const TicketChange& change : delta.tickets) {
      if (DelayBegins(change, transaction.node)) delayed->push_back({delta.name, change.after});
    }
  }
}

void AppendChanges(const Transaction& transaction, const LedgerState& state,
                   const WatchedNames& watched, std::vector<SemaphoreChange>* changes) {
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    if (!watched.Matches(delta.name)) continue;
    SemaphoreChange base;
    if (const Semaphore* semaphore = state.Find(delta.name)) {
      base.info = Describe(*semaphore);
    } else {
      base.info.row.name = delta.name;
    }
    const auto append = [&](SemaphoreChange::Kind kind) -> SemaphoreChange& {
      changes->push_back(base);
      changes->back().kind = kind;
      return changes->back();
    };
    if (!delta.before && delta.after) append(SemaphoreChange::Kind::kCreated);
    for (const WaiterChange& change : delta.waiters) {
      if (!change.before) append(SemaphoreChange::Kind::kQueued).waiter = change.after;
      if (change.before && !change.after && change.cause != EndCause::kNone) {
        SemaphoreChange& ended = append(SemaphoreChange::Kind::kWaitEnded);
        ended.waiter = change.before;
        ended.cause = change.cause;
      }
    }
    for (const LeaseChange& change : delta.leases) {
      SemaphoreChange& changed = append(KindOf(change));
      changed.lease = change.after ? change.after : change.before;
      changed.cause = change.cause;
    }
    if (delta.before && delta.after) {
      SemaphoreRow before = *delta.before;
      before.next_order = delta.after->next_order;
      before.revision = delta.after->revision;
      if (before != *delta.after || !delta.tickets.empty()) append(SemaphoreChange::Kind::kChanged);
    }
    if (delta.before && !delta.after) append(SemaphoreChange::Kind::kDestroyed);
  }
}

SemaphoreDelta ReplaceWith(const LoadedSemaphore* loaded, const std::string& name,
                           LedgerState* state) {
  SemaphoreDelta delta;
  delta.name = name;
  Semaphore* semaphore = state->Find(name);
  if (semaphore != nullptr) delta.before = semaphore->row;
  if (semaphore == nullptr && loaded == nullptr) return delta;
  if (semaphore == nullptr) semaphore = state->Insert(loaded->row);

  CompareTickets(*semaphore, loaded, &delta);
  absl::flat_hash_map<Id, LeasePtr> leases;
  absl::flat_hash_map<Id, WaiterPtr> waiters;
  if (loaded != nullptr) {
    for (const LeasePtr& lease : loaded->leases) leases[lease->id] = lease;
    for (const WaiterPtr& waiter : loaded->waiters) waiters[waiter->id] = waiter;
  }
  for (const auto& [id, waiter] : semaphore->waiters) {
    const auto found = waiters.find(id);
    const EndCause cause = leases.contains(id) ? EndCause::kNone : EndCause::kUnknown;
    if (found == waiters.end()) delta.waiters.push_back({waiter, nullptr, cause});
    if (found != waiters.end()) delta.waiters.push_back({waiter, found->second, EndCause::kNone});
  }
  for (const auto& [id, waiter] : waiters) {
    if (!semaphore->FindWaiter(id)) delta.waiters.push_back({nullptr, waiter, EndCause::kNone});
  }
  for (const auto& [id, lease] : semaphore->leases) {
    if (!leases.contains(id)) delta.leases.push_back({lease, nullptr, EndCause::kUnknown});
  }
  for (const auto& [id, lease] : leases) {
    const LeasePtr before = semaphore->FindLease(id);
    if (!before || !SameLease(*before, *lease))
      delta.leases.push_back({before, lease, EndCause::kNone});
  }
  ApplyAtOnce(delta, semaphore, state);
  if (loaded == nullptr) {
    state->Erase(name);
  } else {
    state->SetRow(semaphore, loaded->row);
    delta.after = loaded->row;
  }
  return delta;
}

}  // namespace semaphored::ledger
