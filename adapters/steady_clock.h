// The clock of every deadline in the daemon.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace semaphored {

// A clock in the standard library's sense. It is steady, and it goes on while the machine is
// suspended (CLOCK_BOOTTIME), as the clients' clocks do: a daemon that slept past its last
// heartbeat's time must find that it vouches for nothing when it wakes. (The standard library's
// stands still meanwhile.) Any thread.
struct SteadyClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<SteadyClock>;
  static constexpr bool is_steady = true;

  static time_point now() noexcept;
};

using SteadyTime = SteadyClock::time_point;

// The system's waits stand still while the machine is suspended. So the daemon sleeps for no longer
// than this before it looks at the clock again, and is that late at most when the machine wakes.
inline constexpr std::chrono::seconds kLongestSleep{1};

// Waits until `condition` is notified and `holds()` is true, or the clock has reached `deadline`,
// which may be any: then it returns what `holds()` is. REQUIRES: `lock` is held.
template <typename Predicate>
bool WaitUntil(std::condition_variable& condition, std::unique_lock<std::mutex>& lock,
               SteadyTime deadline, Predicate holds) {
  while (!holds()) {
    const SteadyTime now = SteadyClock::now();
    if (now >= deadline) return false;
    condition.wait_for(lock, std::min(deadline, now + kLongestSleep) - now);
  }
  return true;
}

}  // namespace semaphored
