#include "tests/bench/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace semaphored::bench {

int Histogram::BucketOf(uint64_t value) {
  constexpr uint64_t kLinear = uint64_t{1} << kStepBits;
  if (value < kLinear) return static_cast<int>(value);
  const int shift = std::bit_width(value) - 1 - kStepBits;
  return ((shift + 1) << kStepBits) + static_cast<int>((value >> shift) - kLinear);
}

uint64_t Histogram::UpperEdgeOf(int bucket) {
  constexpr uint64_t kLinear = uint64_t{1} << kStepBits;
  const int group = bucket >> kStepBits;
  const uint64_t step = static_cast<uint64_t>(bucket) & (kLinear - 1);
  if (group == 0) return step;
  const int shift = group - 1;
  return ((kLinear + step + 1) << shift) - 1;
}

void Histogram::Record(int64_t duration_ns) {
  duration_ns = std::max<int64_t>(duration_ns, 0);
  ++buckets_[static_cast<size_t>(BucketOf(static_cast<uint64_t>(duration_ns)))];
  ++count_;
  max_ns_ = std::max(max_ns_, duration_ns);
}

void Histogram::Add(const Histogram& other) {
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket)
    buckets_[bucket] += other.buckets_[bucket];
  count_ += other.count_;
  max_ns_ = std::max(max_ns_, other.max_ns_);
}

int64_t Histogram::QuantileNs(double quantile) const {
  if (count_ == 0) return 0;
  const auto rank = std::max<uint64_t>(
      1, static_cast<uint64_t>(std::ceil(quantile * static_cast<double>(count_))));
  uint64_t seen = 0;
  for (int bucket = 0; bucket < kBuckets; ++bucket) {
    seen += buckets_[static_cast<size_t>(bucket)];
    if (seen >= rank) return std::min(max_ns_, static_cast<int64_t>(UpperEdgeOf(bucket)));
  }
  return max_ns_;
}

}  // namespace semaphored::bench
