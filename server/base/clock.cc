#include "server/base/clock.h"

#include <fmt/format.h>

#include <ctime>

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

std::string UtcTimeText(int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                     unix_ms % 1000);
}

}  // namespace semaphored
