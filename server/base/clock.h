// The clock that everything in the daemon asks, so that tests can drive it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "adapters/adapter.h"

namespace semaphored {

using Milliseconds = std::chrono::milliseconds;

// Any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  // Decides. Never goes back; goes on while the process is stopped.
  virtual SteadyTime Now() const = 0;
  // For people only: decides nothing.
  virtual int64_t NowUnixMs() const = 0;
};

// The machine's own. Lives for ever.
const Clock& SystemClock();

// "2026-01-31T12:00:00.123Z".
std::string UtcTimeText(int64_t unix_ms);

}  // namespace semaphored
