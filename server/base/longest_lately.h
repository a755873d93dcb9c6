// The largest of many values in the last minute or two: what was short is seen by those who look later.
#pragma once

#include <algorithm>
#include <cstdint>

#include "server/base/clock.h"

namespace semaphored {

// Used by one thread. Value{} is the least there is.
template <typename Value>
class LargestLately {
 public:
  static constexpr Milliseconds kWindow{60'000};

  void Add(Value value, SteadyTime now) {
    Turn(now);
    largest_ = std::max(largest_, value);
  }
  // Of those that were added in the last kWindow, and maybe for as long before.
  Value Get(SteadyTime now) {
    Turn(now);
    return std::max(largest_, before_);
  }

 private:
  void Turn(SteadyTime now) {
    if (now - begun_ < kWindow) return;
    before_ = now - begun_ < 2 * kWindow ? largest_ : Value{};
    largest_ = Value{};
    begun_ = now;
  }

  SteadyTime begun_{};
  Value largest_{};
  Value before_{};  // In the window before.
};

using LongestLately = LargestLately<SteadyTime::duration>;
using MostLately = LargestLately<uint64_t>;

}  // namespace semaphored
