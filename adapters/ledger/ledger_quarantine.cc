// Semaphores that cannot be used though the engine can: what the engine keeps of them is damaged, or no
// commit to them succeeds. They are left alone, and every other semaphore goes on.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/ledger_adapter_impl.h"
#include "spdlog/spdlog.h"

namespace semaphored::ledger {

void LedgerAdapter::LeaveAloneFor(const std::string& name, const absl::Status& why) {
  Quarantined& entry = quarantined_[name];
  entry.pause = entry.pause.count() == 0 ? options_.quarantine_pause
                                         : std::min(2 * entry.pause, options_.quarantine_pause_max);
  entry.until = options_.now() + entry.pause;
  entry.why = why;
  spdlog::error("{}: {} is left alone for {} ms: {}", store_->guarantees().adapter, name,
                entry.pause.count(), std::string(why.message()));
}

bool LedgerAdapter::IsQuarantined(const std::string& name) const {
  const auto found = quarantined_.find(name);
  return found != quarantined_.end() && options_.now() < found->second.until;
}

void LedgerAdapter::Suspect(const Transaction& failed) {
  // An engine that hands out permits itself keeps no rows of claims that could be damaged.
  if (store_->permits() != nullptr) return;
  for (const SemaphoreDelta& delta : failed.semaphores) {
    if (!delta.before) continue;  // There is nothing to touch.
    suspects_.insert(delta.name);
    to_serve_.insert(delta.name);
  }
}

absl::Status LedgerAdapter::WhyUntouchable(const std::string& name) const {
  if (const auto damaged = damaged_.find(name); damaged != damaged_.end()) return damaged->second;
  return IsQuarantined(name) ? quarantined_.at(name).why : absl::OkStatus();
}

absl::btree_map<std::string, std::string> LedgerAdapter::UntouchableOf(
    const Command& command) const {
  absl::btree_map<std::string, std::string> untouchable;
  if (damaged_.empty() && quarantined_.empty()) return untouchable;
  const auto look_at = [&](const std::string& name) {
    const absl::Status why = WhyUntouchable(name);
    if (!why.ok()) untouchable[name] = absl::StrCat(name, ": ", std::string(why.message()));
  };
  const Id* session = nullptr;
  if (const auto* adopt = std::get_if<AdoptSessionCommand>(&command)) session = &adopt->session;
  if (const auto* close = std::get_if<CloseSessionCommand>(&command)) session = &close->session;
  if (session == nullptr) return untouchable;
  for (const auto& [claim, semaphore] : state_.ClaimsOf(*session)) look_at(semaphore->row.name);
  // In those that could never be read, no claim is known here.
  if (const auto found = closing_.find(*session); found != closing_.end()) {
    for (const std::string& name : found->second) look_at(name);
  }
  return untouchable;
}

void LedgerAdapter::ReportQuarantines(StepResult* result) {
  if (damaged_.empty() && quarantined_.empty() && reported_.empty()) return;
  absl::btree_map<std::string, bool> now;
  for (const auto& [name, entry] : quarantined_) now[name] = false;
  for (const auto& [name, why] : damaged_) now[name] = true;
  for (const auto& [name, unread] : reported_) {
    if (now.contains(name)) continue;
    result->quarantines.push_back({name, absl::OkStatus(), false});
    spdlog::warn("{}: {} is used again", store_->guarantees().adapter, name);
  }
  for (const auto& [name, unread] : now) {
    const auto before = reported_.find(name);
    if (before != reported_.end() && before->second == unread) continue;
    const absl::Status& why = unread ? damaged_.at(name) : quarantined_.at(name).why;
    result->quarantines.push_back({name, why, unread});
    if (unread) {
      spdlog::error("{}: {} cannot be read, and is left alone: {}", store_->guarantees().adapter,
                    name, std::string(why.message()));
    }
  }
  reported_ = std::move(now);
}

}  // namespace semaphored::ledger
