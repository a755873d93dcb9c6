#include "client/semaphore/clock.h"

#include <time.h>

#include <algorithm>

namespace semaphore {
namespace {

// A condition variable's wait does not count the time that the machine is suspended, so we look at
// the clock at least this often while there is a deadline.
constexpr std::chrono::milliseconds kLongestWait(500);

class RealClock : public Clock {
 public:
  TimePoint Now() override { return BootClock::now(); }

  void WaitUntil(std::condition_variable& condition, std::unique_lock<std::mutex>& lock,
                 TimePoint deadline) override {
    if (deadline == kNever) {
      condition.wait(lock);
      return;
    }
    const auto left = deadline - Now();
    if (left <= left.zero()) return;
    condition.wait_for(lock, std::min<BootClock::duration>(left, kLongestWait));
  }
};

}  // namespace

BootClock::time_point BootClock::now() noexcept {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return time_point(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
}

Clock& Clock::Real() {
  static auto* const clock = new RealClock();
  return *clock;
}

}  // namespace semaphore
