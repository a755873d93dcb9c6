// Calls that were refused because they showed nothing that stands in the access file: what the log
// says of them. A line for each would let whoever guesses at tokens fill the disk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/core/clock.h"

namespace semaphored {

class UnknownCallers {
 public:
  // At most one line in this time.
  static constexpr Milliseconds kBetweenLines{10'000};

  // One more, at `now`, from `peer`. What the log is to say of it and of those since the last line;
  // nullopt: nothing yet. Nothing that the caller showed is in it.
  std::optional<std::string> Add(std::string_view peer, SteadyTime now);

 private:
  std::optional<SteadyTime> told_at_;
  uint64_t untold_ = 0;
};

}  // namespace semaphored
