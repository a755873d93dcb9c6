// The acts of administrators on semaphores, the calls that wait for their effects, and the streams that watch semaphores.
// Single-threaded (the reactor's).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "server/base/timers.h"
#include "server/figures/semaphore_metrics.h"
#include "server/sessions/claim_book.h"
#include "server/sessions/drains.h"
#include "server/sessions/lists.h"
#include "server/sessions/sessions.h"
#include "server/sessions/ticket_delays.h"
#include "server/sessions/watches.h"

namespace semaphored {

class Administration {
 public:
  // What it works with. All of it outlives the administration.
  struct Parts {
    SessionsHost* host;
    Timers* timers;
    Lists* lists;
    SemaphoreMetrics* metrics;
    TicketDelays* delays;
    const ClaimBook* claims;
  };

  // `requeued`: called with a semaphore whose tickets may have been put into the queue by an act.
  Administration(Parts parts, std::function<void(const std::string& semaphore)> requeued)
      : parts_(parts), requeued_(std::move(requeued)), watches_(parts.host->watched()) {}

  // As in Sessions.
  Id Administer(AdminCommand command, int64_t wait_ms, Reply<AdminAnswer> reply);
  Id Drain(AdminCommand pause, uint32_t held_max, int64_t wait_ms, Reply<AdminAnswer> reply);
  void EndWait(const Id& wait);
  void History(HistoryCommand command, Reply<AdminAnswer> reply);
  uint64_t Watch(std::string prefix, std::string name, WatchListener* listener);
  void NextSnapshot(uint64_t watch);
  void Unwatch(uint64_t watch) { watches_.Remove(watch); }

  // Changes of watched semaphores, from the lanes: reports them to the listeners, and answers the calls that waited for them.
  void OnChanges(const std::vector<SemaphoreChange>& changes);
  // A call waits under this id, with a timer (TimerKind::kDrain).
  bool Waits(const Id& id) const { return drains_.Contains(id); }
  // When that timer is due: answers the call with the present state. Without effect if it no longer waits.
  void OnWaitOver(const Id& id);

  // From now on calls are refused with SHUTTING_DOWN.
  void Stop() { stopping_ = true; }
  // Refuses all watches, and all calls that wait. REQUIRES: Stop.
  void RefuseAll();

 private:
  SteadyTime Now() const { return parts_.host->clock().Now(); }
  void Submit(const std::string& semaphore, Command command, Completion done);
  void OnOutcome(const std::string& semaphore, bool destroys, absl::StatusOr<Outcome> outcome,
                 Reply<AdminAnswer> reply);
  // Of the assigned tickets in the report, the holders that are known here.
  void FillInHolders(const Report& report, AdminAnswer* answer) const;
  // An act whose effect is waited for begins: the wait's id.
  Id BeginWait();
  // The act is done: how much is left of its wait, which EndWait may have ended.
  Milliseconds LeftOfWait(const Id& wait, int64_t wait_ms);
  void WaitFor(const Id& wait, Drains::Drain drain);
  // Answers with the holders that there are now.
  void Finish(Drains::Drain drain, bool done);

  const Parts parts_;
  const std::function<void(const std::string& semaphore)> requeued_;
  absl::flat_hash_set<Id> begun_;  // Waits whose acts are under way, and whose clients are there.
  Drains drains_;
  Watches watches_;
  bool stopping_ = false;
};

}  // namespace semaphored
