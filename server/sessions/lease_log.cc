#include "server/sessions/lease_log.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "server/base/logging.h"
#include "server/sessions/refusals.h"

namespace semaphored {
namespace {

constexpr uint64_t kLinesPerSecond = 20;

}  // namespace

void LeaseLog::Granted(const std::string& semaphore, const Lease& lease,
                       const TraceContext& trace) const {
  if (!on_ || !Logs(LogLevel::kDebug)) return;
  LogTraced(LogLevel::kDebug, trace,
            fmt::format("granted: semaphore '{}', {} permit(s), token {}, holder '{}'", semaphore,
                        lease.permits, lease.token, lease.holder));
}

void LeaseLog::Lost(const std::string& semaphore, const Lease& lease, EndCause cause,
                    const TraceContext& trace) {
  if (!on_ || !Logs(LogLevel::kWarn)) return;
  const SteadyTime now = clock_->Now();
  if (now - second_begun_ >= std::chrono::seconds(1)) {
    second_begun_ = now;
    written_ = 0;
    if (left_out_ > 0) {
      LogTraced(LogLevel::kWarn, TraceContext{},
                fmt::format("{} more lost leases were not logged one by one",
                            std::exchange(left_out_, 0)));
    }
  }
  if (++written_ > kLinesPerSecond) {
    ++left_out_;
    return;
  }
  LogTraced(LogLevel::kWarn, trace,
            fmt::format("lost: semaphore '{}', {} permit(s), token {}, holder '{}': {}", semaphore,
                        lease.permits, lease.token, lease.holder, CauseText(cause)));
}

}  // namespace semaphored
