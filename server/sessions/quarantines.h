// Semaphores in quarantine. The daemon vouches for the leases of one that it cannot read only for a time after its last
// read. Before that time has passed, it reports the leases of sessions as lost to their holders: the session continues with
// its other leases. Their permits stay held, since the daemon does not see the engine's rows; it ends the leases when it
// can change the semaphore again. Single-threaded (the reactor's).
#pragma once

#include <vector>

#include "server/base/timers.h"
#include "server/sessions/claim_book.h"
#include "server/sessions/claim_ends.h"
#include "server/sessions/session_book.h"
#include "server/sessions/sessions.h"
#include "server/sessions/unread_semaphores.h"
#include "server/sessions/vouching.h"

namespace semaphored {

class Quarantines {
 public:
  // What it works with. All of it outlives this.
  struct Parts {
    SessionsHost* host;
    Timers* timers;
    ClaimBook* claims;
    SessionBook* sessions;
    UnreadSemaphores* unread;
    const Vouching* vouching;
    ClaimEnds* ends;
  };

  explicit Quarantines(Parts parts) : parts_(parts) {}

  // A lane reports that quarantines have begun or ended; it has read these semaphores last at `read_at`. True: one that
  // could not be read can be read again.
  bool On(const std::vector<Quarantine>& quarantines, SteadyTime read_at);

 private:
  const Parts parts_;
};

}  // namespace semaphored
