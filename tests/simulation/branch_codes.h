// The codes of branches: for branches.cc, which counts them, and branch_names.cc, which names them.
#pragma once

#include <cstdint>
#include <string>

#include "adapters/outcomes.h"

namespace semaphored::simulation {

using Verb = uint8_t;
using Change = uint8_t;

// A code: what it is about (8 bits: a Verb, or a Change above them all), the outcome's kind (8 bits), and
// the cause of an end (8 bits).
enum : uint8_t {
  kAcquire,
  kAcquireNoWait,
  kRelease,
  kReleaseSome,
  kVerify,
  kExpire,
  kEndWait,
  kCancel,
  kDisconnect,
  kRevokeDue,
  kRecallDue,
  kRecall,
  kAdopt,
  kOpenSession,
  kAdoptSession,
  kCloseSession,
  kExpireSession,
  kOrphans,
  kCreate,
  kResizeWait,
  kResizeRecall,
  kResizeRefuse,
  kConfigure,
  kDestroyRefuse,
  kDestroyWait,
  kDestroyForce,
  kPause,
  kResume,
  kRevokeOne,
  kRevokeHolder,
  kRevokeAll,
  kPrune,
  kDescribe,
  kListTickets,
  kShowTicket,
  kCancelTicket,
  kCancelTicketForce,
  kPrioritize,
  kRequeueOne,
  kRequeueAll,
  kPurgeOne,
  kPurgeAll,
  kList,
  kHistory,
  kFlush,
  kEnqueue,
  kTake,
  kFinishDone,
  kFinishFailed,
  kFinishReject,
  kFinishPutBack,
  kRipen,
  kVerbs
};

// What a commit did.
enum : uint8_t {
  kGrantedAtOnce = kVerbs,
  kLetIn,
  kAssigned,
  kLeaseEnds,  // With a cause, and so the next.
  kWaiterLeaves,
  kWaiterQueues,
  kOfferStands,
  kClaimMoves,
  kLeaseRecalled,
  kLeaseShrinks,
  kTicketComes,
  kTicketDone,
  kTicketRemoved,
  kTicketBack,
  kTicketDelayed,
  kTicketDies,
  kTicketRipe,
  kTicketRequeued,
  kTicketMoved,
  kSessionOpens,
  kSessionMoves,
  kSessionClosing,
  kSessionCloses,
  kSemaphoreMade,
  kSemaphoreGone,
  kActLeavesRest,
  kActCarriedOn,
  kActIsOver,
  kRequestsForgotten,
  kChangesEnd
};

inline uint32_t CodeOf(uint8_t what, OutcomeKind kind, EndCause cause = EndCause::kNone) {
  return uint32_t{what} << 16 | uint32_t{static_cast<uint8_t>(kind)} << 8 |
         static_cast<uint8_t>(cause);
}
inline uint32_t CodeOfChange(Change change, EndCause cause = EndCause::kNone) {
  return CodeOf(change, OutcomeKind::kDone, cause);
}

std::string NameOfCode(uint32_t code);

}  // namespace semaphored::simulation
