// Sessions whose clients come again: resumed where they are, or moved here from another daemon. Single-threaded (the
// reactor's).
#pragma once

#include <cstdint>

#include "absl/container/btree_set.h"
#include "server/base/timers.h"
#include "server/sessions/adoptions.h"
#include "server/sessions/claim_book.h"
#include "server/sessions/claim_ends.h"
#include "server/sessions/claim_events.h"
#include "server/sessions/end_marks.h"
#include "server/sessions/found_claims.h"
#include "server/sessions/read_again_queue.h"
#include "server/sessions/session_book.h"
#include "server/sessions/session_closings.h"
#include "server/sessions/session_streams.h"
#include "server/sessions/sessions.h"
#include "server/sessions/vouching.h"

namespace semaphored {

class SessionResumption {
 public:
  // What it works with. All of it outlives this.
  struct Parts {
    SessionsHost* host;
    Timers* timers;
    ClaimBook* claims;
    SessionBook* sessions;
    const Vouching* vouching;
    const EndMarks* marks;
    Adoptions* adoptions;
    ClaimEnds* ends;
    ClaimEvents* events;
    SessionClosings* closings;
    SessionStreams* streams;
    FoundClaims* found;
  };

  explicit SessionResumption(Parts parts)
      : parts_(parts), read_again_(&parts.host->clock(), parts.timers) {}

  // The stream goes on with the session `params.resume`: OnOpened or OnSessionEnded follows. A stream that has the session
  // loses it.
  void Resume(OpenParams params, SessionListener* listener);
  // When the timer kReadAgain is due: sessions that moved here may have claims in semaphores that could not be read then.
  void OnReadAgainDue();

 private:
  // Moves the session here; its claims in `known` were here before, and answered.
  void Adopt(const Id& id, OpenParams params, SessionListener* listener, absl::btree_set<Id> known);
  void OnAdopted(const Id& id, const OpenParams& params, SessionListener* listener,
                 const absl::btree_set<Id>& known, absl::StatusOr<Outcome> outcome);
  // `listener`: null if its stream has gone.
  void OnNotAdopted(const Id& id, const absl::StatusOr<Outcome>& outcome,
                    SessionListener* listener);
  // The record of a session that this daemon hosts as the engine has it. `moved`: it came from another daemon now.
  void Host(SessionRecord* record, const OpenParams& params, const Session& session, bool moved);
  void ReadAgain(const Id& session);
  void OnReadAgain(const Id& session, uint32_t epoch, absl::StatusOr<Outcome> outcome);

  const Parts parts_;
  ReadAgainQueue read_again_;
};

}  // namespace semaphored
