// What a semaphore is, said once more and as plainly as can be: lists that are searched from end to
// end. The random walk holds the adapter against it. It shares no code with the rules.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "adapters/adapter.h"

namespace semaphored::contract {

class ModelSemaphore {
 public:
  struct Holding {
    Id claim;
    std::set<uint32_t> slots;
  };
  struct Waiting {
    Id claim;
    uint32_t permits = 0;
    int32_t priority = 0;
  };
  struct Told {
    Id claim;
    EndCause cause = EndCause::kNone;
    friend bool operator==(const Told&, const Told&) = default;
  };

  explicit ModelSemaphore(uint32_t limit) : limit_(limit) {}

  OutcomeKind Acquire(const Id& claim, uint32_t permits, int32_t priority, bool wait);
  // Empty slots: all.
  OutcomeKind Release(const Id& claim, const std::set<uint32_t>& slots);
  OutcomeKind End(const Id& claim, EndCause cause);
  // `removed`: also of slots above the limit.
  OutcomeKind Verify(const Id& claim, bool removed) const;
  void Resize(uint32_t limit);
  void Pause(bool paused);
  // Where a grant takes any free slot: which it took.
  void SetSlots(const Id& claim, const std::set<uint32_t>& slots);

  uint32_t limit() const { return limit_; }
  bool paused() const { return paused_; }
  uint32_t held() const;
  // In no order.
  const std::vector<Holding>& holdings() const { return holdings_; }
  // The next one first.
  const std::vector<Waiting>& queue() const { return queue_; }

  // Granted since TakeGranted().
  const std::vector<Holding>& granted() const { return granted_; }
  // A lease that came only after its request had been told to wait.
  void ExpectGranted(const Id& claim);

  // What happened since they were last taken: waiters that were granted, with their slots; leases
  // and waits that ended.
  std::vector<Holding> TakeGranted() { return std::exchange(granted_, {}); }
  std::vector<Told> TakeEnded() { return std::exchange(ended_, {}); }
  std::vector<Told> TakeWaitsEnded() { return std::exchange(waits_ended_, {}); }

 private:
  std::set<uint32_t> LowestFree(uint32_t permits) const;
  void Serve();

  uint32_t limit_;
  bool paused_ = false;
  std::vector<Holding> holdings_;
  std::vector<Waiting> queue_;
  std::vector<Holding> granted_;
  std::vector<Told> ended_;
  std::vector<Told> waits_ended_;
};

}  // namespace semaphored::contract
