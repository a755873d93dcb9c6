// The clock that every deadline of the client is on.
//
// It is steady, and it goes on while the machine is suspended (CLOCK_BOOTTIME): a laptop that slept
// past the TTL of its leases must find them lost when it wakes, although std::chrono::steady_clock
// stood still meanwhile.
#ifndef SEMAPHORED_CLIENT_SEMAPHORE_CLOCK_H_
#define SEMAPHORED_CLIENT_SEMAPHORE_CLOCK_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace semaphore {

// A clock in the standard library's sense. Its time points can be compared between the processes of
// one machine.
struct BootClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<BootClock>;
  static constexpr bool is_steady = true;

  static time_point now() noexcept;
};

using TimePoint = BootClock::time_point;

// A time that never comes.
inline constexpr TimePoint kNever = TimePoint::max();

// A hundred years. Longer spans count as this one, which can be added to any time.
inline constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365 * 100);

// Where the client takes the time from; a test gives its own. All functions may be called by any
// thread.
class Clock {
 public:
  virtual ~Clock() = default;

  // Never goes back.
  virtual TimePoint Now() = 0;

  // Waits on `condition` until it is notified, or Now() has reached `deadline`, or for no reason:
  // the caller looks again. REQUIRES: `lock` is held by the calling thread.
  virtual void WaitUntil(std::condition_variable& condition, std::unique_lock<std::mutex>& lock,
                         TimePoint deadline) = 0;

  // BootClock. Lives as long as the process.
  static Clock& Real();
};

}  // namespace semaphore

#endif  // SEMAPHORED_CLIENT_SEMAPHORE_CLOCK_H_
