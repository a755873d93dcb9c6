#include "server/sessions/unread_semaphores.h"

#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

namespace semaphored {
namespace {

TEST_CASE("unread semaphores: leases are lost after half of the time, and vouched for no longer",
          "[unit]") {
  const SteadyTime read_at = SteadyTime(std::chrono::hours(1));
  UnreadSemaphores unread(Milliseconds(9000));
  CHECK(unread.empty());
  CHECK(unread.Add("b", read_at) == read_at + Milliseconds(4500));
  unread.Add("a", read_at + Milliseconds(1));
  CHECK(unread.contains("b"));
  CHECK(unread.VouchedUntil("b") == read_at + Milliseconds(9000));
  CHECK(unread.VouchedUntil("c") == SteadyTime::max());
  CHECK(unread.LostBy(read_at + Milliseconds(4499)).empty());
  CHECK(unread.LostBy(read_at + Milliseconds(4500)) == std::vector<std::string>{"b"});
  CHECK(unread.LostBy(read_at + Milliseconds(4501)) == std::vector<std::string>{"a", "b"});
  unread.Remove("b");
  CHECK(unread.VouchedUntil("b") == SteadyTime::max());
  CHECK_FALSE(unread.contains("b"));
  unread.Remove("a");
  CHECK(unread.empty());
}

}  // namespace
}  // namespace semaphored
