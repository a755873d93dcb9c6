// Acquire, release, verify, end: what becomes of claims.
#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/rules/rules.h"
#include "adapters/ledger/rules/steps.h"

namespace semaphored::ledger {
namespace {

Claim ClaimOf(const AcquireCommand& command, const Context& context) {
  Claim claim;
  claim.id = command.claim;
  claim.session = command.session;
  claim.request = {context.client, command.requester.sequence, command.requester.one_shot};
  claim.fingerprint = context.fingerprint;
  claim.host = context.self;
  claim.permits = command.permits;
  claim.priority = command.priority;
  claim.ttl_ms = command.ttl_ms;
  claim.holder = command.holder;
  claim.owner = command.owner;
  return claim;
}

Outcome StandInQueue(Editor& editor, Semaphore* semaphore, const Claim& claim, WaitReason why,
                     const Context& context) {
  const Limits& limits = context.limits;
  const uint32_t own_max = semaphore->row.settings.waiters_max;
  const uint32_t waiters_max = own_max != 0 ? std::min(own_max, limits.waiters_per_semaphore_max)
                                            : limits.waiters_per_semaphore_max;
  if (semaphore->queue.size() >= waiters_max) {
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
  outcome.detail = Outcome::InQueue{semaphore->PositionOf(*waiter), 0, why};
  return outcome;
}

// What becomes of a claim that does not wait, in the order in which the causes are reported. `engine_gave_none`:
// the rules would have granted it.
OutcomeKind RefusalOf(const Semaphore& semaphore, const Claim& claim, const QueuePlace& place,
                      bool engine_gave_none, const Context& context) {
  if (semaphore.row.paused) return OutcomeKind::kPaused;
  Ahead ahead = Ahead::Of(place, semaphore, context.limits);
  if (engine_gave_none || ahead.WhyNot(place, claim.permits) != WaitReason::kNone)
    return OutcomeKind::kFull;
  const WaitReason turn = WhyNotTurn(semaphore, claim.holder, claim.permits, place);
  return turn != WaitReason::kNone ? OutcomeKind::kHolderCap : OutcomeKind::kWithheld;
}

// Grants, queues or refuses. The semaphore is there, and large enough.
Outcome AcquireOf(Editor& editor, Semaphore* semaphore, const AcquireCommand& command,
                  const Context& context) {
  const Claim claim = ClaimOf(command, context);
  const QueuePlace place = LastOf(claim.priority);
  Ahead ahead = Ahead::Of(place, *semaphore, context.limits);
  const WaitReason why = WhyNotLetIn(*semaphore, claim, place, &ahead, context);
  Claim granted = claim;
  granted.order = semaphore->row.next_order;
  const bool may = why == WaitReason::kNone;
  if (may && GrantTo(editor, semaphore, granted, nullptr, context, command.wait)) {
    Outcome outcome = Simply(OutcomeKind::kGranted);
    outcome.lease = semaphore->FindLease(claim.id);
    outcome.claim = claim.id;
    return outcome;
  }
  if (!command.wait) return Simply(RefusalOf(*semaphore, claim, place, may, context));
  return StandInQueue(editor, semaphore, claim,
                      AfterEngine(why, *semaphore, claim.permits, context), context);
}

}  // namespace

std::optional<Outcome> OverQuota(const LedgerState& state, const std::string& owner,
                                 const OwnerQuotas& quotas, const OwnerUsage& more) {
  const OwnerUsage has = state.UsageOf(owner);
  std::string over;
  const auto check = [&](const char* what, uint64_t quota, uint64_t stands, uint64_t comes) {
    if (comes == 0 || (stands <= quota && comes <= quota - stands)) return;
    over = absl::StrCat("the quota of ", owner, " is ", quota, " ", what, "; it has ", stands,
                        " and asks for ", comes);
  };
  check("semaphores", quotas.semaphores, has.semaphores, more.semaphores);
  check("tickets", quotas.tickets, has.tickets, more.tickets);
  check("bytes of payloads", quotas.ticket_bytes, has.ticket_bytes, more.ticket_bytes);
  if (over.empty()) return std::nullopt;
  Outcome outcome = Simply(OutcomeKind::kOverQuota);
  outcome.message = std::move(over);
  return outcome;
}

std::optional<Outcome> FindOrCreate(Editor& editor, const AskedSemaphore& asked,
                                    const Context& context, Semaphore** semaphore) {
  *semaphore = editor.Find(asked.name);
  if (*semaphore == nullptr) {
    if (asked.limit == 0 || asked.must_exist) return Simply(OutcomeKind::kNoSuchSemaphore);
    if (asked.permits > asked.limit) {
      Outcome outcome = Simply(OutcomeKind::kExceedsLimit);
      outcome.detail = Outcome::Limit{asked.limit};
      return outcome;
    }
    if (editor.state().semaphore_count() >= context.limits.semaphores_max) {
      return LimitReached(
          absl::StrCat("semaphores_max (", context.limits.semaphores_max, ") is reached"));
    }
    if (auto over = OverQuota(editor.state(), asked.owner, asked.quotas, {.semaphores = 1}))
      return over;
    SemaphoreRow row;
    row.owner = asked.owner;
    row.name = asked.name;
    row.limit = asked.limit;
    row.made_on_use = true;
    row.created_at_unix_ms = context.now_unix_ms;
    *semaphore = editor.Create(std::move(row));
    return std::nullopt;
  }
  const SemaphoreRow& row = (*semaphore)->row;
  if (row.destroying) return Simply(OutcomeKind::kDestroyed);
  if (asked.limit != 0 && asked.limit != row.limit && !asked.adopt_limit) {
    Outcome outcome = Simply(OutcomeKind::kLimitMismatch);
    outcome.detail = Outcome::Limit{row.limit, asked.limit};
    return outcome;
  }
  const uint32_t cap = row.settings.permits_per_holder;
  if (asked.permits > row.limit || (cap != 0 && asked.permits > cap)) {
    Outcome outcome = Simply(OutcomeKind::kExceedsLimit);
    outcome.detail = Outcome::Limit{std::min(row.limit, cap != 0 ? cap : row.limit)};
    return outcome;
  }
  return std::nullopt;
}

std::optional<Outcome> ClaimsAtLimit(const LedgerState& state, const Limits& limits) {
  if (state.lease_count() + state.waiter_count() < limits.leases_max) return std::nullopt;
  return LimitReached(
      absl::StrCat("leases_max (", limits.leases_max, ", leases and waiters together) is reached"));
}

bool IsEpochOf(const Session& session, uint32_t epoch) {
  return epoch == 0 || session.epoch == epoch || (session.closing && session.epoch == epoch + 1);
}

bool IsEpochOf(const LedgerState& state, const Claim& claim, uint32_t epoch) {
  if (claim.detached()) return epoch == 0 || claim.epoch == epoch;
  const SessionPtr& session = state.FindSession(claim.session);
  return session ? IsEpochOf(*session, epoch) : epoch == 0;
}

NodeRef HostOf(const LedgerState& state, const Claim& claim) {
  if (claim.detached()) return claim.host;
  const SessionPtr& session = state.FindSession(claim.session);
  return session ? session->host : NodeRef{};
}

RequestRow DoneBy(const Requester& requester, std::string_view semaphore, const Context& context) {
  RequestRow row;
  row.request = {context.client, requester.sequence, requester.one_shot};
  row.fingerprint = context.fingerprint;
  row.state = RequestRow::State::kDone;
  row.semaphore = semaphore;
  return row;
}

std::optional<Outcome> SessionRefuses(const LedgerState& state, const Id& id, uint32_t epoch) {
  const SessionPtr& session = state.FindSession(id);
  if (!session || session->closing) return Simply(OutcomeKind::kSessionLost);
  if (epoch != 0 && session->epoch != epoch) return Simply(OutcomeKind::kStale);
  return std::nullopt;
}

Outcome Acquire(Editor& editor, const AcquireCommand& command, const Context& context) {
  if (command.session != command.claim) {
    if (auto refusal = SessionRefuses(editor.state(), command.session, command.epoch))
      return std::move(*refusal);
  }
  if (auto full = ClaimsAtLimit(editor.state(), context.limits)) return std::move(*full);
  const AskedSemaphore asked{command.semaphore,  command.limit,   command.adopt_limit,
                             command.must_exist, command.permits, command.owner,
                             command.quotas};
  const bool is_new = editor.Find(command.semaphore) == nullptr;
  Semaphore* semaphore = nullptr;
  if (auto refusal = FindOrCreate(editor, asked, context, &semaphore)) return std::move(*refusal);
  Outcome outcome = AcquireOf(editor, semaphore, command, context);
  // A request that is refused leaves nothing behind.
  const bool stands = outcome.kind == OutcomeKind::kGranted || outcome.kind == OutcomeKind::kQueued;
  if (is_new && !stands) editor.Destroy(semaphore);
  return outcome;
}

Outcome Release(Editor& editor, const ReleaseCommand& command, const Context& context) {
  Semaphore* semaphore = editor.Find(command.semaphore);
  const LeasePtr lease = semaphore ? semaphore->FindLease(command.claim) : nullptr;
  if (!lease || lease->foreign || IsAnothers(lease->owner, command.caller)) return NotHeld();
  if (!command.session.empty() && lease->session != command.session)
    return NotHeld(EndCause::kMoved);
  if (const std::optional<uint32_t> slot = lease->slots.FirstNotHere(command.slots)) {
    Outcome outcome = Simply(OutcomeKind::kNoSuchSlot);
    outcome.detail = Outcome::NotItsSlot{*slot};
    return outcome;
  }
  Outcome outcome = Simply(OutcomeKind::kReleased);
  const auto named = static_cast<uint32_t>(command.slots.size());
  const uint32_t released = named == 0 ? lease->permits : named;
  const uint32_t remaining = lease->permits - released;
  outcome.detail = Outcome::Released{released, remaining, lease->owner};
  if (remaining == 0) {
    EndLease(editor, semaphore, lease, EndCause::kReleased, context);
  } else {
    auto rest = std::make_shared<Lease>(*lease);
    rest->permits = remaining;
    rest->slots = lease->slots.Without(command.slots);
    if (rest->slots.front() != lease->listed_at()) rest->listed_slot = lease->listed_at();
    outcome.lease = rest;
    editor.Replace(semaphore, lease, std::move(rest));
  }
  RequestRow done = DoneBy(command.requester, command.semaphore, context);
  done.claim = command.claim;
  done.number = released;
  done.remaining = remaining;
  editor.Remember(std::move(done));
  AfterRoom(editor, semaphore, context);
  return outcome;
}

Outcome Verify(const LedgerState& state, const VerifyCommand& command) {
  const Semaphore* semaphore = state.Find(command.semaphore);
  if (semaphore == nullptr) return NotHeld();
  Outcome outcome = Simply(OutcomeKind::kHeld);
  if (command.claim.empty()) {
    outcome.lease = semaphore->LeaseAt(command.slot);
    const uint64_t token = outcome.lease ? outcome.lease->token : 0;
    // A lease granted in this very batch has no token yet, so no client can ask for it by token.
    if (token == 0 || token != command.token) outcome = NotHeld();
    outcome.detail = Outcome::AtSlot{token};
    return outcome;
  }
  outcome.lease = semaphore->FindLease(command.claim);
  if (outcome.lease)
    return IsAnothers(outcome.lease->owner, command.caller) ? NotHeld() : std::move(outcome);
  const WaiterPtr waiter = semaphore->FindWaiter(command.claim);
  const bool waits = waiter && !waiter->foreign && !IsAnothers(waiter->owner, command.caller);
  return waits ? Simply(OutcomeKind::kStillWaiting) : NotHeld();
}

namespace {

// The claim has moved to another session, or its session to another daemon, since the end was decided.
bool IsOfAnother(const EndCommand& command, const Claim& claim, const LedgerState& state) {
  if (!command.session.empty() && claim.session != command.session) return true;
  return !IsEpochOf(state, claim, command.epoch);
}

}  // namespace

Outcome End(Editor& editor, const EndCommand& command, const Context& context) {
  Semaphore* semaphore = editor.Find(command.semaphore);
  if (semaphore == nullptr) return NotHeld();
  if (const WaiterPtr waiter = semaphore->FindWaiter(command.claim)) {
    if (waiter->foreign) return NotHeld();
    if (IsOfAnother(command, *waiter, editor.state())) return Simply(OutcomeKind::kStale);
    editor.RequireEpoch(*waiter);
    editor.Leave(semaphore, waiter, command.cause);
    AfterRoom(editor, semaphore, context);
    return Simply(OutcomeKind::kDone);
  }
  const LeasePtr lease = semaphore->FindLease(command.claim);
  if (!lease || lease->foreign) return NotHeld();
  if (command.only_waiting) return Simply(OutcomeKind::kStale);
  if (IsOfAnother(command, *lease, editor.state())) return Simply(OutcomeKind::kStale);
  editor.RequireEpoch(*lease);
  // A client that gives up its wait, and wants no lease either, may have been granted it meanwhile.
  const bool cancelled = command.cause == EndCause::kCancelled;
  EndLease(editor, semaphore, lease, cancelled ? EndCause::kDisconnected : command.cause, context);
  AfterRoom(editor, semaphore, context);
  return Simply(OutcomeKind::kDone);
}

void RecallLease(Editor& editor, Semaphore* semaphore, const LeasePtr& lease, const Recall& recall,
                 const Context& context) {
  if (IsRecalledBy(*lease, recall)) return;
  if (recall.grace_ms == Recall::kNow)
    return EndLease(editor, semaphore, lease, EndCauseOf(recall.reason), context);
  auto asked = std::make_shared<Lease>(*lease);
  asked->recall = recall;
  editor.Replace(semaphore, lease, std::move(asked));
}

Outcome RecallLease(Editor& editor, const RecallCommand& command, const Context& context) {
  Semaphore* semaphore = editor.Find(command.semaphore);
  const LeasePtr lease = semaphore ? semaphore->FindLease(command.claim) : nullptr;
  if (!lease || lease->foreign) return NotHeld();
  Outcome outcome = Simply(OutcomeKind::kDone);
  Recall recall = command.recall;
  recall.grace_ms = GraceOf(recall.grace_ms, *semaphore);
  if (context.longest_hold_max_ms > 0)
    recall.grace_ms = std::min(recall.grace_ms, context.longest_hold_max_ms / 2);
  if (!lease->recall.pending()) RecallLease(editor, semaphore, lease, recall, context);
  outcome.lease = semaphore->FindLease(command.claim);
  if (!outcome.lease) AfterRoom(editor, semaphore, context);
  return outcome;
}

Outcome Adopt(Editor& editor, const AdoptCommand& command, const Context& context) {
  Semaphore* semaphore = editor.Find(command.semaphore);
  if (semaphore == nullptr) return NotHeld();
  if (const WaiterPtr waiter = semaphore->FindWaiter(command.claim)) {
    if (waiter->foreign || IsAnothers(waiter->owner, command.caller)) return NotHeld();
    Outcome outcome =
        Simply(waiter->detached() ? OutcomeKind::kStillWaiting : OutcomeKind::kBelongsToSession);
    outcome.claim = command.claim;
    if (waiter->detached() && waiter->host != context.self) {
      auto moved = std::make_shared<Waiter>(*waiter);
      moved->host = context.self;
      ++moved->epoch;
      editor.Replace(semaphore, waiter, std::move(moved));
    }
    outcome.detail = Outcome::InQueue{semaphore->PositionOf(*waiter),
                                      semaphore->FindWaiter(command.claim)->epoch,
                                      ReasonOf(*semaphore, *waiter, context)};
    return outcome;
  }
  const LeasePtr lease = semaphore->FindLease(command.claim);
  if (!lease || lease->foreign || IsAnothers(lease->owner, command.caller)) return NotHeld();
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

namespace {

bool IsDetached(const AcquireCommand& command) { return command.session == command.claim; }

// The repeated request comes from where the claim is now.
bool ComesFromOwner(const AcquireCommand& command, const Claim& claim) {
  return claim.detached() ? IsDetached(command) : claim.session == command.session;
}

// Hands the claim over to the session, or to the detached caller, from which it was asked for again.
template <typename Row>
std::shared_ptr<Row> MovedTo(const AcquireCommand& command, const Row& row,
                             const Context& context) {
  auto moved = std::make_shared<Row>(row);
  moved->session = IsDetached(command) ? row.id : command.session;
  moved->host = context.self;
  moved->ttl_ms = command.ttl_ms;
  ++moved->epoch;
  return moved;
}

// A detached wait belongs to the latest call: an end that was sent for an earlier one names an earlier epoch.
Outcome RepeatWait(Editor& editor, Semaphore* semaphore, WaiterPtr waiter,
                   const AcquireCommand& command, const Context& context) {
  if (waiter->detached() || !ComesFromOwner(command, *waiter)) {
    auto moved = MovedTo(command, *waiter, context);
    editor.RequireEpoch(*moved);
    editor.Replace(semaphore, waiter, moved);
    waiter = std::move(moved);
  }
  Outcome outcome = Simply(OutcomeKind::kQueued);
  outcome.claim = waiter->id;
  outcome.detail = Outcome::InQueue{semaphore->PositionOf(*waiter), waiter->epoch,
                                    ReasonOf(*semaphore, *waiter, context)};
  return outcome;
}

Outcome RepeatLease(Editor& editor, Semaphore* semaphore, LeasePtr lease,
                    const AcquireCommand& command, const Context& context) {
  const Id id = lease->id;
  const NodeRef former = HostOf(editor.state(), *lease);
  Outcome outcome = Simply(OutcomeKind::kGranted);
  outcome.claim = id;
  const bool over =
      command.moved_is_over && (command.moved_epoch == 0 || command.moved_epoch == lease->epoch);
  if (!ComesFromOwner(command, *lease)) {
    auto moved = MovedTo(command, *lease, context);
    moved->moved_from = former.number != 0 ? former.number : lease->host.number;
    // Until the move is over: a former holder may have received a validity of this length.
    moved->ttl_ms = std::max(lease->ttl_ms, command.ttl_ms);
    editor.RequireEpoch(*moved);
    editor.Replace(semaphore, lease, std::move(moved));
    outcome.kind = OutcomeKind::kMoving;
  } else if (lease->moved_from != 0 && !over) {
    outcome.kind = OutcomeKind::kMoving;
  } else if (lease->moved_from != 0) {
    auto settled = std::make_shared<Lease>(*lease);
    settled->moved_from = 0;
    settled->ttl_ms = command.ttl_ms;
    if (settled->detached()) {
      // Every daemon that was asked meanwhile thinks that it keeps the lease. From now on one does.
      settled->host = context.self;
      ++settled->epoch;
    }
    editor.RequireEpoch(*settled);
    editor.Replace(semaphore, lease, std::move(settled));
  } else if (lease->detached() && lease->host != context.self) {
    editor.Replace(semaphore, lease, MovedTo(command, *lease, context));
    outcome.changed = true;
  }
  outcome.lease = semaphore->FindLease(id);
  return outcome;
}

}  // namespace

Outcome Repeat(Editor& editor, const AcquireCommand& command, const Id& claim,
               const Context& context) {
  Semaphore* semaphore = editor.Find(command.semaphore);
  if (semaphore == nullptr) return NotHeld();
  WaiterPtr waiter = semaphore->FindWaiter(claim);
  LeasePtr lease = semaphore->FindLease(claim);
  if (!waiter && !lease) return NotHeld();
  if (!IsDetached(command)) {
    if (auto refusal = SessionRefuses(editor.state(), command.session, command.epoch))
      return std::move(*refusal);
  }
  return waiter ? RepeatWait(editor, semaphore, std::move(waiter), command, context)
                : RepeatLease(editor, semaphore, std::move(lease), command, context);
}

}  // namespace semaphored::ledger
