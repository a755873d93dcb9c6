// A histogram of durations: fixed memory, no allocation when recording, about 3 % resolution.
// Not thread-safe: one thread records and reads.
#pragma once

#include <array>
#include <cstdint>

namespace semaphored::bench {

class Histogram {
 public:
  // Counts one duration. Negative ones count as 0.
  void Record(int64_t duration_ns);

  // Counts all that the other one has.
  void Add(const Histogram& other);

  // Durations recorded so far.
  uint64_t count() const { return count_; }

  // The duration that the share `quantile` (0 to 1) of all recorded ones does not exceed, in
  // nanoseconds, rounded up to the histogram's resolution but never above the greatest recorded
  // one. 0 when nothing was recorded.
  int64_t QuantileNs(double quantile) const;

  // The greatest duration recorded, exactly; 0 when nothing was recorded.
  int64_t max_ns() const { return max_ns_; }

 private:
  // Each power of two is cut into 32 steps.
  static constexpr int kStepBits = 5;
  static constexpr int kBuckets = 64 << kStepBits;

  static int BucketOf(uint64_t value);
  static uint64_t UpperEdgeOf(int bucket);

  std::array<uint64_t, kBuckets> buckets_{};
  uint64_t count_ = 0;
  int64_t max_ns_ = 0;
};

}  // namespace semaphored::bench
