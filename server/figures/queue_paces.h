// How fast the queues of semaphores move, for the wait that a client may expect. An estimate: of very many semaphores it
// begins again. Single-threaded (the reactor's).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "server/base/clock.h"

namespace semaphored {

class QueuePaces {
 public:
  static constexpr size_t kSemaphoresMax = 10'000;

  // The clock outlives it.
  explicit QueuePaces(const Clock* clock) : clock_(clock) {}

  // A claim that waited there has become a lease.
  void OnGrant(const std::string& semaphore);
  // In milliseconds, of the waiter at `position` (1: the next one). -1: not known; it takes two grants to know.
  int64_t ExpectedWaitMs(const std::string& semaphore, uint64_t position) const;

 private:
  struct Pace {
    SteadyTime last_grant;
    double interval_ms = 0;
  };

  const Clock* clock_;
  absl::flat_hash_map<std::string, Pace> paces_;
};

}  // namespace semaphored
