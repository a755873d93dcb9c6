// Payloads of tickets. The state has none: they are read from the store after the commit has won.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "adapters/adapter.h"
#include "adapters/ledger/state/state.h"
#include "adapters/ledger/store.h"

namespace semaphored::ledger {

// An outcome of a batch that shows a ticket with its payload.
struct PayloadWanted {
  size_t outcome = 0;
  std::string semaphore;
};

bool WantsPayload(const Command& command, const Outcome& outcome);

// Puts tickets and payloads into the grants of `result` to offers that `self` hosts, and payloads into
// the outcomes that want them. Null where one cannot be read; the outcome's message then says why.
// Blocks in the store.
void AddPayloads(const std::vector<PayloadWanted>& wanted, const LedgerState& state,
                 const NodeRef& self, LedgerStore* store, StepResult* result);

}  // namespace semaphored::ledger
