#include "server/sessions/refusals.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/advice.h"

namespace semaphored {

using absl::StatusCode;

namespace {

Refusal OfField(Refusal refusal, std::string_view field, std::string right) {
  refusal.message = absl::StrCat(std::string(field), ": ", right);
  refusal.field = field;
  refusal.right = std::move(right);
  return refusal;
}

}  // namespace

const char* CauseText(EndCause cause) {
  switch (cause) {
    case EndCause::kReleased:
      return "it was released";
    case EndCause::kExpired:
      return "its TTL passed without a sign of life";
    case EndCause::kRevoked:
      return "an administrator revoked it";
    case EndCause::kRecalled:
      return "it was recalled and not given back in time";
    case EndCause::kDestroyed:
      return "the semaphore was destroyed";
    case EndCause::kDisconnected:
      return "its connection was lost, and release_on_disconnect was chosen";
    case EndCause::kWaitExpired:
      return "its wait ran out";
    case EndCause::kCancelled:
      return "its wait was given up";
    case EndCause::kExceedsLimit:
      return "the limit was lowered below it";
    case EndCause::kEngineLost:
      return "the engine took it back, since the daemon's connection to it was lost";
    case EndCause::kMoved:
      return "its client has repeated the request in another session, which has the lease now";
    case EndCause::kNone:
    case EndCause::kUnknown:
    case EndCause::kCount:
      break;
  }
  return "it never was, or ended so long ago that it is forgotten";
}

Refusal NotHeldRefusal(EndCause cause, const std::string& semaphore) {
  return {StatusCode::kNotFound, Reason::kNotHeld,
          absl::StrCat("the lease is not held: ", CauseText(cause)), semaphore,
          "acquire again, with a new request id"};
}

Refusal SessionLostRefusal() {
  return {StatusCode::kNotFound, Reason::kSessionLost,
          "the session has ended, and its leases with it", "",
          "stop what its leases protected, and open a new session with a new client id"};
}

Refusal EndingRefusal() {
  return {StatusCode::kUnavailable, Reason::kNotVouched, "this daemon is ending the session", "",
          "try the same request again, here or at another endpoint, to learn whether it has ended"};
}

Refusal NotVouchedRefusal(const std::string& semaphore) {
  return {StatusCode::kUnavailable, Reason::kNotVouched,
          "this daemon has lost touch with its engine and cannot vouch for leases now", semaphore,
          "try the same request again, here or at another endpoint"};
}

Refusal ShuttingDownRefusal() {
  return {StatusCode::kUnavailable, Reason::kShuttingDown,
          "this daemon is shutting down; what its engine keeps stands", "",
          "try the same request again, here or at another endpoint"};
}

Refusal MovedRefusal(const std::string& semaphore) {
  return {StatusCode::kUnavailable, Reason::kNotVouched,
          "its client went on at another daemon or stream", semaphore, ""};
}

Refusal MovingRefusal(const std::string& semaphore, int64_t left_ms) {
  const std::string when = left_ms > 0 ? absl::StrCat("in ", left_ms, " ms") : "now";
  Refusal refusal{StatusCode::kUnavailable, Reason::kMoving,
                  absl::StrCat("the lease moves here from another session of this client, and its "
                               "former holder may still count on it: it is granted ",
                               when),
                  semaphore,
                  absl::StrCat("repeat the same request, with the same request id, ", when)};
  refusal.retry_after_ms = left_ms;
  return refusal;
}

Refusal WaitEnded(EndCause cause, const std::string& semaphore) {
  switch (cause) {
    case EndCause::kWaitExpired:
      return {StatusCode::kDeadlineExceeded, Reason::kWaitExpired,
              "wait_ms passed before the permits came free", semaphore,
              "wait longer, or try again later"};
    case EndCause::kExceedsLimit:
      return {StatusCode::kFailedPrecondition, Reason::kExceedsLimit,
              "the limit was lowered below what was asked for: this can never be served", semaphore,
              "ask for fewer permits"};
    case EndCause::kDestroyed:
      return {StatusCode::kFailedPrecondition, Reason::kDestroyed, "the semaphore was destroyed",
              semaphore, ""};
    case EndCause::kCancelled:
      return {StatusCode::kCancelled, Reason::kWaitCancelled, "the wait was given up", semaphore,
              ""};
    case EndCause::kNone:
    case EndCause::kReleased:
    case EndCause::kExpired:
    case EndCause::kRevoked:
    case EndCause::kRecalled:
    case EndCause::kDisconnected:
    case EndCause::kUnknown:
    case EndCause::kEngineLost:
    case EndCause::kMoved:
    case EndCause::kCount:
      break;
  }
  return {StatusCode::kUnavailable, Reason::kNotVouched, "the wait ended without a grant",
          semaphore, "try again"};
}

Refusal NotAllowedRefusal(const std::string& semaphore) {
  return {StatusCode::kPermissionDenied, Reason::kPermissionDenied,
          "the daemon's access rules have changed, and no longer allow this client the semaphore",
          semaphore, "ask the operator of the daemon for a rule"};
}

Refusal RefusalOf(const absl::Status& status, const std::string& semaphore) {
  const std::string message(status.message());
  switch (status.code()) {
    case StatusCode::kResourceExhausted:
      return {StatusCode::kUnavailable, Reason::kEngineFull, message, semaphore,
              "make room for the engine; the daemon goes on by itself"};
    case StatusCode::kDataLoss: {
      const std::string advice = AdviceIn(status);
      return {StatusCode::kDataLoss, Reason::kEngineCorrupt, message, semaphore,
              advice.empty() ? "restore the store from a back-up" : advice};
    }
    case StatusCode::kUnimplemented:
      return {StatusCode::kUnimplemented, Reason::kNotSupported, message, semaphore, ""};
    case StatusCode::kAborted:
    case StatusCode::kUnavailable:
    case StatusCode::kDeadlineExceeded:
      return {StatusCode::kUnavailable, Reason::kEngineUnavailable, message, semaphore,
              "try the same request again, with the same request id"};
    default:
      return {StatusCode::kUnavailable, Reason::kEngineUnavailable,
              absl::StrCat(absl::StatusCodeToString(status.code()), ": ", message), semaphore, ""};
  }
}

// One entry for each outcome. NOLINTNEXTLINE(readability-function-size)
Refusal RefusalOf(const Outcome& outcome, const std::string& semaphore,
                  const std::string& adapter) {
  const std::string info_revision = outcome.report && outcome.report->info
                                        ? absl::StrCat(outcome.report->info->row.revision)
                                        : "none";
  switch (outcome.kind) {
    case OutcomeKind::kFull:
      return {StatusCode::kResourceExhausted, Reason::kFull,
              "all permits are taken, or others wait for them", semaphore,
              "wait (wait_ms), or try again later"};
    case OutcomeKind::kHolderCap:
      return {StatusCode::kResourceExhausted, Reason::kHolderCap,
              "this holder has as many permits as permits_per_holder allows", semaphore,
              "release one first, or wait (wait_ms)"};
    case OutcomeKind::kPaused:
      return {StatusCode::kFailedPrecondition, Reason::kPaused, "the semaphore is paused",
              semaphore, "wait (wait_ms), or resume it"};
    case OutcomeKind::kWithheld:
      return {
          StatusCode::kUnavailable, Reason::kEngineUnavailable,
          "nothing is granted for now: the engine failed over and may have lost leases, which must "
          "run out first",
          semaphore, "wait (wait_ms), or try again later"};
    case OutcomeKind::kLimitMismatch:
      return {StatusCode::kFailedPrecondition, Reason::kLimitMismatch,
              absl::StrCat("limit: the semaphore has the limit ", outcome.limit(),
                           ", and the request asks for ", outcome.asked_limit()),
              semaphore, "ask with the stored limit, with LIMIT_MISMATCH_ADOPT, or resize it"};
    case OutcomeKind::kExceedsLimit:
      return {StatusCode::kFailedPrecondition, Reason::kExceedsLimit,
              absl::StrCat("permits: at most ", outcome.limit(),
                           " can ever be granted to one request here"),
              semaphore, "ask for fewer permits, or raise the limit"};
    case OutcomeKind::kNoSuchSemaphore:
      return {
          StatusCode::kNotFound, Reason::kNoSuchSemaphore, "there is no such semaphore", semaphore,
          "give a limit to create it, or, where you may not, have it made by who administers it"};
    case OutcomeKind::kDestroyed:
      return {StatusCode::kFailedPrecondition, Reason::kDestroyed,
              "the semaphore is being destroyed", semaphore, ""};
    case OutcomeKind::kLimitReached:
      return {StatusCode::kResourceExhausted, Reason::kLimitReached, outcome.message, semaphore,
              "try later, or raise the limit in the daemon's configuration"};
    case OutcomeKind::kOverQuota:
      return {StatusCode::kResourceExhausted, Reason::kQuota, outcome.message, semaphore,
              "give something back first, or have the quota raised"};
    case OutcomeKind::kTooOld:
      return {StatusCode::kAborted, Reason::kRequestTooOld,
              "request_id.sequence: below the window of this client's requests that is remembered; "
              "it was not executed",
              semaphore, "use a higher sequence number"};
    case OutcomeKind::kReused:
      return OfField({StatusCode::kInvalidArgument, Reason::kRequestIdReused, "", semaphore,
                      "give each request its own sequence number, or UUID"},
                     "request_id", "the same id was used for another request");
    case OutcomeKind::kSessionLost:
      return SessionLostRefusal();
    case OutcomeKind::kNotHeld:
      return NotHeldRefusal(outcome.cause, semaphore);
    case OutcomeKind::kNoSuchSlot:
      return OfField({StatusCode::kInvalidArgument, Reason::kInvalidField, "", semaphore,
                      "name slots of the lease"},
                     "slots", absl::StrCat("the lease does not hold slot ", outcome.wrong_slot()));
    case OutcomeKind::kBelongsToSession:
      return {StatusCode::kFailedPrecondition, Reason::kBelongsToSession,
              "a session's stream keeps this lease alive", semaphore,
              "ping on the session's stream"};
    case OutcomeKind::kWaitEnded:
      return WaitEnded(outcome.cause, semaphore);
    case OutcomeKind::kRevisionMismatch:
      return {StatusCode::kAborted, Reason::kRevisionMismatch,
              absl::StrCat("expected_revision: the semaphore stands at revision ", info_revision),
              semaphore, "describe it, and decide again"};
    case OutcomeKind::kAlreadyExists:
      return {StatusCode::kAlreadyExists, Reason::kAlreadyExists,
              outcome.message.empty() ? "the semaphore exists with another limit or other settings"
                                      : outcome.message,
              semaphore, "resize or configure it"};
    case OutcomeKind::kInUse:
      if (!outcome.message.empty())
        return {
            StatusCode::kFailedPrecondition, Reason::kInUse, outcome.message, semaphore,
            "wait until no client holds it (a pause stops our grants), then try again; or as the "
            "message says"};
      return {StatusCode::kFailedPrecondition, Reason::kInUse,
              "the semaphore has holders or waiters", semaphore,
              "drain it first, or destroy it with wait or force"};
    case OutcomeKind::kWouldOvershoot:
      return {StatusCode::kFailedPrecondition, Reason::kWouldOvershoot,
              "more permits are held than the new limit", semaphore,
              "choose the policy wait or recall"};
    case OutcomeKind::kOutOfRange:
      return OfField({StatusCode::kInvalidArgument, Reason::kInvalidField, "", semaphore, ""},
                     "limit", "would be below 0 or above limit_max");
    case OutcomeKind::kUnsupported:
      return {StatusCode::kUnimplemented, Reason::kNotSupported,
              outcome.message.empty() ? absl::StrCat("the adapter ", adapter, " cannot do this")
                                      : outcome.message,
              semaphore, ""};
    case OutcomeKind::kNoSuchTicket:
      return {StatusCode::kNotFound, Reason::kNoSuchTicket,
              outcome.message.empty()
                  ? "there is no such ticket, or not in the state that this asks"
                  : outcome.message,
              semaphore, "list the tickets of the semaphore"};
    case OutcomeKind::kUnusable:
      return {StatusCode::kFailedPrecondition, Reason::kUnusable, outcome.message, semaphore,
              "put right what the message names"};
    case OutcomeKind::kDamaged:
      return {StatusCode::kDataLoss, Reason::kEngineCorrupt, outcome.message, semaphore,
              "restore it from a back-up"};
    case OutcomeKind::kStale:
      return MovedRefusal(semaphore);
    case OutcomeKind::kMoving:
      return MovingRefusal(semaphore, 0);
    // These are no refusals.
    case OutcomeKind::kGranted:
    case OutcomeKind::kQueued:
    case OutcomeKind::kReleased:
    case OutcomeKind::kHeld:
    case OutcomeKind::kStillWaiting:
    case OutcomeKind::kDone:
    case OutcomeKind::kBusy:
    case OutcomeKind::kEnqueued:
    case OutcomeKind::kNothing:
    case OutcomeKind::kNotAskedBefore:
    case OutcomeKind::kReading:
    case OutcomeKind::kUnknown:
      break;
  }
  return {StatusCode::kInternal, Reason::kUnspecified, "an unexpected outcome", semaphore, ""};
}

}  // namespace semaphored
