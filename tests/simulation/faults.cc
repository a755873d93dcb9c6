#include "tests/simulation/faults.h"

#include <algorithm>

namespace semaphored::simulation {
namespace {
// Calls inside calls inside calls: deeper ones take no time.
constexpr int kDepthMax = 4;
}  // namespace

void EngineLink::SpendTime() {
  if (world_->depth() > kDepthMax) return;
  Random& random = world_->random();
  int64_t until = world_->now() + random.Between(50, 500);
  if (Strikes(faults_->rates.slow_call, FaultKind::kSlowCall)) {
    until += random.Between(1, 3000) * kMillisecond;
    faults_->Disturb(*world_);
  }
  world_->RunUntil(until);
  // A process that was paused meanwhile goes on when it is woken, unless it was killed in its
  // sleep.
  while (paused() && !dead) world_->RunUntil(paused_until_us);
}

bool EngineLink::Call() {
  SpendTime();
  if (!reachable()) {
    faults_->Note(FaultKind::kUnreachable);
    faults_->Disturb(*world_);
    return false;
  }
  if (Strikes(faults_->rates.call_fails, FaultKind::kCallFails)) {
    faults_->Disturb(*world_);
    return false;
  }
  return true;
}

}  // namespace semaphored::simulation
