// What the lanes report of claims. Each semaphore belongs to one lane, which reports what happens to its claims. A lane that
// adopts or closes a session sees events of other lanes' semaphores, too. Of those only an end counts, and it counts whatever
// the claim's own lane reports later; after every other event the claim is read in its own lane. Single-threaded (the
// reactor's).
#pragma once

#include "server/base/timers.h"
#include "server/figures/semaphore_metrics.h"
#include "server/sessions/adoptions.h"
#include "server/sessions/claim_book.h"
#include "server/sessions/claim_ends.h"
#include "server/sessions/end_marks.h"
#include "server/sessions/grants.h"
#include "server/sessions/recalls.h"
#include "server/sessions/session_book.h"
#include "server/sessions/session_closings.h"
#include "server/sessions/sessions.h"
#include "server/sessions/vouching.h"
#include "server/sessions/work_desk.h"

namespace semaphored {

class ClaimEvents {
 public:
  // What it works with. All of it outlives this.
  struct Parts {
    SessionsHost* host;
    Timers* timers;
    ClaimBook* claims;
    SessionBook* sessions;
    SemaphoreMetrics* metrics;
    const Vouching* vouching;
    Recalls* recalls;
    EndMarks* marks;
    Adoptions* adoptions;
    WorkDesk* work;
    ClaimEnds* ends;
    Grants* grants;
    SessionClosings* closings;
  };

  explicit ClaimEvents(Parts parts) : parts_(parts) {}

  // An event of a claim, from the claim's own lane.
  void OnEvent(const Event& event);
  // An event of a claim whose semaphore belongs to another lane.
  void OnElsewhere(const Event& event);
  // Reads the claim in its own lane. From then on that lane has the semaphore loaded, and reports what happens to the claim.
  // Tried again (TimerKind::kProbe, when this is to be called) until it can be read.
  void Probe(const ClaimRecord& record);

  // The daemon ends: nothing is read any more.
  void Stop() { stopping_ = true; }

 private:
  SteadyTime Now() const { return parts_.host->clock().Now(); }
  void OnGrantEvent(ClaimRecord* record, const Event& event);
  void OnRecalled(ClaimRecord* record, const LeasePtr& lease);
  void OnProbed(const Id& id, const Id& owner, absl::StatusOr<Outcome> outcome);
  void OnFoundGranted(ClaimRecord* record, const LeasePtr& lease);
  // A claim has ended. If its own lane reports a grant of it after that, the request fails.
  void MarkEnded(const Event& event);

  const Parts parts_;
  bool stopping_ = false;
};

}  // namespace semaphored
