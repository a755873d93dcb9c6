#include "adapters/ledger/state/slot_map.h"

#include <algorithm>

namespace semaphored::ledger {

Slots SlotMap::LowestFree(uint32_t count) const {
  Slots lowest;
  for (auto run = free_.begin(); count > 0 && run != free_.end(); ++run) {
    const auto& [last, first] = *run;
    const uint32_t taken = std::min(count, last - first + 1);
    lowest.Append({first, first + taken - 1});
    count -= taken;
  }
  return lowest;
}

Id SlotMap::At(uint32_t slot) const {
  const auto run = taken_.lower_bound(slot);
  return run != taken_.end() && run->second.first <= slot ? run->second.lease : Id();
}

void SlotMap::Take(const Slots& slots, const Id& lease) {
  for (const Slots::Run& run : slots.runs()) TakeRun(run, lease);
}

void SlotMap::TakeRun(Slots::Run run, const Id& lease) {
  auto at = free_.lower_bound(run.first);
  while (at != free_.end() && at->second <= run.last) {
    const Slots::Run whole = {at->second, at->first};
    const Slots::Run taken = {std::max(whole.first, run.first), std::min(whole.last, run.last)};
    if (taken.last < whole.last) {
      at->second = taken.last + 1;
    } else {
      free_.erase(at);
    }
    if (whole.first < taken.first) free_[taken.first - 1] = whole.first;
    taken_[taken.last] = {taken.first, lease};
    at = free_.upper_bound(taken.last);
  }
}

void SlotMap::Free(const Slots& slots, const Id& lease) {
  for (const Slots::Run& run : slots.runs()) FreeRun(run, lease);
}

void SlotMap::FreeRun(Slots::Run run, const Id& lease) {
  auto at = taken_.lower_bound(run.first);
  while (at != taken_.end() && at->second.first <= run.last) {
    const Slots::Run whole = {at->second.first, at->first};
    if (at->second.lease != lease) {
      ++at;
      continue;
    }
    const Slots::Run freed = {std::max(whole.first, run.first), std::min(whole.last, run.last)};
    if (freed.last < whole.last) {
      at->second.first = freed.last + 1;
    } else {
      taken_.erase(at);
    }
    if (whole.first < freed.first) taken_[freed.first - 1] = {whole.first, lease};
    AddFree(freed);
    at = taken_.upper_bound(freed.last);
  }
}

void SlotMap::AddFree(Slots::Run run) {
  if (const auto below = free_.find(run.first - 1); below != free_.end()) {
    run.first = below->second;
    free_.erase(below);
  }
  const auto above = free_.upper_bound(run.last);
  if (above != free_.end() && above->second == run.last + 1) {
    above->second = run.first;
  } else {
    free_[run.last] = run.first;
  }
}

}  // namespace semaphored::ledger
