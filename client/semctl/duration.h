// Durations as people type them.
#ifndef SEMAPHORED_CLIENT_SEMCTL_DURATION_H_
#define SEMAPHORED_CLIENT_SEMCTL_DURATION_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace semaphore::semctl {

// "500ms", "30s", "5m", "2h", "1d", "1.5s", or several of them ("1m30s"); "0". Absent if it is
// none, or over a year.
std::optional<std::chrono::milliseconds> ParseDuration(absl::string_view text);

// A duration as the API takes it; what it cannot express becomes the nearest that it can.
std::uint32_t Ms(std::chrono::milliseconds duration);

// "0", "250ms", "1.5s", "3m20s", "2h5m", "4d3h": short, for a table.
std::string FormatDuration(std::chrono::milliseconds duration);

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_DURATION_H_
