#include "tests/contract/walk_model.h"

#include <algorithm>

namespace semaphored::contract {

uint32_t ModelSemaphore::held() const {
  uint32_t held = 0;
  for (const Holding& holding : holdings_) held += static_cast<uint32_t>(holding.slots.size());
  return held;
}

std::set<uint32_t> ModelSemaphore::LowestFree(uint32_t permits) const {
  std::set<uint32_t> free;
  for (uint32_t slot = 1; free.size() < permits; ++slot) {
    const bool taken = std::ranges::any_of(
        holdings_, [&](const Holding& holding) { return holding.slots.contains(slot); });
    if (!taken) free.insert(slot);
  }
  return free;
}

OutcomeKind ModelSemaphore::Acquire(const Id& claim, uint32_t permits, int32_t priority,
                                    bool wait) {
  if (permits > limit_) return OutcomeKind::kExceedsLimit;
  const bool ahead =
      std::ranges::any_of(queue_, [&](const Waiting& each) { return each.priority >= priority; });
  if (!paused_ && !ahead && held() + permits <= limit_) {
    holdings_.push_back({claim, LowestFree(permits)});
    return OutcomeKind::kGranted;
  }
  if (!wait) return paused_ ? OutcomeKind::kPaused : OutcomeKind::kFull;
  const auto behind =
      std::ranges::find_if(queue_, [&](const Waiting& each) { return each.priority < priority; });
  queue_.insert(behind, {claim, permits, priority});
  return OutcomeKind::kQueued;
}

OutcomeKind ModelSemaphore::Release(const Id& claim, const std::set<uint32_t>& slots) {
  const auto found = std::ranges::find(holdings_, claim, &Holding::claim);
  if (found == holdings_.end()) return OutcomeKind::kNotHeld;
  if (!std::ranges::includes(found->slots, slots)) return OutcomeKind::kNoSuchSlot;
  if (slots.empty() || slots == found->slots) {
    holdings_.erase(found);
    ended_.push_back({claim, EndCause::kReleased});
  } else {
    for (const uint32_t slot : slots) found->slots.erase(slot);
  }
  Serve();
  return OutcomeKind::kReleased;
}

OutcomeKind ModelSemaphore::End(const Id& claim, EndCause cause) {
  const auto waiting = std::ranges::find(queue_, claim, &Waiting::claim);
  const auto holding = std::ranges::find(holdings_, claim, &Holding::claim);
  if (waiting != queue_.end()) {
    queue_.erase(waiting);
    waits_ended_.push_back({claim, cause});
  } else if (holding != holdings_.end()) {
    holdings_.erase(holding);
    ended_.push_back({claim, cause});
  } else {
    return OutcomeKind::kNotHeld;
  }
  Serve();
  return OutcomeKind::kDone;
}

OutcomeKind ModelSemaphore::Verify(const Id& claim, bool removed) const {
  const auto holding = std::ranges::find(holdings_, claim, &Holding::claim);
  if (holding != holdings_.end())
    return removed || *holding->slots.rbegin() <= limit_ ? OutcomeKind::kHeld
                                                         : OutcomeKind::kNotHeld;
  const bool waits = std::ranges::count(queue_, claim, &Waiting::claim) > 0;
  return waits ? OutcomeKind::kStillWaiting : OutcomeKind::kNotHeld;
}

void ModelSemaphore::Resize(uint32_t limit) {
  limit_ = limit;
  for (const Waiting& each : queue_) {
    if (each.permits > limit) waits_ended_.push_back({each.claim, EndCause::kExceedsLimit});
  }
  std::erase_if(queue_, [&](const Waiting& each) { return each.permits > limit; });
  Serve();
}

void ModelSemaphore::Pause(bool paused) {
  paused_ = paused;
  Serve();
}

void ModelSemaphore::ExpectGranted(const Id& claim) {
  granted_.push_back(*std::ranges::find(holdings_, claim, &Holding::claim));
}

void ModelSemaphore::SetSlots(const Id& claim, const std::set<uint32_t>& slots) {
  for (std::vector<Holding>* all : {&holdings_, &granted_}) {
    const auto found = std::ranges::find(*all, claim, &Holding::claim);
    if (found != all->end()) found->slots = slots;
  }
}

void ModelSemaphore::Serve() {
  while (!paused_ && !queue_.empty() && held() + queue_.front().permits <= limit_) {
    holdings_.push_back({queue_.front().claim, LowestFree(queue_.front().permits)});
    granted_.push_back(holdings_.back());
    queue_.erase(queue_.begin());
  }
}

}  // namespace semaphored::contract
