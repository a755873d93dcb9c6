// The ends of claims: ends them in the engine, and reports every end to the claim's listener. A function that removes the
// record says so: the record must not be used after the call. Single-threaded (the reactor's).
#pragma once

#include <vector>

#include "server/base/timers.h"
#include "server/figures/semaphore_metrics.h"
#include "server/sessions/claim_book.h"
#include "server/sessions/deadlines.h"
#include "server/sessions/lease_log.h"
#include "server/sessions/moves.h"
#include "server/sessions/sessions.h"
#include "server/sessions/unread_semaphores.h"
#include "server/sessions/vouching.h"
#include "server/sessions/work_desk.h"

namespace semaphored {

class ClaimEnds {
 public:
  // What it works with. All of it outlives this.
  struct Parts {
    SessionsHost* host;
    Timers* timers;
    Deadlines* deadlines;
    ClaimBook* claims;
    Moves* moves;
    SemaphoreMetrics* metrics;
    LeaseLog* lease_log;
    const UnreadSemaphores* unread;
    const Vouching* vouching;
    WorkDesk* work;
  };

  explicit ClaimEnds(Parts parts) : parts_(parts) {}

  // ---- it has ended: these remove the record ----
  // Reports nothing.
  void Drop(ClaimRecord* record);
  // The listener receives OnRefused. An offer is dropped.
  void Refuse(ClaimRecord* record, Refusal refusal);
  // Its lease has ended: counted, logged, and the listener receives OnEnded, unless no client has received the grant.
  void TellEnded(ClaimRecord* record, EndCause cause);
  // The engine no longer has the claim that was to be ended: a lease has ended, anything else is refused.
  void TellGone(ClaimRecord* record, EndCause cause);
  // It now belongs to another session, or to none. Reports it as lost to the listener. The engine's claim stays.
  void Leave(ClaimRecord* record);
  // Of claims that are adopted with a session: the records that other owners have of them Leave.
  void LeaveOthers(const Id& session, const std::vector<ClaimInfo>& claims);
  // Only counts and logs the end of a lease.
  void Count(ClaimRecord* record, EndCause cause);

  // ---- it is to end: the record stays until the engine answers ----
  // If the command is not carried out it is tried again where it is still due. `only_waiting`: a lease stays.
  void End(ClaimRecord* record, EndCause cause, bool only_waiting);
  // As Sessions::Abandon.
  void Abandon(ClaimRecord* record, bool end_lease);
  // Its client went away before it was granted. Without a request id no client can ever learn of the lease, so that is ended,
  // too.
  void EndAbandoned(ClaimRecord* record);
  // Granted to a client that the rules no longer allow it: the lease ends, and the client learns why.
  void EndDenied(ClaimRecord* record);
  // True: its client has cancelled its wait, or has been away for too long, or is not allowed it. The wait is ended.
  bool EndUnwanted(ClaimRecord* record);
  // Its client does not know of it: its session moved here, or it is a detached lease without a request id. The TTL of
  // such a lease is over: nothing is vouched for while its end is under way.
  void EndUntold(ClaimRecord* record);
  // When the timer kTtl of a detached claim, or kWait, is due.
  void OnTtl(ClaimRecord* record);
  void OnWaitOver(ClaimRecord* record);

  // ---- its semaphore cannot be read ----
  // When the timer kDisown is due: the holders lose the leases of semaphores that are unread for so long.
  void DisownDue();
  // Ends a lease that its holder has lost. Without effect on others.
  void EndLost(ClaimRecord* record);
  // The request of a lease that its holder has lost was repeated before the lease is ended.
  static void RefuseLost(ClaimRecord* record);

  // The daemon ends: claims keep their places for its next life.
  void Stop() { stopping_ = true; }

 private:
  SteadyTime Now() const { return parts_.host->clock().Now(); }
  // An End of it was not carried out. `recall`: it was due by a recall.
  void OnUndone(ClaimRecord* record, EndCause cause, bool recall, Milliseconds again_after);
  void OnExpired(ClaimRecord* record, uint32_t epoch, const absl::StatusOr<Outcome>& outcome);
  void Disown(ClaimRecord* record);

  const Parts parts_;
  bool stopping_ = false;
};

}  // namespace semaphored
