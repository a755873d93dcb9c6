// Sessions that moved here, and may have claims in semaphores that could not be read. Each is read again until they can
// be, a few at a time and in turns. Single-threaded (the reactor's).
#pragma once

#include <cstddef>
#include <vector>

#include "absl/container/btree_set.h"
#include "adapters/types.h"
#include "server/base/clock.h"
#include "server/base/timers.h"

namespace semaphored {

class ReadAgainQueue {
 public:
  static constexpr size_t kAtOnce = 16;

  // Both outlive it.
  ReadAgainQueue(const Clock* clock, Timers* timers) : clock_(clock), timers_(timers) {}

  // Sets the timer (TimerKind::kReadAgain), unless it is set. Without effect if the session is in the queue.
  void Add(const Id& session);
  // When that timer is due: the next sessions, at most kAtOnce, taken out. Sets the timer again if some are left.
  std::vector<Id> TakeDue();

 private:
  void Arm();

  const Clock* clock_;
  Timers* timers_;
  absl::btree_set<Id> sessions_;
  Id last_;  // The one that was taken last.
  bool armed_ = false;
};

}  // namespace semaphored
