// The clock of the daemon's deadlines.
#include "adapters/steady_clock.h"

#include <time.h>

#include <catch2/catch_test_macros.hpp>

namespace semaphored {
namespace {

TEST_CASE("steady clock: it is the one that goes on while the machine is suspended") {
  const auto now_on = [](clockid_t clock) {
    timespec at{};
    clock_gettime(clock, &at);
    return SteadyTime(std::chrono::seconds(at.tv_sec) + std::chrono::nanoseconds(at.tv_nsec));
  };
  const SteadyTime before = now_on(CLOCK_BOOTTIME);
  const SteadyTime now = SteadyClock::now();
  CHECK(before <= now);
  CHECK(now <= now_on(CLOCK_BOOTTIME));
}

TEST_CASE("steady clock: a wait takes any deadline, and ends by what it waits for") {
  std::mutex mutex;
  std::condition_variable condition;
  std::unique_lock<std::mutex> lock(mutex);
  int looked = 0;
  CHECK_FALSE(WaitUntil(condition, lock, SteadyTime::min(), [&] { return ++looked > 1; }));
  CHECK(looked == 1);
  CHECK_FALSE(WaitUntil(condition, lock, SteadyClock::now(), [] { return false; }));
  CHECK(WaitUntil(condition, lock, SteadyTime::max(), [] { return true; }));
  // It looks again without being notified, as after a suspension.
  CHECK(WaitUntil(condition, lock, SteadyTime::max(), [&] { return ++looked > 3; }));
}

}  // namespace
}  // namespace semaphored
