// Workers: what a session that works has been given, and what becomes of it. When to offer itself
// where is the Worker's to decide.
#include <utility>
#include <vector>

#include "server/core/sessions_impl.h"

namespace semaphored {
namespace {

using State = ClaimRecord::State;

// What the worker's word makes of a ticket; the rules in the ledger say the same.
std::optional<TicketState> StateAfter(const Ticket& ticket, const FinishCommand& command) {
  switch (command.result) {
    case FinishCommand::Result::kDone:
      return std::nullopt;
    case FinishCommand::Result::kReject:
      return TicketState::kDead;
    case FinishCommand::Result::kPutBack:
      return TicketState::kQueued;
    case FinishCommand::Result::kFailed:
      break;
  }
  if (ticket.max_attempts != 0 && ticket.attempt >= ticket.max_attempts) return TicketState::kDead;
  const int64_t delay_ms = command.retry_after_ms.value_or(ticket.back_off.initial_ms);
  return delay_ms > 0 ? TicketState::kDelayed : TicketState::kQueued;
}

}  // namespace

Worker* SessionsImpl::WorkerOf(const ClaimRecord& record) const {
  return record.offers && record.session != nullptr ? record.session->worker.get() : nullptr;
}

SessionListener* SessionsImpl::ListenerOfOffer(const ClaimRecord& record) const {
  return record.session != nullptr ? record.session->listener : nullptr;
}

// ---- Beginning and ending ----

void SessionsImpl::StartWork(SessionRecord* record, const WorkParams& work) {
  StopWork(record);  // Offers of an earlier stream: perhaps for other semaphores.
  const Id session = record->id;
  Worker::Actions actions;
  actions.offer = [this, session](const std::string& semaphore, OfferKept keep) {
    return Offer(session, semaphore, keep);
  };
  actions.withdraw = [this](const std::string& /*semaphore*/, const Id& claim) {
    if (ClaimRecord* offer = FindClaim(claim)) EndClaim(offer, EndCause::kCancelled, true);
  };
  record->worker = std::make_unique<Worker>(work, std::move(actions));
  workers_.insert(session);
  for (const std::string& name : work.semaphores) workers_by_name_[name].insert(session);
  for (const std::string& prefix : work.prefixes) workers_by_prefix_[prefix].insert(session);
  std::vector<Id> has;
  for (const Id& id : record->claims) {
    ClaimRecord* claim = FindClaim(id);
    if (claim == nullptr || !claim->offers || claim->state != State::kHeld) continue;
    if (claim->put_back || claim->finishing || claim->ticket == nullptr) continue;
    claim->told = false;   // This stream has not received the ticket, …
    claim->listed = true;  // … but its client may know the lease, and hears of its end.
    record->worker->Has(id);
    has.push_back(id);
  }
  for (const Id& id : has) {
    if (ClaimRecord* claim = FindClaim(id)) TellAssigned(claim, nullptr);
  }
  Fill(session);
  for (const std::string& prefix : work.prefixes) LookUp(prefix, "");
  ArmWork();
}

void SessionsImpl::StopWork(SessionRecord* record) {
  if (record->worker != nullptr) {
    for (const std::string& name : record->worker->names())
      workers_by_name_[name].erase(record->id);
    for (const std::string& prefix : record->worker->prefixes())
      workers_by_prefix_[prefix].erase(record->id);
    record->worker = nullptr;
  }
  workers_.erase(record->id);
  // An offer that is still asked for is ended when it is answered.
  for (const Id& id : record->claims) {
    ClaimRecord* claim = FindClaim(id);
    if (claim != nullptr && claim->offers && claim->state == State::kWaiting)
      EndClaim(claim, EndCause::kCancelled, true);
  }
}

// The order within each lane does it: an offer that is given a ticket before it is ended has that
// put back after.
void SessionsImpl::PutAllBack(SessionRecord* record) {
  const auto nothing = [](const absl::StatusOr<Outcome>&) {};
  for (const Id& id : record->claims) {
    const ClaimRecord* claim = FindClaim(id);
    if (claim == nullptr || !claim->offers || claim->state == State::kHeld) continue;
    EndCommand end = EndOf(*claim, EndCause::kCancelled);
    end.only_waiting = true;
    Submit(claim->semaphore, std::move(end), nothing);
  }
  for (const Id& id : record->claims) {
    ClaimRecord* claim = FindClaim(id);
    if (claim == nullptr || !claim->offers || claim->finishing) continue;
    claim->put_back = true;
    FinishCommand finish;
    finish.semaphore = claim->semaphore;
    finish.claim = id;
    finish.result = FinishCommand::Result::kPutBack;
    finish.epoch = record->life.epoch;
    Submit(claim->semaphore, std::move(finish), nothing);
  }
}

void SessionsImpl::SetTicketsMax(const Id& session, uint32_t tickets_max) {
  SessionRecord* record = FindSession(session);
  if (record == nullptr || record->worker == nullptr) return;
  record->worker->SetHands(tickets_max);
  Fill(session);
}

// ---- Offers ----

void SessionsImpl::Fill(const Id& session) {
  SessionRecord* record = FindSession(session);
  if (record == nullptr || record->worker == nullptr || record->listener == nullptr) return;
  if (stopping_ || record->closing || record->life.expiring) return;
  record->worker->Fill();
}

Id SessionsImpl::Offer(const Id& session, const std::string& semaphore, OfferKept keep) {
  SessionRecord* owner = FindSession(session);
  ClaimRecord* record = AddClaim(host_->NewId(), semaphore, owner);
  record->offers = true;
  record->remembered = true;
  TakeCommand take;
  take.semaphore = semaphore;
  take.claim = record->id;
  take.session = session;
  take.ttl_ms = owner->life.ttl_ms;
  take.holder = owner->holder;
  take.owner = owner->owner;
  take.keep = keep;
  take.epoch = owner->life.epoch;
  Submit(semaphore, std::move(take), [this, id = record->id](absl::StatusOr<Outcome> outcome) {
    OnOfferOutcome(id, std::move(outcome));
  });
  return record->id;
}

void SessionsImpl::OnOfferOutcome(const Id& id, absl::StatusOr<Outcome> outcome) {
  ClaimRecord* record = FindClaim(id);
  if (record == nullptr) return;  // Its session has ended.
  const Id session = record->session->id;
  Worker* worker = WorkerOf(*record);
  if (!outcome.ok()) {
    if (worker != nullptr) worker->OnFailed(id);
    return Drop(record);  // The sweep tries again.
  }
  switch (outcome->kind) {
    case OutcomeKind::kGranted: {
      TicketInfo& info = outcome->report->tickets.front();
      return OnAssigned(record, outcome->lease, std::move(info.ticket), std::move(info.payload));
    }
    case OutcomeKind::kQueued:
      record->state = State::kWaiting;
      if (worker == nullptr || !worker->OnStanding(id))
        return EndClaim(record, EndCause::kCancelled, true);
      break;
    case OutcomeKind::kNothing:
      if (worker != nullptr) worker->OnNothing(id);
      Drop(record);
      break;
    default:
      if (worker != nullptr) worker->OnFailed(id);
      Drop(record);
      break;
  }
  Fill(session);
}

void SessionsImpl::DropOffer(ClaimRecord* record) {
  const Id session = record->session != nullptr ? record->session->id : Id{};
  Drop(record);
  Fill(session);
}

// ---- Assignments ----

// An offer that the session's last host made before it knew that the session had left. Or a lease
// that has been told, has ended and is forgotten: another lane hears of it late. Which of the two
// it is the engine knows; so it is put back, and the worker not told.
void SessionsImpl::OnStrayOffer(const Event& event) {
  SessionRecord* session = FindSession(event.lease->session);
  if (session == nullptr || !session->life.hosted || session->closing || stopping_) return;
  ClaimRecord* record = AddClaim(event.claim, std::string(event.semaphore), session);
  record->offers = true;
  record->remembered = true;
  record->state = State::kHeld;
  record->lease = event.lease;
  record->ticket = event.ticket;
  CountFound(record);
  PutBack(record);
}

void SessionsImpl::OnAssigned(ClaimRecord* record, LeasePtr lease, TicketPtr ticket,
                              PayloadPtr payload) {
  const bool known = record->state == State::kHeld && record->ticket != nullptr;
  record->state = State::kHeld;
  record->lease = std::move(lease);
  // Told a second time, when it has ended again: that is told next.
  if (!known || ticket != nullptr) record->ticket = std::move(ticket);
  if (known) return;
  metrics_.Granted(record->semaphore, &record->figures, record->lease->permits);
  if (record->ticket != nullptr)
    record->trace = ParseTraceparent(record->ticket->trace).value_or(TraceContext{});
  lease_log_.Granted(record->semaphore, *record->lease, record->trace);
  if (record->lease->longest_hold_ms > 0) {
    timers_.Add(Now() + Milliseconds(record->lease->longest_hold_ms), TimerKind::kLongestHold,
                record->id);
  }
  ArmRecall(record);
  const SessionRecord* session = record->session;
  // Without its ticket it has ended again, which is told next. Of a dead daemon's session: its
  // client may come for it.
  if (record->ticket == nullptr || session == nullptr || !session->life.hosted) return;
  if (stopping_ || session->closing) return;
  const Id session_id = session->id;
  Worker* worker = WorkerOf(*record);
  if (worker != nullptr && worker->OnTaken(record->id)) {
    TellAssigned(record, std::move(payload));
  } else {
    PutBack(record);
  }
  Fill(session_id);
}

void SessionsImpl::TellAssigned(ClaimRecord* record, PayloadPtr payload) {
  SessionListener* listener = ListenerOfOffer(*record);
  // Nobody may rely on it now: the sweep looks again.
  if (listener == nullptr || VouchFor(record).none()) return;
  if (payload == nullptr && record->ticket->payload_bytes > 0) return TellAssignedLater(record);
  record->told = true;
  listener->OnAssigned(
      {record->lease, record->semaphore, record->ticket, std::move(payload), NoticeOf(*record)});
}

void SessionsImpl::TellAssignedLater(ClaimRecord* record) {
  AdminCommand show;
  show.semaphore = record->semaphore;
  show.act = AdminShowTicket{record->ticket->id};
  Submit(record->semaphore, std::move(show),
         [this, id = record->id](absl::StatusOr<Outcome> outcome) {
           ClaimRecord* again = FindClaim(id);
           if (again == nullptr || again->told || again->put_back || again->finishing) return;
           if (!outcome.ok() || outcome->kind != OutcomeKind::kDone) return;
           TicketInfo& info = outcome->report->tickets.front();
           if (info.payload == nullptr || info.ticket->lease != id) return;
           TellAssigned(again, std::move(info.payload));
         });
}

void SessionsImpl::EndAssignment(ClaimRecord* record, EndCause cause) {
  SessionListener* listener = ListenerOfOffer(*record);
  const bool news = (record->told || record->listed) && !record->put_back &&
                    !(record->finishing && cause == EndCause::kReleased);
  const Id claim = record->id;
  const Id session = record->session != nullptr ? record->session->id : Id{};
  const std::string semaphore = record->semaphore;
  Drop(record);
  if (news && listener != nullptr) listener->OnEnded(0, claim, semaphore, cause);
  Fill(session);
}

void SessionsImpl::PutBack(ClaimRecord* record) {
  record->put_back = true;
  FinishCommand finish;
  finish.semaphore = record->semaphore;
  finish.claim = record->id;
  finish.result = FinishCommand::Result::kPutBack;
  finish.epoch = LifeOf(record)->epoch;
  Submit(record->semaphore, std::move(finish),
         [this, id = record->id](const absl::StatusOr<Outcome>& outcome) {
           ClaimRecord* again = FindClaim(id);
           if (again == nullptr || !again->put_back) return;
           if (IsUndone(outcome)) {
             to_put_back_.insert(id);
             ArmWork();
           } else if (outcome->kind == OutcomeKind::kNotHeld) {
             DropOffer(again);  // It had ended before: nothing more will be told of it.
           }
         });
}

void SessionsImpl::FinishIn(const Id& session, FinishCommand command, Reply<FinishAnswer> reply) {
  const auto refuse = [&](Refusal refusal) {
    reply({std::make_unique<Refusal>(std::move(refusal)), {}});
  };
  if (stopping_) return refuse(ShuttingDownRefusal());
  const SessionRecord* owner = FindSession(session);
  if (owner == nullptr || owner->closing || owner->life.expiring)
    return refuse(SessionLostRefusal());
  command.requester.client_id = owner->client_id;
  const std::string semaphore = command.semaphore;
  const Id claim = command.claim;
  FinishAnswer answer;
  ClaimRecord* record = FindClaim(claim);
  if (record != nullptr && record->session == owner && record->ticket != nullptr) {
    answer.state = StateAfter(*record->ticket, command);
    record->finishing = true;
    if (Worker* worker = WorkerOf(*record)) worker->OnFreed(claim);
  }
  Submit(semaphore, std::move(command),
         [this, semaphore, claim, answer,
          reply = std::move(reply)](absl::StatusOr<Outcome> outcome) mutable {
           if (outcome.ok() && outcome->kind == OutcomeKind::kReleased)
             return reply({nullptr, answer});
           ClaimRecord* again = FindClaim(claim);
           if (again != nullptr) again->finishing = false;
           reply({std::make_unique<Refusal>(
                      outcome.ok() ? RefusalOf(*outcome, semaphore, host_->guarantees().adapter)
                                   : RefusalOf(outcome.status(), semaphore)),
                  {}});
         });
  // In the same batch: the hand that is free takes the next one when this is done.
  Fill(session);
}

}  // namespace semaphored
