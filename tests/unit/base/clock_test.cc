#include "server/base/clock.h"

#include <catch2/catch_test_macros.hpp>

namespace semaphored {
namespace {

TEST_CASE("clock: times are written as people read them") {
  CHECK(UtcTimeText(0) == "1970-01-01T00:00:00.000Z");
  CHECK(UtcTimeText(1'700'000'000'123) == "2023-11-14T22:13:20.123Z");
}

}  // namespace
}  // namespace semaphored
