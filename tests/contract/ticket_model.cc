#include "tests/contract/ticket_model.h"

#include <algorithm>

namespace semaphored::contract {
namespace {

template <typename A, typename B>
bool Before(const A& a, const B& b) {
  return a.priority != b.priority ? a.priority > b.priority : a.order < b.order;
}

}  // namespace

TicketModel::Ticket* TicketModel::NextTicket() {
  Ticket* next = nullptr;
  for (Ticket& ticket : tickets_) {
    if (ticket.state != TicketState::kQueued) continue;
    if (next == nullptr || Before(ticket, *next)) next = &ticket;
  }
  return next;
}

TicketModel::Ticket* TicketModel::Find(const Id& id) {
  const auto found = std::ranges::find(tickets_, id, &Ticket::id);
  return found == tickets_.end() ? nullptr : &*found;
}

TicketModel::Ticket* TicketModel::FindByLease(const Id& claim) {
  const auto found = std::ranges::find(tickets_, claim, &Ticket::lease);
  return found == tickets_.end() ? nullptr : &*found;
}

bool TicketModel::Holds(const Id& claim) const { return std::ranges::count(holdings_, claim) > 0; }

bool TicketModel::Forget(std::vector<Id>* ids, const Id& id) { return std::erase(*ids, id) > 0; }

void TicketModel::Assign(Ticket* ticket, const Id& claim) {
  holdings_.push_back(claim);
  ticket->state = TicketState::kAssigned;
  ticket->lease = claim;
  ++ticket->attempt;
}

void TicketModel::GiveBack(Ticket* ticket) {
  const bool was_last = ticket->max_attempts != 0 && ticket->attempt >= ticket->max_attempts;
  ticket->state = was_last ? TicketState::kDead : TicketState::kQueued;
  ticket->lease = Id();
}

void TicketModel::Serve() {
  while (!paused_ && holdings_.size() < limit_) {
    Ticket* ticket = offers_.empty() ? nullptr : NextTicket();
    const bool waits = !waiters_.empty();
    if (ticket == nullptr && !waits) return;
    if (ticket != nullptr && (!waits || Before(*ticket, waiters_.front()))) {
      granted_.push_back(offers_.front());
      offers_.erase(offers_.begin());
      Assign(ticket, granted_.back());
    } else {
      granted_.push_back(waiters_.front().claim);
      holdings_.push_back(granted_.back());
      waiters_.erase(waiters_.begin());
    }
  }
}

TicketCounts TicketModel::Counts() const {
  TicketCounts counts;
  for (const Ticket& ticket : tickets_) {
    counts.queued += ticket.state == TicketState::kQueued ? 1 : 0;
    counts.delayed += ticket.state == TicketState::kDelayed ? 1 : 0;
    counts.assigned += ticket.state == TicketState::kAssigned ? 1 : 0;
    counts.dead += ticket.state == TicketState::kDead ? 1 : 0;
  }
  return counts;
}

OutcomeKind TicketModel::Acquire(const Id& claim, int32_t priority, bool wait) {
  const bool waiter_ahead = !waiters_.empty() && waiters_.front().priority >= priority;
  const Ticket* ticket = offers_.empty() ? nullptr : NextTicket();
  const bool ticket_ahead = ticket != nullptr && ticket->priority >= priority;
  if (!paused_ && !waiter_ahead && !ticket_ahead && holdings_.size() < limit_) {
    holdings_.push_back(claim);
    return OutcomeKind::kGranted;
  }
  if (!wait) return paused_ ? OutcomeKind::kPaused : OutcomeKind::kFull;
  const Waiting waiting{claim, priority, next_order_++};
  waiters_.insert(
      std::ranges::find_if(waiters_, [&](const Waiting& each) { return Before(waiting, each); }),
      waiting);
  return OutcomeKind::kQueued;
}

OutcomeKind TicketModel::Release(const Id& claim) {
  if (!Forget(&holdings_, claim)) return OutcomeKind::kNotHeld;
  if (Ticket* ticket = FindByLease(claim)) GiveBack(ticket);
  Serve();
  return OutcomeKind::kReleased;
}

OutcomeKind TicketModel::End(const Id& claim) {
  const bool waited =
      std::erase_if(waiters_, [&](const Waiting& each) { return each.claim == claim; }) > 0;
  if (waited || Forget(&offers_, claim)) {
    Serve();
    return OutcomeKind::kDone;
  }
  return Release(claim) == OutcomeKind::kReleased ? OutcomeKind::kDone : OutcomeKind::kNotHeld;
}

OutcomeKind TicketModel::Enqueue(const Id& id, int32_t priority, bool delayed,
                                 uint32_t max_attempts) {
  const TicketState state = delayed ? TicketState::kDelayed : TicketState::kQueued;
  tickets_.push_back({id, priority, next_order_++, state, 0, max_attempts, delayed ? 1u : 0u, {}});
  Serve();
  return OutcomeKind::kEnqueued;
}

OutcomeKind TicketModel::Take(const Id& claim, OfferKept keep) {
  OutcomeKind kind = OutcomeKind::kNothing;
  if (Ticket* ticket = NextTicket()) {
    const bool ahead = !offers_.empty() || (!waiters_.empty() && Before(waiters_.front(), *ticket));
    kind = paused_                               ? OutcomeKind::kPaused
           : ahead || holdings_.size() >= limit_ ? OutcomeKind::kFull
                                                 : OutcomeKind::kGranted;
    if (kind == OutcomeKind::kGranted) Assign(ticket, claim);
  }
  if (kind == OutcomeKind::kGranted || keep == OfferKept::kNo) return kind;
  const TicketCounts counts = Counts();
  if (keep == OfferKept::kWhileTickets && counts.queued + counts.delayed + counts.assigned == 0)
    return kind;
  ++next_order_;
  offers_.push_back(claim);
  return OutcomeKind::kQueued;
}

OutcomeKind TicketModel::Finish(const Id& claim, FinishCommand::Result result, bool delayed) {
  if (!Holds(claim)) return OutcomeKind::kNotHeld;
  Ticket* ticket = FindByLease(claim);
  if (ticket == nullptr) return OutcomeKind::kNoSuchTicket;
  Forget(&holdings_, claim);
  if (result == FinishCommand::Result::kPutBack) {
    --ticket->attempt;
    ticket->state = TicketState::kQueued;
    ticket->lease = Id();
  } else if (result == FinishCommand::Result::kDone) {
    std::erase_if(tickets_, [&](const Ticket& each) { return each.lease == claim; });
  } else {
    GiveBack(ticket);
    if (result == FinishCommand::Result::kReject) ticket->state = TicketState::kDead;
    if (ticket->state == TicketState::kQueued && delayed) {
      ticket->state = TicketState::kDelayed;
      ++ticket->delays;
    }
  }
  Serve();
  return OutcomeKind::kReleased;
}

OutcomeKind TicketModel::Ripen(const Id& id, uint32_t delay) {
  Ticket* ticket = Find(id);
  if (ticket == nullptr) return OutcomeKind::kNoSuchTicket;
  if (ticket->state != TicketState::kDelayed || ticket->delays != delay) return OutcomeKind::kStale;
  ticket->state = TicketState::kQueued;
  Serve();
  return OutcomeKind::kDone;
}

OutcomeKind TicketModel::Cancel(const Id& id, bool force) {
  Ticket* ticket = Find(id);
  if (ticket == nullptr) return OutcomeKind::kNoSuchTicket;
  if (ticket->state == TicketState::kAssigned && !force) return OutcomeKind::kInUse;
  Forget(&holdings_, ticket->lease);
  std::erase_if(tickets_, [&](const Ticket& each) { return each.id == id; });
  Serve();
  return OutcomeKind::kDone;
}

OutcomeKind TicketModel::Prioritize(const Id& id, int32_t priority) {
  Ticket* ticket = Find(id);
  if (ticket == nullptr) return OutcomeKind::kNoSuchTicket;
  ticket->priority = priority;
  Serve();
  return OutcomeKind::kDone;
}

OutcomeKind TicketModel::Requeue(const Id& id) {
  uint32_t affected = 0;
  for (Ticket& ticket : tickets_) {
    if (ticket.state != TicketState::kDead || (!id.empty() && ticket.id != id)) continue;
    ticket.state = TicketState::kQueued;
    ticket.attempt = 0;
    ++affected;
  }
  if (affected == 0 && !id.empty()) return OutcomeKind::kNoSuchTicket;
  Serve();
  return OutcomeKind::kDone;
}

OutcomeKind TicketModel::Purge(const Id& id) {
  const size_t affected = std::erase_if(tickets_, [&](const Ticket& each) {
    return each.state == TicketState::kDead && (id.empty() || each.id == id);
  });
  return affected == 0 && !id.empty() ? OutcomeKind::kNoSuchTicket : OutcomeKind::kDone;
}

void TicketModel::Resize(uint32_t limit) {
  limit_ = limit;
  Serve();
}

void TicketModel::Pause(bool paused) {
  paused_ = paused;
  Serve();
}

}  // namespace semaphored::contract
