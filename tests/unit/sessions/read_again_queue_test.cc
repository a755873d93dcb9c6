#include "server/sessions/read_again_queue.h"

#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/sessions/room_host.h"

namespace semaphored {
namespace {

TEST_CASE("read again: a few sessions at a time, and in turns", "[unit]") {
  RoomHost host;
  ReadAgainQueue queue(&host.time, &host.timers);
  for (uint64_t i = 1; i <= 20; ++i) queue.Add(Id{1, i});
  CHECK_FALSE(host.Pass(Milliseconds(4999)));
  const auto timer = host.Pass(Milliseconds(1));
  REQUIRE(timer);
  CHECK(timer->kind == TimerKind::kReadAgain);
  CHECK_FALSE(host.Pass(Milliseconds(0)));  // One timer for all of them.
  std::vector<Id> due = queue.TakeDue();
  REQUIRE(due.size() == ReadAgainQueue::kAtOnce);
  CHECK(due.front() == Id{1, 1});
  // One that is to be read once more comes after those that have not been read yet.
  queue.Add(Id{1, 1});
  REQUIRE(host.Pass(Milliseconds(5000)));
  due = queue.TakeDue();
  CHECK(due == std::vector<Id>{{1, 17}, {1, 18}, {1, 19}, {1, 20}, {1, 1}});
  CHECK_FALSE(host.Pass(Milliseconds(60'000)));
  queue.Add(Id{1, 3});
  CHECK(host.Pass(Milliseconds(5000)));
}

}  // namespace
}  // namespace semaphored
