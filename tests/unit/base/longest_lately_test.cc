#include "server/base/longest_lately.h"

#include <catch2/catch_test_macros.hpp>

namespace semaphored {

TEST_CASE("longest lately: a short freeze is seen for a minute, and not for more than two") {
  using std::chrono::seconds;
  LongestLately lately;
  SteadyTime now{std::chrono::hours(1)};
  CHECK(lately.Get(now) == seconds(0));
  lately.Add(seconds(3), now);
  lately.Add(seconds(1), now);
  CHECK(lately.Get(now) == seconds(3));
  CHECK(lately.Get(now + seconds(59)) == seconds(3));
  lately.Add(seconds(2), now + seconds(61));
  CHECK(lately.Get(now + seconds(100)) == seconds(3));
  CHECK(lately.Get(now + seconds(122)) == seconds(2));
  CHECK(lately.Get(now + seconds(400)) == seconds(0));
}

}  // namespace semaphored
