#include "adapters/ledger/quarantine.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"

namespace semaphored::ledger {

absl::Status WhyUntouchable(const Core& core, const std::string& name) {
  if (const auto damaged = core.damaged.find(name); damaged != core.damaged.end())
    return damaged->second;
  return core.serving.IsQuarantined(name) ? core.serving.quarantined().at(name).why
                                          : absl::OkStatus();
}

absl::btree_map<std::string, std::string> UntouchableOf(const Core& core, const Command& command) {
  absl::btree_map<std::string, std::string> untouchable;
  if (core.damaged.empty() && core.serving.quarantined().empty()) return untouchable;
  const auto look_at = [&](const std::string& name) {
    const absl::Status why = WhyUntouchable(core, name);
    if (!why.ok()) untouchable[name] = absl::StrCat(name, ": ", std::string(why.message()));
  };
  const Id* session = nullptr;
  if (const auto* adopt = std::get_if<AdoptSessionCommand>(&command)) session = &adopt->session;
  if (const auto* close = std::get_if<CloseSessionCommand>(&command)) session = &close->session;
  if (session == nullptr) return untouchable;
  for (const auto& [claim, semaphore] : core.state.ClaimsOf(*session)) look_at(semaphore->row.name);
  // In those that could never be read, no claim is known here.
  if (const auto found = core.with_claims.find(*session); found != core.with_claims.end()) {
    for (const std::string& name : found->second) look_at(name);
  }
  return untouchable;
}

void ReportQuarantines(Core* core, StepResult* result) {
  const auto& quarantined = core->serving.quarantined();
  if (core->damaged.empty() && quarantined.empty() && core->reported.empty()) return;
  absl::btree_map<std::string, bool> now;
  for (const auto& [name, entry] : quarantined) now[name] = false;
  for (const auto& [name, why] : core->damaged) now[name] = true;
  for (const auto& [name, unread] : core->reported) {
    if (now.contains(name)) continue;
    result->quarantines.push_back({name, absl::OkStatus(), false});
    spdlog::warn("{}: {} is used again", core->can.adapter, name);
  }
  for (const auto& [name, unread] : now) {
    const auto before = core->reported.find(name);
    if (before != core->reported.end() && before->second == unread) continue;
    const absl::Status& why = unread ? core->damaged.at(name) : quarantined.at(name).why;
    result->quarantines.push_back({name, why, unread});
    if (unread) {
      spdlog::error("{}: {} cannot be read, and is left alone: {}", core->can.adapter, name,
                    std::string(why.message()));
    }
  }
  core->reported = std::move(now);
}

}  // namespace semaphored::ledger
