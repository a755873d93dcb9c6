// What all connections of one address may do together.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "server/guard/allowance.h"
#include "server/guard/client_frames.h"

namespace semaphored::guard {

// How often connections of one address are let in. Any thread.
class Admissions {
 public:
  explicit Admissions(const FrameBounds& bounds)
      : each_breach_(bounds.connections_each_breach), allowance_(bounds.connections) {}

  // One more comes in. False: it has to wait.
  bool Take(SteadyTime now) {
    const std::lock_guard lock(mutex_);
    return allowance_.Take(now);
  }
  // One was closed for a breach. Its address comes back in some seconds at most, whatever it has done.
  void OnBreach(SteadyTime now) {
    const std::lock_guard lock(mutex_);
    allowance_.Owe(each_breach_, kDebtInBreaches * each_breach_, now);
  }

 private:
  static constexpr int64_t kDebtInBreaches = 10;
  const int64_t each_breach_;
  std::mutex mutex_;
  Allowance allowance_;  // Guarded by mutex_.
};

struct Origin {
  explicit Origin(const FrameBounds& bounds)
      : admissions(bounds), resets(std::make_shared<Allowance>(bounds.resets)) {}

  Admissions admissions;
  std::atomic<int64_t> standing = 0;        // Connections. Any thread.
  std::atomic<int64_t> waiting = 0;         // Of these, those that are not let in yet. Any thread.
  const std::shared_ptr<Allowance> resets;  // As the rest: of the thread that moves bytes.
  // Calls that were passed on and that the daemon has not begun, as far as that was looked at.
  int64_t pending = 0;
  int64_t held_up = 0;  // Connections that wait for that.
};

}  // namespace semaphored::guard
