// Commands that change more rows than one commit of the engine takes, and that leave no intention: the end of a session
// with many claims, and an act on all dead letters. Most of such a command is carried out in parts, one claim or ticket
// each, and the command itself with what is left.
#pragma once

#include <optional>
#include <vector>

#include "adapters/commands.h"
#include "adapters/ledger/state/state.h"

namespace semaphored::ledger {

struct Parts {
  // In a commit of its own. If the first part of an act does nothing, the act is refused, and no other part is carried out.
  std::optional<Command> first;
  std::vector<Command> before;
  Command last;  // Has the request's id, so that all is one request.
};

// Without `first` and `before`: the command cannot be divided.
Parts PartsOf(const Command& command, const LedgerState& state);

// True: if this is too large for one commit, later commits carry the rest out (rules/intentions.h).
bool IsCarriedOn(const Command& command);

}  // namespace semaphored::ledger
