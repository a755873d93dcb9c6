// Sessions that end: closed by their clients, expired, or gone elsewhere. All claims end first, then the session's row: so
// nothing is forgotten if the daemon dies in between. Single-threaded (the reactor's).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "server/base/timers.h"
#include "server/sessions/claim_book.h"
#include "server/sessions/claim_ends.h"
#include "server/sessions/deadlines.h"
#include "server/sessions/moves.h"
#include "server/sessions/session_book.h"
#include "server/sessions/session_ends.h"
#include "server/sessions/sessions.h"
#include "server/sessions/vouching.h"

namespace semaphored {

class SessionClosings {
 public:
  using Done = absl::AnyInvocable<void()>;
  // What it works with. All of it outlives this.
  struct Parts {
    SessionsHost* host;
    Timers* timers;
    Deadlines* deadlines;
    ClaimBook* claims;
    SessionBook* sessions;
    Moves* moves;
    const Vouching* vouching;
    ClaimEnds* ends;
    SessionEnds* session_ends;
  };

  // `unlisten`: the session's stream has it no more, and hears nothing more of its claims.
  SessionClosings(Parts parts, std::function<void(SessionRecord* session)> unlisten)
      : parts_(parts), unlisten_(std::move(unlisten)) {}

  // Ends all claims, then the session's row; the record goes when that has been done. `done` runs then, or when it could not
  // be done: then it is tried again. While leases move, they and the row wait for the end of the moves.
  void End(SessionRecord* session, EndCause cause, Done done);
  // When the timer kSessionTtl is due.
  void OnTtl(SessionRecord* session);
  // When the timer kSessionEnd is due: the moves are over.
  void OnMovesOver(SessionRecord* session);
  // It is hosted elsewhere, or gone: the record and those of its claims go. Its stream receives OnSessionEnded.
  void Drop(SessionRecord* session, Refusal refusal);

 private:
  SteadyTime Now() const { return parts_.host->clock().Now(); }
  void EndLater(SessionRecord* session, EndCause cause, SteadyTime at, Done done);
  void CloseRow(const Id& session, uint32_t epoch, EndCause cause, Done done);
  void OnRowClosed(SessionRecord* session, uint32_t epoch, EndCause cause,
                   const absl::StatusOr<Outcome>& outcome);
  // The record goes. `moved`: the session goes on elsewhere.
  void Finish(SessionRecord* session, EndCause cause, bool moved);
  // To its client the session has ended. What it has in semaphores that cannot be changed ends later.
  void OnPartlyClosed(SessionRecord* session, const Outcome& outcome);

  const Parts parts_;
  const std::function<void(SessionRecord* session)> unlisten_;
};

}  // namespace semaphored
