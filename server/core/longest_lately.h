// The longest of many durations in the last minute or two: a short freeze is seen by those who look later.
#pragma once

#include <algorithm>

#include "server/core/clock.h"

namespace semaphored {

// Used by one thread.
class LongestLately {
 public:
  using Duration = SteadyTime::duration;
  static constexpr Milliseconds kWindow{60'000};

  void Add(Duration duration, SteadyTime now) {
    Turn(now);
    longest_ = std::max(longest_, duration);
  }
  // Of those that were added in the last kWindow, and maybe for as long before.
  Duration Get(SteadyTime now) {
    Turn(now);
    return std::max(longest_, before_);
  }

 private:
  void Turn(SteadyTime now) {
    if (now - begun_ < kWindow) return;
    before_ = now - begun_ < 2 * kWindow ? longest_ : Duration(0);
    longest_ = Duration(0);
    begun_ = now;
  }

  SteadyTime begun_{};
  Duration longest_{0};
  Duration before_{0};  // In the window before.
};

}  // namespace semaphored
