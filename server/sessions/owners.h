// The identities to which claims and sessions belong, and the effect of changed access rules on them. Single-threaded (the
// reactor's).
#pragma once

#include <string_view>

#include "server/sessions/claim_book.h"
#include "server/sessions/claim_ends.h"
#include "server/sessions/recalls.h"
#include "server/sessions/session_book.h"
#include "server/sessions/sessions.h"

namespace semaphored {

class Owners {
 public:
  // What it works with. All of it outlives this.
  struct Parts {
    ClaimBook* claims;
    SessionBook* sessions;
    Recalls* recalls;
    ClaimEnds* ends;
  };

  explicit Owners(Parts parts) : parts_(parts) {}

  // As the functions of Sessions with these names; OfClaim: OwnerOfClaim; ChargeOf: ChargeOfSession.
  // Deny is to be called again when the timer kDenied is due.
  void Deny(const Id& claim);
  void Recheck(Sessions::Allows allows);
  std::string_view OfClaim(const Id& claim) const;
  const Charge* ChargeOf(const Id& session) const;

  // The daemon ends: nothing is denied any more.
  void Stop() { stopping_ = true; }

 private:
  const Parts parts_;
  bool stopping_ = false;
};

}  // namespace semaphored
