// Commands that are about more claims than the engine takes at once, and that no intention carries on:
// most of such a command is done claim by claim, and the command itself with what is left.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "adapters/adapter.h"
#include "adapters/ledger/state/state.h"

namespace semaphored::ledger {

struct Parts {
  // In a commit of its own. An act whose first part does nothing is refused: it has no other part then.
  std::optional<Command> first;
  std::vector<Command> before;
  Command last;  // Has the request's id, so that all is one request.
};

// Without `first` and `before`: the command has no parts.
Parts PartsOf(const Command& command, const LedgerState& state);

// Leases that ended, or were recalled, by a batch of such parts. `outcomes`: those of the batch.
uint32_t CountAffected(const std::vector<Submission>& batch, const std::vector<Outcome>& outcomes);

// What the engine cannot take at once of this, later commits do (rules/intentions.h).
bool IsCarriedOn(const Command& command);

}  // namespace semaphored::ledger
