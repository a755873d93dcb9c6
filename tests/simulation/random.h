// The one source of chance in a simulation: the same seed gives the same run, on every machine.
#pragma once

#include <cstdint>

#include "adapters/types.h"

namespace semaphored::simulation {

// SplitMix64: small, and good enough to choose with.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  // 0 … n-1. REQUIRES: n > 0.
  uint64_t Below(uint64_t n) { return Next() % n; }
  // low … high, both included.
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Below(static_cast<uint64_t>(high - low) + 1));
  }
  bool Chance(double probability) {
    return static_cast<double>(Next() >> 11) < probability * static_cast<double>(1ull << 53);
  }
  Id NewId() { return {Next() | 1, Next()}; }

 private:
  uint64_t state_;
};

}  // namespace semaphored::simulation
