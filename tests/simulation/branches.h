// Branches of the rules by what can be seen of them: a command and what became of it, and what a commit
// did to a claim, a ticket, a session or a semaphore. So the product code needs no hooks. Each is counted
// for every kind of fault that struck in the last two seconds.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "adapters/adapter.h"
#include "adapters/ledger/state/transaction.h"
#include "tests/simulation/faults.h"

namespace semaphored::simulation {

// How often each branch was taken, by the faults that were recent.
using Tally = std::map<std::string, std::array<uint64_t, kFaultKinds>>;

class BranchCounter {
 public:
  explicit BranchCounter(const Faults* faults) : faults_(faults) {}

  void Count(const Command& command, const Outcome& outcome);
  // What landed in the engine.
  void Count(const ledger::Transaction& transaction);
  Tally ByName() const;

 private:
  void Add(uint32_t code);

  const Faults* faults_;
  std::map<uint32_t, std::array<uint64_t, kFaultKinds>> counts_;  // By code, see branches.cc.
};

// The names of all branches, as the tally uses them.
std::vector<std::string> AllBranches();

}  // namespace semaphored::simulation
