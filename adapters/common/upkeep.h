// What an adapter does for its engine beside its callers' commands (old rows go, a dead node's row goes), and what the engine
// itself is seen to keep too long. No caller receives an error of it: it is counted and logged here.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "absl/status/status.h"
#include "adapters/common/rare_line.h"
#include "adapters/steady_clock.h"

namespace semaphored {

enum class UpkeepWork : uint8_t {
  kHistory,    // Ended leases are pruned.
  kRequests,   // Requests, and what is remembered of their clients.
  kNodes,      // What lives of daemons that have ended left.
  kLeftovers,  // What the daemon's own acts left, and means nothing any more.
  kNotices,    // What daemons let each other know beside their commits.
  kPermits,    // That an engine which itself gives permits does, and not too many.
  kSessions,   // Sessions and checks of the engine, by which permits stand.
  kSpace,      // What is free in a file goes back to the file system.
  kFailOver,   // What a later fail-over has to know.
  kFigures,    // The figures below are read.
  kCount       // The number of them.
};
inline constexpr auto kUpkeepWorks = static_cast<size_t>(UpkeepWork::kCount);

// As metrics and the log call it: "history", …
const char* NameOf(UpkeepWork work);

struct UpkeepFigures {
  std::array<uint64_t, kUpkeepWorks> errors{};  // By UpkeepWork, since the start.
  // Ended leases that the engine keeps, and how many it is to keep; 0: not known.
  uint64_t history_rows = 0;
  uint64_t history_rows_max = 0;
  // For how long the oldest snapshot of the engine has been seen to stand; 0: none, or not known.
  std::chrono::milliseconds oldest_snapshot{0};
};

// Any thread.
class Upkeep {
 public:
  // A part of the work was not done. The log has the first such error of a work at once, then one in ten seconds.
  void Failed(UpkeepWork work, const absl::Status& why, SteadyTime now = SteadyClock::now());
  // Failed, unless this is OK.
  void Note(UpkeepWork work, const absl::Status& result) {
    if (!result.ok()) Failed(work, result);
  }
  void SetHistory(uint64_t rows, uint64_t rows_max);
  void SetOldestSnapshot(std::chrono::milliseconds age);

  UpkeepFigures figures() const;

 private:
  mutable std::mutex mutex_;
  UpkeepFigures figures_;
  std::array<RareLine, kUpkeepWorks> lines_;
};

}  // namespace semaphored
