// What the guarantees of an engine exclude: commands that an adapter refuses before the rules decide
// them. Each function returns the refusal, kUnsupported with a message that names the adapter, or
// nullopt: the guarantees exclude nothing of the command.
#pragma once

#include <optional>
#include <string_view>

#include "adapters/commands.h"
#include "adapters/ledger/core.h"
#include "adapters/ledger/state/state.h"
#include "adapters/outcomes.h"

namespace semaphored::ledger {

// A refusal of this engine; `what` says what the adapter does not do: "keeps no tickets".
Outcome RefusedBy(const Guarantees& can, std::string_view what);

// Requests for more permits than the engine gives.
std::optional<Outcome> ExcludedRequest(const Guarantees& can, const Command& command);

// Everything that is about tickets, where the engine keeps none.
std::optional<Outcome> ExcludedTicket(const Guarantees& can, const Command& command);

// Administrative acts. `state`: of the semaphore before the act.
std::optional<Outcome> ExcludedAct(const Guarantees& can, const LedgerState& state,
                                   const Command& command);

// Adopting what is no semaphore yet. Called after the store was queried (Core::adoptable).
std::optional<Outcome> ExcludedAdoption(const Core& core, const Command& command);

// Reading the history.
std::optional<Outcome> ExcludedHistory(const Guarantees& can);

}  // namespace semaphored::ledger
