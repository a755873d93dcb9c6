// The queue: whether a claim gets its permits now, and if not, why it waits; and what a grant writes. Included by the
// rules' own files, and by their tests.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "adapters/ledger/rules/rules.h"
#include "adapters/ledger/state/state.h"

namespace semaphored::ledger {

// ---- Why a claim waits ----
// One answer serves both: Advance and Acquire grant a claim if its reason is kNone, and `describe` shows the same reason.
// Functions of the state alone; nothing is changed.

inline bool Fits(const Semaphore& semaphore, uint64_t permits) {
  return semaphore.held + permits <= semaphore.row.limit;
}

// The offer that gets the next ticket; nullptr: there is none.
inline WaiterPtr FirstOffer(const Semaphore& semaphore) {
  const Queue& ready = semaphore.ready_offers();
  return ready.empty() ? nullptr : ready.begin()->second;
}

// A ticket stands before the place, and a worker offers to take it.
inline bool TicketAhead(const Semaphore& semaphore, const QueuePlace& place) {
  return !semaphore.eligible.empty() && semaphore.eligible.begin()->first < place &&
         !semaphore.ready_offers().empty();
}

// Why nothing at all is granted in the semaphore: kDestroying, kPaused, kWithheld. kNone: something may be.
WaitReason WhyClosed(const Semaphore& semaphore, const Context& context);

// Why it is not the turn of a claim at this place among the requests of its holder: kHolderCap, or kBehind an
// earlier request of that holder, which waits for another reason. kNone: it is. A waiter of ours is in
// Semaphore::ready_queue() exactly if it is its turn. O(log n).
WaitReason WhyNotTurn(const Semaphore& semaphore, const std::string& holder, uint32_t permits,
                      const QueuePlace& place);

// What is before a place in the queue and in its way. It walks the queue from the front: each place that it is asked
// about must be behind the last one.
class Ahead {
 public:
  // At the front: nothing is in the way. Both outlive it; the semaphore may change, but for its foreign
  // waiters.
  Ahead(const Semaphore& semaphore, const Limits& limits)
      : semaphore_(&semaphore), limits_(&limits), foreign_(semaphore.foreign.begin()) {}
  // Behind all that stands before the place. O(log n); with backfill it looks at up to backfill_depth waiters
  // and at the foreign ones among them.
  static Ahead Of(const QueuePlace& place, const Semaphore& semaphore, const Limits& limits);

  // Why a claim at this place, whose holder's turn it is, does not get so many permits: kFull, kBehind,
  // kForeign. kNone: it gets them.
  WaitReason WhyNot(const QueuePlace& place, uint32_t permits) {
    for (; foreign_ != semaphore_->foreign.end() && foreign_->first < place; ++foreign_)
      left_ += foreign_->second->permits;
    if (!Fits(*semaphore_, permits)) return WaitReason::kFull;
    if (blocks_ || TicketAhead(*semaphore_, place)) return WaitReason::kBehind;
    return Fits(*semaphore_, permits + left_) ? WaitReason::kNone : WaitReason::kForeign;
  }
  // The waiter, which WhyNot was just asked about, stays. REQUIRES: it is of ours, and it is its turn.
  void Pass(const Waiter& waiter) {
    // One that fits is served first, be it by a later commit.
    const bool may_be_passed =
        semaphore_->row.settings.backfill && !Fits(*semaphore_, waiter.permits + left_);
    blocks_ = blocks_ || !may_be_passed || ++passed_ > limits_->backfill_depth;
  }

  // Whatever is behind waits.
  bool blocks() const { return blocks_; }
  // Permits that are left to the foreign clients that were met so far.
  uint64_t left() const { return left_; }
  // How many waiters of ours were looked at.
  uint32_t passed() const { return passed_; }

 private:
  const Semaphore* semaphore_;
  const Limits* limits_;
  Queue::const_iterator foreign_;  // The next one.
  uint64_t left_ = 0;
  uint32_t passed_ = 0;
  bool blocks_ = false;
};

// Why a claim at this place is not granted; kNone: it is. `ahead`: at the place. On an engine that hands out
// permits itself, the engine then may still give none.
WaitReason WhyNotLetIn(const Semaphore& semaphore, const Claim& claim, const QueuePlace& place,
                       Ahead* ahead, const Context& context);

// The same of a claim for which the engine has the last word, and has given nothing (Context::permits).
// Without such an engine: `why`.
WaitReason AfterEngine(WaitReason why, const Semaphore& semaphore, uint32_t permits,
                       const Context& context);

// The reason that is shown of a waiter or an offer in the semaphore. With `ahead`, which is right before it and then
// behind it, the waiters of a queue are shown in order at O(1) each.
WaitReason ReasonOf(const Semaphore& semaphore, const Waiter& waiter, Ahead* ahead,
                    const Context& context);
// Of a single one; costs what Ahead::Of does.
WaitReason ReasonOf(const Semaphore& semaphore, const Waiter& waiter, const Context& context);

// ---- What a grant writes ----

// Behind all that stand with this priority.
inline QueuePlace LastOf(int32_t priority) {
  return {priority, std::numeric_limits<uint64_t>::max()};
}

// Grants without asking for room. `waiter` is the claim's place in the queue, if it has one. False:
// the engine gives no permit, and nothing has changed.
bool GrantTo(Editor& editor, Semaphore* semaphore, const Claim& claim, const WaiterPtr& waiter,
             const Context& context, bool may_wait = true);

// Gives a ticket to an offer, without asking for room; `offer` is the row of it, if it stands.
void Assign(Editor& editor, Semaphore* semaphore, const TicketPtr& ticket, const Claim& claim,
            const WaiterPtr& offer, const Context& context);

// After anything that may have made room or emptied the semaphore: grants to waiters, or, if the
// last lease of one that is being destroyed has gone, destroys it. The pointer may be dangling
// afterwards.
void AfterRoom(Editor& editor, Semaphore* semaphore, const Context& context);

}  // namespace semaphored::ledger
