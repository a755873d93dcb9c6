// The explorer itself, and the memory of its worlds.
#include "tests/worlds/explorer.h"

#include <memory>
#include <string>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "tests/worlds/arena.h"

namespace semaphored::worlds {
namespace {

TEST_CASE("a number of states that is too small is reported, and not taken for the depth") {
  const Explored explored = Explore(WorldNamed("queue"), {}, {.depth = 6, .states_max = 100});
  CHECK(explored.depth < 6);
  CHECK(!explored.complete);
}

TEST_CASE("memory that is put back") {
  Arena arena;
  auto outside = std::make_unique<std::string>(100, 'o');
  std::vector<std::string>* inside = nullptr;
  {
    const Arena::Inside in(&arena);
    inside = new std::vector<std::string>(3, std::string(5000, 'i'));
    // What comes from outside goes back there.
    outside = std::make_unique<std::string>("made inside, and given back after that");
  }
  CHECK(arena.Has(inside));
  outside.reset();
  std::string saved;
  arena.Save(&saved);
  for (int round = 0; round < 2; ++round) {
    {
      const Arena::Inside in(&arena);
      inside->front() = "changed";
      inside->resize(2'000, std::string(100, 'x'));
      delete new std::vector<int>(100'000);
    }
    CHECK(inside->size() == 2'000);
    arena.Restore(saved);
    REQUIRE(inside->size() == 3);
    CHECK(inside->front() == std::string(5000, 'i'));
  }
  CHECK_FALSE(arena.Has(std::make_unique<int>(1).get()));
}

}  // namespace
}  // namespace semaphored::worlds
