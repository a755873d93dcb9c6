// The frame of Sessions: its rooms, what the lanes and timers bring, and the end.
#include "server/sessions/sessions.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "server/sessions/sessions_impl.h"

namespace semaphored {

std::unique_ptr<Sessions> MakeSessions(SessionsHost* host, SessionsOptions options) {
  return std::make_unique<SessionsImpl>(host, options);
}

SessionsImpl::SessionsImpl(SessionsHost* host, SessionsOptions options)
    : host_(host),
      options_(options),
      timers_([this](const Timer& timer) { return TimerAlive(timer); }),
      metrics_(&host->clock(), options.metrics_semaphores_max,
               [this](const SemaphoreMetrics::Visit& visit) {
                 for (const auto& [id, record] : claims_.records())
                   visit(record->semaphore, &record->figures);
               }),
      lease_log_(&host->clock(), options.log_leases),
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
      closings_({host, &timers_, &deadlines_, &claims_, &sessions_, &moves_, &vouching_, &ends_,
                 &session_ends_},
                [this](SessionRecord* session) { Unlisten(session); }),
      events_({host, &timers_, &claims_, &sessions_, &metrics_, &vouching_, &recalls_, &marks_,
               &adoptions_, &work_, &ends_, &grants_, &closings_}),
      read_again_(&host->clock(), &timers_),
      dead_nodes_(host, &timers_,
                  {[this](const Orphan& orphan) { Absorb(orphan); },
                   [this](const DelayedTicket& delayed) { delays_.Count(delayed); }}) {}

// ---- Liveness ----

void SessionsImpl::OnVouchChange() {
  if (host_->vouch_until() > Now()) return;
  std::vector<Id> sessions;
  std::vector<Id> claims;
  for (const auto& [id, record] : sessions_.records()) {
    if (record->listener != nullptr) sessions.push_back(id);
  }
  for (const auto& [id, record] : claims_.records()) {
    if (record->session == nullptr && record->state == ClaimRecord::State::kHeld &&
        record->listener != nullptr) {
      claims.push_back(id);
    }
  }
  // In an order that does not hang on addresses, so that a simulation replays.
  std::ranges::sort(sessions);
  std::ranges::sort(claims);
  for (const Id& id : sessions) {
    SessionRecord* record = sessions_.Find(id);
    if (record == nullptr || record->listener == nullptr) continue;
    SessionListener* listener = record->listener;
    Unlisten(record);
    listener->OnSessionEnded(NotVouchedRefusal(""));
  }
  for (const Id& id : claims) {
    ClaimRecord* record = claims_.Find(id);
    if (record == nullptr || record->listener == nullptr) continue;
    ClaimListener* listener = std::exchange(record->listener, nullptr);
    listener->OnRefused(record->tag, NotVouchedRefusal(record->semaphore));
  }
}

// ---- What the lanes report ----

void SessionsImpl::OnLaneResults(size_t, LaneResults results) {
  if (!results.quarantines.empty()) OnQuarantines(results.quarantines, results.quarantined_at);
  for (Finished& finished : results.finished) finished.done(std::move(finished.outcome));
  for (const Event& event : results.events) events_.OnEvent(event);
  for (const Event& event : results.elsewhere) events_.OnElsewhere(event);
  for (const DelayedTicket& delayed : results.delayed) delays_.Count(delayed);
  if (!results.changes.empty()) administration_.OnChanges(results.changes);
  marks_.Age(/*go_on=*/!stopping_);
}

// ---- Timers ----

bool SessionsImpl::TimerAlive(const Timer& timer) const {
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

SteadyTime SessionsImpl::OnTimer() {
  if (stopping_) return SteadyTime::max();
  const SteadyTime now = Now();
  Timer timer;
  while (timers_.TakeDue(now, &timer)) OnTimerDue(timer);
  return timers_.Next();
}

void SessionsImpl::OnTimerDue(const Timer& timer) {
  if (timer.kind == TimerKind::kWork) return work_.Sweep();
  if (timer.kind == TimerKind::kIdle) return idle_.Sweep();
  if (timer.kind == TimerKind::kDisown) return ends_.DisownDue();
  if (timer.kind == TimerKind::kTakeOver) return dead_nodes_.TakeOverAgain();
  if (timer.kind == TimerKind::kReadAgain) return OnReadAgainDue();
  if (timer.kind == TimerKind::kRipen) return delays_.Ripen(timer.id);
  if (timer.kind == TimerKind::kDrain) return administration_.OnWaitOver(timer.id);
  if (SessionRecord* session = sessions_.Find(timer.id)) {
    if (timer.kind == TimerKind::kGrace) return OnGraceOver(session);
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
      return Deny(record->id);
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

// Leases that end with this daemon: their holders are to stop before another client is let in.
void SessionsImpl::TellEndOfLeases() {
  struct Held {
    ClaimListener* listener;
    uint64_t tag;
    Id id;
    std::string semaphore;
  };
  std::vector<Held> held;
  for (const auto& [id, record] : claims_.records()) {
    ClaimListener* const listener =
        record->session != nullptr ? record->session->listener : record->listener;
    if (record->state != ClaimRecord::State::kHeld || listener == nullptr) continue;
    record->listener = nullptr;
    held.push_back({listener, record->tag, record->id, record->semaphore});
  }
  for (const Held& each : held)
    each.listener->OnEnded(each.tag, each.id, each.semaphore, EndCause::kEngineLost);
}

void SessionsImpl::Shutdown() {
  stopping_ = true;
  administration_.Stop();
  work_.Shutdown();
  ends_.Stop();
  events_.Stop();
  dead_nodes_.Stop();
  std::vector<Reply<AdminAnswer>> lists = lists_.Stop();
  if (!host_->guarantees().leases_survive_daemon) TellEndOfLeases();
  std::vector<std::pair<ClaimListener*, uint64_t>> claims;
  std::vector<SessionListener*> sessions;
  for (const auto& [id, record] : claims_.records()) {
    if (record->session == nullptr && record->listener != nullptr) {
      claims.emplace_back(std::exchange(record->listener, nullptr), record->tag);
    }
  }
  for (const auto& [id, record] : sessions_.records()) {
    if (record->listener == nullptr) continue;
    sessions.push_back(record->listener);
    Unlisten(record.get());
  }
  for (SessionListener* listener : sessions_.TakeOpening()) {
    if (std::ranges::count(sessions, listener) == 0) sessions.push_back(listener);
  }
  for (const auto& [listener, tag] : claims) listener->OnRefused(tag, ShuttingDownRefusal());
  for (SessionListener* listener : sessions) listener->OnSessionEnded(ShuttingDownRefusal());
  administration_.RefuseAll();
  for (Reply<AdminAnswer>& reply : lists)
    reply({std::make_unique<Refusal>(ShuttingDownRefusal()), {}});
}

Sessions::Counts SessionsImpl::counts() const {
  Counts counts;
  for (const auto& [id, record] : sessions_.records())
    counts.sessions += record->listener != nullptr ? 1 : 0;
  for (const auto& [id, record] : claims_.records()) {
    counts.leases += record->state == ClaimRecord::State::kHeld ? 1 : 0;
    counts.waiters += record->state == ClaimRecord::State::kWaiting && !record->offers ? 1 : 0;
  }
  return counts;
}

void SessionsImpl::Figures(SessionsFigures* out) {
  if (!metrics_.on()) return;
  metrics_.Snapshot(out);
  out->sessions = sessions_.records().size();
  out->sessions_open = sessions_.open();
  out->workers = work_.workers();
}

}  // namespace semaphored
