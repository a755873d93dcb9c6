// A world that is led to one state after another. It goes back to where two paths part, and does there
// what is different: neighbours in the order of a breadth first search have most of their paths in common.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/worlds/arena.h"
#include "tests/worlds/small_world.h"

namespace semaphored::worlds {

struct Path {
  std::vector<Action> acts;
  // The names of the acts: beginnings with the same names are the same.
  std::vector<uint64_t> steps;
};

class RewoundWorld {
 public:
  // Both outlive it. All of this throws Violation.
  RewoundWorld(const WorldSpec* spec, const Planted* planted);

  // Leads the world along the path.
  void Follow(const Path& path);
  // To the end of the path, whatever was done since.
  void Rewind() { arena_.Restore(saved_.back()); }
  // Runs `run` on the world. What `run` allocates is lost at the next Rewind.
  template <typename Run>
  void Do(Run&& run) {
    const Arena::Inside inside(&arena_);
    run(*world_);
  }
  const SmallWorld& world() const { return *world_; }

 private:
  Arena arena_;
  SmallWorld* world_ = nullptr;     // In the arena.
  std::vector<std::string> saved_;  // At the beginning, and after each act of the path.
  std::vector<uint64_t> steps_;
};

}  // namespace semaphored::worlds
