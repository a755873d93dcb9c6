// Ends the claims of a session in the engine, many at a time. Single-threaded (the reactor's).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "server/sessions/claim_book.h"
#include "server/sessions/session_book.h"
#include "server/sessions/sessions.h"

namespace semaphored {

class SessionEnds {
 public:
  using Done = absl::AnyInvocable<void()>;

  // Claims of one session that are ended with it.
  struct Ending {
    Id session;
    uint32_t epoch = 0;
    EndCause cause = EndCause::kNone;
    std::vector<Id> claims;  // In this order.
    size_t submitted = 0;
    Done done;
  };
  // Ends of one session's claims that are submitted at the same time.
  static constexpr size_t kAtOnce = 32;

  // All pointers outlive it.
  SessionEnds(SessionsHost* host, ClaimBook* claims, SessionBook* sessions)
      : host_(host), claims_(claims), sessions_(sessions) {}

  // Runs `done` when all of them have an outcome or an error; immediately if there are none.
  void Submit(std::vector<EndCommand> ends, Done done);
  // Page by page: submits a page when the one before is answered, so that the lanes carry out other clients' commands
  // between them. Runs `done` when the last page has its outcomes, or earlier if the session has ended or has another epoch.
  void SubmitInPages(Ending ending);

  // The ends of the acquires without an answer. Such an acquire may be a repeated one, whose lease moves here: the session
  // must not end before that is known. A lane answers in order, so the answer to such an end comes after it.
  std::vector<EndCommand> OfAsked(const SessionRecord& session, EndCause cause) const;
  // The ends of the claims that do not move.
  std::vector<EndCommand> OfUnmoved(const SessionRecord& session, EndCause cause) const;
  // Waits, and then leases in the order of their grants: so the end of a lease grants to no waiter of the session, and leases
  // that lie side by side in the engine are in one page. Without those in `lane_left_out`, unless there are more than
  // kAtOnce.
  std::vector<Id> InOrder(const SessionRecord& session, size_t lane_left_out) const;

 private:
  SessionsHost* host_;
  ClaimBook* claims_;
  SessionBook* sessions_;
};

}  // namespace semaphored
