#include "server/access/unknown_callers.h"

#include <set>
#include <string>

#include <catch2/catch_test_macros.hpp>

namespace semaphored {
namespace {

TEST_CASE("unknown callers: the first is told at once, those after it are counted") {
  UnknownCallers callers;
  SteadyTime now{};
  const std::string refused = " was refused: its token does not stand in the access file";
  const auto add = [&](const char* peer) { return callers.Add(UnknownKind::kToken, peer, now); };
  CHECK(add("ipv4:10.0.0.1:7") == "a call from ipv4:10.0.0.1:7" + refused);
  for (int i = 0; i < 3; ++i) CHECK_FALSE(add("ipv4:10.0.0.2:7"));
  now += RareLine::kBetween;
  CHECK(add("unix:") == "a call from unix:" + refused + " (and 3 others since the last such line)");
  CHECK_FALSE(add("unix:"));
  now += 2 * RareLine::kBetween;
  CHECK(add("unix:") == "a call from unix:" + refused + " (and 1 other since the last such line)");
  now += RareLine::kBetween;
  CHECK(add("unix:") == "a call from unix:" + refused);
}

TEST_CASE("unknown callers: each kind has its count, its name and its line") {
  UnknownCallers callers;
  SteadyTime now{};
  std::set<std::string> lines, names;
  for (size_t i = 0; i < kUnknownKinds; ++i) {
    const auto kind = static_cast<UnknownKind>(i);
    for (size_t n = 0; n <= i; ++n) callers.Add(kind, "unix:", now);
    now += RareLine::kBetween;
    lines.insert(callers.Add(kind, "unix:", now).value());
    now += RareLine::kBetween;
    names.insert(UnknownKindName(kind));
    CHECK(callers.counts()[i] == i + 2);
  }
  CHECK(lines.size() == kUnknownKinds);
  CHECK(names.size() == kUnknownKinds);
}

}  // namespace
}  // namespace semaphored
