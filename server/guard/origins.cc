#include "server/guard/origins.h"

namespace semaphored::guard {

std::shared_ptr<Origin> Origins::Of(const std::string& address, SteadyTime now) {
  if (known_.size() >= kMost && now - swept_at_ >= kBetweenSweeps) Sweep(now);
  Known& known = known_[address];
  if (known.origin == nullptr) known.origin = std::make_shared<Origin>(bounds_);
  known.used = now;
  return known.origin;
}

void Origins::Sweep(SteadyTime now) {
  swept_at_ = now;
  absl::erase_if(known_, [now](const auto& entry) {
    return entry.second.origin.use_count() == 1 && now - entry.second.used > kKept;
  });
  // An attack from everywhere at once.
  if (known_.size() >= kMost)
    absl::erase_if(known_, [](const auto& entry) { return entry.second.origin.use_count() == 1; });
}

}  // namespace semaphored::guard
