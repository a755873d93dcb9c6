#include "server/sessions/refusals.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "adapters/advice.h"

namespace semaphored {

using absl::StatusCode;

namespace {

// The message says what would be right in the field.
Refusal OfField(Refusal refusal, std::string_view field) {
  refusal.right = std::exchange(refusal.message, {});
  refusal.message = absl::StrCat(std::string(field), ": ", refusal.right);
  refusal.field = field;
  return refusal;
}

// What a refusal says in words that are always the same. $0 in the text: Outcome::limit(); $1: asked_limit(); $2: wrong_slot();
// $3: the semaphore's revision; $4: the adapter's name.
struct Words {
  OutcomeKind kind;
  StatusCode code;
  Reason reason;
  // An Outcome::message replaces it. Empty: the outcome always has a message.
  const char* text;
  std::string_view advice;
  // Instead of `advice` where the outcome has a message; empty: `advice`.
  std::string_view advice_to_message = {};
  // The field that is wrong: the text says what would be right. Empty: it is not about a field.
  std::string_view field = {};
};

// One row for each outcome that WordingOf gives to them.
constexpr std::array kWords = std::to_array<Words>({
    {OutcomeKind::kFull, StatusCode::kResourceExhausted, Reason::kFull,
     "all permits are taken, or others wait for them", "wait (wait_ms), or try again later"},
    {OutcomeKind::kHolderCap, StatusCode::kResourceExhausted, Reason::kHolderCap,
     "this holder has as many permits as permits_per_holder allows",
     "release one first, or wait (wait_ms)"},
    {OutcomeKind::kPaused, StatusCode::kFailedPrecondition, Reason::kPaused,
     "the semaphore is paused", "wait (wait_ms), or resume it"},
    {OutcomeKind::kWithheld, StatusCode::kUnavailable, Reason::kEngineUnavailable,
     "nothing is granted for now: the engine failed over and may have lost leases, which must run "
     "out first",
     "wait (wait_ms), or try again later"},
    {OutcomeKind::kLimitMismatch, StatusCode::kFailedPrecondition, Reason::kLimitMismatch,
     "limit: the semaphore has the limit $0, and the request asks for $1",
     "ask with the stored limit, with LIMIT_MISMATCH_ADOPT, or resize it"},
    {OutcomeKind::kExceedsLimit, StatusCode::kFailedPrecondition, Reason::kExceedsLimit,
     "permits: at most $0 can ever be granted to one request here",
     "ask for fewer permits, or raise the limit"},
    {OutcomeKind::kNoSuchSemaphore, StatusCode::kNotFound, Reason::kNoSuchSemaphore,
     "there is no such semaphore",
     "give a limit to create it, or, where you may not, have it made by who administers it"},
    {OutcomeKind::kDestroyed, StatusCode::kFailedPrecondition, Reason::kDestroyed,
     "the semaphore is being destroyed", ""},
    {OutcomeKind::kLimitReached, StatusCode::kResourceExhausted, Reason::kLimitReached, "",
     "try later, or raise the limit in the daemon's configuration"},
    {OutcomeKind::kOverQuota, StatusCode::kResourceExhausted, Reason::kQuota, "",
     "give something back first, or have the quota raised"},
    {OutcomeKind::kTooOld, StatusCode::kAborted, Reason::kRequestTooOld,
     "request_id.sequence: below the window of this client's requests that is remembered; it was "
     "not executed",
     "use a higher sequence number"},
    {.kind = OutcomeKind::kReused,
     .code = StatusCode::kInvalidArgument,
     .reason = Reason::kRequestIdReused,
     .text = "the same id was used for another request",
     .advice = "give each request its own sequence number, or UUID",
     .field = "request_id"},
    {.kind = OutcomeKind::kNoSuchSlot,
     .code = StatusCode::kInvalidArgument,
     .reason = Reason::kInvalidField,
     .text = "the lease does not hold slot $2",
     .advice = "name slots of the lease",
     .field = "slots"},
    {OutcomeKind::kBelongsToSession, StatusCode::kFailedPrecondition, Reason::kBelongsToSession,
     "a session's stream keeps this lease alive", "ping on the session's stream"},
    {OutcomeKind::kRevisionMismatch, StatusCode::kAborted, Reason::kRevisionMismatch,
     "expected_revision: the semaphore stands at revision $3", "describe it, and decide again"},
    {OutcomeKind::kAlreadyExists, StatusCode::kAlreadyExists, Reason::kAlreadyExists,
     "the semaphore exists with another limit or other settings", "resize or configure it"},
    {OutcomeKind::kInUse, StatusCode::kFailedPrecondition, Reason::kInUse,
     "the semaphore has holders or waiters", "drain it first, or destroy it with wait or force",
     "wait until no client holds it (a pause stops our grants), then try again; or as the message "
     "says"},
    {OutcomeKind::kWouldOvershoot, StatusCode::kFailedPrecondition, Reason::kWouldOvershoot,
     "more permits are held than the new limit", "choose the policy wait or recall"},
    {.kind = OutcomeKind::kOutOfRange,
     .code = StatusCode::kInvalidArgument,
     .reason = Reason::kInvalidField,
     .text = "would be below 0 or above limit_max",
     .advice = "",
     .field = "limit"},
    {OutcomeKind::kUnsupported, StatusCode::kUnimplemented, Reason::kNotSupported,
     "the adapter $4 cannot do this", ""},
    {OutcomeKind::kNoSuchTicket, StatusCode::kNotFound, Reason::kNoSuchTicket,
     "there is no such ticket, or not in the state that this asks",
     "list the tickets of the semaphore"},
    {OutcomeKind::kUnusable, StatusCode::kFailedPrecondition, Reason::kUnusable, "",
     "put right what the message names"},
    {OutcomeKind::kDamaged, StatusCode::kDataLoss, Reason::kEngineCorrupt, "",
     "restore it from a back-up"},
});

enum class Wording : uint8_t {
  kByWords,     // kWords says it.
  kByFunction,  // ByFunction.
  kNone,        // It is no refusal.
};

constexpr Wording WordingOf(OutcomeKind kind) {
  switch (kind) {
    case OutcomeKind::kFull:
    case OutcomeKind::kHolderCap:
    case OutcomeKind::kPaused:
    case OutcomeKind::kWithheld:
    case OutcomeKind::kLimitMismatch:
    case OutcomeKind::kExceedsLimit:
    case OutcomeKind::kNoSuchSemaphore:
    case OutcomeKind::kDestroyed:
    case OutcomeKind::kLimitReached:
    case OutcomeKind::kOverQuota:
    case OutcomeKind::kTooOld:
    case OutcomeKind::kReused:
    case OutcomeKind::kNoSuchSlot:
    case OutcomeKind::kBelongsToSession:
    case OutcomeKind::kRevisionMismatch:
    case OutcomeKind::kAlreadyExists:
    case OutcomeKind::kInUse:
    case OutcomeKind::kWouldOvershoot:
    case OutcomeKind::kOutOfRange:
    case OutcomeKind::kUnsupported:
    case OutcomeKind::kNoSuchTicket:
    case OutcomeKind::kUnusable:
    case OutcomeKind::kDamaged:
      return Wording::kByWords;
    case OutcomeKind::kSessionLost:
    case OutcomeKind::kNotHeld:
    case OutcomeKind::kWaitEnded:
    case OutcomeKind::kStale:
    case OutcomeKind::kMoving:
      return Wording::kByFunction;
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
  return Wording::kNone;
}

// kUnknown is the last of the outcomes.
constexpr bool HaveAllTheirWords() {
  for (int number = 0; number <= static_cast<int>(OutcomeKind::kUnknown); ++number) {
    const auto kind = static_cast<OutcomeKind>(number);
    const int64_t wanted = WordingOf(kind) == Wording::kByWords ? 1 : 0;
    if (std::ranges::count(kWords, kind, &Words::kind) != wanted) return false;
  }
  return true;
}
static_assert(HaveAllTheirWords(), "an outcome without a row in kWords, or with two");

Refusal ByWords(const Outcome& outcome, const std::string& semaphore, const std::string& adapter) {
  const Words& words = *std::ranges::find(kWords, outcome.kind, &Words::kind);
  Refusal refusal{words.code, words.reason, outcome.message, semaphore, std::string(words.advice)};
  if (!outcome.message.empty()) {
    if (!words.advice_to_message.empty()) refusal.advice = words.advice_to_message;
    return refusal;
  }
  const bool has_info = outcome.report && outcome.report->info;
  refusal.message = absl::Substitute(
      words.text, outcome.limit(), outcome.asked_limit(), outcome.wrong_slot(),
      has_info ? absl::StrCat(outcome.report->info->row.revision) : "none", adapter);
  return words.field.empty() ? refusal : OfField(std::move(refusal), words.field);
}

Refusal ByFunction(const Outcome& outcome, const std::string& semaphore) {
  if (outcome.kind == OutcomeKind::kSessionLost) return SessionLostRefusal();
  if (outcome.kind == OutcomeKind::kNotHeld) return NotHeldRefusal(outcome.cause, semaphore);
  if (outcome.kind == OutcomeKind::kWaitEnded) return WaitEnded(outcome.cause, semaphore);
  if (outcome.kind == OutcomeKind::kMoving) return MovingRefusal(semaphore, 0);
  return MovedRefusal(semaphore);
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

Refusal RefusalOf(const Outcome& outcome, const std::string& semaphore,
                  const std::string& adapter) {
  switch (WordingOf(outcome.kind)) {
    case Wording::kByWords:
      return ByWords(outcome, semaphore, adapter);
    case Wording::kByFunction:
      return ByFunction(outcome, semaphore);
    case Wording::kNone:
      break;
  }
  return {StatusCode::kInternal, Reason::kUnspecified, "an unexpected outcome", semaphore, ""};
}

}  // namespace semaphored
