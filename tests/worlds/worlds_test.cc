// Small worlds, explored. To depth 10: `tests/deep.sh worlds`. One world by hand:
//   WORLD='resize' WORLD_DEPTH=6 WORLD_STATES=100000 worlds_tests 'one world'
#include <chrono>
#include <cstdlib>
#include <iostream>

#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/worlds/explorer.h"

namespace semaphored::worlds {
namespace {

// For each change. Built for debugging or for a sanitizer, a world takes ten times as long.
#ifdef NDEBUG
constexpr int kSmallDepth = 5;
#else
constexpr int kSmallDepth = 4;
#endif

uint64_t NumberFrom(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

void Show(const WorldSpec& spec, const Explored& explored, double seconds) {
  std::cout << "world " << spec.name << ": depth " << explored.depth
            << (explored.complete ? " (no state is new beyond)" : "") << ", " << explored.states
            << " states, " << explored.transitions << " transitions, " << seconds << " s"
            << std::endl;
}

// Fails if something is wrong, and if the depth is not reached.
void Check(const WorldSpec& spec, const Bounds& bounds) {
  const auto begin = SteadyClock::now();
  const Explored explored = Explore(spec, {}, bounds);
  Show(spec, explored, std::chrono::duration<double>(SteadyClock::now() - begin).count());
  if (explored.violation) FAIL(*explored.violation);
  CHECK((explored.depth == bounds.depth || explored.complete));
}

TEST_CASE("one world", "[.one]") {
  const char* name = std::getenv("WORLD");
  REQUIRE(name != nullptr);
  Bounds bounds;
  bounds.depth = static_cast<int>(NumberFrom("WORLD_DEPTH", 10));
  bounds.states_max = NumberFrom("WORLD_STATES", UINT64_MAX);
  bounds.compared_every = NumberFrom("WORLD_COMPARED", 0);
  bounds.on_level = [](const Explored& explored) {
    std::cout << "  depth " << explored.depth << ": " << explored.states << " states, "
              << explored.transitions << " transitions" << std::endl;
  };
  Check(WorldNamed(name), bounds);
}

TEST_CASE("names of all worlds", "[.names]") {
  for (const WorldSpec& spec : AllWorlds()) std::cout << "world: " << spec.name << std::endl;
}

TEST_CASE("each world to a small depth") {
  for (const WorldSpec& spec : AllWorlds()) Check(spec, {.depth = kSmallDepth});
}

TEST_CASE("two states of one world that have one form have one future") {
  for (const WorldSpec& spec : AllWorlds())
    Check(spec, {.depth = kSmallDepth - 1, .compared_every = 20});
}

}  // namespace
}  // namespace semaphored::worlds
