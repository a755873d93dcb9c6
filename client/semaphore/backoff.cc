#include "client/semaphore/backoff.h"

#include <algorithm>
#include <cstdint>

namespace semaphore {

Backoff::Backoff(std::chrono::milliseconds first, std::chrono::milliseconds most)
    : first_(first),
      most_(std::max(first, most)),
      current_(first),
      random_(std::random_device()()) {}

std::chrono::nanoseconds Backoff::Next() {
  const std::chrono::nanoseconds delay = std::min(current_, most_);
  current_ = std::min(current_ * 2, most_);
  std::uniform_int_distribution<std::int64_t> jittered(delay.count() / 2, delay.count());
  return std::chrono::nanoseconds(jittered(random_));
}

void Backoff::set_most(std::chrono::milliseconds most) { most_ = std::max(first_, most); }

}  // namespace semaphore
