// Many deadlines on one thread. An entry is not taken out when its cause goes away: the code that
// is called checks whether there still is something to do, and the heap is swept when most of it is
// dead.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "adapters/types.h"
#include "server/base/clock.h"

namespace semaphored {

enum class TimerKind : uint8_t {
  kTtl,
  kSessionTtl,
  kSessionEnd,
  kWait,
  kRecall,
  kLongestHold,
  kDenied,  // A lease that the rules no longer allow could not be recalled.
  kProbe,
  kGrace,
  kDisown,     // The leases of semaphores that cannot be read are lost to their holders.
  kEndLost,    // A lease that its holder has lost is to be ended.
  kTakeOver,   // What dead nodes left in semaphores that could not be read.
  kReadAgain,  // What sessions that moved here have in such semaphores.
  kDrain,
  kRipen,
  kWork,
  kIdle
};

struct Timer {
  SteadyTime at;
  Id id;
  TimerKind kind;
};

class Timers {
 public:
  // `alive` tells whether anything could still be due for an entry; asked when the heap is swept.
  explicit Timers(std::function<bool(const Timer&)> alive) : alive_(std::move(alive)) {}

  void Add(SteadyTime at, TimerKind kind, const Id& id) {
    heap_.push_back({at, id, kind});
    std::push_heap(heap_.begin(), heap_.end(), Later);
    if (heap_.size() > sweep_at_) Sweep();
  }

  // True, with the entry taken out, if one is due.
  bool TakeDue(SteadyTime now, Timer* timer) {
    if (heap_.empty() || heap_.front().at > now) return false;
    *timer = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end(), Later);
    heap_.pop_back();
    return true;
  }

  // SteadyTime::max() if there is none.
  SteadyTime Next() const { return heap_.empty() ? SteadyTime::max() : heap_.front().at; }

 private:
  static bool Later(const Timer& a, const Timer& b) { return a.at > b.at; }

  void Sweep() {
    std::erase_if(heap_, [this](const Timer& timer) { return !alive_(timer); });
    std::make_heap(heap_.begin(), heap_.end(), Later);
    sweep_at_ = std::max<size_t>(1024, 2 * heap_.size());
  }

  std::function<bool(const Timer&)> alive_;
  std::vector<Timer> heap_;
  size_t sweep_at_ = 1024;
};

}  // namespace semaphored
