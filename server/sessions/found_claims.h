// The claims that the engine has of a session that moves to this daemon, or that a dead daemon left. Single-threaded (the
// reactor's).
#pragma once

#include <vector>

#include "absl/container/btree_set.h"
#include "server/sessions/adoptions.h"
#include "server/sessions/claim_book.h"
#include "server/sessions/claim_ends.h"
#include "server/sessions/grants.h"
#include "server/sessions/moves.h"
#include "server/sessions/recalls.h"
#include "server/sessions/vouching.h"

namespace semaphored {

class FoundClaims {
 public:
  // What it works with. All of it outlives this.
  struct Parts {
    ClaimBook* claims;
    Moves* moves;
    const Vouching* vouching;
    Recalls* recalls;
    ClaimEnds* ends;
    Grants* grants;
  };

  explicit FoundClaims(Parts parts) : parts_(parts) {}

  // Makes records of the unknown ones, and updates the records of the others.
  void Add(SessionRecord* record, const std::vector<ClaimInfo>& claims);
  // Removes the records of the claims in `known` that are not in `claims`, the complete list of the session's claims: they
  // have ended at another daemon. `changes`: the events that were reported while the engine was queried.
  void DropOthers(SessionRecord* record, const absl::btree_set<Id>& known,
                  const Adoptions::Changes& changes, const std::vector<ClaimInfo>& claims);

 private:
  const Parts parts_;
};

}  // namespace semaphored
