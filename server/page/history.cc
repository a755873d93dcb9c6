#include "server/page/history.h"

#include <algorithm>

namespace semaphored::page {

void History::Begin(uint32_t tick) {
  tick_ = tick;
  ++list_;
}

std::deque<History::Sample>* History::Record(const std::string& name) {
  const auto found = recorded_.find(name);
  if (found != recorded_.end()) return &found->second;
  if (recorded_.size() >= semaphores_max_) {
    const auto idle = std::ranges::min_element(
        recorded_, {}, [](const auto& each) { return each.second.back().tick; });
    if (idle == recorded_.end() || idle->second.back().tick + kIdleTicks > tick_) return nullptr;
    recorded_.erase(idle);
  }
  return &recorded_[name];
}

void History::Add(const std::string& name, Sample now) {
  now.tick = tick_;
  auto [found, first] = last_.try_emplace(name, Last{now, list_});
  Last& last = found->second;
  last.list = list_;
  if (first || last.sample.SameAs(now)) return;
  if (std::deque<Sample>* samples = Record(name)) {
    if (samples->empty() && last.sample.tick < tick_) samples->push_back(last.sample);
    // Of one tick the last one stands.
    if (!samples->empty() && samples->back().tick == tick_) samples->pop_back();
    samples->push_back(now);
    while (samples->size() > 1 && (*samples)[1].tick + kTicks <= tick_) samples->pop_front();
    while (samples->size() > kSamplesMax) samples->pop_front();
  }
  last.sample = now;
}

void History::End() {
  absl::erase_if(last_, [this](const auto& each) {
    if (each.second.list == list_) return false;
    recorded_.erase(each.first);
    return true;
  });
}

std::vector<History::Sample> History::Of(const std::string& name) const {
  if (const auto found = recorded_.find(name); found != recorded_.end())
    return {found->second.begin(), found->second.end()};
  const auto found = last_.find(name);
  if (found == last_.end()) return {};
  return {found->second.sample};
}

}  // namespace semaphored::page
