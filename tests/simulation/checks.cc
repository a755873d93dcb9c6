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

Checks::Checks(World* world, MemoryEngine* engine, const Faults* faults)
    : world_(world),
      engine_(engine),
      faults_(faults),
      tickets_(world, engine),
      counts_(world, engine) {}

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
    CheckForeign(delta, found == before.end() ? nullptr : &found->second, after);
    NoteRoom(delta.name, after, !delta.leases.empty() || !delta.waiters.empty());
    if (after == nullptr) continue;
    CheckSlots(delta.name, *after);
    CheckLimits(delta, found == before.end() ? nullptr : &found->second, *after);
    CheckOrder(delta, found == before.end() ? nullptr : &found->second, *after);
  }
  tickets_.OnLanded(transaction, before);
  counts_.OnLanded(transaction, before);
  CheckRequests(transaction);
  CheckTotals();
  CheckInvariants(transaction);
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

void Checks::NoteRoom(const std::string& name, const StoredSemaphore* after, bool claims) {
  uint32_t room = std::numeric_limits<uint32_t>::max();
  if (after != nullptr) {
    const bool open = after->Queue().empty() && after->NextTicket() == nullptr &&
                      !after->row.paused && !after->row.destroying &&
                      after->held() < after->row.limit;
    room = open ? after->row.limit - after->held() : 0;
  }
  auto& changes = room_[name];
  // Within a batch it may have been full for a moment.
  if (claims) changes.emplace_back(world_->now(), 0);
  changes.emplace_back(world_->now(), room);
  while (changes.size() > 200) changes.pop_front();
}

namespace {

uint64_t PayloadBytes(const StoredSemaphore& semaphore) {
  uint64_t bytes = 0;
  for (const auto& [id, ticket] : semaphore.tickets) bytes += ticket.payload_bytes;
  return bytes;
}

}  // namespace

// Promise 10, for one semaphore: what is above a limit does not grow.
void Checks::CheckLimits(const SemaphoreDelta& delta, const StoredSemaphore* before,
                         const StoredSemaphore& after) const {
  static const StoredSemaphore kNone;
  const StoredSemaphore& from = before == nullptr ? kNone : *before;
  const auto check = [&](uint64_t was, uint64_t is, uint64_t most, const char* what) {
    if (is > most && is > was)
      Fail(absl::StrCat(delta.name, ": there are ", is, " ", what, ", the limit is ", most));
  };
  const auto offers = [](const StoredSemaphore& semaphore) {
    return semaphore.waiters.size() - semaphore.Queue().size();
  };
  const auto living = [](const StoredSemaphore& semaphore) {
    return static_cast<size_t>(std::ranges::count_if(semaphore.tickets, [](const auto& each) {
      return each.second.state != TicketState::kDead;
    }));
  };
  const uint32_t waiters_max = limits_.waiters_per_semaphore_max;
  check(from.Queue().size(), after.Queue().size(), waiters_max, "waiters");
  check(offers(from), offers(after), waiters_max, "offers");
  check(living(from), living(after), limits_.tickets_per_semaphore_max, "tickets");
  check(PayloadBytes(from), PayloadBytes(after), limits_.payload_bytes_per_semaphore_max,
        "bytes of payloads");
  const size_t dead =
      std::min(from.tickets.size() - living(from), after.tickets.size() - living(after));
  const auto comes = [](const auto& change) { return !change.before; };
  if (dead >= limits_.dead_letters_per_semaphore_max && std::ranges::any_of(delta.tickets, comes))
    Fail(absl::StrCat(delta.name, ": a ticket is taken in beside ", dead, " dead letters"));
}

// The same for all together. A daemon counts what it knows: on a shared engine each of its lanes knows a
// part.
void Checks::CheckTotals() const {
  if (!exclusive_) return;
  size_t leases = 0;
  size_t waiters = 0;
  size_t tickets = 0;
  uint64_t payload_bytes = 0;
  for (const auto& [name, semaphore] : engine_->semaphores()) {
    leases += semaphore.leases.size();
    waiters += semaphore.waiters.size();
    tickets += semaphore.tickets.size();
    payload_bytes += PayloadBytes(semaphore);
  }
  const auto check = [&](uint64_t is, uint64_t most, const char* what) {
    if (is > most) Fail(absl::StrCat("there are ", is, " ", what, ", the limit is ", most));
  };
  check(engine_->semaphores().size(), limits_.semaphores_max, "semaphores");
  check(leases + waiters, limits_.leases_max, "leases and waiters");
  check(waiters, limits_.waiters_max, "waiters");
  check(tickets, limits_.tickets_max, "tickets");
  check(payload_bytes, limits_.payload_bytes_total_max, "bytes of payloads");
  check(engine_->sessions().size(), limits_.sessions_max, "sessions");
}

// What other clients of the engine hold is theirs: no daemon changes it, and it keeps its semaphore.
void Checks::CheckForeign(const SemaphoreDelta& delta, const StoredSemaphore* before,
                          const StoredSemaphore* after) const {
  for (const LeaseChange& change : delta.leases) {
    if (!(change.before ? change.before : change.after)->foreign) continue;
    Fail(absl::StrCat(delta.name, ": a daemon has changed what a foreign client holds"));
  }
  if (before == nullptr || after != nullptr) return;
  const auto foreign = [](const auto& each) { return each.second.foreign; };
  if (std::ranges::any_of(before->leases, foreign))
    Fail(absl::StrCat(delta.name, ": it was destroyed under a foreign client"));
}

void Checks::OnForeign(const std::string& name) {
  NoteRoom(name, engine_->Find(name), /*claims=*/false);
  counts_.OnForeign(name);
}

// A requester is forgotten after its retention, and not while it waits or holds.
bool Checks::MayForget(const ledger::Transaction& transaction, uint32_t client, bool exclusive,
                       int64_t retention_ms) {
  const std::string& name = engine_->NameOf(client);
  const StoredClient& stored = engine_->clients().at(client);
  const bool pinned =
      std::ranges::any_of(stored.requests, [](const auto& each) { return each.second.pinned(); });
  const auto used = used_at_us_.find(name);
  const int64_t silent_us =
      used == used_at_us_.end() ? world_->now() : world_->now() - used->second;
  // A hundredth for clocks that differ.
  const bool silent = silent_us >= retention_ms * 990;
  if (exclusive && (pinned || !silent)) {
    Fail(absl::StrCat(
        name, " is forgotten by node ", transaction.node.number,
        pinned ? ", and has a claim" : absl::StrCat(" after ", silent_us / kSecond, " s")));
  }
  // Of a shared engine, another daemon may have heard of it: that it is silent there is the engine's to see.
  if (pinned || !silent) return false;
  std::erase_if(accepted_, [&](const Request& request) { return request.first == name; });
  for (auto at = wishes_.lower_bound({name, 0}); at != wishes_.end() && at->first.first == name;
       ++at)
    at->second.granted_us = 0;
  tickets_.IsForgotten(name);
  return true;
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
    used_at_us_[request.first] = world_->now();
    if (change.op == Op::kInsert && accepted)
      Fail(absl::StrCat("request ", request.second, " of ", request.first, " was accepted twice"));
    if (change.op != Op::kInsert && !accepted)
      Fail(absl::StrCat("request ", request.second, " of ", request.first, " has no row"));
    if (change.op == Op::kInsert) accepted_.insert(request);
    if (change.op == Op::kRemove) accepted_.erase(request);
  }
}

// The same rows in a ledger's state, whose own invariants must hold: of what was touched each time, of all
// now and then, since it is the dearest check.
void Checks::CheckInvariants(const ledger::Transaction& transaction) {
  constexpr uint64_t kAllEvery = 8;
  const bool all = ++landed_ % kAllEvery == 0;
  ledger::LedgerState state;
  for (const auto& [name, stored] : engine_->semaphores()) {
    if (!all && std::ranges::count(transaction.semaphores, name, &SemaphoreDelta::name) == 0)
      continue;
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
