#include "server/sessions/unread_semaphores.h"

namespace semaphored {

SteadyTime UnreadSemaphores::Add(const std::string& semaphore, SteadyTime read_at) {
  const SteadyTime lost_at = read_at + vouch_ / 2;
  unread_[semaphore] = {lost_at, read_at + vouch_};
  return lost_at;
}

SteadyTime UnreadSemaphores::VouchedUntil(const std::string& semaphore) const {
  const auto found = unread_.find(semaphore);
  return found == unread_.end() ? SteadyTime::max() : found->second.vouched_until;
}

std::vector<std::string> UnreadSemaphores::LostBy(SteadyTime now) const {
  std::vector<std::string> lost;
  for (const auto& [semaphore, unread] : unread_) {
    if (unread.lost_at <= now) lost.push_back(semaphore);
  }
  return lost;
}

}  // namespace semaphored
