// The claims of a session as the engine has them, found when the session comes here from another daemon or is left behind
// by a dead one. Single-threaded (the reactor's).
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

  // Makes records of those that were not known, and says of the rest what they are now.
  void Add(SessionRecord* record, const std::vector<ClaimInfo>& claims);
  // Forgets what of `known` is not among `claims`, which is all that the session has: it ended elsewhere. `changes`: what was
  // reported while the engine was queried.
  void DropOthers(SessionRecord* record, const absl::btree_set<Id>& known,
                  const Adoptions::Changes& changes, const std::vector<ClaimInfo>& claims);

 private:
  const Parts parts_;
};

}  // namespace semaphored
