// Which slots of a semaphore are taken, and by which lease. Single-threaded.
#pragma once

#include <cstdint>

#include "absl/container/btree_map.h"
#include "adapters/slots.h"
#include "adapters/types.h"

namespace semaphored::ledger {

// Each call costs O(log n) for each run of neighbours that it speaks of, however long the run is.
class SlotMap {
 public:
  // The `count` lowest free slots.
  Slots LowestFree(uint32_t count) const;
  // The id of the lease; empty if the slot is free.
  Id At(uint32_t slot) const;
  // The runs of taken slots, rising, from the one that has the slot, or the next above it: calls
  // visit(first slot, id of the lease) until that returns false. A lease may have several.
  template <typename Visit>
  void VisitFrom(uint32_t slot, Visit&& visit) const {
    for (auto run = taken_.lower_bound(slot); run != taken_.end(); ++run) {
      if (!visit(run->second.first, run->second.lease)) return;
    }
  }
  // Those of these slots that are free.
  void Take(const Slots& slots, const Id& lease);
  // What of these slots the lease has.
  void Free(const Slots& slots, const Id& lease);

 private:
  struct Taken {
    uint32_t first = 0;
    Id lease;
  };
  void TakeRun(Slots::Run run, const Id& lease);
  void FreeRun(Slots::Run run, const Id& lease);
  void AddFree(Slots::Run run);

  // Runs by their last slot, so that taking the lowest slots of a run, as a grant does, changes it in place.
  // Together they are all slots from 1 on; no two of `free_` (last → first) are neighbours.
  absl::btree_map<uint32_t, Taken> taken_;
  absl::btree_map<uint32_t, uint32_t> free_ = {{UINT32_MAX, 1}};
};

}  // namespace semaphored::ledger
