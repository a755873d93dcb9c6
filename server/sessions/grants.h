// Claims until they are held: submitted, waiting, moving here, granted. Single-threaded (the reactor's).
#pragma once

#include <cstdint>

#include "server/figures/queue_paces.h"
#include "server/figures/semaphore_metrics.h"
#include "server/sessions/claim_book.h"
#include "server/sessions/claim_ends.h"
#include "server/sessions/deadlines.h"
#include "server/sessions/end_marks.h"
#include "server/sessions/lease_log.h"
#include "server/sessions/moves.h"
#include "server/sessions/recalls.h"
#include "server/sessions/sessions.h"
#include "server/sessions/unread_semaphores.h"
#include "server/sessions/vouching.h"

namespace semaphored {

class Grants {
 public:
  // What it works with. All of it outlives this.
  struct Parts {
    SessionsHost* host;
    Deadlines* deadlines;
    ClaimBook* claims;
    Moves* moves;
    Recalls* recalls;
    SemaphoreMetrics* metrics;
    LeaseLog* lease_log;
    QueuePaces* paces;
    const EndMarks* marks;
    const UnreadSemaphores* unread;
    const Vouching* vouching;
    ClaimEnds* ends;
  };

  explicit Grants(Parts parts) : parts_(parts) {}

  // As Sessions::Acquire and AcquireIn.
  Id Acquire(AcquireParams params, ClaimListener* listener, uint64_t tag);
  void AcquireIn(SessionRecord* owner, AcquireParams params, uint64_t tag, bool report_queued);
  // Submits the acquire to the engine. The record's listener receives the outcome; a refusal removes the record.
  void Ask(ClaimRecord* record, AcquireParams params);
  // The engine has granted it: counts it, sets its timers, and reports OnGranted to its listener, unless its client has
  // disconnected, nothing may be vouched for now, or it may have ended (EndMarks::has_all). May remove the record.
  void BecomeHeld(ClaimRecord* record, LeasePtr lease);
  // Its lease moves here until `over_at`: until then nothing is granted, and neither the TTL nor the end of the session ends it.
  void BecomeMoving(ClaimRecord* record, LeasePtr lease, SteadyTime over_at);

  // A claim that was found in the engine: counts it in its present state.
  void Found(ClaimRecord* record);
  // Counts the claim for its tenant: a lease's permits, or a wait. `tenant`: the tenant of a claim that has no charge yet;
  // null: it is not counted.
  static void ChargeTenant(ClaimRecord* record, const TenantPtr& tenant);

  // The daemon ends: requests are refused with SHUTTING_DOWN.
  void Stop() { stopping_ = true; }

 private:
  // The part of a request that its answer needs.
  struct Asked {
    uint32_t permits = 0;
    Requester requester;  // In a session without client_id: the session has it.
  };

  SteadyTime Now() const { return parts_.host->clock().Now(); }
  // Fills in the fields that the request does not have: see AcquireParams.
  void Complete(const ClaimRecord& record, bool wait, AcquireCommand* command) const;
  void OnOutcome(const Id& id, const Asked& asked, absl::StatusOr<Outcome> outcome);
  void OnGranted(ClaimRecord* record, const Outcome& outcome);
  void OnQueued(ClaimRecord* record, const Asked& asked, const Outcome& outcome);
  // The request of `record` is a repeated one, and its lease moves here.
  void OnMoving(ClaimRecord* record, const Asked& asked, const LeasePtr& lease);
  // The engine answered with the claim that the same request made earlier. If that claim has a record with the same owner
  // (this daemon has served the client before), the new listener takes the record over. If its record has another owner, the
  // claim has left that owner. Otherwise the record continues under the real id. Null: the record was removed.
  ClaimRecord* LeadTo(ClaimRecord* record, const Id& real, uint32_t epoch);
  void BecomeWaiting(ClaimRecord* record, uint64_t position, WaitReason reason);
  void Tell(ClaimRecord* record);

  const Parts parts_;
  bool stopping_ = false;
};

}  // namespace semaphored
