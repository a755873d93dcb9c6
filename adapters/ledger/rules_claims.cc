// Acquire, release, verify, end: what becomes of claims.
#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/rules.h"
#include "adapters/ledger/rules_internal.h"

namespace semaphored::ledger {
namespace {

bool Fits(const Semaphore& semaphore, uint32_t permits) {
  return uint64_t{semaphore.held} + permits <= semaphore.row.limit;
}

// The holder has as many permits as one may have; others are not held up by that.
bool HolderAtCap(const Semaphore& semaphore, const std::string& holder, uint32_t permits) {
  const uint32_t cap = semaphore.row.settings.permits_per_holder;
  if (cap == 0) return false;
  const auto found = semaphore.held_by.find(holder);
  return found != semaphore.held_by.end() && uint64_t{found->second} + permits > cap;
}

// Places that are left to foreign clients who wait before a request of this priority.
uint32_t LeftToForeign(const Semaphore& semaphore, int32_t priority) {
  uint32_t left = 0;
  for (const auto& [place, waiter] : semaphore.queue) {
    if (place.priority < priority) break;
    if (waiter->foreign) left += waiter->permits;
  }
  return left;
}

// Whether a request of this priority must queue behind somebody of ours. Whoever waits does so
// because of room or because of the holder's cap; only the first kind is in others' way. With
// backfill nobody is whom Advance has looked at and found too large; those further back may be of
// this very size.
bool SomebodyAhead(const Semaphore& semaphore, int32_t priority, const Limits& limits) {
  if (semaphore.row.settings.backfill) {
    const QueuePlace last{priority, std::numeric_limits<uint64_t>::max()};
    return semaphore.queue.order_of_key(last) > limits.backfill_depth;
  }
  for (const auto& [place, waiter] : semaphore.queue) {
    if (place.priority < priority) return false;
    if (waiter->foreign) continue;
    if (!HolderAtCap(semaphore, waiter->holder, waiter->permits)) return true;
  }
  return false;
}

int64_t LongestHold(const Settings& settings, const Context& context) {
  if (context.longest_hold_max_ms == 0) return settings.longest_hold_ms;
  // Of the time that there is, at least half is for the holder.
  const int64_t grace = std::min(settings.recall_grace_ms, context.longest_hold_max_ms / 2);
  const int64_t most = context.longest_hold_max_ms - grace;
  return settings.longest_hold_ms == 0 ? most : std::min(most, settings.longest_hold_ms);
}

// False: the engine gives no permit, and nothing has changed.
bool GrantTo(Editor& editor, Semaphore* semaphore, const Claim& claim, const WaiterPtr& waiter,
             const Context& context, bool may_wait = true) {
  auto lease = std::make_shared<Lease>();
  static_cast<Claim&>(*lease) = claim;
  if (context.permits == nullptr) {
    lease->slots = semaphore->slots.LowestFree(claim.permits);
  } else {
    const auto permit = context.permits->Take(semaphore->row.name, claim.id, may_wait);
    if (!permit) return false;
    lease->slots = {permit->slot};
    lease->token = permit->token;
  }
  if (waiter) editor.Leave(semaphore, waiter, EndCause::kNone);
  lease->granted_at_unix_ms = context.now_unix_ms;
  lease->longest_hold_ms = LongestHold(semaphore->row.settings, context);
  editor.RequireEpoch(claim);
  Answer answer;
  answer.request = claim.request;
  answer.kind = Answer::Kind::kGranted;
  answer.semaphore = semaphore->row.name;
  answer.claim = claim.id;
  editor.Remember(std::move(answer));
  editor.Grant(semaphore, std::move(lease));
  return true;
}

Claim ClaimOf(const AcquireCommand& command, const Context& context) {
  Claim claim;
  claim.id = command.claim;
  claim.session = command.session;
  claim.request = {context.client, command.requester.sequence};
  claim.host = context.self;
  claim.permits = command.permits;
  claim.priority = command.priority;
  claim.ttl_ms = command.ttl_ms;
  claim.holder = command.holder;
  return claim;
}

// nullptr in `outcome`: the request may go on, with *semaphore set.
std::optional<Outcome> FindOrCreate(Editor& editor, const AcquireCommand& command,
                                    const Context& context, Semaphore** semaphore) {
  *semaphore = editor.Find(command.semaphore);
  if (*semaphore == nullptr) {
    if (command.limit == 0) return Simply(OutcomeKind::kNoSuchSemaphore);
    if (command.permits > command.limit) {
      Outcome outcome = Simply(OutcomeKind::kExceedsLimit);
      outcome.number = command.limit;
      return outcome;
    }
    if (editor.state().semaphore_count() >= context.limits.semaphores_max) {
      return LimitReached(
          absl::StrCat("semaphores_max (", context.limits.semaphores_max, ") is reached"));
    }
    SemaphoreRow row;
    row.name = command.semaphore;
    row.limit = command.limit;
    row.created_at_unix_ms = context.now_unix_ms;
    *semaphore = editor.Create(std::move(row));
    return std::nullopt;
  }
  const SemaphoreRow& row = (*semaphore)->row;
  if (row.destroying) return Simply(OutcomeKind::kDestroyed);
  if (command.limit != 0 && command.limit != row.limit && !command.adopt_limit) {
    Outcome outcome = Simply(OutcomeKind::kLimitMismatch);
    outcome.number = row.limit;
    return outcome;
  }
  const uint32_t cap = row.settings.permits_per_holder;
  if (command.permits > row.limit || (cap != 0 && command.permits > cap)) {
    Outcome outcome = Simply(OutcomeKind::kExceedsLimit);
    outcome.number = std::min(row.limit, cap != 0 ? cap : row.limit);
    return outcome;
  }
  return std::nullopt;
}

Outcome Enqueue(Editor& editor, Semaphore* semaphore, const Claim& claim, const Context& context) {
  const Limits& limits = context.limits;
  const uint32_t own_max = semaphore->row.settings.waiters_max;
  const uint32_t waiters_max = own_max != 0 ? std::min(own_max, limits.waiters_per_semaphore_max)
                                            : limits.waiters_per_semaphore_max;
  if (semaphore->waiters.size() >= waiters_max) {
    return LimitReached(absl::StrCat("as many wait for this semaphore as may (", waiters_max, ")"));
  }
  if (editor.state().waiter_count() >= limits.waiters_max) {
    return LimitReached(absl::StrCat("waiters_max (", limits.waiters_max, ") is reached"));
  }
  auto waiter = std::make_shared<Waiter>();
  static_cast<Claim&>(*waiter) = claim;
  waiter->order = editor.TakeOrder(semaphore);
  waiter->queued_at_unix_ms = context.now_unix_ms;
  editor.RequireEpoch(claim);
  Outcome outcome = Simply(OutcomeKind::kQueued);
  outcome.claim = claim.id;
  editor.Enqueue(semaphore, waiter);
  outcome.position = semaphore->PositionOf(*waiter);
  return outcome;
}

// The first of `asked` that is not among `held`, or is asked for twice. Both are sorted: a lease
// may have a million slots.
std::optional<uint32_t> FirstNotHeld(const Slots& held, const Slots& asked) {
  auto at = held.begin();
  for (const uint32_t slot : asked) {
    at = std::lower_bound(at, held.end(), slot);
    if (at == held.end() || *at != slot) return slot;
    ++at;
  }
  return std::nullopt;
}

Outcome NotHeld(EndCause cause = EndCause::kNone) {
  Outcome outcome = Simply(OutcomeKind::kNotHeld);
  outcome.cause = cause;
  return outcome;
}

}  // namespace

uint32_t EpochOf(const LedgerState& state, const Claim& claim) {
  if (claim.detached()) return claim.epoch;
  const SessionPtr& session = state.FindSession(claim.session);
  return session ? session->epoch : 0;
}

NodeRef HostOf(const LedgerState& state, const Claim& claim) {
  if (claim.detached()) return claim.host;
  const SessionPtr& session = state.FindSession(claim.session);
  return session ? session->host : NodeRef{};
}

void Advance(Editor& editor, Semaphore* semaphore, const Context& context) {
  if (semaphore->row.paused || semaphore->row.destroying || context.withheld) return;
  uint32_t passed_over = 0;
  uint32_t left = 0;  // To foreign clients who wait before.
  for (auto at = semaphore->queue.begin(); at != semaphore->queue.end();) {
    if (!Fits(*semaphore, left + 1)) return;
    const WaiterPtr waiter = at->second;
    ++at;
    if (waiter->foreign) {
      left += waiter->permits;
      continue;
    }
    if (HolderAtCap(*semaphore, waiter->holder, waiter->permits)) continue;
    if (!Fits(*semaphore, waiter->permits + left)) {
      if (!semaphore->row.settings.backfill || ++passed_over > context.limits.backfill_depth)
        return;
      continue;
    }
    if (context.grants_max != 0 && editor.let_in() >= context.grants_max)
      return editor.AdvanceLater(*semaphore);
    // Erasing invalidates no other place of the tree, so `at` stays good.
    if (!GrantTo(editor, semaphore, *waiter, waiter, context)) return;
  }
}

void AfterRoom(Editor& editor, Semaphore* semaphore, const Context& context) {
  if (semaphore->row.destroying && semaphore->leases.empty() && semaphore->held_elsewhere == 0) {
    DismissWaiters(editor, semaphore);  // Foreign ones may have come since.
    editor.Destroy(semaphore);
    return;
  }
  Advance(editor, semaphore, context);
}

void EndWait(Editor& editor, Semaphore* semaphore, const WaiterPtr& waiter, EndCause cause) {
  editor.Leave(semaphore, waiter, cause);
  // A client that went away was told nothing: if it comes back with the same request, it queues
  // anew.
  const bool told = cause == EndCause::kWaitExpired || cause == EndCause::kExceedsLimit ||
                    cause == EndCause::kDestroyed;
  if (!told) return;
  Answer answer;
  answer.request = waiter->request;
  answer.kind = Answer::Kind::kWaitEnded;
  answer.semaphore = semaphore->row.name;
  answer.claim = waiter->id;
  answer.cause = cause;
  editor.Remember(std::move(answer));
}

Outcome Acquire(Editor& editor, const AcquireCommand& command, const Context& context) {
  if (command.session != command.claim && !editor.state().FindSession(command.session)) {
    return Simply(OutcomeKind::kSessionLost);
  }
  const LedgerState& state = editor.state();
  if (state.lease_count() + state.waiter_count() >= context.limits.leases_max) {
    return LimitReached(absl::StrCat("leases_max (", context.limits.leases_max,
                                     ", leases and waiters together) is reached"));
  }
  Semaphore* semaphore = nullptr;
  if (auto refusal = FindOrCreate(editor, command, context, &semaphore)) return std::move(*refusal);

  const Claim claim = ClaimOf(command, context);
  const bool paused = semaphore->row.paused;
  const bool at_cap = HolderAtCap(*semaphore, claim.holder, claim.permits);
  bool room = Fits(*semaphore, claim.permits) &&
              !SomebodyAhead(*semaphore, claim.priority, context.limits) &&
              Fits(*semaphore, claim.permits + LeftToForeign(*semaphore, claim.priority));
  Claim granted = claim;
  granted.order = semaphore->row.next_order;
  const bool may = !paused && room && !at_cap && !context.withheld;
  if (may && !GrantTo(editor, semaphore, granted, nullptr, context, command.wait)) room = false;
  if (may && room) {
    Outcome outcome = Simply(OutcomeKind::kGranted);
    outcome.lease = semaphore->FindLease(claim.id);
    outcome.claim = claim.id;
    return outcome;
  }
  if (command.wait) return Enqueue(editor, semaphore, claim, context);
  return Simply(paused   ? OutcomeKind::kPaused
                : !room  ? OutcomeKind::kFull
                : at_cap ? OutcomeKind::kHolderCap
                         : OutcomeKind::kWithheld);
}

Outcome Release(Editor& editor, const ReleaseCommand& command, const Context& context) {
  Semaphore* semaphore = editor.Find(command.semaphore);
  const LeasePtr lease = semaphore ? semaphore->FindLease(command.claim) : nullptr;
  if (!lease || lease->foreign) return NotHeld();
  Slots given_back = command.slots;
  std::ranges::sort(given_back);
  if (const std::optional<uint32_t> slot = FirstNotHeld(lease->slots, given_back)) {
    Outcome outcome = Simply(OutcomeKind::kNoSuchSlot);
    outcome.number = *slot;
    return outcome;
  }
  Outcome outcome = Simply(OutcomeKind::kReleased);
  const bool all = command.slots.empty() || command.slots.size() == lease->slots.size();
  outcome.number = all ? lease->permits : static_cast<uint32_t>(command.slots.size());
  outcome.remaining = lease->permits - outcome.number;
  if (all) {
    editor.End(semaphore, lease, EndCause::kReleased, context.now_unix_ms);
  } else {
    auto rest = std::make_shared<Lease>(*lease);
    rest->permits = outcome.remaining;
    rest->slots.clear();
    std::ranges::set_difference(lease->slots, given_back, std::back_inserter(rest->slots));
    outcome.lease = rest;
    editor.Replace(semaphore, lease, std::move(rest));
  }
  Answer answer;
  answer.request = {context.client, command.requester.sequence};
  answer.kind = Answer::Kind::kReleased;
  answer.semaphore = command.semaphore;
  answer.claim = command.claim;
  answer.number = outcome.number;
  answer.remaining = outcome.remaining;
  editor.Remember(std::move(answer));
  AfterRoom(editor, semaphore, context);
  return outcome;
}

Outcome Verify(const LedgerState& state, const VerifyCommand& command) {
  const Semaphore* semaphore = state.Find(command.semaphore);
  if (semaphore == nullptr) return NotHeld();
  Outcome outcome = Simply(OutcomeKind::kHeld);
  if (command.claim.empty()) {
    outcome.lease = semaphore->slots.At(command.slot);
    const uint64_t token = outcome.lease ? outcome.lease->token : 0;
    // A lease granted in this very batch has no token yet, so nobody can ask for it by one.
    if (token == 0 || token != command.token) outcome = NotHeld();
    outcome.number64 = token;
    return outcome;
  }
  outcome.lease = semaphore->FindLease(command.claim);
  if (outcome.lease) return outcome;
  const WaiterPtr waiter = semaphore->FindWaiter(command.claim);
  return waiter && !waiter->foreign ? Simply(OutcomeKind::kStillWaiting) : NotHeld();
}

Outcome End(Editor& editor, const EndCommand& command, const Context& context) {
  Semaphore* semaphore = editor.Find(command.semaphore);
  if (semaphore == nullptr) return NotHeld();
  if (const WaiterPtr waiter = semaphore->FindWaiter(command.claim)) {
    if (waiter->foreign) return NotHeld();
    if (command.epoch != 0 && EpochOf(editor.state(), *waiter) != command.epoch)
      return Simply(OutcomeKind::kStale);
    editor.RequireEpoch(*waiter);
    EndWait(editor, semaphore, waiter, command.cause);
    AfterRoom(editor, semaphore, context);
    return Simply(OutcomeKind::kDone);
  }
  const LeasePtr lease = semaphore->FindLease(command.claim);
  if (!lease || lease->foreign) return NotHeld();
  if (command.only_waiting) return Simply(OutcomeKind::kStale);
  if (command.epoch != 0 && EpochOf(editor.state(), *lease) != command.epoch)
    return Simply(OutcomeKind::kStale);
  editor.RequireEpoch(*lease);
  // Whoever gives up a wait and wants no lease either may have been granted it meanwhile.
  const bool cancelled = command.cause == EndCause::kCancelled;
  editor.End(semaphore, lease, cancelled ? EndCause::kDisconnected : command.cause,
             context.now_unix_ms);
  AfterRoom(editor, semaphore, context);
  return Simply(OutcomeKind::kDone);
}

void RecallOrEnd(Editor& editor, Semaphore* semaphore, const LeasePtr& lease, const Recall& recall,
                 const Context& context) {
  if (recall.grace_ms == 0) {
    const bool revoked = recall.reason == Recall::Reason::kAdministrator;
    editor.End(semaphore, lease, revoked ? EndCause::kRevoked : EndCause::kRecalled,
               context.now_unix_ms);
    return;
  }
  auto asked = std::make_shared<Lease>(*lease);
  asked->recall = recall;
  editor.Replace(semaphore, lease, std::move(asked));
}

Outcome AskBack(Editor& editor, const RecallCommand& command, const Context& context) {
  Semaphore* semaphore = editor.Find(command.semaphore);
  const LeasePtr lease = semaphore ? semaphore->FindLease(command.claim) : nullptr;
  if (!lease || lease->foreign) return NotHeld();
  Outcome outcome = Simply(OutcomeKind::kDone);
  Recall recall = command.recall;
  if (recall.grace_ms < 0) recall.grace_ms = semaphore->row.settings.recall_grace_ms;
  if (context.longest_hold_max_ms > 0)
    recall.grace_ms = std::min(recall.grace_ms, context.longest_hold_max_ms / 2);
  if (!lease->recall.pending()) RecallOrEnd(editor, semaphore, lease, recall, context);
  outcome.lease = semaphore->FindLease(command.claim);
  if (!outcome.lease) AfterRoom(editor, semaphore, context);
  return outcome;
}

Outcome Adopt(Editor& editor, const AdoptCommand& command, const Context& context) {
  Semaphore* semaphore = editor.Find(command.semaphore);
  if (semaphore == nullptr) return NotHeld();
  if (const WaiterPtr waiter = semaphore->FindWaiter(command.claim)) {
    if (waiter->foreign) return NotHeld();
    Outcome outcome =
        Simply(waiter->detached() ? OutcomeKind::kStillWaiting : OutcomeKind::kBelongsToSession);
    outcome.claim = command.claim;
    if (waiter->detached() && waiter->host != context.self) {
      auto moved = std::make_shared<Waiter>(*waiter);
      moved->host = context.self;
      ++moved->epoch;
      editor.Replace(semaphore, waiter, std::move(moved));
    }
    outcome.position = semaphore->PositionOf(*waiter);
    outcome.number = semaphore->FindWaiter(command.claim)->epoch;
    return outcome;
  }
  const LeasePtr lease = semaphore->FindLease(command.claim);
  if (!lease || lease->foreign) return NotHeld();
  Outcome outcome = Simply(lease->detached() ? OutcomeKind::kHeld : OutcomeKind::kBelongsToSession);
  if (lease->detached() && lease->host != context.self) {
    auto moved = std::make_shared<Lease>(*lease);
    moved->host = context.self;
    ++moved->epoch;
    editor.Replace(semaphore, lease, std::move(moved));
    outcome.changed = true;
  }
  outcome.lease = semaphore->FindLease(command.claim);
  outcome.claim = command.claim;
  return outcome;
}

}  // namespace semaphored::ledger
