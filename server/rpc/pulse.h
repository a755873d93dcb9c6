// Whether the daemon's threads make progress, for a watchdog that restarts a daemon without. An engine that fails or is
// slow is no reason for that: a restart would not mend it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "server/base/clock.h"
#include "server/rpc/host.h"
#include "server/rpc/reactor.h"

namespace semaphored {

class Pulse {
 public:
  // `step_patience`: how long a lane may be in the engine at one time. Both outlive it.
  Pulse(Reactor* reactor, const Host* host, Milliseconds step_patience);

  // False: the reactor has not taken a turn since the last call, or a lane has come back from the
  // engine neither since the last call nor within step_patience. The first call only asks. One
  // thread; does not block.
  bool Beats();

 private:
  Reactor* reactor_;
  const Host* host_;
  Milliseconds step_patience_;
  uint64_t asked_ = 0;
  std::shared_ptr<std::atomic<uint64_t>> answered_;  // By tasks that may outlive this.
  SteadyTime asked_at_{};
};

}  // namespace semaphored
