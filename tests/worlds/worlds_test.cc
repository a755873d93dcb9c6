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

// Built for debugging or for a sanitizer, a world takes ten times as long.
#ifdef NDEBUG
constexpr int kSlow = 0;
#else
constexpr int kSlow = 1;
#endif

int NumberFrom(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

void Show(const WorldSpec& spec, const Explored& explored, double seconds) {
  std::cout << "world " << spec.name << ": depth " << explored.depth
            << (explored.complete ? " (no state is new beyond)" : "") << ", " << explored.states
            << " states, " << explored.transitions << " transitions, " << seconds << " s"
            << std::endl;
}

// Returns what was explored; fails if something is wrong.
Explored Check(const WorldSpec& spec, const Bounds& bounds) {
  const auto begin = SteadyClock::now();
  Explored explored = Explore(spec, {}, bounds);
  Show(spec, explored, std::chrono::duration<double>(SteadyClock::now() - begin).count());
  if (explored.violation) FAIL(*explored.violation);
  return explored;
}

TEST_CASE("one world", "[.one]") {
  const char* name = std::getenv("WORLD");
  REQUIRE(name != nullptr);
  const WorldSpec& spec = WorldNamed(name);
  const auto states_max = static_cast<uint64_t>(NumberFrom("WORLD_STATES", 400'000));
  const auto on_level = [](const Explored& explored) {
    std::cout << "  depth " << explored.depth << ": " << explored.states << " states, "
              << explored.transitions << " transitions" << std::endl;
  };
  Check(spec, {NumberFrom("WORLD_DEPTH", spec.depth), states_max, on_level});
}

TEST_CASE("names of all worlds", "[.names]") {
  for (const WorldSpec& spec : AllWorlds()) std::cout << "world: " << spec.name << std::endl;
}

TEST_CASE("each world to a small depth") {
  for (const WorldSpec& spec : AllWorlds()) {
    const int depth = spec.quick_depth - kSlow;
    const Explored explored = Check(spec, {depth});
    CHECK((explored.depth == depth || explored.complete));
  }
}

}  // namespace
}  // namespace semaphored::worlds
