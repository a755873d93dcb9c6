// Sessions on streams: opened, attached to a stream, alive, left by it, closed. A session whose client comes again is in
// session_resumption.h. Single-threaded (the reactor's).
#pragma once

#include <cstdint>

#include "absl/functional/any_invocable.h"
#include "server/base/timers.h"
#include "server/sessions/claim_book.h"
#include "server/sessions/claim_ends.h"
#include "server/sessions/deadlines.h"
#include "server/sessions/session_book.h"
#include "server/sessions/session_closings.h"
#include "server/sessions/sessions.h"
#include "server/sessions/vouching.h"
#include "server/sessions/work_desk.h"

namespace semaphored {

// Detaches the session and its claims from the stream's listener. Without a client to receive tickets, a worker's offers
// end.
void Unlisten(SessionRecord* record, ClaimBook* claims, SessionBook* sessions, WorkDesk* work);

class SessionStreams {
 public:
  // What it works with. All of it outlives this.
  struct Parts {
    SessionsHost* host;
    Timers* timers;
    Deadlines* deadlines;
    ClaimBook* claims;
    SessionBook* sessions;
    const Vouching* vouching;
    WorkDesk* work;
    ClaimEnds* ends;
    SessionClosings* closings;
  };

  // `grace_ms`: SessionsOptions::resume_grace_ms.
  SessionStreams(Parts parts, int64_t grace_ms) : parts_(parts), grace_ms_(grace_ms) {}

  // Makes a new session in the engine. OnOpened or OnSessionEnded follows.
  void Open(OpenParams params, SessionListener* listener);
  // The engine has the session, and its TTL begins again. The listener, unless it is null, has it from now on: it receives
  // OnOpened, or OnSessionEnded if nothing can be vouched for now. `work`: null, or what the worker works for.
  void Attach(SessionRecord* record, SessionListener* listener, const WorkParams* work,
              bool resumed);
  // Reports to the stream that has the session, if there is one, that it has moved. Returns the record; null: it was
  // removed. `record` may be null.
  SessionRecord* SendAway(SessionRecord* record);

  // As Sessions::TouchSession, CancelIn, DetachSession and CloseSession.
  Vouch Touch(const Id& session);
  bool Cancel(const Id& session, uint64_t tag);
  void Detach(SessionListener* listener);
  void Close(const Id& session, absl::AnyInvocable<void()> done);
  // When the timer kGrace is due: its waits end if no stream has the session.
  void OnGraceOver(SessionRecord* record);

  // The daemon ends: sessions keep their claims for its next life.
  void Stop() { stopping_ = true; }

 private:
  SteadyTime Now() const { return parts_.host->clock().Now(); }
  void Leave(SessionRecord* record) {
    Unlisten(record, parts_.claims, parts_.sessions, parts_.work);
  }
  void OnMade(const Id& session, SessionListener* listener, const WorkParams* work,
              const absl::StatusOr<Outcome>& outcome);

  const Parts parts_;
  const int64_t grace_ms_;
  bool stopping_ = false;
};

}  // namespace semaphored
