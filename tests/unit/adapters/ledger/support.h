// Rows and pictures of a state, for the tests of the ledger's state and rules.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "adapters/ledger/rules/rules.h"
#include "adapters/ledger/state/state.h"
#include "adapters/ledger/state/transaction.h"

namespace semaphored::ledger {

inline Id MakeId(uint64_t number) { return Id{1, number}; }

SemaphoreRow MakeRow(const std::string& name, uint32_t limit);
LeasePtr MakeLease(uint64_t id, Slots slots, const std::string& holder = "h");
WaiterPtr MakeWaiter(uint64_t id, int32_t priority, uint64_t order, uint32_t permits = 1);

AcquireCommand AcquireOf(const std::string& semaphore, uint64_t id, uint32_t permits = 1,
                         bool wait = false);
ReleaseCommand ReleaseOf(const std::string& semaphore, uint64_t id, Slots slots = {});
AdminCommand AdminOf(const std::string& semaphore, decltype(AdminCommand::act) act);

// All that a state says, rows and indexes, as text: two states are the same if their pictures are.
std::string Picture(const LedgerState& state);

// A state, and one batch under way on it.
struct Bench {
  LedgerState state;
  Transaction transaction;
  std::unique_ptr<Editor> editor = std::make_unique<Editor>(&state, &transaction);
  Context context{
      .self = {1, 1}, .now_unix_ms = 1000, .client = 0, .fingerprint = {}, .limits = {}};

  // The batch has won: the next command begins a new one. Tokens and revisions are given as a store
  // would.
  void Win();
  // The batch has lost.
  void Lose();

 private:
  uint64_t tokens_ = 0;
};

}  // namespace semaphored::ledger
