// The names of all branches.
#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "tests/simulation/branch_codes.h"
#include "tests/simulation/branches.h"

namespace semaphored::simulation {
namespace {

constexpr std::array<std::string_view, kVerbs> kVerbNames = {"acquire, waits",
                                                             "acquire",
                                                             "release",
                                                             "release some",
                                                             "verify",
                                                             "expire",
                                                             "end of a wait",
                                                             "cancel",
                                                             "disconnect",
                                                             "end when revoked",
                                                             "end when recalled",
                                                             "recall",
                                                             "adopt",
                                                             "open session",
                                                             "adopt session",
                                                             "close session",
                                                             "expire session",
                                                             "orphans",
                                                             "create",
                                                             "resize, wait",
                                                             "resize, recall",
                                                             "resize, refuse",
                                                             "configure",
                                                             "destroy, refuse",
                                                             "destroy, wait",
                                                             "destroy, force",
                                                             "pause",
                                                             "resume",
                                                             "revoke one",
                                                             "revoke of a holder",
                                                             "revoke all",
                                                             "prune",
                                                             "describe",
                                                             "list tickets",
                                                             "show ticket",
                                                             "cancel ticket",
                                                             "cancel ticket, force",
                                                             "prioritize",
                                                             "requeue one",
                                                             "requeue all",
                                                             "purge one",
                                                             "purge all",
                                                             "list",
                                                             "history",
                                                             "watch",
                                                             "enqueue",
                                                             "take",
                                                             "finish, done",
                                                             "finish, failed",
                                                             "finish, reject",
                                                             "finish, put back",
                                                             "ripen"};

constexpr std::array<std::string_view, size_t{kChangesEnd} - size_t{kVerbs}> kChangeNames = {
    "a lease is granted at once",
    "a waiter is let in",
    "a ticket is assigned",
    "a lease ends",
    "a waiter leaves",
    "a waiter queues",
    "an offer stands",
    "a claim moves",
    "a lease is recalled",
    "a lease shrinks",
    "a ticket comes",
    "a ticket is done",
    "a ticket is removed",
    "a ticket goes back",
    "a ticket is delayed",
    "a ticket dies",
    "a delay is over",
    "a dead letter is requeued",
    "a ticket moves",
    "a session opens",
    "a session moves",
    "a session is closing",
    "a session closes",
    "a semaphore is made",
    "a semaphore is gone",
    "an act leaves a rest",
    "an act is carried on",
    "an act is over",
    "requests are forgotten"};

// In the order of OutcomeKind.
constexpr std::array<std::string_view, static_cast<size_t>(OutcomeKind::kUnknown) + 1> kKindNames =
    {"granted",
     "queued",
     "full",
     "holder cap",
     "paused",
     "limit mismatch",
     "exceeds limit",
     "no such semaphore",
     "destroyed",
     "limit reached",
     "over quota",
     "too old",
     "reused",
     "session lost",
     "released",
     "not held",
     "no such slot",
     "held",
     "still waiting",
     "belongs to session",
     "done",
     "stale",
     "revision mismatch",
     "already exists",
     "in use",
     "would overshoot",
     "out of range",
     "unsupported",
     "unusable",
     "damaged",
     "wait ended",
     "withheld",
     "busy",
     "enqueued",
     "nothing",
     "no such ticket",
     "not asked before",
     "moving",
     "reading",
     "unknown"};

constexpr std::array<std::string_view, static_cast<size_t>(EndCause::kCount)> kCauseNames = {
    "",
    "released",
    "expired",
    "revoked",
    "recalled",
    "destroyed",
    "disconnected",
    "unknown",
    "wait expired",
    "cancelled",
    "exceeds limit",
    "engine lost",
    "moved"};

static_assert(!kVerbNames.back().empty() && !kChangeNames.back().empty() &&
                  !kKindNames.back().empty() && !kCauseNames.back().empty(),
              "a branch without a name");

}  // namespace

std::string NameOfCode(uint32_t code) {
  const uint32_t what = code >> 16;
  const std::string cause(kCauseNames.at(code & 0xff));
  const std::string because = cause.empty() ? "" : absl::StrCat(" (", cause, ")");
  if (what >= kVerbs) return std::string(kChangeNames.at(what - kVerbs)) + because;
  const std::string kind(kKindNames.at(code >> 8 & 0xff));
  return absl::StrCat(std::string(kVerbNames.at(what)), ": ", kind, because);
}

namespace {

using Kinds = std::initializer_list<OutcomeKind>;
using enum OutcomeKind;

// What may become of a command, beside what may become of each: see adapters/commands.h.
struct Fate {
  Verb first;
  Verb last;  // The same for all from the first to this one.
  Kinds kinds;
};
const std::vector<Fate>& Fates() {
  static const std::vector<Fate> fates = {
      {kAcquire,
       kAcquire,
       {kGranted, kQueued, kLimitMismatch, kExceedsLimit, kNoSuchSemaphore, kDestroyed,
        kLimitReached, kTooOld, kReused, kSessionLost, kStale, kUnusable, kNotAskedBefore,
        kMoving}},
      {kAcquireNoWait,
       kAcquireNoWait,
       {kGranted, kQueued, kFull, kHolderCap, kPaused, kWithheld, kLimitMismatch, kExceedsLimit,
        kNoSuchSemaphore, kDestroyed, kLimitReached, kTooOld, kReused, kSessionLost, kStale,
        kUnusable, kNotAskedBefore, kMoving}},
      {kRelease, kRelease, {kReleased, kTooOld, kReused}},
      {kReleaseSome, kReleaseSome, {kReleased, kNoSuchSlot, kTooOld, kReused}},
      {kVerify, kVerify, {kHeld, kStillWaiting}},
      {kExpire, kRecallDue, {kDone, kStale}},
      {kRecall, kRecall, {kDone}},
      {kAdopt, kAdopt, {kHeld, kStillWaiting, kBelongsToSession}},
      {kOpenSession, kOpenSession, {kDone, kLimitReached}},
      {kAdoptSession, kAdoptSession, {kDone, kSessionLost, kReading}},
      {kCloseSession, kExpireSession, {kDone, kSessionLost, kStale}},
      {kOrphans, kOrphans, {kDone}},
      {kCreate,
       kCreate,
       {kDone, kAlreadyExists, kLimitReached, kDestroyed, kRevisionMismatch, kTooOld, kReused,
        kUnusable}},
      {kResizeWait,
       kResizeRefuse,
       {kDone, kNoSuchSemaphore, kOutOfRange, kRevisionMismatch, kTooOld, kReused, kUnusable}},
      {kResizeRefuse, kResizeRefuse, {kWouldOvershoot}},
      {kConfigure, kConfigure, {kDone, kNoSuchSemaphore, kRevisionMismatch, kTooOld, kReused}},
      {kDestroyRefuse,
       kDestroyForce,
       {kDone, kNoSuchSemaphore, kRevisionMismatch, kTooOld, kReused}},
      {kDestroyRefuse, kDestroyWait, {kInUse}},
      {kPause, kPrune, {kDone, kNoSuchSemaphore, kRevisionMismatch, kTooOld, kReused}},
      {kRevokeHolder, kRevokeAll, {kLimitReached}},
      {kDescribe, kShowTicket, {kDone, kNoSuchSemaphore}},
      {kCancelTicket, kPurgeAll, {kDone, kNoSuchSemaphore, kTooOld, kReused}},
      {kShowTicket, kRequeueOne, {kNoSuchTicket}},
      {kPurgeOne, kPurgeOne, {kNoSuchTicket}},
      {kCancelTicket, kCancelTicket, {kInUse}},
      {kRequeueOne, kRequeueAll, {kLimitReached}},
      {kList, kFlush, {kDone}},
      {kEnqueue,
       kEnqueue,
       {kEnqueued, kLimitMismatch, kNoSuchSemaphore, kDestroyed, kLimitReached, kTooOld, kReused,
        kUnusable}},
      {kTake,
       kTake,
       {kGranted, kQueued, kNothing, kFull, kHolderCap, kPaused, kWithheld, kLimitReached,
        kNoSuchSemaphore, kDestroyed, kSessionLost, kStale}},
      {kFinishDone, kFinishPutBack, {kReleased, kTooOld, kReused}},
      {kFinishPutBack, kFinishPutBack, {kStale}},
      {kRipen, kRipen, {kDone, kNoSuchTicket, kStale}},
  };
  return fates;
}

using Causes = std::initializer_list<EndCause>;
constexpr Causes kLeaseCauses = {EndCause::kReleased,  EndCause::kExpired,
                                 EndCause::kRevoked,   EndCause::kRecalled,
                                 EndCause::kDestroyed, EndCause::kDisconnected};
constexpr Causes kWaitCauses = {EndCause::kWaitExpired,  EndCause::kCancelled,
                                EndCause::kExceedsLimit, EndCause::kDestroyed,
                                EndCause::kExpired,      EndCause::kDisconnected};

bool Reads(uint32_t verb) {
  return verb == kVerify || (verb >= kDescribe && verb <= kShowTicket) ||
         (verb >= kList && verb <= kFlush) || verb == kOrphans;
}

}  // namespace

std::vector<std::string> AllBranches() {
  std::vector<std::string> names;
  for (const Fate& fate : Fates()) {
    for (uint32_t verb = fate.first; verb <= fate.last; ++verb) {
      for (const OutcomeKind kind : fate.kinds)
        names.push_back(NameOfCode(CodeOf(static_cast<uint8_t>(verb), kind)));
    }
  }
  for (uint32_t each = 0; each < kVerbs; ++each) {
    const auto verb = static_cast<uint8_t>(each);
    const bool on_one =
        verb != kOpenSession && verb != kAdoptSession && verb != kOrphans && verb < kList;
    if (on_one || verb > kFlush) names.push_back(NameOfCode(CodeOf(verb, kDamaged)));
    if (!Reads(verb)) names.push_back(NameOfCode(CodeOf(verb, kUnknown)));
    if (!Reads(verb) && (verb < kOpenSession || verb > kOrphans))
      names.push_back(NameOfCode(CodeOf(verb, kBusy)));
  }
  for (const Verb verb : {Verb{kRelease}, Verb{kReleaseSome}, Verb{kVerify}, Verb{kExpire},
                          Verb{kRecall}, Verb{kAdopt}, Verb{kFinishDone}, Verb{kFinishFailed},
                          Verb{kAcquire}, Verb{kAcquireNoWait}}) {
    for (const EndCause cause : kLeaseCauses)
      names.push_back(NameOfCode(CodeOf(verb, kNotHeld, cause)));
  }
  for (const Verb verb : {Verb{kAcquire}, Verb{kAcquireNoWait}}) {
    for (const EndCause cause :
         {EndCause::kWaitExpired, EndCause::kExceedsLimit, EndCause::kDestroyed})
      names.push_back(NameOfCode(CodeOf(verb, kWaitEnded, cause)));
  }
  for (uint32_t change = kVerbs; change < kChangesEnd; ++change) {
    if (change != kLeaseEnds && change != kWaiterLeaves)
      names.push_back(NameOfCode(CodeOfChange(static_cast<Change>(change))));
  }
  for (const EndCause cause : kLeaseCauses)
    names.push_back(NameOfCode(CodeOfChange(kLeaseEnds, cause)));
  for (const EndCause cause : kWaitCauses)
    names.push_back(NameOfCode(CodeOfChange(kWaiterLeaves, cause)));
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace semaphored::simulation
