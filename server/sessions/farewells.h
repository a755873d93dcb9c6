// The last reports to all listeners: this daemon can vouch for nothing, or it ends. Their clients continue at another
// daemon, or after the restart. Single-threaded (the reactor's).
#pragma once

#include "server/sessions/claim_book.h"
#include "server/sessions/session_book.h"
#include "server/sessions/work_desk.h"

namespace semaphored {

class Farewells {
 public:
  // What it works with. All of it outlives this.
  struct Parts {
    ClaimBook* claims;
    SessionBook* sessions;
    WorkDesk* work;
  };

  explicit Farewells(Parts parts) : parts_(parts) {}

  // Nothing is vouched for any more: the listeners of sessions and of detached leases are refused with NOT_VOUCHED.
  void EndVouching();
  // Leases that end with this daemon: their listeners receive OnEnded, so that the holders stop before another client is
  // granted a permit.
  void EndLeases();
  // All listeners are refused with SHUTTING_DOWN.
  void ShutDown();

 private:
  const Parts parts_;
};

}  // namespace semaphored
