#include "adapters/ledger/rules/admission.h"

namespace semaphored::ledger {

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

}  // namespace semaphored::ledger
