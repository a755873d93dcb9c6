// Explores a small world, breadth first, so that what it finds first is shortest.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tests/worlds/small_world.h"
#include "tests/worlds/spec.h"

namespace semaphored::worlds {

struct Explored {
  uint64_t states = 0;       // Canonical ones.
  uint64_t transitions = 0;  // Acts that were tried, each in a state that was reached once.
  int depth = 0;             // All sequences of so many acts were explored.
  bool complete = false;     // No act leads to a state that is new, at whatever depth.
  // What was found, and the acts that lead to it, one a line. nullopt: nothing.
  std::optional<std::string> violation;
};

struct Bounds {
  int depth = 10;
  // With more the level under way is given up, and `depth` is that before.
  uint64_t states_max = UINT64_MAX;
  // Of so many times that a state is met again, once the state that was reached now is compared with the
  // one that was reached first: one act must lead to the same states. 0: never.
  uint64_t compared_every = 0;
  std::function<void(const Explored&)> on_level = {};  // Called after each level; may be empty.
};

// The same for the same arguments. The lanes do not depend on chance: the explorer notices if they do, and
// reports it as a violation. One at a time.
Explored Explore(const WorldSpec& spec, const Planted& planted, const Bounds& bounds);

}  // namespace semaphored::worlds
