// The adapter made of the ledger's rules and a store.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "adapters/adapter.h"
#include "adapters/ledger/options.h"
#include "adapters/ledger/store.h"

namespace semaphored::ledger {

// Loads what the store has: all of it, if Guarantees::exclusive says that the store owns its state.
// Errors are those of the store.
absl::StatusOr<std::unique_ptr<Adapter>> MakeLedgerAdapter(std::unique_ptr<LedgerStore> store,
                                                           LedgerOptions options);

}  // namespace semaphored::ledger
