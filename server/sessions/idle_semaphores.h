// Semaphores that were made by their first use, and are used no more: each is destroyed when it has been idle for long
// enough. Idle means: every sweep has seen it unused, at the same revision. Single-threaded (the reactor's).
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "server/base/timers.h"
#include "server/sessions/lists.h"
#include "server/sessions/sessions.h"

namespace semaphored {

class IdleSemaphores {
 public:
  // destroy_after_ms 0: none is destroyed; nor on an engine that has no names or no revisions, or does not keep what was
  // made on use. All pointers outlive it.
  IdleSemaphores(SessionsHost* host, Timers* timers, Lists* lists, int64_t destroy_after_ms)
      : host_(host), timers_(timers), lists_(lists), destroy_after_ms_(destroy_after_ms) {}

  // Sets the timer of the next sweep (TimerKind::kIdle), unless it is set or a sweep is under way. It is due after an
  // eighth of destroy_after_ms; on an engine that pushes, after ten minutes at most.
  void Arm();
  // When that timer is due. Lists all semaphores, a slice after the other, and destroys those that have been idle for long
  // enough; then sets the timer again, whether or not the list came to its end.
  void Sweep();

 private:
  struct Idle {
    uint64_t revision = 0;
    SteadyTime since;
    uint64_t seen = 0;  // The sweep that saw it last.
  };

  void LookFrom(const std::string& after);
  void Note(const SemaphoreInfo& info);
  void Destroy(const std::string& semaphore, uint64_t revision);

  SessionsHost* host_;
  Timers* timers_;
  Lists* lists_;
  const int64_t destroy_after_ms_;
  absl::flat_hash_map<std::string, Idle> idle_;
  uint64_t sweep_ = 0;
  bool armed_ = false;  // Until the sweep that follows has ended.
};

}  // namespace semaphored
