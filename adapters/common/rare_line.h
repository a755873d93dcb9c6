// A line of the log about something that a hostile client can bring about at will: the first at once, then one in ten
// seconds, with the number of those between.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/steady_clock.h"

namespace semaphored {

// Used by one thread.
class RareLine {
 public:
  static constexpr std::chrono::milliseconds kBetween{10'000};

  // It has happened again. What to add to the line, maybe nothing; nullopt: no line now.
  std::optional<std::string> Again(SteadyTime now) {
    if (told_at_ && now - *told_at_ < kBetween) {
      ++untold_;
      return std::nullopt;
    }
    told_at_ = now;
    const uint64_t before = std::exchange(untold_, 0);
    if (before == 0) return "";
    return absl::StrCat(" (and ", before, before == 1 ? " other" : " others",
                        " since the last such line)");
  }

 private:
  std::optional<SteadyTime> told_at_;
  uint64_t untold_ = 0;
};

}  // namespace semaphored
