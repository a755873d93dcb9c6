// So many at once, and so many a second for good: what one connection, or one address, may do.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "server/base/clock.h"

namespace semaphored::guard {

struct Rate {
  int64_t at_once = 0;
  int64_t per_second = 0;
};

// Used by one thread.
class Allowance {
 public:
  explicit Allowance(Rate rate) : rate_(rate), left_(rate.at_once * kParts) {}

  // One more. False: it is too much.
  bool Take(SteadyTime now) {
    Refill(now);
    if (left_ < kParts) return false;
    left_ -= kParts;
    return true;
  }
  // So many more, allowed or not; it owes `debt_max` at most.
  void Owe(int64_t count, int64_t debt_max, SteadyTime now) {
    Refill(now);
    left_ = std::max(left_ - count * kParts, -debt_max * kParts);
  }
  // Something else makes this many more right.
  void Give(int64_t count) { Add(count * kParts); }

 private:
  static constexpr int64_t kParts = 1000;  // As many a millisecond as there are a second.
  static constexpr int64_t kLongestMs = 3'600'000;

  void Refill(SteadyTime now) {
    // What was taken in the first place counts from then.
    if (seen_ == SteadyTime{}) seen_ = now;
    const auto passed = std::chrono::duration_cast<Milliseconds>(now - seen_);
    if (passed.count() <= 0) return;
    seen_ += passed;
    // No sum of an hour is left out, and none overflows.
    Add(std::min<int64_t>(passed.count(), kLongestMs) * rate_.per_second);
  }
  void Add(int64_t parts) { left_ = std::min(left_ + parts, rate_.at_once * kParts); }

  const Rate rate_;
  int64_t left_;
  SteadyTime seen_{};
};

}  // namespace semaphored::guard
