// Semaphores that cannot be used though the engine can: what the engine keeps of them is damaged
// (Core::damaged), or no commit to them succeeds (Serving::Quarantine). No commit touches them, and every other
// semaphore continues.
#pragma once

#include <string>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "adapters/adapter.h"
#include "adapters/ledger/core.h"

namespace semaphored::ledger {

// Why no commit may touch the semaphore now; OK: one may.
absl::Status WhyUntouchable(const Core& core, const std::string& name);

// The same of the semaphores that the command is about beside the one that it names: those in which the
// session that it moves or closes has claims. Name → why, as a sentence that begins with the name.
absl::btree_map<std::string, std::string> UntouchableOf(const Core& core, const Command& command);

// Appends the quarantines that have begun, ended, or changed since the last call, and logs them.
void ReportQuarantines(Core* core, StepResult* result);

}  // namespace semaphored::ledger
