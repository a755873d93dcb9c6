// What one lane knows: for tests that explore every state of a small world. Read between Steps, never
// written.
#pragma once

#include "adapters/adapter.h"
#include "adapters/ledger/core.h"
#include "adapters/ledger/mirror.h"

namespace semaphored::ledger {

struct Inside {
  const Core& core;
  const Mirror* mirror = nullptr;      // nullptr: the store owns its state.
  const Decided* unsettled = nullptr;  // nullptr: the fate of every commit is known.
};

// REQUIRES: MakeLedgerAdapter made the adapter.
Inside InsideOf(const Adapter& adapter);

}  // namespace semaphored::ledger
