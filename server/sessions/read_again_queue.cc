#include "server/sessions/read_again_queue.h"

#include <algorithm>
#include <utility>

#include "server/lanes/lane.h"

namespace semaphored {

void ReadAgainQueue::Add(const Id& session) {
  sessions_.insert(session);
  Arm();
}

void ReadAgainQueue::Arm() {
  if (std::exchange(armed_, true)) return;
  timers_->Add(clock_->Now() + kTryDamagedAfter, TimerKind::kReadAgain, Id());
}

std::vector<Id> ReadAgainQueue::TakeDue() {
  armed_ = false;
  std::vector<Id> due;
  auto next = sessions_.upper_bound(last_);
  while (due.size() < std::min(kAtOnce, sessions_.size())) {
    if (next == sessions_.end()) next = sessions_.begin();
    due.push_back(*next++);
  }
  for (const Id& id : due) {
    sessions_.erase(id);
    last_ = id;
  }
  if (!sessions_.empty()) Arm();
  return due;
}

}  // namespace semaphored
