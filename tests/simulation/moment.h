// What is held of a semaphore at one moment within a commit: the changes of leases stand in a delta in
// the order in which they were decided.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tests/simulation/memory_engine.h"

namespace semaphored::simulation {

// Destroyed and made again by one commit: what was before is another semaphore, under the same name.
inline bool IsRemade(const SemaphoreRow& before, const SemaphoreRow& after) {
  return before.created_at_unix_ms != after.created_at_unix_ms ||
         after.next_order < before.next_order || (before.destroying && !after.destroying);
}

class Moment {
 public:
  // As it was before the commit; nullptr: it was not there.
  explicit Moment(const StoredSemaphore* before) {
    if (before == nullptr) return;
    for (const auto& [id, lease] : before->leases) Add(lease);
  }

  void Apply(const ledger::LeaseChange& change) {
    if (change.before) {
      held_ -= change.before->permits;
      held_by_[change.before->holder] -= change.before->permits;
    }
    if (change.after) Add(*change.after);
  }

  uint32_t held() const { return held_; }
  uint32_t HeldBy(const std::string& holder) const {
    const auto found = held_by_.find(holder);
    return found == held_by_.end() ? 0 : found->second;
  }

 private:
  void Add(const Lease& lease) {
    held_ += lease.permits;
    held_by_[lease.holder] += lease.permits;
  }

  uint32_t held_ = 0;
  std::map<std::string, uint32_t> held_by_;
};

}  // namespace semaphored::simulation
