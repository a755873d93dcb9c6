// The checks that follow each write that lands in the engine.
#include "tests/simulation/checks.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/state/state.h"

namespace semaphored::simulation {

using ledger::LeaseChange;
using ledger::SemaphoreDelta;
using ledger::WaiterChange;

namespace {

// With these settings, it is right that somebody is served before one who came earlier.
bool MayOvertake(const SemaphoreRow& row) {
  return row.settings.backfill || row.settings.permits_per_holder != 0;
}

// Whoever carries out a ticket was served in the ticket's place.
ledger::QueuePlace PlaceOfGrant(const SemaphoreDelta& delta, const Lease& lease) {
  for (const ledger::TicketChange& change : delta.tickets) {
    if (change.after && change.after->lease == lease.id)
      return {lease.priority, change.after->order};
  }
  return ledger::PlaceOf(lease);
}

}  // namespace

Checks::Checks(World* world, MemoryEngine* engine, const Faults* faults)
    : world_(world), engine_(engine), faults_(faults), tickets_(world, engine) {}

Checks::Request Checks::RequestOf(const Claim& claim) const {
  if (claim.request.client == 0) return {claim.holder, 0};
  return {engine_->NameOf(claim.request.client), claim.request.sequence};
}

void Checks::OnLanded(const ledger::Transaction& transaction,
                      const std::map<std::string, StoredSemaphore>& before) {
  if (!engine_->MayWrite(transaction.node)) {
    Fail("a node wrote that was replaced or declared dead");
  }
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    const auto found = before.find(delta.name);
    const StoredSemaphore* after = engine_->Find(delta.name);
    for (const LeaseChange& change : delta.leases) {
      if (change.before && !change.after) ends_[change.before->id] = change.cause;
    }
    CheckLimit(transaction, delta, found == before.end() ? nullptr : &found->second, after);
    CheckTokens(delta);
    CheckOneEffect(delta);
    NoteRoom(delta, after);
    if (after == nullptr) continue;
    CheckSlots(delta.name, *after);
    CheckOrder(delta, found == before.end() ? nullptr : &found->second, *after);
  }
  tickets_.OnLanded(transaction, before);
  CheckRequests(transaction);
  CheckInvariants();
}

// Promise 1, in the engine: over the limit only after it was lowered, and then it only falls.
void Checks::CheckLimit(const ledger::Transaction& transaction, const SemaphoreDelta& delta,
                        const StoredSemaphore* before, const StoredSemaphore* after) {
  if (after == nullptr) return;
  const uint32_t held = after->held();
  const uint32_t held_before = before == nullptr ? 0 : before->held();
  if (held <= after->row.limit || held <= held_before) return;
  // A batch may grant and then lower the limit.
  const bool lowered =
      before != nullptr && after->row.limit < before->row.limit && held <= before->row.limit;
  // … or even raise it, grant, and lower it again, which leaves no trace but the administrator's
  // answer.
  const bool administered = std::ranges::any_of(transaction.requests, [&](const auto& change) {
    // All other requests speak of a claim or a ticket.
    return change.row.state == ledger::RequestRow::State::kDone && change.row.claim.empty() &&
           change.row.semaphore == delta.name;
  });
  if (!lowered && !administered)
    Fail(
        absl::StrCat(delta.name, ": ", held, " permits are held, the limit is ", after->row.limit));
}

void Checks::CheckSlots(const std::string& name, const StoredSemaphore& semaphore) {
  std::set<uint32_t> taken;
  for (const auto& [id, lease] : semaphore.leases) {
    if (lease.slots.size() != lease.permits)
      Fail(absl::StrCat(name, ": a lease has not as many slots as permits"));
    for (uint32_t slot : lease.slots) {
      if (!taken.insert(slot).second) Fail(absl::StrCat(name, ": slot ", slot, " is taken twice"));
    }
    if (semaphore.waiters.contains(id)) Fail(absl::StrCat(name, ": a claim is lease and waiter"));
  }
}

// Promise 3: per slot, over the whole history of the name.
void Checks::CheckTokens(const SemaphoreDelta& delta) {
  for (const LeaseChange& change : delta.leases) {
    if (change.before || !change.after) continue;
    for (uint32_t slot : change.after->slots) {
      uint64_t& highest = highest_token_[{delta.name, slot}];
      if (change.after->token <= highest) {
        Fail(absl::StrCat(delta.name, ": slot ", slot, " was granted with token ",
                          change.after->token, " after ", highest));
      }
      highest = change.after->token;
    }
  }
}

// Promise 6: nobody who is granted now has left behind one who stood before.
void Checks::CheckOrder(const SemaphoreDelta& delta, const StoredSemaphore* before,
                        const StoredSemaphore& after) {
  for (const WaiterChange& change : delta.waiters) {
    if (before == nullptr || change.before || !change.after) continue;
    const auto waiter = after.waiters.find(change.after->id);
    if (waiter == after.waiters.end() || delta.before == std::nullopt) continue;
    for (const auto& [id, other] : before->waiters) {
      if (!after.waiters.contains(id) || other.order < waiter->second.order) continue;
      Fail(absl::StrCat(delta.name, ": ", waiter->second.holder, " came after ", other.holder,
                        " and is filed before"));
    }
  }
  // Destroyed and made anew in one batch: the orders are those of two queues.
  if (before != nullptr && after.row.next_order < before->row.next_order) return;
  if (MayOvertake(after.row) || (before != nullptr && MayOvertake(before->row))) return;
  std::set<Id> queued_now;
  for (const WaiterChange& change : delta.waiters) {
    if (!change.before && change.after) queued_now.insert(change.after->id);
  }
  for (const LeaseChange& change : delta.leases) {
    if (change.before || !change.after) continue;
    const ledger::QueuePlace granted = PlaceOfGrant(delta, *change.after);
    for (const auto& [id, waiter] : after.waiters) {
      if (waiter.works) continue;
      const bool ahead = ledger::PlaceOf(waiter) < granted;
      // One of higher priority may have come after the grant, in the same batch.
      if (!ahead || (queued_now.contains(id) && waiter.priority > change.after->priority)) continue;
      Fail(absl::StrCat(delta.name, ": ", change.after->holder, " (priority ",
                        change.after->priority, ", order ", change.after->order,
                        ") was served before ", waiter.holder, " (priority ", waiter.priority,
                        ", order ", waiter.order, ")"));
    }
  }
}

void Checks::NoteRoom(const SemaphoreDelta& delta, const StoredSemaphore* after) {
  uint32_t room = std::numeric_limits<uint32_t>::max();
  if (after != nullptr) {
    const bool open = after->Queue().empty() && !after->row.paused && !after->row.destroying &&
                      after->held() < after->row.limit;
    room = open ? after->row.limit - after->held() : 0;
  }
  auto& changes = room_[delta.name];
  // Within a batch it may have been full for a moment.
  if (!delta.leases.empty() || !delta.waiters.empty()) changes.emplace_back(world_->now(), 0);
  changes.emplace_back(world_->now(), room);
  while (changes.size() > 200) changes.pop_front();
}

// Promise 7: one request, one claim.
void Checks::CheckOneEffect(const SemaphoreDelta& delta) {
  const auto check = [&](const Claim& claim, bool granted) {
    if (claim.request.sequence == 0) return;
    Wish& wish = wishes_[RequestOf(claim)];
    if (granted) {
      if (wish.granted_us != 0) {
        Fail(absl::StrCat(delta.name, ": request ", claim.request.sequence, " of ",
                          RequestOf(claim).first, " was granted twice"));
      }
      wish.granted_us = world_->now();
    }
    wish.claim = claim.id;
  };
  for (const WaiterChange& change : delta.waiters) {
    if (change.before || !change.after) continue;
    const StoredSemaphore* after = engine_->Find(delta.name);
    const bool stays = after != nullptr && after->waiters.contains(change.after->id);
    if (!stays) continue;
    for (const auto& [id, waiter] : after->waiters) {
      if (id != change.after->id && change.after->request.sequence != 0 &&
          waiter.request == change.after->request) {
        Fail(absl::StrCat(delta.name, ": a request of ", RequestOf(waiter).first, " waits twice"));
      }
    }
    check(*change.after, false);
  }
  for (const LeaseChange& change : delta.leases) {
    if (!change.before && change.after) check(*change.after, true);
  }
}

// Each request is carried out once, also when its row has been forgotten since; what a client gave up
// it may ask for again.
void Checks::CheckRequests(const ledger::Transaction& transaction) {
  using Op = ledger::RequestChange::Op;
  for (const ledger::RequestChange& change : transaction.requests) {
    const RequestKey& key = change.row.request;
    const Request request{engine_->NameOf(key.client), key.sequence};
    const bool accepted = accepted_.contains(request);
    if (change.op == Op::kInsert && accepted)
      Fail(absl::StrCat("request ", request.second, " of ", request.first, " was accepted twice"));
    if (change.op != Op::kInsert && !accepted)
      Fail(absl::StrCat("request ", request.second, " of ", request.first, " has no row"));
    if (change.op == Op::kInsert) accepted_.insert(request);
    if (change.op == Op::kRemove) accepted_.erase(request);
  }
}

// The same rows in a ledger's state, whose own invariants must hold.
void Checks::CheckInvariants() {
  ledger::LedgerState state;
  for (const auto& [name, stored] : engine_->semaphores()) {
    ledger::Semaphore* semaphore = state.Insert(stored.row);
    for (const auto& [id, lease] : stored.leases) {
      state.Apply(semaphore, LeaseChange{nullptr, std::make_shared<Lease>(lease), EndCause::kNone});
    }
    for (const auto& [id, waiter] : stored.waiters) {
      state.Apply(semaphore,
                  WaiterChange{nullptr, std::make_shared<Waiter>(waiter), EndCause::kNone});
    }
    for (const auto& [id, ticket] : stored.tickets) {
      state.Apply(semaphore,
                  ledger::TicketChange{nullptr, std::make_shared<Ticket>(ticket), nullptr});
    }
  }
  const std::string wrong = state.CheckInvariants();
  if (!wrong.empty()) Fail(wrong);
}

}  // namespace semaphored::simulation
