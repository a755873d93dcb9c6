#include "adapters/common/upkeep.h"

#include <spdlog/spdlog.h>

#include <optional>
#include <string>

namespace semaphored {

const char* NameOf(UpkeepWork work) {
  switch (work) {
    case UpkeepWork::kHistory:
      return "history";
    case UpkeepWork::kRequests:
      return "requests";
    case UpkeepWork::kNodes:
      return "nodes";
    case UpkeepWork::kLeftovers:
      return "leftovers";
    case UpkeepWork::kNotices:
      return "notices";
    case UpkeepWork::kPermits:
      return "permits";
    case UpkeepWork::kSessions:
      return "sessions";
    case UpkeepWork::kSpace:
      return "space";
    case UpkeepWork::kFailOver:
      return "fail_over";
    case UpkeepWork::kFigures:
      return "figures";
    case UpkeepWork::kCount:
      break;
  }
  return "";
}

void Upkeep::Failed(UpkeepWork work, const absl::Status& why, SteadyTime now) {
  std::optional<std::string> line;
  {
    const std::lock_guard lock(mutex_);
    ++figures_.errors[static_cast<size_t>(work)];
    line = lines_[static_cast<size_t>(work)].Again(now);
  }
  if (!line) return;
  const auto message = why.message();  // absl's own string_view in Debian.
  spdlog::warn("upkeep of the engine: {}: {}{}", NameOf(work),
               std::string(message.data(), message.size()), *line);
}

void Upkeep::SetHistory(uint64_t rows, uint64_t rows_max) {
  const std::lock_guard lock(mutex_);
  figures_.history_rows = rows;
  figures_.history_rows_max = rows_max;
}

void Upkeep::SetOldestSnapshot(std::chrono::milliseconds age) {
  const std::lock_guard lock(mutex_);
  figures_.oldest_snapshot = age;
}

UpkeepFigures Upkeep::figures() const {
  const std::lock_guard lock(mutex_);
  return figures_;
}

}  // namespace semaphored
