#include "server/sessions/work_desk.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "server/sessions/refusals.h"

namespace semaphored {
namespace {

using State = ClaimRecord::State;

constexpr uint32_t kLookUpRows = 1000;

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

Worker* WorkDesk::WorkerOf(const ClaimRecord& record) {
  return record.offers && record.session != nullptr ? record.session->worker.get() : nullptr;
}

void WorkDesk::Submit(const std::string& semaphore, Command command, Completion done) {
  parts_.host->SubmitAt(semaphore, std::move(command), std::move(done));
}

size_t WorkDesk::workers() const {
  size_t workers = 0;
  for (const Id& id : index_.sessions()) {
    const SessionRecord* session = parts_.sessions->Find(id);
    workers += session != nullptr && session->worker != nullptr ? 1 : 0;
  }
  return workers;
}

// ---- Beginning and ending ----

void WorkDesk::Start(SessionRecord* record, const WorkParams& work) {
  Stop(record);  // Offers of an earlier stream: perhaps for other semaphores.
  const Id session = record->id;
  Worker::Actions actions;
  actions.offer = [this, session](const std::string& semaphore, OfferKept keep) {
    return Offer(session, semaphore, keep);
  };
  actions.withdraw = [this](const std::string& /*semaphore*/, const Id& claim) {
    if (ClaimRecord* offer = parts_.claims->Find(claim)) actions_.end_wait(offer);
  };
  record->worker = std::make_unique<Worker>(work, std::move(actions));
  index_.Add(session, work.semaphores, work.prefixes);
  std::vector<Id> has;
  for (const Id& id : record->claims) {
    ClaimRecord* claim = parts_.claims->Find(id);
    if (claim == nullptr || !claim->offers || claim->state != State::kHeld) continue;
    if (claim->put_back || claim->finishing || claim->ticket == nullptr) continue;
    claim->told = false;   // This stream has not received the ticket, …
    claim->listed = true;  // … but its client may know the lease, and hears of its end.
    record->worker->Has(id);
    has.push_back(id);
  }
  for (const Id& id : has) {
    if (ClaimRecord* claim = parts_.claims->Find(id)) TellAssigned(claim, nullptr);
  }
  Fill(session);
  for (const std::string& prefix : work.prefixes) LookUp(prefix, "");
  ArmSweep();
}

void WorkDesk::Stop(SessionRecord* record) {
  if (stopping_) return;
  if (record->worker != nullptr) {
    index_.Remove(record->id, record->worker->names(), record->worker->prefixes());
    record->worker = nullptr;
  }
  index_.Remove(record->id);
  // An offer that is still asked for is ended when it is answered.
  for (const Id& id : record->claims) {
    ClaimRecord* claim = parts_.claims->Find(id);
    if (claim != nullptr && claim->offers && claim->state == State::kWaiting)
      actions_.end_wait(claim);
  }
}

void WorkDesk::PutAllBack(SessionRecord* record) {
  const auto nothing = [](const absl::StatusOr<Outcome>&) {};
  for (const Id& id : record->claims) {
    const ClaimRecord* claim = parts_.claims->Find(id);
    if (claim == nullptr || !claim->offers || claim->state == State::kHeld) continue;
    EndCommand end = EndOf(*claim, EndCause::kCancelled);
    end.only_waiting = true;
    Submit(claim->semaphore, std::move(end), nothing);
  }
  for (const Id& id : record->claims) {
    ClaimRecord* claim = parts_.claims->Find(id);
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

void WorkDesk::SetTicketsMax(const Id& session, uint32_t tickets_max) {
  SessionRecord* record = parts_.sessions->Find(session);
  if (record == nullptr || record->worker == nullptr) return;
  record->worker->SetHands(tickets_max);
  Fill(session);
}

// ---- Offers ----

void WorkDesk::Fill(const Id& session) {
  SessionRecord* record = parts_.sessions->Find(session);
  if (record == nullptr || record->worker == nullptr || record->listener == nullptr) return;
  if (stopping_ || record->closing || record->life.expiring) return;
  record->worker->Fill();
}

Id WorkDesk::Offer(const Id& session, const std::string& semaphore, OfferKept keep) {
  SessionRecord* owner = parts_.sessions->Find(session);
  ClaimRecord* record = parts_.claims->Add(parts_.host->NewId(), semaphore, owner);
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

void WorkDesk::OnOfferOutcome(const Id& id, absl::StatusOr<Outcome> outcome) {
  ClaimRecord* record = parts_.claims->Find(id);
  if (record == nullptr) return;  // Its session has ended.
  const Id session = record->session->id;
  Worker* worker = WorkerOf(*record);
  if (!outcome.ok()) {
    if (worker != nullptr) worker->OnFailed(id);
    return actions_.drop(record);  // The sweep tries again.
  }
  if (outcome->kind == OutcomeKind::kGranted) {
    TicketInfo& info = outcome->report->tickets.front();
    return OnAssigned(record, outcome->lease, std::move(info.ticket), std::move(info.payload));
  }
  if (outcome->kind == OutcomeKind::kQueued) {
    record->state = State::kWaiting;
    if (worker == nullptr || !worker->OnStanding(id)) return actions_.end_wait(record);
    return Fill(session);
  }
  if (worker != nullptr && outcome->kind == OutcomeKind::kNothing) {
    worker->OnNothing(id);
  } else if (worker != nullptr) {
    worker->OnFailed(id);
  }
  actions_.drop(record);
  Fill(session);
}

void WorkDesk::DropOffer(ClaimRecord* record) {
  const Id session = record->session != nullptr ? record->session->id : Id{};
  actions_.drop(record);
  Fill(session);
}

// ---- Assignments ----

void WorkDesk::OnStrayTicket(const Event& event) {
  SessionRecord* session = parts_.sessions->Find(event.lease->session);
  if (session == nullptr || !session->life.hosted || session->closing || stopping_) return;
  ClaimRecord* record = parts_.claims->Add(event.claim, std::string(event.semaphore), session);
  record->offers = true;
  record->remembered = true;
  record->state = State::kHeld;
  record->lease = event.lease;
  record->ticket = event.ticket;
  if (parts_.metrics->on())
    parts_.metrics->Found(record->semaphore, &record->figures, record->lease->permits);
  PutBack(record);
}

void WorkDesk::OnAssigned(ClaimRecord* record, LeasePtr lease, TicketPtr ticket,
                          PayloadPtr payload) {
  const bool known = record->state == State::kHeld && record->ticket != nullptr;
  record->state = State::kHeld;
  record->lease = std::move(lease);
  // Reported again without the ticket, which has ended meanwhile: its end is reported next.
  if (!known || ticket != nullptr) record->ticket = std::move(ticket);
  if (known) return;
  parts_.metrics->Granted(record->semaphore, &record->figures, record->lease->permits);
  if (record->ticket != nullptr)
    record->trace = ParseTraceparent(record->ticket->trace).value_or(TraceContext{});
  parts_.lease_log->Granted(record->semaphore, *record->lease, record->trace);
  record->spans =
      parts_.lease_log->spans().Assigned(record->semaphore, *record->lease, record->trace);
  parts_.recalls->ArmLongestHold(*record);
  parts_.recalls->Arm(record);
  SessionRecord* session = record->session;
  if (session != nullptr && session->has_recalls) session->recalls_changed = true;
  // Without its ticket it has ended again, which is reported next. Of a dead daemon's session: its
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

void WorkDesk::TellAssigned(ClaimRecord* record, PayloadPtr payload) {
  SessionListener* listener = record->session != nullptr ? record->session->listener : nullptr;
  // No client may rely on it now: the sweep looks again.
  if (listener == nullptr || parts_.vouching->For(record).none()) return;
  if (payload == nullptr && record->ticket->payload_bytes > 0) return TellAssignedLater(record);
  record->told = true;
  listener->OnAssigned({record->lease, record->semaphore, record->ticket, std::move(payload),
                        parts_.vouching->NoticeOf(*record)});
}

void WorkDesk::TellAssignedLater(ClaimRecord* record) {
  AdminCommand show;
  show.semaphore = record->semaphore;
  show.act = AdminShowTicket{record->ticket->id};
  Submit(record->semaphore, std::move(show),
         [this, id = record->id](absl::StatusOr<Outcome> outcome) {
           ClaimRecord* again = parts_.claims->Find(id);
           if (again == nullptr || again->told || again->put_back || again->finishing) return;
           if (!outcome.ok() || outcome->kind != OutcomeKind::kDone) return;
           TicketInfo& info = outcome->report->tickets.front();
           if (info.payload == nullptr || info.ticket->lease != id) return;
           TellAssigned(again, std::move(info.payload));
         });
}

void WorkDesk::EndAssignment(ClaimRecord* record, EndCause cause) {
  ClaimListener* listener = record->lease_listener();
  const bool news = (record->told || record->listed) && !record->put_back &&
                    !(record->finishing && cause == EndCause::kReleased);
  const Id claim = record->id;
  const Id session = record->session != nullptr ? record->session->id : Id{};
  const std::string semaphore = record->semaphore;
  actions_.drop(record);
  if (news && listener != nullptr) listener->OnEnded(0, claim, semaphore, cause);
  Fill(session);
}

void WorkDesk::PutBack(ClaimRecord* record) {
  record->put_back = true;
  FinishCommand finish;
  finish.semaphore = record->semaphore;
  finish.claim = record->id;
  finish.result = FinishCommand::Result::kPutBack;
  finish.epoch = record->owner_life()->epoch;
  Submit(record->semaphore, std::move(finish),
         [this, id = record->id](const absl::StatusOr<Outcome>& outcome) {
           ClaimRecord* again = parts_.claims->Find(id);
           if (again == nullptr || !again->put_back) return;
           if (IsUndone(outcome)) {
             to_put_back_.insert(id);
             ArmSweep();
           } else if (outcome->kind == OutcomeKind::kNotHeld) {
             DropOffer(again);  // It had ended before: no event of it will follow.
           }
         });
}

void WorkDesk::Enqueue(EnqueueCommand command, Reply<EnqueueAnswer> reply) {
  if (stopping_) return reply({std::make_unique<Refusal>(ShuttingDownRefusal()), {}});
  command.ticket = parts_.host->NewId();
  const std::string semaphore = command.semaphore;
  Submit(semaphore, std::move(command),
         [this, semaphore, reply = std::move(reply)](absl::StatusOr<Outcome> outcome) mutable {
           const auto refuse = [&](Refusal refusal) {
             reply({std::make_unique<Refusal>(std::move(refusal)), {}});
           };
           if (!outcome.ok()) return refuse(RefusalOf(outcome.status(), semaphore));
           if (outcome->kind != OutcomeKind::kEnqueued)
             return refuse(RefusalOf(*outcome, semaphore, parts_.host->guarantees().adapter));
           reply({nullptr, {outcome->claim, outcome->position()}});
           OnTicketsAt(semaphore);
         });
}

void WorkDesk::FinishIn(const Id& session, FinishCommand command, Reply<FinishAnswer> reply) {
  const auto refuse = [&](Refusal refusal) {
    reply({std::make_unique<Refusal>(std::move(refusal)), {}});
  };
  if (stopping_) return refuse(ShuttingDownRefusal());
  const SessionRecord* owner = parts_.sessions->Find(session);
  if (owner == nullptr || owner->closing || owner->life.expiring)
    return refuse(SessionLostRefusal());
  command.requester.client_id = owner->client_id;
  const std::string semaphore = command.semaphore;
  const Id claim = command.claim;
  FinishAnswer answer;
  ClaimRecord* record = parts_.claims->Find(claim);
  if (record != nullptr && record->session == owner && record->ticket != nullptr) {
    answer.state = StateAfter(*record->ticket, command);
    record->finishing = true;
    if (Worker* worker = WorkerOf(*record)) worker->OnFreed(claim);
  }
  Submit(
      semaphore, std::move(command),
      [this, semaphore, session, claim, answer,
       reply = std::move(reply)](absl::StatusOr<Outcome> outcome) mutable {
        if (outcome.ok() && outcome->kind == OutcomeKind::kReleased)
          return reply({nullptr, answer});
        ClaimRecord* again = parts_.claims->Find(claim);
        if (again != nullptr && again->session != nullptr && again->session->id == session &&
            again->ticket != nullptr) {
          again->finishing = false;
          // The hand has its ticket still.
          if (Worker* worker = WorkerOf(*again); worker != nullptr && !again->put_back)
            worker->Has(claim);
        }
        reply({std::make_unique<Refusal>(
                   outcome.ok() ? RefusalOf(*outcome, semaphore, parts_.host->guarantees().adapter)
                                : RefusalOf(outcome.status(), semaphore)),
               {}});
      });
  // In the same batch: the hand that is free takes the next one when this is done.
  Fill(session);
}

// ---- Where there is work ----

void WorkDesk::OnTicketsAt(const std::string& semaphore) {
  if (index_.empty()) return;
  const absl::btree_set<Id> concerned = index_.WorkingFor(semaphore);
  for (const Id& id : concerned) {
    const SessionRecord* record = parts_.sessions->Find(id);
    if (record == nullptr || record->worker == nullptr) continue;
    record->worker->OnTickets(semaphore, true);
    Fill(id);
  }
}

void WorkDesk::LookUp(const std::string& prefix, const std::string& after) {
  if (after.empty() && !looking_up_.insert(prefix).second) return;
  ListCommand list;
  list.prefix = prefix;
  list.after = after;
  list.rows_max = kLookUpRows;
  parts_.lists->Add(std::move(list), [this, prefix](const Result<AdminAnswer>& result) {
    if (!result.ok()) {
      looking_up_.erase(prefix);  // The sweep tries again.
      return;
    }
    const Report& report = *result.value.report;
    OnLookedUp(prefix, report);
    if (report.more && !report.infos.empty()) return LookUp(prefix, report.infos.back().row.name);
    looking_up_.erase(prefix);
  });
}

void WorkDesk::OnLookedUp(const std::string& prefix, const Report& report) {
  const absl::btree_set<Id> sessions = index_.WithPrefix(prefix);
  for (const Id& id : sessions) {
    const SessionRecord* record = parts_.sessions->Find(id);
    if (record == nullptr || record->worker == nullptr) continue;
    for (const SemaphoreInfo& info : report.infos)
      record->worker->OnTickets(info.row.name, info.tickets.living() > 0);
    Fill(id);
  }
}

void WorkDesk::ArmSweep() {
  if (std::exchange(armed_, true)) return;
  parts_.timers->Add(Now() + Milliseconds(sweep_ms_), TimerKind::kWork, Id{});
}

void WorkDesk::SweepWorker(SessionRecord* record) {
  record->worker->Sweep();
  const std::vector<Id> claims(record->claims.begin(), record->claims.end());
  for (const Id& id : claims) {
    ClaimRecord* claim = parts_.claims->Find(id);
    if (claim == nullptr || claim->ticket == nullptr || claim->told) continue;
    if (!claim->put_back && !claim->finishing) TellAssigned(claim, nullptr);
  }
}

void WorkDesk::Sweep() {
  armed_ = false;
  for (const Id& id : std::exchange(to_put_back_, {})) {
    ClaimRecord* claim = parts_.claims->Find(id);
    if (claim != nullptr && claim->put_back) PutBack(claim);
  }
  absl::btree_set<std::string> prefixes;
  const absl::btree_set<Id> workers = index_.sessions();
  for (const Id& id : workers) {
    SessionRecord* record = parts_.sessions->Find(id);
    if (record == nullptr || record->worker == nullptr) {
      index_.Remove(id);
      continue;
    }
    SweepWorker(record);
    if (record->worker->needs_look_up())
      prefixes.insert(record->worker->prefixes().begin(), record->worker->prefixes().end());
    Fill(id);
  }
  index_.Tidy();
  for (const std::string& prefix : prefixes) LookUp(prefix, "");
  if (!index_.empty() || !to_put_back_.empty()) ArmSweep();
}

}  // namespace semaphored
