#include "tests/simulation/ticket_checks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/rules/intentions.h"
#include "adapters/ledger/state/state.h"
#include "tests/simulation/moment.h"

namespace semaphored::simulation {

using ledger::LeaseChange;
using ledger::SemaphoreDelta;
using ledger::TicketChange;
using Result = FinishCommand::Result;

namespace {

// How long after the last disturbance everything must have found its way.
constexpr int64_t kTicketBoundUs = 30 * kSecond;
// An assignment is pushed, or told again when the stream is resumed.
constexpr int64_t kAssignedWithinUs = 12 * kSecond;

std::string Brief(const Id& id) { return id.Hex().substr(0, 6); }

bool WasLast(const Ticket& ticket) {
  return ticket.max_attempts != 0 && ticket.attempt >= ticket.max_attempts;
}

template <typename Act>
const Act* FindAct(const std::vector<const AdminCommand*>& acts) {
  for (const AdminCommand* command : acts) {
    if (const auto* act = std::get_if<Act>(&command->act)) return act;
  }
  return nullptr;
}

// Whether such an act was about this ticket, or, if it may, about all.
template <typename Act>
bool ActedOn(const std::vector<const AdminCommand*>& acts, const Id& ticket) {
  return std::ranges::any_of(acts, [&](const AdminCommand* command) {
    const auto* act = std::get_if<Act>(&command->act);
    return act != nullptr && (act->ticket == ticket || act->ticket.empty());
  });
}

}  // namespace

bool TicketChecks::Causes::destroyed() const {
  return goes_on_destroying || FindAct<AdminDestroy>(acts) != nullptr;
}

// ---- what clients report ----

std::string TicketChecks::PayloadOf(const std::string& client_id, uint64_t sequence) {
  return absl::StrCat(client_id, "/", sequence);
}

void TicketChecks::Enqueues(const std::string& client_id, const EnqueueCommand& command) {
  asked_[{client_id, command.requester.sequence}] = command;
}

void TicketChecks::WasEnqueued(const std::string& client_id, uint64_t sequence, const Id& ticket) {
  const auto found = tickets_of_.find({client_id, sequence});
  if (found == tickets_of_.end() || !found->second.contains(ticket)) {
    Fail(absl::StrCat(client_id, " was told that its request ", sequence, " is ticket ",
                      Brief(ticket), ", which the engine has not taken in for it"));
  }
}

void TicketChecks::Administers(const std::string& client_id, const AdminCommand& command) {
  acts_[{client_id, command.requester.sequence}] = command;
}

void TicketChecks::WasAssigned(const std::string& client_id, const Told& told) {
  const auto found = attempts_.find(told.claim);
  if (found == attempts_.end() || found->second.holder != client_id ||
      found->second.ticket != told.ticket || found->second.token != told.token) {
    Fail(absl::StrCat(client_id, " was told of ticket ", Brief(told.ticket),
                      " under a lease that is not its own, or another's, or with another token"));
  }
  found->second.told = true;
  const Known& ticket = tickets_.at(told.ticket);
  if (told.semaphore != ticket.semaphore) {
    Fail(absl::StrCat(client_id, " was given ticket ", Brief(told.ticket), " of ", ticket.semaphore,
                      " as one of '", told.semaphore, "'"));
  }
  const Request& request = ticket.request;
  if (told.payload != PayloadOf(request.first, request.second)) {
    Fail(absl::StrCat(client_id, " was given ticket ", Brief(told.ticket), " with the payload '",
                      told.payload, "'"));
  }
}

// The target does what docs/tickets.md asks of it: it turns lower tokens away and remembers
// tickets. A worker that counts on its lease must not be turned away for its token.
bool TicketChecks::TakesEffect(const std::string& client_id, const Told& told) {
  for (const uint32_t slot : told.slots) {
    uint64_t& highest = target_[{told.semaphore, slot}];
    const StoredSemaphore* semaphore = engine_->Find(told.semaphore);
    if (told.token < highest && semaphore != nullptr && semaphore->leases.contains(told.claim)) {
      Fail(absl::StrCat(client_id, " has ticket ", Brief(told.ticket), " under token ", told.token,
                        ", but its target has seen ", highest));
    }
    if (told.token < highest) return false;
    highest = told.token;
  }
  if (!effects_.insert({told.ticket, told.token}).second) {
    Fail(absl::StrCat("ticket ", Brief(told.ticket), " was done twice under token ", told.token));
  }
  return in_effect_.insert(told.ticket).second;
}

void TicketChecks::Says(const Id& claim, Result result) {
  Attempt& attempt = attempts_.at(claim);
  attempt.said = true;
  attempt.result = result;
}

// ---- what lands ----

TicketChecks::Causes TicketChecks::CausesOf(const ledger::Transaction& transaction,
                                            const SemaphoreDelta& delta) const {
  Causes causes;
  causes.goes_on_destroying = delta.before && delta.before->destroying;
  for (const LeaseChange& change : delta.leases) {
    if (!change.before) causes.granted[change.after->id] = change.after.get();
    if (!change.after) causes.ended[change.before->id] = change.cause;
  }
  std::set<Id> enqueued;
  for (const TicketChange& change : delta.tickets) {
    if (!change.before) enqueued.insert(change.after->id);
  }
  for (const ledger::RequestChange& change : transaction.requests) {
    const ledger::RequestRow& row = change.row;
    if (row.state != ledger::RequestRow::State::kDone || row.semaphore != delta.name) continue;
    const Request request{engine_->NameOf(row.request.client), row.request.sequence};
    if (enqueued.contains(row.claim)) causes.enqueued[row.claim] = request;
    // A worker never gives a lease back without a result.
    if (attempts_.contains(row.claim)) causes.finished[row.claim] = request.first;
    if (!row.claim.empty()) continue;
    if (const auto act = acts_.find(request); act != acts_.end())
      causes.acts.push_back(&act->second);
  }
  // A part of an act on all dead letters, which is larger than one commit, has no request of its own.
  for (const auto& [request, command] : acts_) {
    const auto* requeue = std::get_if<AdminRequeue>(&command.act);
    const auto* purge = std::get_if<AdminPurge>(&command.act);
    const bool all = (requeue != nullptr && requeue->ticket.empty()) ||
                     (purge != nullptr && purge->ticket.empty());
    if (all && command.semaphore == delta.name) causes.acts.push_back(&command);
  }
  return causes;
}

void TicketChecks::OnLanded(const ledger::Transaction& transaction,
                            const std::map<std::string, StoredSemaphore>& before) {
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    if (delta.tickets.empty() && delta.leases.empty()) continue;
    const Causes causes = CausesOf(transaction, delta);
    for (const TicketChange& change : delta.tickets) CheckChange(delta, change, causes);
    for (const auto& [claim, client_id] : causes.finished) {
      const auto attempt = attempts_.find(claim);
      if (attempt == attempts_.end() || attempt->second.holder != client_id) {
        Fail(absl::StrCat(client_id, " has ended an attempt that is not its own"));
      }
    }
    const StoredSemaphore* after = engine_->Find(delta.name);
    const auto found = before.find(delta.name);
    if (after != nullptr && found != before.end()) CheckOrder(delta, found->second, *after);
  }
}

void TicketChecks::CheckChange(const SemaphoreDelta& delta, const TicketChange& change,
                               const Causes& causes) {
  const Id& id = change.before ? change.before->id : change.after->id;
  const auto found = tickets_.find(id);
  std::string wrong;
  if (!change.before) {
    if (found != tickets_.end()) wrong = "it is taken in a second time";
    if (wrong.empty()) wrong = NewTicket(*change.after, causes);
  } else if (found == tickets_.end() || found->second.gone || found->second.now != *change.before) {
    wrong = "it was not as this write took it to be";
  } else if (!change.after) {
    wrong = change.before->state == TicketState::kAssigned
                ? LeaseEnded(*change.before, nullptr, causes)
                : Removed(*change.before, causes);
  } else if (change.before->state == change.after->state) {
    wrong = Moved(*change.before, *change.after, causes);
  } else if (change.after->state == TicketState::kAssigned) {
    wrong = Assigned(*change.before, *change.after, causes);
  } else if (change.before->state == TicketState::kAssigned) {
    wrong = LeaseEnded(*change.before, change.after.get(), causes);
  } else if (change.before->state == TicketState::kDelayed) {
    wrong = Ripened(found->second, *change.after);
  } else {
    wrong = Moved(*change.before, *change.after, causes);
  }
  if (!wrong.empty()) Fail(absl::StrCat(delta.name, ": ticket ", Brief(id), ": ", wrong));
  Known& known = tickets_[id];
  if (!change.before) {
    known.semaphore = delta.name;
    known.request = causes.enqueued.at(id);
    ticket_of_[known.request] = id;
    tickets_of_[known.request].insert(id);
    by_semaphore_[delta.name].push_back(id);
  }
  known.gone = change.after == nullptr;
  const bool worked = change.before && change.before->state == TicketState::kAssigned;
  if (known.gone && worked && causes.finished.contains(change.before->lease)) ++done_;
  const bool stays = change.before && change.after && change.before->state == change.after->state;
  if (!stays) known.since_us = world_->now();
  if (!change.after) return;
  known.now = *change.after;
  CheckForm(delta.name, *change.after);
}

std::string TicketChecks::NewTicket(const Ticket& after, const Causes& causes) const {
  const auto request = causes.enqueued.find(after.id);
  if (request == causes.enqueued.end()) return "nobody has enqueued it";
  if (ticket_of_.contains(request->second)) return "its request has a ticket already";
  const EnqueueCommand& asked = asked_.at(request->second);
  const bool delayed = after.state == TicketState::kDelayed && after.delay_ms == asked.delay_ms;
  const bool queued = after.state == TicketState::kQueued && asked.delay_ms == 0;
  const bool as_asked = (delayed || queued) && after.priority == asked.priority &&
                        after.max_attempts == asked.max_attempts && after.attempt == 0;
  return as_asked ? "" : "it is not what was asked for";
}

std::string TicketChecks::Assigned(const Ticket& before, const Ticket& after,
                                   const Causes& causes) {
  if (before.state != TicketState::kQueued) return "it was given away though it was not queued";
  const auto lease = causes.granted.find(after.lease);
  if (lease == causes.granted.end()) return "it is assigned without a lease";
  if (lease->second->ticket != after.id || lease->second->attempt != after.attempt)
    return "its lease is another's";
  if (after.attempt != before.attempt + 1) return "its attempts are not counted one by one";
  Attempt& attempt = attempts_[after.lease];
  attempt.ticket = after.id;
  attempt.holder = lease->second->holder;
  attempt.token = lease->second->token;
  return "";
}

std::string TicketChecks::LeaseEnded(const Ticket& before, const Ticket* after,
                                     const Causes& causes) const {
  const auto ended = causes.ended.find(before.lease);
  if (ended == causes.ended.end()) return "it leaves its worker, whose lease stays";
  const Attempt& attempt = attempts_.at(before.lease);
  if (after == nullptr && causes.destroyed()) return "";
  if (causes.finished.contains(before.lease)) return Finished(before, after, attempt);
  if (after == nullptr) return Removed(before, causes);
  return Returned(before, *after, ended->second);
}

// By the worker's word.
std::string TicketChecks::Finished(const Ticket& before, const Ticket* after,
                                   const Attempt& attempt) const {
  if (!attempt.said) return "its end was told by nobody";
  if (attempt.result == Result::kDone) return after == nullptr ? "" : "it was done, and stays";
  if (after == nullptr) return "it was not done, and is gone";
  if (attempt.result == Result::kPutBack) {
    const bool as_before =
        after->state == TicketState::kQueued && after->attempt + 1 == before.attempt;
    return as_before ? "" : "it was put back, and is not as it was";
  }
  if (after->attempt != before.attempt) return "an attempt that failed is not counted";
  const bool dead = attempt.result == Result::kReject || WasLast(*after);
  if (dead != (after->state == TicketState::kDead)) {
    return dead ? "it is no dead letter, and has no attempt left"
                : "it is a dead letter before its last attempt";
  }
  return "";
}

// By something from without.
std::string TicketChecks::Returned(const Ticket& before, const Ticket& after,
                                   EndCause cause) const {
  const bool put_back = cause == EndCause::kReleased && after.attempt + 1 == before.attempt;
  if (put_back) return after.state == TicketState::kQueued ? "" : "it was put back elsewhere";
  if (after.attempt != before.attempt) return "an attempt that was broken off is not counted";
  const TicketState state = WasLast(after) ? TicketState::kDead : TicketState::kQueued;
  return after.state == state ? "" : "its lease has ended, and it is not where it belongs";
}

std::string TicketChecks::Ripened(const Known& known, const Ticket& after) const {
  if (after.state != TicketState::kQueued) return "it has left its delay for elsewhere";
  const int64_t delayed_us = world_->now() - known.since_us;
  // A hundredth for clocks that differ.
  if (delayed_us >= known.now.delay_ms * 990) return "";
  return absl::StrCat("it comes back after ", delayed_us / kMillisecond, " ms of ",
                      known.now.delay_ms);
}

std::string TicketChecks::Removed(const Ticket& before, const Causes& causes) const {
  if (ActedOn<AdminCancelTicket>(causes.acts, before.id)) return "";
  if (causes.destroyed()) return "";
  const bool purged =
      before.state == TicketState::kDead && ActedOn<AdminPurge>(causes.acts, before.id);
  return purged ? "" : "it is lost: nobody has done, cancelled or purged it";
}

// By an administrator, and nothing else of it.
std::string TicketChecks::Moved(const Ticket& before, const Ticket& after,
                                const Causes& causes) const {
  Ticket expected = before;
  if (before.state == after.state) {
    if (!ActedOn<AdminPrioritizeTicket>(causes.acts, before.id))
      return "it has changed for no reason";
    expected.priority = after.priority;
  } else {
    if (before.state != TicketState::kDead || !ActedOn<AdminRequeue>(causes.acts, before.id))
      return "it has moved for no reason";
    expected.state = TicketState::kQueued;
    expected.attempt = 0;
  }
  return after == expected ? "" : "it has changed more than was asked for";
}

void TicketChecks::CheckForm(const std::string& name, const Ticket& ticket) const {
  if (ticket.max_attempts != 0 && ticket.attempt > ticket.max_attempts) {
    Fail(absl::StrCat(name, ": ticket ", Brief(ticket.id), " is at attempt ", ticket.attempt,
                      " of ", ticket.max_attempts));
  }
  const bool waits = ticket.state == TicketState::kQueued || ticket.state == TicketState::kDelayed;
  if (waits && WasLast(ticket)) {
    Fail(absl::StrCat(name, ": ticket ", Brief(ticket.id),
                      " has had all its attempts and still waits"));
  }
}

// Promise 6, with tickets: nobody who is granted now has left behind a ticket that stood before,
// if there was somebody to carry it out.
void TicketChecks::CheckOrder(const SemaphoreDelta& delta, const StoredSemaphore& before,
                              const StoredSemaphore& after) const {
  // With other settings in the middle of the batch, it is not known by which each grant was made.
  if (before.row.settings != after.row.settings) return;
  const uint32_t cap = after.row.settings.permits_per_holder;
  // Destroyed and made anew in one batch: the orders are those of two queues.
  if (IsRemade(before.row, after.row)) return;
  std::set<Id> touched;
  std::map<Id, uint64_t> order_of;  // Tickets that were assigned, by lease.
  for (const TicketChange& change : delta.tickets) {
    touched.insert(change.before ? change.before->id : change.after->id);
    if (change.after && change.after->state == TicketState::kAssigned)
      order_of[change.after->lease] = change.after->order;
  }
  Moment moment(&before);
  // An offer stands all the while, of a worker that may have one permit more.
  const auto works = [&](const auto& entry) {
    return entry.second.works && after.waiters.contains(entry.first) &&
           (cap == 0 || moment.HeldBy(entry.second.holder) + entry.second.permits <= cap);
  };
  for (const LeaseChange& change : delta.leases) {
    const bool somebody_works = std::ranges::any_of(before.waiters, works);
    moment.Apply(change);
    if (change.before || !change.after) continue;
    const auto order = order_of.find(change.after->id);
    const bool carries = order != order_of.end();
    if (!carries && !somebody_works) continue;  // Tickets are passed over.
    // Its priority may have been changed since, in the same batch; the lease has that of the grant.
    const ledger::QueuePlace place{change.after->priority,
                                   carries ? order->second : change.after->order};
    for (const auto& [id, ticket] : after.tickets) {
      const bool left = ticket.state == TicketState::kQueued && !touched.contains(id);
      if (!left || !(ledger::PlaceOf(ticket) < place)) continue;
      Fail(absl::StrCat(delta.name, ": ", change.after->holder,
                        carries ? " was given a ticket" : "", " (priority ", place.priority,
                        ", order ", place.order, ") was served before ticket ", Brief(id),
                        " (priority ", ticket.priority, ", order ", ticket.order, ")"));
    }
  }
}

// ---- now and then ----

void TicketChecks::IsForgotten(const std::string& client_id) {
  std::erase_if(ticket_of_, [&](const auto& each) { return each.first.first == client_id; });
}

void TicketChecks::Look(const Faults& faults) {
  for (const auto& [name, semaphore] : engine_->semaphores()) {
    const int64_t calm_us = faults.CalmForUs(*world_, name);
    for (const auto& [id, ticket] : semaphore.tickets) {
      const Known& known = tickets_.at(id);
      const int64_t since_us = world_->now() - known.since_us;
      if (ticket.state == TicketState::kAssigned) {
        const Attempt& attempt = attempts_.at(ticket.lease);
        const auto lease = semaphore.leases.find(ticket.lease);
        const bool stands = lease != semaphore.leases.end();
        const int64_t bound_us =
            kAssignedWithinUs + (stands ? engine_->KeptForUs(lease->second) : 0);
        if (!attempt.told && !attempt.said && std::min(calm_us, since_us) > bound_us) {
          Fail(absl::StrCat(name, ": ", attempt.holder, " was given ticket ", Brief(id),
                            " and is not told"));
        }
      }
      if (ticket.state != TicketState::kDelayed) continue;
      const int64_t over_us = since_us - ticket.delay_ms * kMillisecond;
      if (std::min(calm_us - ticket.delay_ms * kMillisecond, over_us) > kTicketBoundUs)
        Fail(absl::StrCat(name, ": the delay of ticket ", Brief(id), " does not end"));
    }
  }
}

size_t TicketChecks::living() const {
  size_t living = 0;
  for (const auto& [name, semaphore] : engine_->semaphores()) {
    for (const auto& [id, ticket] : semaphore.tickets) living += ticket.state != TicketState::kDead;
  }
  return living;
}

void TicketChecks::AtTheEnd() {
  for (const auto& [id, known] : tickets_) {
    const StoredSemaphore* semaphore = engine_->Find(known.semaphore);
    const bool there = semaphore != nullptr && semaphore->tickets.contains(id);
    if (there == known.gone) Fail(absl::StrCat("at the end ticket ", Brief(id), " is lost"));
    if (there && known.now.state != TicketState::kDead) {
      Fail(absl::StrCat(known.semaphore, ": at the end ticket ", Brief(id), " still waits"));
    }
  }
}

Id TicketChecks::AnyTicket(const std::string& semaphore) {
  const std::vector<Id>& all = by_semaphore_[semaphore];
  if (all.empty()) return Id{};
  // Mostly one of the last.
  const size_t from = all.size() > 8 && world_->random().Chance(0.8) ? all.size() - 8 : 0;
  return all[from + world_->random().Below(all.size() - from)];
}

}  // namespace semaphored::simulation
