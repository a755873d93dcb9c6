#include "server/rpc/standard_calls.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace semaphored {
namespace {

// Of so many one is made room for, so that the next calls need not look for the connection again.
constexpr size_t kRoomShare = 8;

}  // namespace

void StandardCalls::Add(Member* call, SteadyTime now, size_t most) {
  call->place_ = calls_.insert(calls_.end(), call);
  call->listed_ = true;
  if (calls_.size() > most) CutOffTheMost(now, most);
}

void StandardCalls::Remove(Member* call) {
  if (!std::exchange(call->listed_, false)) return;
  calls_.erase(call->place_);
}

void StandardCalls::CutOffTheMost(SteadyTime now, size_t most) {
  absl::flat_hash_map<std::string, std::vector<Member*>> connections;
  for (Member* const call : calls_) connections[call->Connection()].push_back(call);
  std::vector<std::vector<Member*>> by_size;
  by_size.reserve(connections.size());
  for (auto& [name, calls] : connections) by_size.push_back(std::move(calls));
  std::sort(by_size.begin(), by_size.end(),
            [](const auto& one, const auto& other) { return one.size() > other.size(); });
  const size_t before = calls_.size();
  for (const std::vector<Member*>& calls : by_size) {
    if (calls_.size() <= most - most / kRoomShare) break;
    for (Member* const call : calls) {
      Remove(call);
      call->OnTooMany();
    }
  }
  if (const auto more = line_.Again(now)) {
    spdlog::warn(
        "{} calls of health and reflection at once are too many: {} of the connections that have "
        "most are ended{}",
        before, before - calls_.size(), *more);
  }
}

}  // namespace semaphored
