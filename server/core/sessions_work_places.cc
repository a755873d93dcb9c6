// Where there is work for workers: told by whoever brings it, and looked up now and then.
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "server/core/sessions_impl.h"

namespace semaphored {
namespace {

constexpr uint32_t kLookUpRows = 1000;

}  // namespace

void SessionsImpl::OnTicketsAt(const std::string& semaphore) {
  if (workers_.empty()) return;
  absl::btree_set<Id> concerned;
  if (const auto named = workers_by_name_.find(semaphore); named != workers_by_name_.end())
    concerned = named->second;
  for (const auto& [prefix, sessions] : workers_by_prefix_) {
    if (absl::StartsWith(semaphore, prefix)) concerned.insert(sessions.begin(), sessions.end());
  }
  for (const Id& id : concerned) {
    const SessionRecord* record = FindSession(id);
    if (record == nullptr || record->worker == nullptr) continue;
    record->worker->OnTickets(semaphore, true);
    Fill(id);
  }
}

void SessionsImpl::LookUp(const std::string& prefix, const std::string& after) {
  if (after.empty() && !looking_up_.insert(prefix).second) return;
  ListCommand list;
  list.prefix = prefix;
  list.after = after;
  list.rows_max = kLookUpRows;
  List(std::move(list), [this, prefix](const Result<AdminAnswer>& result) {
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

void SessionsImpl::OnLookedUp(const std::string& prefix, const Report& report) {
  const auto found = workers_by_prefix_.find(prefix);
  if (found == workers_by_prefix_.end()) return;
  const absl::btree_set<Id> sessions = found->second;
  for (const Id& id : sessions) {
    const SessionRecord* record = FindSession(id);
    if (record == nullptr || record->worker == nullptr) continue;
    for (const SemaphoreInfo& info : report.infos)
      record->worker->OnTickets(info.row.name, info.tickets.living() > 0);
    Fill(id);
  }
}

void SessionsImpl::ArmWork() {
  if (std::exchange(work_armed_, true)) return;
  timers_.Add(Now() + Milliseconds(options_.work_sweep_ms), TimerKind::kWork, Id{});
}

void SessionsImpl::SweepWorker(SessionRecord* record) {
  record->worker->Sweep();
  const std::vector<Id> claims(record->claims.begin(), record->claims.end());
  for (const Id& id : claims) {
    ClaimRecord* claim = FindClaim(id);
    if (claim == nullptr || claim->ticket == nullptr || claim->told) continue;
    if (!claim->put_back && !claim->finishing) TellAssigned(claim, nullptr);
  }
}

void SessionsImpl::ForgetWorkers() {
  for (auto* index : {&workers_by_name_, &workers_by_prefix_}) {
    for (auto entry = index->begin(); entry != index->end();) {
      absl::erase_if(entry->second, [this](const Id& id) { return !workers_.contains(id); });
      entry = entry->second.empty() ? index->erase(entry) : std::next(entry);
    }
  }
}

void SessionsImpl::OnWorkSweep() {
  work_armed_ = false;
  for (const Id& id : std::exchange(to_put_back_, {})) {
    ClaimRecord* claim = FindClaim(id);
    if (claim != nullptr && claim->put_back) PutBack(claim);
  }
  absl::btree_set<std::string> prefixes;
  const absl::btree_set<Id> workers = workers_;
  for (const Id& id : workers) {
    SessionRecord* record = FindSession(id);
    if (record == nullptr || record->worker == nullptr) {
      workers_.erase(id);
      continue;
    }
    SweepWorker(record);
    if (record->worker->free_hands() > 0)
      prefixes.insert(record->worker->prefixes().begin(), record->worker->prefixes().end());
    Fill(id);
  }
  ForgetWorkers();
  for (const std::string& prefix : prefixes) LookUp(prefix, "");
  if (!workers_.empty() || !to_put_back_.empty()) ArmWork();
}

}  // namespace semaphored
