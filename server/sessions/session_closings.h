// Sessions that end: their clients close them, they expire, or they move to another daemon. All claims end first, then the
// session's row: if the daemon dies in between, another one ends the rest. Single-threaded (the reactor's).
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

  // `unlisten`: detaches the session and its claims from the stream's listener.
  SessionClosings(Parts parts, std::function<void(SessionRecord* session)> unlisten)
      : parts_(parts), unlisten_(std::move(unlisten)) {}

  // Ends all claims, then the session's row, and removes the record. `done` runs after that, or after a failure, which is
  // tried again. While leases move, they and the row wait for the end of the moves.
  void End(SessionRecord* session, EndCause cause, Done done);
  // When the timer kSessionTtl is due.
  void OnTtl(SessionRecord* session);
  // When the timer kSessionEnd is due: the moves are over.
  void OnMovesOver(SessionRecord* session);
  // Another daemon hosts it, or it has ended: removes its record and those of its claims. Its stream receives
  // OnSessionEnded.
  void Drop(SessionRecord* session, Refusal refusal);

 private:
  SteadyTime Now() const { return parts_.host->clock().Now(); }
  void EndLater(SessionRecord* session, EndCause cause, SteadyTime at, Done done);
  void CloseRow(const Id& session, uint32_t epoch, EndCause cause, Done done);
  void OnRowClosed(SessionRecord* session, uint32_t epoch, EndCause cause,
                   const absl::StatusOr<Outcome>& outcome);
  // Removes the record. `moved`: the session continues at another daemon.
  void Finish(SessionRecord* session, EndCause cause, bool moved);
  // Reports the end to the client. The session's claims in semaphores that cannot be changed end later.
  void OnPartlyClosed(SessionRecord* session, const Outcome& outcome);

  const Parts parts_;
  const std::function<void(SessionRecord* session)> unlisten_;
};

}  // namespace semaphored
