#include "server/guard/origins.h"

#include <string>

#include <catch2/catch_test_macros.hpp>

namespace semaphored::guard {
namespace {

// So many that were never seen before.
void FillWithNew(Origins* origins, size_t count, SteadyTime now) {
  static size_t number = 0;
  for (size_t i = 0; i < count; ++i) origins->Of("ipv6:" + std::to_string(++number), now);
}

}  // namespace

TEST_CASE("guard: addresses are forgotten by sweeps, of which there is one in a second at most",
          "[guard]") {
  Origins origins(FrameBounds{});
  SteadyTime now{std::chrono::hours(1)};
  const auto standing = origins.Of("ipv4:192.0.2.1", now);
  FillWithNew(&origins, Origins::kMost - 1, now);
  REQUIRE(origins.size() == Origins::kMost);
  FillWithNew(&origins, 1, now);
  CHECK(origins.size() == 2);
  // A second flood within the second is swept at its end.
  FillWithNew(&origins, Origins::kMost, now);
  CHECK(origins.size() == Origins::kMost + 2);
  now += Origins::kBetweenSweeps;
  FillWithNew(&origins, 1, now);
  CHECK(origins.size() == 2);
  CHECK(origins.Of("ipv4:192.0.2.1", now) == standing);
}

TEST_CASE("guard: of many addresses those are forgotten first that have long been away",
          "[guard]") {
  Origins origins(FrameBounds{});
  SteadyTime now{std::chrono::hours(1)};
  FillWithNew(&origins, Origins::kMost - 10, now);
  now += Origins::kKept + Milliseconds(1);
  FillWithNew(&origins, 10, now);
  FillWithNew(&origins, 1, now);
  CHECK(origins.size() == 11);
}

}  // namespace semaphored::guard
