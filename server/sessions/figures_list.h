// The list of the engine's semaphores that goes with the figures: limits, queues and pauses as the engine has them.
// Single-threaded (the reactor's).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "server/figures/semaphore_metrics.h"
#include "server/sessions/lists.h"
#include "server/sessions/sessions.h"

namespace semaphored {

class FiguresList {
 public:
  // A list begins at the earliest interval_ms after the last one began, or twenty times that on an engine that does not
  // push; never if interval_ms is 0, on an engine without names, or while `metrics` are off. All pointers outlive it.
  FiguresList(SessionsHost* host, SemaphoreMetrics* metrics, Lists* lists, int64_t interval_ms)
      : host_(host), metrics_(metrics), lists_(lists), interval_ms_(interval_ms) {}

  // Lists the semaphores into the metrics, at most ten thousand, if a list is due. `done` runs when the present list has
  // ended, with success or without; immediately if there is none.
  void Refresh(absl::AnyInvocable<void()> done);

 private:
  void ListFrom(const std::string& after, uint32_t rows_left);
  void End();

  SessionsHost* host_;
  SemaphoreMetrics* metrics_;
  Lists* lists_;
  const int64_t interval_ms_;
  // The callers that wait for the list that is under way; empty: none is.
  std::vector<absl::AnyInvocable<void()>> waiting_;
  SteadyTime due_at_{};
};

}  // namespace semaphored
