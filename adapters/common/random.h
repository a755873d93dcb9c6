// Random numbers of each thread, for tokens of requests and for pauses.
#pragma once

#include <chrono>
#include <cstdint>
#include <random>
#include <string>

#include "adapters/types.h"

namespace semaphored {

inline uint64_t RandomNumber() {
  static thread_local std::mt19937_64 random = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  return random();
}

// Text that no other call has returned.
inline std::string RandomToken() { return Id{RandomNumber(), RandomNumber()}.Hex(); }

// The full pause at most, half of it at least.
inline std::chrono::milliseconds Skewed(std::chrono::milliseconds pause) {
  const int64_t half = pause.count() / 2;
  return std::chrono::milliseconds(
      half + static_cast<int64_t>(RandomNumber() % static_cast<uint64_t>(half + 1)));
}

}  // namespace semaphored
