#include "adapters/ledger/rules/queue.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "adapters/ledger/rules/steps.h"

namespace semaphored::ledger {

// ---- Why a claim waits ----

WaitReason WhyClosed(const Semaphore& semaphore, const Context& context) {
  if (semaphore.row.destroying) return WaitReason::kDestroying;
  if (semaphore.row.paused) return WaitReason::kPaused;
  return context.withheld ? WaitReason::kWithheld : WaitReason::kNone;
}

WaitReason WhyNotTurn(const Semaphore& semaphore, const std::string& holder, uint32_t permits,
                      const QueuePlace& place) {
  if (!semaphore.capped()) return WaitReason::kNone;
  const auto line = semaphore.queue_turns.of_holder.find(holder);
  const bool behind =
      line != semaphore.queue_turns.of_holder.end() && line->second.begin()->first < place;
  const uint32_t first = behind ? line->second.begin()->second->permits : permits;
  if (semaphore.AtCap(holder, first)) return WaitReason::kHolderCap;
  return behind ? WaitReason::kBehind : WaitReason::kNone;
}

Ahead Ahead::Of(const QueuePlace& place, const Semaphore& semaphore, const Limits& limits) {
  Ahead ahead(semaphore, limits);
  if (!Fits(semaphore, 1)) return ahead;  // The answer is kFull everywhere.
  const Queue& ready = semaphore.ready_queue();
  // (Without a cap foreign waiters are among those that are ready.)
  const size_t foreign = semaphore.capped() ? 0 : semaphore.foreign.order_of_key(place);
  const size_t ours = ready.order_of_key(place) - foreign;
  // One of ours is in the way at least: the first; or, with backfill, one that fits or the last that may be
  // passed over.
  if (ours > (semaphore.row.settings.backfill ? limits.backfill_depth : 0)) {
    ahead.blocks_ = true;
    return ahead;
  }
  for (auto at = ready.begin(); ahead.passed_ < ours && !ahead.blocks_; ++at) {
    if (at->second->foreign) continue;
    ahead.WhyNot(at->first, at->second->permits);
    ahead.Pass(*at->second);
  }
  return ahead;
}

WaitReason WhyNotLetIn(const Semaphore& semaphore, const Claim& claim, const QueuePlace& place,
                       Ahead* ahead, const Context& context) {
  const WaitReason closed = WhyClosed(semaphore, context);
  if (closed != WaitReason::kNone) return closed;
  const WaitReason turn = WhyNotTurn(semaphore, claim.holder, claim.permits, place);
  if (turn == WaitReason::kHolderCap) return turn;
  const WaitReason room = ahead->WhyNot(place, claim.permits);
  return room != WaitReason::kNone ? room : turn;
}

WaitReason AfterEngine(WaitReason why, const Semaphore& semaphore, uint32_t permits,
                       const Context& context) {
  const bool engine_decides = why == WaitReason::kNone || why == WaitReason::kBehind;
  if (context.permits == nullptr || !engine_decides) return why;
  if (context.permits->Withholds(semaphore.row.name)) return WaitReason::kWithheld;
  // What others hold is known from when the engine was last asked.
  const bool fits = Fits(semaphore, uint64_t{semaphore.held_elsewhere} + permits);
  return why == WaitReason::kNone || !fits ? WaitReason::kFull : why;
}

WaitReason ReasonOf(const Semaphore& semaphore, const Waiter& waiter, Ahead* ahead,
                    const Context& context) {
  if (waiter.works) return WaitReason::kNone;
  if (waiter.foreign)
    return Fits(semaphore, waiter.permits) ? WaitReason::kNone : WaitReason::kFull;
  const QueuePlace place = PlaceOf(waiter);
  const WaitReason why = WhyNotLetIn(semaphore, waiter, place, ahead, context);
  if (WhyNotTurn(semaphore, waiter.holder, waiter.permits, place) == WaitReason::kNone)
    ahead->Pass(waiter);
  return AfterEngine(why, semaphore, waiter.permits, context);
}

WaitReason ReasonOf(const Semaphore& semaphore, const Waiter& waiter, const Context& context) {
  Ahead ahead = Ahead::Of(PlaceOf(waiter), semaphore, context.limits);
  return ReasonOf(semaphore, waiter, &ahead, context);
}

// ---- What a grant writes: waiters and tickets are in one queue ----

namespace {

int64_t LongestHold(const Settings& settings, const Context& context) {
  if (context.longest_hold_max_ms == 0) return settings.longest_hold_ms;
  // A recalled lease ends with its grace, or with what was vouched for before, whichever is later. Of the time that
  // there is, at least half is for the holder.
  const int64_t ending = std::min(std::max(settings.recall_grace_ms, context.vouch_max_ms),
                                  context.longest_hold_max_ms / 2);
  const int64_t most = context.longest_hold_max_ms - ending;
  return settings.longest_hold_ms == 0 ? most : std::min(most, settings.longest_hold_ms);
}

// Without slots.
LeasePtr NewLease(const Semaphore& semaphore, const Claim& claim, const Context& context) {
  auto lease = std::make_shared<Lease>();
  static_cast<Claim&>(*lease) = claim;
  lease->granted_at_unix_ms = context.now_unix_ms;
  lease->longest_hold_ms = LongestHold(semaphore.row.settings, context);
  return lease;
}

// Its session is ending, which removes the claim: nothing is given to it any more.
bool IsLeaving(const LedgerState& state, const Claim& claim) {
  if (claim.detached()) return false;
  const SessionPtr& session = state.FindSession(claim.session);
  return session != nullptr && session->closing;
}

// The first offer that can get a ticket; nullptr: there is none.
WaiterPtr FirstStaying(const LedgerState& state, const Semaphore& semaphore) {
  for (const auto& [place, offer] : semaphore.ready_offers()) {
    if (!IsLeaving(state, *offer)) return offer;
  }
  return nullptr;
}

// As many of those who waited as one commit may.
bool LetInEnough(const Editor& editor, const Context& context) {
  return context.grants_max != 0 && editor.let_in() >= context.grants_max;
}

}  // namespace

bool GrantTo(Editor& editor, Semaphore* semaphore, const Claim& claim, const WaiterPtr& waiter,
             const Context& context, bool may_wait) {
  LeasePtr lease = NewLease(*semaphore, claim, context);
  if (context.permits == nullptr) {
    lease->slots = semaphore->slots.LowestFree(claim.permits);
  } else {
    const auto permit = context.permits->Take(semaphore->row.name, claim.id, may_wait);
    if (!permit) return false;
    lease->slots = {permit->slot};
    lease->token = permit->token;
  }
  if (waiter) editor.Leave(semaphore, waiter, EndCause::kNone);
  editor.RequireEpoch(claim);
  editor.Grant(semaphore, std::move(lease));
  return true;
}

void Assign(Editor& editor, Semaphore* semaphore, const TicketPtr& ticket, const Claim& claim,
            const WaiterPtr& offer, const Context& context) {
  LeasePtr lease = NewLease(*semaphore, claim, context);
  lease->slots = semaphore->slots.LowestFree(claim.permits);
  lease->priority = ticket->priority;
  lease->ticket = ticket->id;
  lease->attempt = ticket->attempt + 1;
  auto assigned = std::make_shared<Ticket>(*ticket);
  assigned->state = TicketState::kAssigned;
  assigned->attempt = lease->attempt;
  assigned->lease = claim.id;
  if (offer) editor.Leave(semaphore, offer, EndCause::kNone);
  editor.RequireEpoch(claim);
  editor.Replace(semaphore, ticket, std::move(assigned));
  editor.Grant(semaphore, std::move(lease));
}

void Advance(Editor& editor, Semaphore* semaphore, const Context& context) {
  if (WhyClosed(*semaphore, context) != WaitReason::kNone) return;
  Ahead ahead(*semaphore, context.limits);
  const Queue& ready = semaphore->ready_queue();
  // Each grant can take turns away or give them, so the next one is looked up each time.
  std::optional<QueuePlace> last;
  while (Fits(*semaphore, ahead.left() + 1)) {
    const auto at = last ? ready.upper_bound(*last) : ready.begin();
    const auto ticket_at = semaphore->eligible.begin();
    const WaiterPtr offer =
        ticket_at == semaphore->eligible.end() ? nullptr : FirstStaying(editor.state(), *semaphore);
    const bool waits = at != ready.end();
    if (!waits && !offer) return;
    if (offer && (!waits || ticket_at->first < at->first)) {
      if (ahead.WhyNot(ticket_at->first, offer->permits) != WaitReason::kNone) return;
      if (LetInEnough(editor, context)) return editor.AdvanceLater(*semaphore);
      Assign(editor, semaphore, ticket_at->second, *offer, offer, context);
      continue;
    }
    const WaiterPtr waiter = at->second;
    last = at->first;
    editor.CountLook();
    if (waiter->foreign || IsLeaving(editor.state(), *waiter)) continue;
    if (ahead.WhyNot(*last, waiter->permits) != WaitReason::kNone) {
      ahead.Pass(*waiter);
      if (ahead.blocks()) return;
      continue;
    }
    if (LetInEnough(editor, context)) return editor.AdvanceLater(*semaphore);
    if (!GrantTo(editor, semaphore, *waiter, waiter, context)) return;
  }
}

void AfterRoom(Editor& editor, Semaphore* semaphore, const Context& context) {
  if (semaphore->row.destroying && semaphore->leases.empty() && semaphore->held_elsewhere == 0 &&
      semaphore->row.intentions.empty()) {
    // Foreign waiters may have come since.
    if (!DismissWaiters(editor, semaphore, context)) return editor.AdvanceLater(*semaphore);
    editor.Destroy(semaphore);
    return;
  }
  Advance(editor, semaphore, context);
}

}  // namespace semaphored::ledger
