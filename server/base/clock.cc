#include "server/base/clock.h"

#include "adapters/steady_clock.h"

namespace semaphored {
namespace {

class MachineClock final : public Clock {
 public:
  SteadyTime Now() const override { return SteadyClock::now(); }

  int64_t NowUnixMs() const override {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<Milliseconds>(now).count();
  }
};

}  // namespace

const Clock& SystemClock() {
  static const MachineClock clock;
  return clock;
}

}  // namespace semaphored
