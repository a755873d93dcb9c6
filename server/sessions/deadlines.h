// The timers of TTLs and waits. Each claim and each session has one of a kind: when it is due, it is set again if the time
// was put off meanwhile. Single-threaded (the reactor's).
#pragma once

#include <algorithm>

#include "server/base/timers.h"
#include "server/sessions/records.h"

namespace semaphored {

class Deadlines {
 public:
  // It outlives this.
  explicit Deadlines(Timers* timers) : timers_(timers) {}

  // Of a detached claim (TimerKind::kTtl), or of a session (kSessionTtl). Without effect if the timer is set, or the TTL does
  // not run.
  void ArmTtl(ClaimRecord* record) { ArmTtl(&record->life, TimerKind::kTtl, record->id); }
  void ArmTtl(SessionRecord* session) {
    ArmTtl(&session->life, TimerKind::kSessionTtl, session->id);
  }
  // The same; and it is not ended before `until`.
  void KeepUntil(ClaimRecord* record, SteadyTime until) {
    Keep(&record->life, until);
    ArmTtl(record);
  }
  void KeepUntil(SessionRecord* session, SteadyTime until) {
    Keep(&session->life, until);
    ArmTtl(session);
  }
  // Of a claim that waits (TimerKind::kWait). Without effect if a timer is set for then or before, or it waits for
  // ever. A shorter wait has one more timer.
  void ArmWait(ClaimRecord* record) {
    if (record->wait_until < record->wait_armed_for) ArmWait(record, record->wait_until);
  }
  void ArmWait(ClaimRecord* record, SteadyTime at) {
    record->wait_armed_for = at;
    timers_->Add(at, TimerKind::kWait, record->id);
  }

 private:
  void ArmTtl(Liveness* life, TimerKind kind, const Id& id) {
    if (life->armed || life->expires_at == SteadyTime::max()) return;
    life->armed = true;
    timers_->Add(life->expires_at, kind, id);
  }
  static void Keep(Liveness* life, SteadyTime until) {
    life->keep_until = std::max(life->keep_until, until);
    life->expires_at = std::max(life->expires_at, until);
  }

  Timers* timers_;
};

}  // namespace semaphored
