#include "tests/simulation/world.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace semaphored::simulation {
namespace {
constexpr size_t kTraceLinesMax = 3000;
constexpr int64_t kForever = int64_t{1} << 60;
}  // namespace

void World::At(int64_t time_us, std::function<void()> event) {
  events_.emplace(std::pair(std::max(time_us, now_us_), next_++), std::move(event));
}

void World::RunUntil(int64_t time_us) {
  ++depth_;
  while (!events_.empty() && events_.begin()->first.first <= time_us) {
    auto node = events_.extract(events_.begin());
    now_us_ = std::max(now_us_, node.key().first);
    Digest(static_cast<uint64_t>(now_us_));
    ++events_run_;
    node.mapped()();
    if (after_event_) after_event_();
  }
  now_us_ = std::max(now_us_, time_us);
  --depth_;
}

void World::Trace(std::string line) {
  if (!tracing_) return;
  trace_.push_back(absl::StrFormat("%12.6f  %s", static_cast<double>(now_us_) / kSecond, line));
  if (trace_.size() > kTraceLinesMax) trace_.pop_front();
}

std::string World::trace() const { return absl::StrJoin(trace_, "\n"); }

int64_t DriftingClock::WorldTimeOf(SteadyTime time) const {
  const int64_t time_us =
      std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
  if (time_us > kForever) return kForever;
  return static_cast<int64_t>(static_cast<double>(time_us - start_us_) / speed_) + 1;
}

}  // namespace semaphored::simulation
