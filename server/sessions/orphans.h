// What dead nodes left behind: kept until its clients come or its TTL is over. DeadNodes reads it. Single-threaded (the
// reactor's).
#pragma once

#include <cstdint>

#include "server/sessions/claim_book.h"
#include "server/sessions/claim_ends.h"
#include "server/sessions/deadlines.h"
#include "server/sessions/found_claims.h"
#include "server/sessions/grants.h"
#include "server/sessions/recalls.h"
#include "server/sessions/session_book.h"
#include "server/sessions/session_closings.h"
#include "server/sessions/sessions.h"
#include "server/sessions/vouching.h"

namespace semaphored {

class Orphans {
 public:
  // What it works with. All of it outlives this.
  struct Parts {
    SessionsHost* host;
    Deadlines* deadlines;
    ClaimBook* claims;
    SessionBook* sessions;
    const Vouching* vouching;
    Recalls* recalls;
    ClaimEnds* ends;
    Grants* grants;
    SessionClosings* closings;
    FoundClaims* found;
  };

  // `node_ttl_ms`: as in SessionsOptions.
  Orphans(Parts parts, int64_t node_ttl_ms) : parts_(parts), node_ttl_ms_(node_ttl_ms) {}

  // Keeps a session, or a detached claim, that a dead daemon has left.
  void Absorb(const Orphan& orphan);

 private:
  SteadyTime Now() const { return parts_.host->clock().Now(); }
  Liveness LifeOf(const Orphan& orphan) const;
  void AbsorbSession(const Orphan& orphan, const Liveness& life);
  void AbsorbDetached(const Orphan& orphan, const Liveness& life);

  const Parts parts_;
  const int64_t node_ttl_ms_;
};

}  // namespace semaphored
