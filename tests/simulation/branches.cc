#include "tests/simulation/branches.h"

#include <variant>

#include "tests/simulation/branch_codes.h"

namespace semaphored::simulation {
namespace {

Verb VerbOf(const EndCommand& end) {
  switch (end.cause) {
    case EndCause::kWaitExpired:
      return kEndWait;
    case EndCause::kCancelled:
      return kCancel;
    case EndCause::kDisconnected:
      return kDisconnect;
    case EndCause::kRevoked:
      return kRevokeDue;
    case EndCause::kRecalled:
      return kRecallDue;
    default:
      return kExpire;
  }
}

struct VerbOfAct {
  Verb operator()(const AdminCreate&) const { return kCreate; }
  Verb operator()(const AdminResize& act) const {
    return static_cast<Verb>(kResizeWait + static_cast<uint8_t>(act.policy));
  }
  Verb operator()(const AdminConfigure&) const { return kConfigure; }
  Verb operator()(const AdminDestroy& act) const {
    return static_cast<Verb>(kDestroyRefuse + static_cast<uint8_t>(act.policy));
  }
  Verb operator()(const AdminPause& act) const { return act.paused ? kPause : kResume; }
  Verb operator()(const AdminRevoke& act) const {
    return !act.claim.empty() ? kRevokeOne : !act.holder.empty() ? kRevokeHolder : kRevokeAll;
  }
  Verb operator()(const AdminPrune&) const { return kPrune; }
  Verb operator()(const AdminAdopt&) const { return kPrune; }  // No client does it.
  Verb operator()(const AdminDescribe&) const { return kDescribe; }
  Verb operator()(const AdminListTickets&) const { return kListTickets; }
  Verb operator()(const AdminShowTicket&) const { return kShowTicket; }
  Verb operator()(const AdminCancelTicket& act) const {
    return act.force ? kCancelTicketForce : kCancelTicket;
  }
  Verb operator()(const AdminPrioritizeTicket&) const { return kPrioritize; }
  Verb operator()(const AdminRequeue& act) const {
    return act.ticket.empty() ? kRequeueAll : kRequeueOne;
  }
  Verb operator()(const AdminPurge& act) const {
    return act.ticket.empty() ? kPurgeAll : kPurgeOne;
  }
};

struct VerbOfCommand {
  Verb operator()(const AcquireCommand& c) const { return c.wait ? kAcquire : kAcquireNoWait; }
  Verb operator()(const ReleaseCommand& c) const {
    return c.slots.empty() ? kRelease : kReleaseSome;
  }
  Verb operator()(const VerifyCommand&) const { return kVerify; }
  Verb operator()(const EndCommand& c) const { return VerbOf(c); }
  Verb operator()(const RecallCommand&) const { return kRecall; }
  Verb operator()(const AdoptCommand&) const { return kAdopt; }
  Verb operator()(const OpenSessionCommand&) const { return kOpenSession; }
  Verb operator()(const AdoptSessionCommand&) const { return kAdoptSession; }
  Verb operator()(const CloseSessionCommand& c) const {
    return c.cause == EndCause::kExpired ? kExpireSession : kCloseSession;
  }
  Verb operator()(const OrphansCommand&) const { return kOrphans; }
  Verb operator()(const AdminCommand& c) const { return std::visit(VerbOfAct(), c.act); }
  Verb operator()(const ListCommand&) const { return kList; }
  Verb operator()(const HistoryCommand&) const { return kHistory; }
  Verb operator()(const FlushCommand&) const { return kFlush; }
  Verb operator()(const EnqueueCommand&) const { return kEnqueue; }
  Verb operator()(const TakeCommand&) const { return kTake; }
  Verb operator()(const FinishCommand& c) const {
    return static_cast<Verb>(kFinishDone + static_cast<uint8_t>(c.result));
  }
  Verb operator()(const RipenCommand&) const { return kRipen; }
};

Change OfLease(const ledger::LeaseChange& change) {
  if (!change.after) return kLeaseEnds;
  if (!change.before) return change.after->ticket.empty() ? kGrantedAtOnce : kAssigned;
  if (change.after->permits < change.before->permits) return kLeaseShrinks;
  if (change.after->recall != change.before->recall) return kLeaseRecalled;
  return kClaimMoves;
}

Change OfWaiter(const ledger::WaiterChange& change) {
  if (change.before && change.after) return kClaimMoves;
  if (!change.before) return change.after->works ? kOfferStands : kWaiterQueues;
  return change.cause == EndCause::kNone ? kLetIn : kWaiterLeaves;
}

Change OfTicket(const ledger::TicketChange& change) {
  if (!change.before) return kTicketComes;
  const TicketState before = change.before->state;
  if (!change.after) return before == TicketState::kAssigned ? kTicketDone : kTicketRemoved;
  const TicketState after = change.after->state;
  if (before == after) return kTicketMoved;
  switch (after) {
    case TicketState::kAssigned:
      return kAssigned;
    case TicketState::kDelayed:
      return kTicketDelayed;
    case TicketState::kDead:
      return kTicketDies;
    case TicketState::kQueued:
      break;
  }
  return before == TicketState::kDead      ? kTicketRequeued
         : before == TicketState::kDelayed ? kTicketRipe
                                           : kTicketBack;
}

Change OfSession(const ledger::SessionChange& change) {
  if (!change.before) return kSessionOpens;
  if (!change.after) return kSessionCloses;
  return change.after->closing ? kSessionClosing : kSessionMoves;
}

}  // namespace

void BranchCounter::Add(uint32_t code) {
  auto& counts = counts_[code];
  for (size_t index = 0; index < kFaultKinds; ++index) {
    if (faults_->IsRecent(static_cast<FaultKind>(index))) ++counts[index];
  }
}

void BranchCounter::Count(const Command& command, const Outcome& outcome) {
  const bool ended =
      outcome.kind == OutcomeKind::kNotHeld || outcome.kind == OutcomeKind::kWaitEnded;
  Add(CodeOf(std::visit(VerbOfCommand(), command), outcome.kind,
             ended ? outcome.cause : EndCause::kNone));
}

void BranchCounter::Count(const ledger::Transaction& transaction) {
  for (const ledger::SemaphoreDelta& delta : transaction.semaphores) {
    if (!delta.before) Add(CodeOfChange(kSemaphoreMade));
    if (!delta.after) Add(CodeOfChange(kSemaphoreGone));
    for (const ledger::LeaseChange& change : delta.leases)
      Add(CodeOfChange(OfLease(change), change.cause));
    for (const ledger::WaiterChange& change : delta.waiters)
      Add(CodeOfChange(OfWaiter(change), change.cause));
    for (const ledger::TicketChange& change : delta.tickets) {
      if (OfTicket(change) != kAssigned) Add(CodeOfChange(OfTicket(change)));
    }
    const std::string before = delta.before ? delta.before->intentions : "";
    const std::string after = delta.after ? delta.after->intentions : "";
    if (before.empty() && !after.empty()) Add(CodeOfChange(kActLeavesRest));
    if (!before.empty()) Add(CodeOfChange(after.empty() ? kActIsOver : kActCarriedOn));
  }
  for (const ledger::SessionChange& change : transaction.sessions)
    Add(CodeOfChange(OfSession(change)));
  if (!transaction.forgotten_clients.empty()) Add(CodeOfChange(kRequestsForgotten));
}

Tally BranchCounter::ByName() const {
  Tally tally;
  for (const auto& [code, counts] : counts_) tally[NameOfCode(code)] = counts;
  return tally;
}

}  // namespace semaphored::simulation
