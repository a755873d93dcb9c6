// Small worlds, explored. To depth 10: `tests/deep.sh worlds`. One world by hand:
//   WORLD='resize' WORLD_DEPTH=6 worlds_tests 'one world'
#include <chrono>
#include <cstdlib>
#include <iostream>

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

void Check(const WorldSpec& spec, int depth) {
  const auto begin = std::chrono::steady_clock::now();
  const Explored explored = Explore(spec, {}, {depth});
  Show(spec, explored,
       std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  if (explored.violation) FAIL(*explored.violation);
  CHECK((explored.depth == depth || explored.complete));
}

TEST_CASE("one world", "[.one]") {
  const char* name = std::getenv("WORLD");
  REQUIRE(name != nullptr);
  const WorldSpec& spec = WorldNamed(name);
  Check(spec, NumberFrom("WORLD_DEPTH", spec.depth));
}

TEST_CASE("names of all worlds", "[.names]") {
  for (const WorldSpec& spec : AllWorlds()) std::cout << "world: " << spec.name << std::endl;
}

TEST_CASE("each world to a small depth") {
  for (const WorldSpec& spec : AllWorlds()) Check(spec, spec.quick_depth - kSlow);
}

}  // namespace
}  // namespace semaphored::worlds
