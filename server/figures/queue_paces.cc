#include "server/figures/queue_paces.h"

namespace semaphored {

void QueuePaces::OnGrant(const std::string& semaphore) {
  if (paces_.size() >= kSemaphoresMax) paces_.clear();  // Only an estimate is lost.
  Pace& pace = paces_[semaphore];
  const SteadyTime now = clock_->Now();
  if (pace.last_grant != SteadyTime{}) {
    const double interval_ms =
        std::chrono::duration<double, std::milli>(now - pace.last_grant).count();
    pace.interval_ms =
        pace.interval_ms == 0 ? interval_ms : 0.8 * pace.interval_ms + 0.2 * interval_ms;
  }
  pace.last_grant = now;
}

int64_t QueuePaces::ExpectedWaitMs(const std::string& semaphore, uint64_t position) const {
  const auto found = paces_.find(semaphore);
  if (found == paces_.end() || found->second.interval_ms == 0) return -1;
  return static_cast<int64_t>(found->second.interval_ms * static_cast<double>(position));
}

}  // namespace semaphored
