#include "adapters/slots.h"

#include <algorithm>

namespace semaphored {

Slots::Slots(std::vector<uint32_t> slots) {
  std::ranges::sort(slots);
  for (const uint32_t slot : slots) {
    if (empty() || slot != back()) Append({slot, slot});
  }
}

size_t Slots::size() const {
  size_t size = 0;
  for (const Run& run : runs_) size += run.size();
  return size;
}

void Slots::Append(Run run) {
  if (!empty() && back() + 1 == run.first) {
    runs_.back().last = run.last;
  } else {
    runs_.push_back(run);
  }
}

std::optional<uint32_t> Slots::FirstNotHere(const Slots& others) const {
  const auto* here = runs_.begin();
  for (const Run& other : others.runs_) {
    here = std::lower_bound(here, runs_.end(), other.first,
                            [](const Run& run, uint32_t slot) { return run.last < slot; });
    if (here == runs_.end() || here->first > other.first) return other.first;
    if (here->last < other.last) return here->last + 1;
  }
  return std::nullopt;
}

Slots Slots::Without(const Slots& others) const {
  Slots rest;
  const auto* other = others.runs_.begin();
  for (Run run : runs_) {
    while (other != others.runs_.end() && other->last < run.first) ++other;
    bool ends_in_other = false;
    for (; other != others.runs_.end() && other->first <= run.last; ++other) {
      if (other->first > run.first) rest.Append({run.first, other->first - 1});
      ends_in_other = other->last >= run.last;
      if (ends_in_other) break;  // It may reach into the next run too.
      run.first = other->last + 1;
    }
    if (!ends_in_other) rest.Append(run);
  }
  return rest;
}

}  // namespace semaphored
