#include "server/rpc/pulse.h"

#include <algorithm>

namespace semaphored {

Pulse::Pulse(Reactor* reactor, const Host* host, Milliseconds step_patience)
    : reactor_(reactor),
      host_(host),
      step_patience_(step_patience),
      answered_(std::make_shared<std::atomic<uint64_t>>(0)) {}

bool Pulse::Beats() {
  const SteadyTime now = reactor_->clock().Now();
  const SteadyTime lanes_since = std::min(asked_at_, now - step_patience_);
  const bool beats =
      asked_ == 0 || (answered_->load() == asked_ && host_->turned_at() >= lanes_since);
  asked_at_ = now;
  reactor_->Post([answered = answered_, number = ++asked_] { answered->store(number); });
  return beats;
}

}  // namespace semaphored
