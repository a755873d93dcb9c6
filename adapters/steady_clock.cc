#include "adapters/steady_clock.h"

#include <time.h>

namespace semaphored {

SteadyTime SteadyClock::now() noexcept {
  timespec at{};
  clock_gettime(CLOCK_BOOTTIME, &at);
  return SteadyTime(std::chrono::seconds(at.tv_sec) + std::chrono::nanoseconds(at.tv_nsec));
}

}  // namespace semaphored
