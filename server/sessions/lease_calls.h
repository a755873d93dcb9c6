// Calls that name a lease by its id: signs of life, renew, release, verify. Single-threaded (the reactor's).
#pragma once

#include <cstdint>

#include "server/figures/semaphore_metrics.h"
#include "server/sessions/adoptions.h"
#include "server/sessions/claim_book.h"
#include "server/sessions/claim_ends.h"
#include "server/sessions/grants.h"
#include "server/sessions/moves.h"
#include "server/sessions/recalls.h"
#include "server/sessions/sessions.h"
#include "server/sessions/vouching.h"

namespace semaphored {

class LeaseCalls {
 public:
  // What it works with. All of it outlives this.
  struct Parts {
    SessionsHost* host;
    ClaimBook* claims;
    Moves* moves;
    const Vouching* vouching;
    Recalls* recalls;
    SemaphoreMetrics* metrics;
    Adoptions* adoptions;
    ClaimEnds* ends;
    Grants* grants;
  };

  explicit LeaseCalls(Parts parts) : parts_(parts) {}

  // As the functions of Sessions with these names; Acknowledge: AcknowledgeRecall.
  Vouch Touch(const Id& claim);
  void Acknowledge(const Id& session, const Id& claim, uint64_t recall);
  void Renew(RenewParams params, Reply<RenewAnswer> reply);
  void Release(ReleaseCommand command, Reply<ReleaseAnswer> reply);
  void Verify(VerifyCommand command, Reply<VerifyAnswer> reply);

  // The daemon ends: requests are refused with SHUTTING_DOWN.
  void Stop() { stopping_ = true; }

 private:
  SteadyTime Now() const { return parts_.host->clock().Now(); }
  // The engine has answered that a detached lease is hosted here now.
  ClaimRecord* OnAdopted(const Id& claim, const std::string& semaphore, const TenantPtr& tenant,
                         const Outcome& outcome);

  const Parts parts_;
  bool stopping_ = false;
};

}  // namespace semaphored
