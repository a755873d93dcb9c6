// What the operating system says of this process, and what its log has lost.
#pragma once

#include <cstdint>

namespace semaphored {

struct ProcessFigures {
  double cpu_seconds = 0;
  uint64_t resident_bytes = 0;
  uint64_t open_files = 0;
  uint64_t open_files_max = 0;  // The soft limit.
  uint64_t threads = 0;
  uint64_t log_lines_lost = 0;
};

// Reads /proc/self. What cannot be read is 0.
ProcessFigures ReadProcessFigures();

}  // namespace semaphored
