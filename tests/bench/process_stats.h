// What the system knows about a running process (Linux, /proc).
#pragma once

#include <cstdint>

namespace semaphored::bench {

struct ProcessStats {
  double cpu_s = 0;
  uint64_t resident_bytes = 0;
  // Handed to write calls, and what of it is meant for a disk.
  uint64_t written_bytes = 0;
  uint64_t disk_written_bytes = 0;
};

// All zero if `pid` is 0, or what cannot be read.
ProcessStats ReadProcessStats(int pid);

}  // namespace semaphored::bench
