#include "adapters/watched_names.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch_test_macros.hpp>

namespace semaphored {
namespace {

TEST_CASE("watched names: by the whole name, or by a prefix", "[unit]") {
  const auto names = WatchedNames::Make();
  CHECK_FALSE(names->Matches("a"));
  const WatchedNames::Watch name = names->Add("", "a/b");
  const WatchedNames::Watch prefix = names->Add("a/", "");
  // The name counts.
  const WatchedNames::Watch both = names->Add("x", "a/b");
  CHECK(names->MatchesOf("a/b") == std::vector{name.id(), prefix.id(), both.id()});
  CHECK(names->MatchesOf("a/") == std::vector{prefix.id()});
  CHECK(names->MatchesOf("a/bc") == std::vector{prefix.id()});
  for (const char* other : {"", "a", "b", "x", "/a", "a_b"}) CHECK_FALSE(names->Matches(other));
}

TEST_CASE("watched names: an empty prefix matches every name", "[unit]") {
  const auto names = WatchedNames::Make();
  const WatchedNames::Watch all = names->Add("", "");
  CHECK(names->Matches("a"));
  CHECK(names->MatchesOf("") == std::vector{all.id()});
}

TEST_CASE("watched names: a watch lasts as long as it lives, and takes no other with it",
          "[unit]") {
  auto names = WatchedNames::Make();
  WatchedNames::Watch first = names->Add("a", "");
  WatchedNames::Watch second = names->Add("a", "");
  const WatchedNames::Watch longer = names->Add("ab", "");
  const uint64_t former = first.id();
  first = {};
  CHECK(names->MatchesOf("a") == std::vector{second.id()});
  WatchedNames::Watch moved = std::move(second);
  CHECK(names->Matches("a"));
  moved = {};
  CHECK_FALSE(names->Matches("a"));
  CHECK(names->MatchesOf("abc") == std::vector{longer.id()});
  // No id comes again.
  CHECK(names->Add("a", "").id() > former);
  names.reset();  // The watch keeps what it belongs to.
}

TEST_CASE("watched names: lanes ask while watches come and go", "[unit]") {
  const auto names = WatchedNames::Make();
  const WatchedNames::Watch stays = names->Add("", "stays");
  std::atomic<bool> over = false;
  std::atomic<int> missed = 0;
  std::vector<std::thread> lanes;
  for (int lane = 0; lane < 2; ++lane) {
    lanes.emplace_back([&] {
      while (!over) {
        if (!names->Matches("stays") || names->MatchesOf("stays").empty()) ++missed;
        if (names->Matches("never")) ++missed;
      }
    });
  }
  for (int round = 0; round < 2000; ++round) {
    std::vector<WatchedNames::Watch> watches;
    for (int i = 0; i < 5; ++i) watches.push_back(names->Add("p" + std::to_string(i), ""));
    watches.push_back(names->Add("", "stays"));
  }
  over = true;
  for (std::thread& lane : lanes) lane.join();
  CHECK(missed == 0);
}

}  // namespace
}  // namespace semaphored
