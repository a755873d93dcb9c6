// Tickets that nobody works on yet: how they come, and when their delays are over. And semaphores
// that nobody uses any more.
#include <algorithm>
#include <utility>

#include "server/core/sessions_impl.h"

namespace semaphored {
namespace {

constexpr uint32_t kIdleRows = 1000;
constexpr int64_t kIdleSweepLeastMs = 1'000;
constexpr int64_t kIdleSweepMostMs = 600'000;
constexpr int64_t kIdleSweepsWithin = 8;  // Looks at a semaphore before it has been idle for long.

bool IsIdle(const SemaphoreInfo& info) {
  return info.row.made_on_use && !info.row.paused && !info.row.destroying && info.held == 0 &&
         info.waiting == 0 && info.offers == 0 && info.tickets.living() == 0 &&
         info.tickets.dead == 0;
}

}  // namespace

void SessionsImpl::Enqueue(EnqueueCommand command, Reply<EnqueueAnswer> reply) {
  if (stopping_) return reply({std::make_unique<Refusal>(ShuttingDownRefusal()), {}});
  command.ticket = host_->NewId();
  const std::string semaphore = command.semaphore;
  Submit(semaphore, std::move(command),
         [this, semaphore, reply = std::move(reply)](absl::StatusOr<Outcome> outcome) mutable {
           if (!outcome.ok())
             return reply({std::make_unique<Refusal>(RefusalOf(outcome.status(), semaphore)), {}});
           if (outcome->kind != OutcomeKind::kEnqueued) {
             return reply({std::make_unique<Refusal>(
                               RefusalOf(*outcome, semaphore, host_->guarantees().adapter)),
                           {}});
           }
           reply({nullptr, {outcome->claim, outcome->position()}});
           OnTicketsAt(semaphore);
         });
}

void SessionsImpl::FillInHolders(const Report& report, AdminAnswer* answer) const {
  for (const TicketInfo& info : report.tickets) {
    if (info.ticket == nullptr || info.ticket->state != TicketState::kAssigned) continue;
    const ClaimRecord* claim = FindClaim(info.ticket->lease);
    if (claim != nullptr && claim->lease != nullptr)
      answer->ticket_holders[info.ticket->id] = claim->lease->holder;
  }
}

// ---- Delays ----

void SessionsImpl::CountDelay(const DelayedTicket& delayed) {
  const auto known = delays_.find(delayed.ticket->id);
  if (known != delays_.end() && known->second.number == delayed.ticket->delays) return;
  const SteadyTime until = Now() + Milliseconds(delayed.ticket->delay_ms);
  delays_[delayed.ticket->id] = {delayed.semaphore, delayed.ticket->delays, until};
  timers_.Add(until, TimerKind::kRipen, delayed.ticket->id);
}

void SessionsImpl::OnRipe(const Id& ticket) {
  const auto found = delays_.find(ticket);
  // A later delay of the same ticket has a timer of its own.
  if (found == delays_.end() || found->second.until > Now()) return;
  RipenCommand ripen;
  ripen.semaphore = found->second.semaphore;
  ripen.ticket = ticket;
  ripen.delay = found->second.number;
  const std::string semaphore = ripen.semaphore;
  Submit(semaphore, ripen,
         [this, semaphore, ticket, delay = ripen.delay](const absl::StatusOr<Outcome>& outcome) {
           const auto again = delays_.find(ticket);
           if (again == delays_.end() || again->second.number != delay) return;
           if (IsUndone(outcome)) {
             again->second.until = Now() + TryAgainAfter(outcome);
             timers_.Add(again->second.until, TimerKind::kRipen, ticket);
             return;
           }
           delays_.erase(again);
           if (outcome->kind == OutcomeKind::kDone) OnTicketsAt(semaphore);
         });
}

// ---- Idle semaphores ----

void SessionsImpl::ArmIdle() {
  const Guarantees& guarantees = host_->guarantees();
  if (options_.idle_destroy_after_ms <= 0 || !guarantees.names || !guarantees.revisions) return;
  if (std::exchange(idle_armed_, true)) return;
  const int64_t interval_ms = std::clamp(options_.idle_destroy_after_ms / kIdleSweepsWithin,
                                         kIdleSweepLeastMs, kIdleSweepMostMs);
  timers_.Add(Now() + Milliseconds(interval_ms), TimerKind::kIdle, Id{});
}

void SessionsImpl::OnIdleSweep() {
  ++idle_sweep_;
  LookForIdle("");
}

void SessionsImpl::LookForIdle(const std::string& after) {
  ListCommand list;
  list.after = after;
  list.rows_max = kIdleRows;
  List(std::move(list), [this](const Result<AdminAnswer>& result) {
    if (result.ok()) {
      const Report& report = *result.value.report;
      for (const SemaphoreInfo& info : report.infos) NoteIdle(info);
      if (report.more && !report.infos.empty()) return LookForIdle(report.infos.back().row.name);
      absl::erase_if(idle_, [this](const auto& entry) { return entry.second.seen < idle_sweep_; });
    }
    idle_armed_ = false;
    if (!stopping_) ArmIdle();
  });
}

// Idle means: seen to be so, at the same revision, all the time.
void SessionsImpl::NoteIdle(const SemaphoreInfo& info) {
  if (!IsIdle(info)) {
    idle_.erase(info.row.name);
    return;
  }
  const auto [entry, added] = idle_.try_emplace(info.row.name);
  Idle& idle = entry->second;
  if (added || idle.revision != info.row.revision) {
    idle.revision = info.row.revision;
    idle.since = Now();
  }
  idle.seen = idle_sweep_;
  if (Now() - idle.since < Milliseconds(options_.idle_destroy_after_ms)) return;
  DestroyIdle(info.row.name, idle.revision);
  idle_.erase(entry);
}

void SessionsImpl::DestroyIdle(const std::string& semaphore, uint64_t revision) {
  AdminCommand destroy;
  destroy.semaphore = semaphore;
  destroy.expected_revision = revision;
  destroy.act = AdminDestroy{DestroyPolicy::kRefuse};
  // Somebody who used it meanwhile has raised its revision: then it stays.
  Submit(semaphore, std::move(destroy), [](const absl::StatusOr<Outcome>&) {});
}

}  // namespace semaphored
