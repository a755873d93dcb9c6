// Other clients of the same engine, which know nothing of daemons: they take free permits of their own
// accord, return them, or die and leave them behind.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/faults.h"
#include "tests/simulation/memory_engine.h"
#include "tests/simulation/world.h"

namespace semaphored::simulation {

class ForeignClients {
 public:
  // `semaphores`: s0, s1, … All outlive it.
  ForeignClients(World* world, Faults* faults, MemoryEngine* engine, int semaphores)
      : world_(world), faults_(faults), engine_(engine), semaphores_(semaphores) {}

  void Start();
  // Takes nothing more, and returns what it has.
  void CleanUp();

 private:
  void Act();
  void Take();

  World* world_;
  Faults* faults_;
  MemoryEngine* engine_;
  const int semaphores_;
  std::vector<std::pair<std::string, Id>> held_;
  bool winding_down_ = false;
};

}  // namespace semaphored::simulation
