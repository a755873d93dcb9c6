#include "adapters/slots.h"

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include <catch2/catch_test_macros.hpp>

namespace semaphored {

TEST_CASE("slots are a set, kept as runs") {
  const Slots slots = {7, 3, 1, 2, 3};
  CHECK(slots.size() == 4);
  CHECK(slots.front() == 1);
  CHECK(slots.back() == 7);
  CHECK(std::ranges::equal(slots, std::vector<uint32_t>{1, 2, 3, 7}));
  REQUIRE(slots.runs().size() == 2);
  CHECK(slots.runs()[0] == Slots::Run{1, 3});
  const Slots none;
  CHECK(none.empty());
  CHECK(none.begin() == none.end());
}

TEST_CASE("slots: runs that touch are one") {
  Slots slots;
  slots.Append({1, 2});
  slots.Append({3, UINT32_MAX});
  CHECK(slots.runs().size() == 1);
  CHECK(slots.size() == UINT32_MAX);
}

TEST_CASE("slots agree with a set in what is left and what is missing") {
  std::mt19937 random(3);
  const auto some = [&] {
    std::set<uint32_t> set;
    for (auto count = random() % 16; count > 0; --count) set.insert(random() % 20 + 1);
    return set;
  };
  for (int i = 0; i < 5'000; ++i) {
    const std::set<uint32_t> a = some();
    const std::set<uint32_t> b = some();
    std::vector<uint32_t> rest;
    std::ranges::set_difference(a, b, std::back_inserter(rest));
    std::vector<uint32_t> missing;
    std::ranges::set_difference(b, a, std::back_inserter(missing));
    const Slots slots(a.begin(), a.end());
    const Slots others(b.begin(), b.end());
    REQUIRE(slots.size() == a.size());
    REQUIRE(slots.Without(others) == Slots(rest));
    const std::optional<uint32_t> first = slots.FirstNotHere(others);
    REQUIRE(first.has_value() == !missing.empty());
    if (first) REQUIRE(*first == missing.front());
  }
}

}  // namespace semaphored
