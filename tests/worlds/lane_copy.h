// What a lane knows of the engine's rows, for the canonical form of a world. While the fate of its last commit is
// unknown to it, that is what it will know as soon as it finds out: the commit counts if it has landed.
#pragma once

#include <map>
#include <string>

#include "tests/worlds/choice_store.h"
#include "tests/worlds/probe.h"

namespace semaphored::worlds {

struct SemaphoreCopy {
  SemaphoreRow row;
  std::map<Id, LeasePtr> leases;
  std::map<Id, WaiterPtr> waiters;
};

struct LaneCopy {
  // `write`: the commit whose answer the lane waits for; may be null.
  LaneCopy(const ledger::LedgerProbe& probe, const InFlight* write);

  const SemaphoreCopy* Find(const std::string& name) const {
    const auto found = semaphores.find(name);
    return found == semaphores.end() ? nullptr : &found->second;
  }

  std::map<std::string, SemaphoreCopy> semaphores;
  std::map<Id, ledger::SessionPtr> sessions;
};

}  // namespace semaphored::worlds
