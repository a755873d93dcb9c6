#include "server/core/unknown_callers.h"

#include <catch2/catch_test_macros.hpp>

namespace semaphored {
namespace {

TEST_CASE("unknown callers: the first is told at once, those after it are counted") {
  UnknownCallers callers;
  SteadyTime now{};
  const std::string refused =
      " was refused: it shows neither a token nor a certificate that stands in the access file";
  CHECK(callers.Add("ipv4:10.0.0.1:7", now) == "a call from ipv4:10.0.0.1:7" + refused);
  for (int i = 0; i < 3; ++i) CHECK_FALSE(callers.Add("ipv4:10.0.0.2:7", now));
  now += UnknownCallers::kBetweenLines;
  CHECK(callers.Add("unix:", now) ==
        "a call from unix:" + refused + " (and 3 others since the last such line)");
  CHECK_FALSE(callers.Add("unix:", now));
  now += 2 * UnknownCallers::kBetweenLines;
  CHECK(callers.Add("unix:", now) ==
        "a call from unix:" + refused + " (and 1 other since the last such line)");
  now += UnknownCallers::kBetweenLines;
  CHECK(callers.Add("unix:", now) == "a call from unix:" + refused);
}

}  // namespace
}  // namespace semaphored
