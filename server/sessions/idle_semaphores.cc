#include "server/sessions/idle_semaphores.h"

#include <algorithm>
#include <utility>

namespace semaphored {
namespace {

constexpr uint32_t kIdleRows = 1000;
constexpr int64_t kIdleSweepLeastMs = 1'000;
// Of an engine that pushes; elsewhere each reading is paid for.
constexpr int64_t kIdleSweepMostMs = 600'000;
constexpr int64_t kIdleSweepsWithin = 8;  // Looks at a semaphore before it has been idle for long.

bool IsIdle(const SemaphoreInfo& info) {
  return info.row.made_on_use && !info.row.paused && !info.row.destroying && info.held == 0 &&
         info.waiting == 0 && info.offers == 0 && info.tickets.living() == 0 &&
         info.tickets.dead == 0;
}

}  // namespace

void IdleSemaphores::Arm() {
  const Guarantees& can = host_->guarantees();
  if (destroy_after_ms_ <= 0 || !can.names || !can.revisions || !can.made_on_use) return;
  if (std::exchange(armed_, true)) return;
  int64_t interval_ms = std::max(destroy_after_ms_ / kIdleSweepsWithin, kIdleSweepLeastMs);
  if (can.push) interval_ms = std::min(interval_ms, kIdleSweepMostMs);
  timers_->Add(host_->clock().Now() + Milliseconds(interval_ms), TimerKind::kIdle, Id{});
}

void IdleSemaphores::Sweep() {
  ++sweep_;
  LookFrom("");
}

void IdleSemaphores::LookFrom(const std::string& after) {
  ListCommand list;
  list.after = after;
  list.rows_max = kIdleRows;
  lists_->Add(std::move(list), [this](const Result<AdminAnswer>& result) {
    if (result.ok()) {
      const Report& report = *result.value.report;
      for (const SemaphoreInfo& info : report.infos) Note(info);
      if (report.more && !report.infos.empty()) return LookFrom(report.infos.back().row.name);
      absl::erase_if(idle_, [this](const auto& entry) { return entry.second.seen < sweep_; });
    }
    armed_ = false;
    Arm();
  });
}

void IdleSemaphores::Note(const SemaphoreInfo& info) {
  if (!IsIdle(info)) {
    idle_.erase(info.row.name);
    return;
  }
  const SteadyTime now = host_->clock().Now();
  const auto [entry, added] = idle_.try_emplace(info.row.name);
  Idle& idle = entry->second;
  if (added || idle.revision != info.row.revision) {
    idle.revision = info.row.revision;
    idle.since = now;
  }
  idle.seen = sweep_;
  if (now - idle.since < Milliseconds(destroy_after_ms_)) return;
  Destroy(info.row.name, idle.revision);
  idle_.erase(entry);
}

void IdleSemaphores::Destroy(const std::string& semaphore, uint64_t revision) {
  AdminCommand destroy;
  destroy.semaphore = semaphore;
  destroy.expected_revision = revision;
  destroy.act = AdminDestroy{DestroyPolicy::kRefuse};
  // A client that has used it meanwhile has raised its revision: then it stays.
  host_->SubmitAt(semaphore, std::move(destroy), [](const absl::StatusOr<Outcome>&) {});
}

}  // namespace semaphored
