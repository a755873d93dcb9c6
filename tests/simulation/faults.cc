#include "tests/simulation/faults.h"

#include <algorithm>

namespace semaphored::simulation {
namespace {
// Calls inside calls inside calls: deeper ones take no time.
constexpr int kDepthMax = 4;

constexpr int64_t kRecentUs = 2 * kSecond;

}  // namespace

std::string_view NameOf(FaultKind kind) {
  switch (kind) {
    case FaultKind::kNone:
      return "none";
    case FaultKind::kLostRace:
      return "lost race";
    case FaultKind::kAnswerLost:
      return "answer lost";
    case FaultKind::kNeverLanded:
      return "never landed";
    case FaultKind::kLandsLater:
      return "lands later";
    case FaultKind::kCallFails:
      return "call fails";
    case FaultKind::kSlowCall:
      return "slow call";
    case FaultKind::kNoticeLost:
      return "notice lost";
    case FaultKind::kNoticeLate:
      return "notice late";
    case FaultKind::kBusyRow:
      return "busy row";
    case FaultKind::kTooLarge:
      return "too large";
    case FaultKind::kUnreachable:
      return "unreachable";
    case FaultKind::kDaemonKilled:
      return "daemon killed";
    case FaultKind::kDaemonPaused:
      return "daemon paused";
    case FaultKind::kUnreadable:
      return "unreadable";
    case FaultKind::kUnwritable:
      return "unwritable";
    case FaultKind::kWithheld:
      return "withheld";
    case FaultKind::kNoticesMissed:
      return "notices missed";
    case FaultKind::kForeignHolder:
      return "foreign holder";
    case FaultKind::kForgotten:
      return "forgotten";
    case FaultKind::kCount:
      break;
  }
  return "";
}

bool Faults::IsRecent(FaultKind kind) const {
  const auto struck_lately = [&](size_t index) {
    return struck[index] > 0 && world->now() - struck_at_us[index] <= kRecentUs;
  };
  if (world == nullptr) return false;
  if (kind != FaultKind::kNone) return struck_lately(static_cast<size_t>(kind));
  for (size_t index = 1; index < kFaultKinds; ++index) {
    if (struck_lately(index)) return false;
  }
  return true;
}

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
