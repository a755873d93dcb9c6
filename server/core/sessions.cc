// The frame of Sessions: timers, vouching and the end.
#include "server/core/sessions.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "server/core/sessions_impl.h"

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
                 for (const auto& [id, record] : claims_)
                   visit(record->semaphore, &record->figures);
               }),
      lease_log_(&host->clock(), options.log_leases),
      lists_(SliceRows(host->guarantees()), ReadFromLanes(host)),
      figures_list_(host, &metrics_, &lists_, options.metrics_list_interval_ms),
      paces_(&host->clock()),
      marks_(host),
      delays_(host, &timers_, [this](const std::string& semaphore) { OnTicketsAt(semaphore); }),
      idle_(host, &timers_, &lists_, options.idle_destroy_after_ms),
      watches_(host->watched()) {}

// ---- Liveness ----

Vouch SessionsImpl::VouchFor(Liveness* life) const {
  if (!life->hosted || life->expiring) return {0, life->epoch};
  const SteadyTime now = Now();
  const SteadyTime until = std::min(
      {life->expires_at, host_->vouch_until(), life->vouch_max, now + Milliseconds(life->ttl_ms)});
  if (until <= now) return {0, life->epoch};
  const SteadyTime bound = std::clamp(life->recalled_until, now, until);
  life->vouched_until = std::max(life->vouched_until, bound);
  Vouch vouch{std::chrono::duration_cast<Milliseconds>(bound - now).count(), life->epoch};
  vouch.recalled = life->recalled_until != SteadyTime::max();
  return vouch;
}

void SessionsImpl::Revive(Liveness* life) const {
  if (life->expiring) return;
  life->expires_at = std::max(Now() + Milliseconds(life->ttl_ms), life->keep_until);
}

void SessionsImpl::KeepAfterMove(Liveness* life, int64_t ttl_ms) const {
  if (exclusive()) return;
  // Its last host looks at the engine once in a sweep, and vouches for no more than a node TTL
  // after it has looked.
  const int64_t unaware_ms = options_.node_ttl_ms + options_.sweep_interval_ms;
  life->keep_until = std::max(life->keep_until, Now() + Milliseconds(ttl_ms + unaware_ms));
  life->vouched_until = std::max(life->vouched_until, Now() + Milliseconds(unaware_ms));
}

void SessionsImpl::ArmTtl(Liveness* life, TimerKind kind, const Id& id) {
  if (life->armed || life->expires_at == SteadyTime::max()) return;
  life->armed = true;
  timers_.Add(life->expires_at, kind, id);
}

void SessionsImpl::ArmWait(ClaimRecord* record) {
  if (record->wait_armed || record->wait_until == SteadyTime::max()) return;
  record->wait_armed = true;
  timers_.Add(record->wait_until, TimerKind::kWait, record->id);
}

void SessionsImpl::OnVouchChange() {
  if (host_->vouch_until() > Now()) return;
  std::vector<Id> sessions;
  std::vector<Id> claims;
  for (const auto& [id, record] : sessions_) {
    if (record->listener != nullptr) sessions.push_back(id);
  }
  for (const auto& [id, record] : claims_) {
    if (record->session == nullptr && record->state == ClaimRecord::State::kHeld &&
        record->listener != nullptr) {
      claims.push_back(id);
    }
  }
  // In an order that does not hang on addresses, so that a simulation replays.
  std::ranges::sort(sessions);
  std::ranges::sort(claims);
  for (const Id& id : sessions) {
    SessionRecord* record = FindSession(id);
    if (record == nullptr || record->listener == nullptr) continue;
    SessionListener* listener = record->listener;
    Unlisten(record);
    listener->OnSessionEnded(NotVouchedRefusal(""));
  }
  for (const Id& id : claims) {
    ClaimRecord* record = FindClaim(id);
    if (record == nullptr || record->listener == nullptr) continue;
    ClaimListener* listener = std::exchange(record->listener, nullptr);
    listener->OnRefused(record->tag, NotVouchedRefusal(record->semaphore));
  }
}

// ---- Timers ----

bool SessionsImpl::TimerAlive(const Timer& timer) const {
  if (timer.kind == TimerKind::kSessionTtl || timer.kind == TimerKind::kGrace ||
      timer.kind == TimerKind::kSessionEnd)
    return sessions_.contains(timer.id);
  if (timer.kind == TimerKind::kWork || timer.kind == TimerKind::kIdle ||
      timer.kind == TimerKind::kTakeOver || timer.kind == TimerKind::kReadAgain)
    return true;
  if (timer.kind == TimerKind::kDisown) return !unread_.empty();
  if (timer.kind == TimerKind::kRipen) return delays_.Contains(timer.id);
  if (timer.kind == TimerKind::kDrain) return drains_.Contains(timer.id);
  const ClaimRecord* record = FindClaim(timer.id);
  if (record == nullptr) return false;
  return timer.kind != TimerKind::kWait || !record->has_lease();
}

SteadyTime SessionsImpl::OnTimer() {
  if (stopping_) return SteadyTime::max();
  const SteadyTime now = Now();
  Timer timer;
  while (timers_.TakeDue(now, &timer)) OnTimerDue(timer);
  return timers_.Next();
}

void SessionsImpl::OnTimerDue(const Timer& timer) {
  if (timer.kind == TimerKind::kWork) return OnWorkSweep();
  if (timer.kind == TimerKind::kIdle) return idle_.Sweep();
  if (timer.kind == TimerKind::kDisown) return OnDisownDue();
  if (timer.kind == TimerKind::kTakeOver) return TakeOverAgain();
  if (timer.kind == TimerKind::kReadAgain) return OnReadAgainDue();
  if (timer.kind == TimerKind::kRipen) return delays_.Ripen(timer.id);
  if (timer.kind == TimerKind::kDrain) {
    if (auto drain = drains_.Take(timer.id)) FinishDrain(*std::move(drain), false);
    return;
  }
  if (SessionRecord* session = FindSession(timer.id)) {
    if (timer.kind == TimerKind::kGrace) return OnGraceOver(session);
    if (timer.kind == TimerKind::kSessionEnd) return OnSessionEnd(session);
    if (timer.kind == TimerKind::kSessionTtl) return OnSessionTtl(session);
  }
  ClaimRecord* record = FindClaim(timer.id);
  if (record == nullptr) return;
  switch (timer.kind) {
    case TimerKind::kTtl:
      return OnTtl(record);
    case TimerKind::kWait:
      return OnWaitOver(record);
    case TimerKind::kRecall:
      return OnRecallOver(record);
    case TimerKind::kLongestHold:
      return OnLongestHold(record);
    case TimerKind::kDenied:
      return Deny(record->id);
    case TimerKind::kProbe:
      return Probe(*record);
    case TimerKind::kEndLost:
      return EndLost(record);
    default:
      return;
  }
}

void SessionsImpl::OnTtl(ClaimRecord* record) {
  record->life.armed = false;
  if (record->session != nullptr || record->life.expiring) return;
  if (record->life.expires_at > Now()) return ArmTtl(&record->life, TimerKind::kTtl, record->id);
  record->life.expiring = true;
  const EndCommand end = EndOf(*record, EndCause::kExpired);
  Submit(record->semaphore, end,
         [this, id = record->id, epoch = end.epoch](absl::StatusOr<Outcome> outcome) {
           ClaimRecord* again = FindClaim(id);
           if (again == nullptr || again->session != nullptr) return;
           const bool undone = IsUndone(outcome) || outcome->kind == OutcomeKind::kStale;
           if (undone && again->life.epoch != epoch) {
             // It left and has come back, adopted anew, while this was under way.
             again->life.expiring = false;
             Revive(&again->life);
             ArmTtl(&again->life, TimerKind::kTtl, id);
           } else if (IsUndone(outcome)) {
             again->life.expiring = false;
             again->life.armed = true;
             timers_.Add(Now() + TryAgainAfter(outcome), TimerKind::kTtl, id);
           } else if (outcome->kind == OutcomeKind::kStale) {
             Refuse(again, MovedRefusal(again->semaphore));
           } else if (outcome->kind == OutcomeKind::kNotHeld) {
             TellGone(again, outcome->cause);
           }
         });
}

void SessionsImpl::OnSessionTtl(SessionRecord* record) {
  record->life.armed = false;
  if (record->life.expiring || record->closing) return;
  if (record->listener != nullptr && record->listener->unread()) Revive(&record->life);
  if (record->life.expires_at > Now())
    return ArmTtl(&record->life, TimerKind::kSessionTtl, record->id);
  record->life.expiring = true;
  EndSession(record, EndCause::kExpired, [] {});
}

void SessionsImpl::OnWaitOver(ClaimRecord* record) {
  record->wait_armed = false;
  if (record->has_lease()) return;
  if (record->state == ClaimRecord::State::kWaiting && EndUnwanted(record)) return;
  if (record->wait_until > Now()) return ArmWait(record);
  if (record->state == ClaimRecord::State::kAsked) {
    // The lane is slower than the wait: looked at again when it has answered.
    record->wait_armed = true;
    timers_.Add(Now() + kTryAgainAfter, TimerKind::kWait, record->id);
    return;
  }
  EndClaim(record, EndCause::kWaitExpired, true);
}

// ---- The end ----

// Leases that end with this daemon: their holders are to stop before somebody else is let in.
void SessionsImpl::TellEndOfLeases() {
  struct Held {
    ClaimListener* listener;
    uint64_t tag;
    Id id;
    std::string semaphore;
  };
  std::vector<Held> held;
  for (const auto& [id, record] : claims_) {
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
  std::vector<Reply<AdminAnswer>> lists = lists_.Stop();
  if (!host_->guarantees().leases_survive_daemon) TellEndOfLeases();
  std::vector<std::pair<ClaimListener*, uint64_t>> claims;
  std::vector<SessionListener*> sessions;
  for (const auto& [id, record] : claims_) {
    if (record->session == nullptr && record->listener != nullptr) {
      claims.emplace_back(std::exchange(record->listener, nullptr), record->tag);
    }
  }
  for (const auto& [id, record] : sessions_) {
    if (record->listener == nullptr) continue;
    sessions.push_back(record->listener);
    Unlisten(record.get());
  }
  for (const auto& [listener, id] : std::exchange(opening_, {})) {
    if (std::ranges::count(sessions, listener) == 0) sessions.push_back(listener);
  }
  std::vector<Drains::Drain> drains = drains_.TakeAll();
  for (const auto& [listener, tag] : claims) listener->OnRefused(tag, ShuttingDownRefusal());
  for (SessionListener* listener : sessions) listener->OnSessionEnded(ShuttingDownRefusal());
  for (WatchListener* listener : watches_.TakeAll())
    listener->OnWatchRefused(ShuttingDownRefusal());
  for (Reply<AdminAnswer>& reply : lists)
    reply({std::make_unique<Refusal>(ShuttingDownRefusal()), {}});
  for (Drains::Drain& drain : drains) {
    drain.reply({std::make_unique<Refusal>(ShuttingDownRefusal()), {}});
  }
}

Sessions::Counts SessionsImpl::counts() const {
  Counts counts;
  for (const auto& [id, record] : sessions_) counts.sessions += record->listener != nullptr ? 1 : 0;
  for (const auto& [id, record] : claims_) {
    counts.leases += record->state == ClaimRecord::State::kHeld ? 1 : 0;
    counts.waiters += record->state == ClaimRecord::State::kWaiting && !record->offers ? 1 : 0;
  }
  return counts;
}

}  // namespace semaphored
