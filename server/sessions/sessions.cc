// The facade of the rooms of Sessions: puts them together, and hands each call, each report of a lane and each timer to the
// room that it belongs to.
#include "server/sessions/sessions.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/base/timers.h"
#include "server/figures/queue_paces.h"
#include "server/figures/semaphore_metrics.h"
#include "server/sessions/administration.h"
#include "server/sessions/adoptions.h"
#include "server/sessions/claim_book.h"
#include "server/sessions/claim_ends.h"
#include "server/sessions/claim_events.h"
#include "server/sessions/dead_nodes.h"
#include "server/sessions/deadlines.h"
#include "server/sessions/end_marks.h"
#include "server/sessions/farewells.h"
#include "server/sessions/figures_list.h"
#include "server/sessions/found_claims.h"
#include "server/sessions/grants.h"
#include "server/sessions/idle_semaphores.h"
#include "server/sessions/lease_calls.h"
#include "server/sessions/lease_log.h"
#include "server/sessions/lists.h"
#include "server/sessions/moves.h"
#include "server/sessions/orphans.h"
#include "server/sessions/owners.h"
#include "server/sessions/quarantines.h"
#include "server/sessions/recalls.h"
#include "server/sessions/refusals.h"
#include "server/sessions/session_book.h"
#include "server/sessions/session_closings.h"
#include "server/sessions/session_ends.h"
#include "server/sessions/session_resumption.h"
#include "server/sessions/session_streams.h"
#include "server/sessions/ticket_delays.h"
#include "server/sessions/unread_semaphores.h"
#include "server/sessions/vouching.h"
#include "server/sessions/work_desk.h"

namespace semaphored {
namespace {

class Facade final : public Sessions {
 public:
  Facade(SessionsHost* host, SessionsOptions options);

  Id Acquire(AcquireParams params, ClaimListener* listener, uint64_t tag) override {
    return grants_.Acquire(std::move(params), listener, tag);
  }
  void Detach(const Id& claim) override {
    if (ClaimRecord* record = claims_.Find(claim)) record->listener = nullptr;
  }
  void Abandon(const Id& claim, bool end_lease) override {
    if (ClaimRecord* record = claims_.Find(claim)) ends_.Abandon(record, end_lease);
  }
  Vouch Touch(const Id& claim) override { return lease_calls_.Touch(claim); }

  void Open(OpenParams params, SessionListener* listener) override;
  Vouch TouchSession(const Id& session) override { return streams_.Touch(session); }
  void AcquireIn(const Id& session, AcquireParams params, uint64_t tag,
                 bool report_queued) override {
    if (SessionRecord* owner = sessions_.Find(session))
      grants_.AcquireIn(owner, std::move(params), tag, report_queued);
  }
  bool CancelIn(const Id& session, uint64_t tag) override { return streams_.Cancel(session, tag); }
  void Enqueue(EnqueueCommand command, Reply<EnqueueAnswer> reply) override {
    work_.Enqueue(std::move(command), std::move(reply));
  }
  void FinishIn(const Id& session, FinishCommand command, Reply<FinishAnswer> reply) override {
    work_.FinishIn(session, std::move(command), std::move(reply));
  }
  void SetTicketsMax(const Id& session, uint32_t tickets_max) override {
    work_.SetTicketsMax(session, tickets_max);
  }
  void DetachSession(SessionListener* listener) override { streams_.Detach(listener); }
  void CloseSession(const Id& session, absl::AnyInvocable<void()> done) override {
    streams_.Close(session, std::move(done));
  }

  void AcknowledgeRecall(const Id& session, const Id& claim, uint64_t recall) override {
    lease_calls_.Acknowledge(session, claim, recall);
  }
  void Renew(RenewParams params, Reply<RenewAnswer> reply) override {
    lease_calls_.Renew(std::move(params), std::move(reply));
  }
  void Release(ReleaseCommand command, Reply<ReleaseAnswer> reply) override {
    lease_calls_.Release(std::move(command), std::move(reply));
  }
  void Verify(VerifyCommand command, Reply<VerifyAnswer> reply) override {
    lease_calls_.Verify(std::move(command), std::move(reply));
  }

  Id Administer(AdminCommand command, int64_t wait_ms, Reply<AdminAnswer> reply) override {
    return administration_.Administer(std::move(command), wait_ms, std::move(reply));
  }
  Id Drain(AdminCommand pause, uint32_t held_max, int64_t wait_ms,
           Reply<AdminAnswer> reply) override {
    return administration_.Drain(std::move(pause), held_max, wait_ms, std::move(reply));
  }
  void EndWait(const Id& wait) override { administration_.EndWait(wait); }
  void List(ListCommand command, Reply<AdminAnswer> reply) override {
    lists_.Add(std::move(command), std::move(reply));
  }
  void History(HistoryCommand command, Reply<AdminAnswer> reply) override {
    administration_.History(std::move(command), std::move(reply));
  }
  uint64_t Watch(std::string prefix, std::string name, WatchListener* listener) override {
    return administration_.Watch(std::move(prefix), std::move(name), listener);
  }
  void NextSnapshot(uint64_t watch) override { administration_.NextSnapshot(watch); }
  void Unwatch(uint64_t watch) override { administration_.Unwatch(watch); }

  void TakeOver(const std::vector<NodeRef>& dead,
                absl::AnyInvocable<void(absl::Status)> ready) override {
    idle_.Arm();
    dead_nodes_.TakeOver(dead, std::move(ready));
  }
  uint64_t pages_taken_over() const override { return dead_nodes_.pages(); }
  void OnLaneResults(size_t lane, LaneResults results) override;
  SteadyTime OnTimer() override;
  void OnVouchChange() override {
    if (host_->vouch_until() <= host_->clock().Now()) farewells_.EndVouching();
  }
  void Shutdown() override;
  void Deny(const Id& claim) override { owners_.Deny(claim); }
  void Recheck(Allows allows) override { owners_.Recheck(allows); }
  std::string_view OwnerOfClaim(const Id& claim) const override { return owners_.OfClaim(claim); }
  const Charge* ChargeOfSession(const Id& session) const override {
    return owners_.ChargeOf(session);
  }
  Counts counts() const override;
  const SessionBook& session_book() const override { return sessions_; }
  void Figures(SessionsFigures* out) override;
  void RefreshFigures(absl::AnyInvocable<void()> done) override {
    figures_list_.Refresh(std::move(done));
  }

 private:
  bool TimerAlive(const Timer& timer) const;
  void OnTimerDue(const Timer& timer);

  SessionsHost* host_;
  SessionsOptions options_;
  // In the order in which they use each other: each uses some above it.
  Timers timers_;
  ClaimBook claims_;
  SessionBook sessions_;
  SemaphoreMetrics metrics_;
  LeaseLog lease_log_;
  Lists lists_;
  UnreadSemaphores unread_;
  Vouching vouching_;
  Moves moves_;
  Recalls recalls_;
  WorkDesk work_;
  Deadlines deadlines_;
  ClaimEnds ends_;
  SessionEnds session_ends_;
  TicketDelays delays_;
  Administration administration_;
  IdleSemaphores idle_;
  FiguresList figures_list_;
  QueuePaces paces_;
  EndMarks marks_;
  Grants grants_;
  SessionClosings closings_;
  Adoptions adoptions_;
  ClaimEvents events_;
  Quarantines quarantines_;
  SessionStreams streams_;
  FoundClaims found_;
  SessionResumption resumption_;
  Orphans orphans_;
  DeadNodes dead_nodes_;
  LeaseCalls lease_calls_;
  Owners owners_;
  Farewells farewells_;
  bool stopping_ = false;
};

Facade::Facade(SessionsHost* host, SessionsOptions options)
    : host_(host),
      options_(options),
      timers_([this](const Timer& timer) { return TimerAlive(timer); }),
      metrics_(&host->clock(), options.metrics_semaphores_max,
               [this](const SemaphoreMetrics::Visit& visit) {
                 for (const auto& [id, record] : claims_.records())
                   visit(record->semaphore, &record->figures);
               }),
      lease_log_(&host->clock(), options.log_leases, options.spans),
      lists_(SliceRows(host->guarantees()), ReadFromLanes(host)),
      unread_(Milliseconds(options.read_vouch_ms)),
      vouching_(host, &claims_, &unread_, options.node_ttl_ms, options.sweep_interval_ms),
      moves_(&host->clock(), &claims_),
      recalls_(host, &timers_, &claims_,
               [this](ClaimRecord* record, EndCause cause) { ends_.End(record, cause, false); }),
      work_({host, &timers_, &lists_, &claims_, &sessions_, &vouching_, &recalls_, &metrics_,
             &lease_log_},
            options.work_sweep_ms,
            {[this](ClaimRecord* offer) { ends_.End(offer, EndCause::kCancelled, true); },
             [this](ClaimRecord* offer) { ends_.Drop(offer); }}),
      deadlines_(&timers_),
      ends_({host, &timers_, &deadlines_, &claims_, &moves_, &metrics_, &lease_log_, &unread_,
             &vouching_, &work_}),
      session_ends_(host, &claims_, &sessions_),
      delays_(host, &timers_,
              [this](const std::string& semaphore) { work_.OnTicketsAt(semaphore); }),
      administration_({host, &timers_, &lists_, &metrics_, &delays_, &claims_},
                      [this](const std::string& semaphore) { work_.OnTicketsAt(semaphore); }),
      idle_(host, &timers_, &lists_, options.idle_destroy_after_ms),
      figures_list_(host, &metrics_, &lists_, options.metrics_list_interval_ms),
      paces_(&host->clock()),
      marks_(host),
      grants_({host, &deadlines_, &claims_, &moves_, &recalls_, &metrics_, &lease_log_, &paces_,
               &marks_, &unread_, &vouching_, &ends_}),
      closings_(
          {host, &timers_, &deadlines_, &claims_, &sessions_, &moves_, &vouching_, &ends_,
           &session_ends_},
          [this](SessionRecord* session) { Unlisten(session, &claims_, &sessions_, &work_); }),
      events_({host, &timers_, &claims_, &sessions_, &metrics_, &vouching_, &recalls_, &marks_,
               &adoptions_, &work_, &ends_, &grants_, &closings_}),
      quarantines_({host, &timers_, &claims_, &sessions_, &unread_, &vouching_, &ends_}),
      streams_({host, &timers_, &deadlines_, &claims_, &sessions_, &vouching_, &work_, &ends_,
                &closings_},
               options.resume_grace_ms),
      found_({&claims_, &moves_, &vouching_, &recalls_, &ends_, &grants_}),
      resumption_({host, &timers_, &claims_, &sessions_, &vouching_, &marks_, &adoptions_, &ends_,
                   &events_, &closings_, &streams_, &found_}),
      orphans_({host, &deadlines_, &claims_, &sessions_, &vouching_, &recalls_, &ends_, &grants_,
                &closings_, &found_},
               options.node_ttl_ms),
      dead_nodes_(host, &timers_,
                  {[this](const Orphan& orphan) { orphans_.Absorb(orphan); },
                   [this](const DelayedTicket& delayed) { delays_.Count(delayed); }}),
      lease_calls_({host, &claims_, &moves_, &vouching_, &recalls_, &metrics_, &adoptions_, &ends_,
                    &grants_}),
      owners_({&claims_, &sessions_, &recalls_, &ends_}),
      farewells_({&claims_, &sessions_, &work_}) {}

void Facade::Open(OpenParams params, SessionListener* listener) {
  if (stopping_) return listener->OnSessionEnded(ShuttingDownRefusal());
  const Guarantees& can = host_->guarantees();
  if (params.work != nullptr && !can.durable_tickets) {
    Outcome outcome;
    outcome.kind = OutcomeKind::kUnsupported;
    outcome.message = "the adapter " + can.adapter + " keeps no tickets";
    return listener->OnSessionEnded(RefusalOf(outcome, "", can.adapter));
  }
  if (params.resume.empty()) return streams_.Open(std::move(params), listener);
  resumption_.Resume(std::move(params), listener);
}

// ---- What the lanes report ----

void Facade::OnLaneResults(size_t, LaneResults results) {
  if (!results.quarantines.empty() && quarantines_.On(results.quarantines, results.quarantined_at))
    dead_nodes_.TakeOverAgain();
  for (Finished& finished : results.finished) finished.done(std::move(finished.outcome));
  for (const Event& event : results.events) events_.OnEvent(event);
  for (const Event& event : results.elsewhere) events_.OnElsewhere(event);
  for (const DelayedTicket& delayed : results.delayed) delays_.Count(delayed);
  if (!results.changes.empty()) administration_.OnChanges(results.changes);
  marks_.Age(/*go_on=*/!stopping_);
}

// ---- Timers ----

bool Facade::TimerAlive(const Timer& timer) const {
  if (timer.kind == TimerKind::kSessionTtl || timer.kind == TimerKind::kGrace ||
      timer.kind == TimerKind::kSessionEnd)
    return sessions_.Find(timer.id) != nullptr;
  if (timer.kind == TimerKind::kWork || timer.kind == TimerKind::kIdle ||
      timer.kind == TimerKind::kTakeOver || timer.kind == TimerKind::kReadAgain)
    return true;
  if (timer.kind == TimerKind::kDisown) return !unread_.empty();
  if (timer.kind == TimerKind::kRipen) return delays_.Contains(timer.id);
  if (timer.kind == TimerKind::kDrain) return administration_.Waits(timer.id);
  const ClaimRecord* record = claims_.Find(timer.id);
  if (record == nullptr) return false;
  if (timer.kind == TimerKind::kRecall) return Recalls::IsArmedFor(*record, timer.at);
  // Of those of a wait the earliest counts: it sets the next one.
  return timer.kind != TimerKind::kWait ||
         (!record->has_lease() && timer.at <= record->wait_armed_for);
}

SteadyTime Facade::OnTimer() {
  if (stopping_) return SteadyTime::max();
  const SteadyTime now = host_->clock().Now();
  Timer timer;
  while (timers_.TakeDue(now, &timer)) OnTimerDue(timer);
  return timers_.Next();
}

void Facade::OnTimerDue(const Timer& timer) {
  if (timer.kind == TimerKind::kWork) return work_.Sweep();
  if (timer.kind == TimerKind::kIdle) return idle_.Sweep();
  if (timer.kind == TimerKind::kDisown) return ends_.DisownDue();
  if (timer.kind == TimerKind::kTakeOver) return dead_nodes_.TakeOverAgain();
  if (timer.kind == TimerKind::kReadAgain) return resumption_.OnReadAgainDue();
  if (timer.kind == TimerKind::kRipen) return delays_.Ripen(timer.id);
  if (timer.kind == TimerKind::kDrain) return administration_.OnWaitOver(timer.id);
  if (SessionRecord* session = sessions_.Find(timer.id)) {
    if (timer.kind == TimerKind::kGrace) return streams_.OnGraceOver(session);
    if (timer.kind == TimerKind::kSessionEnd) return closings_.OnMovesOver(session);
    if (timer.kind == TimerKind::kSessionTtl) return closings_.OnTtl(session);
  }
  ClaimRecord* record = claims_.Find(timer.id);
  if (record == nullptr) return;
  switch (timer.kind) {
    case TimerKind::kTtl:
      return ends_.OnTtl(record);
    case TimerKind::kWait:
      return ends_.OnWaitOver(record);
    case TimerKind::kRecall:
      if (Recalls::IsArmedFor(*record, timer.at)) recalls_.OnOver(record);
      return;
    case TimerKind::kLongestHold:
      return recalls_.OnLongestHold(*record);
    case TimerKind::kDenied:
      return owners_.Deny(record->id);
    case TimerKind::kProbe:
      return events_.Probe(*record);
    case TimerKind::kEndLost:
      return ends_.EndLost(record);
    // Not of claims.
    case TimerKind::kSessionTtl:
    case TimerKind::kSessionEnd:
    case TimerKind::kGrace:
    case TimerKind::kDisown:
    case TimerKind::kTakeOver:
    case TimerKind::kReadAgain:
    case TimerKind::kDrain:
    case TimerKind::kRipen:
    case TimerKind::kWork:
    case TimerKind::kIdle:
      return;
  }
}

// ---- The end ----

void Facade::Shutdown() {
  stopping_ = true;
  administration_.Stop();
  work_.Shutdown();
  ends_.Stop();
  events_.Stop();
  dead_nodes_.Stop();
  grants_.Stop();
  streams_.Stop();
  lease_calls_.Stop();
  owners_.Stop();
  std::vector<Reply<AdminAnswer>> lists = lists_.Stop();
  if (!host_->guarantees().leases_survive_daemon) farewells_.EndLeases();
  farewells_.ShutDown();
  administration_.RefuseAll();
  for (Reply<AdminAnswer>& reply : lists)
    reply({std::make_unique<Refusal>(ShuttingDownRefusal()), {}});
}

Sessions::Counts Facade::counts() const {
  Counts counts;
  for (const auto& [id, record] : sessions_.records())
    counts.sessions += record->listener != nullptr ? 1 : 0;
  for (const auto& [id, record] : claims_.records()) {
    counts.leases += record->state == ClaimRecord::State::kHeld ? 1 : 0;
    counts.waiters += record->state == ClaimRecord::State::kWaiting && !record->offers ? 1 : 0;
  }
  return counts;
}

void Facade::Figures(SessionsFigures* out) {
  if (!metrics_.on()) return;
  metrics_.Snapshot(out);
  out->sessions = sessions_.records().size();
  out->sessions_open = sessions_.open();
  out->workers = work_.workers();
}

}  // namespace

std::unique_ptr<Sessions> MakeSessions(SessionsHost* host, SessionsOptions options) {
  return std::make_unique<Facade>(host, options);
}

}  // namespace semaphored
