#include "server/figures/queue_paces.h"

#include <string>

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/sessions/room_host.h"

namespace semaphored {
namespace {

TEST_CASE("queue paces: two grants say how fast a queue moves, later ones weigh more", "[unit]") {
  ManualClock clock;
  QueuePaces paces(&clock);
  CHECK(paces.ExpectedWaitMs("a", 1) == -1);
  paces.OnGrant("a");
  CHECK(paces.ExpectedWaitMs("a", 1) == -1);
  clock.Advance(Milliseconds(100));
  paces.OnGrant("a");
  CHECK(paces.ExpectedWaitMs("a", 1) == 100);
  CHECK(paces.ExpectedWaitMs("a", 3) == 300);
  CHECK(paces.ExpectedWaitMs("b", 1) == -1);
  clock.Advance(Milliseconds(600));
  paces.OnGrant("a");
  CHECK(paces.ExpectedWaitMs("a", 1) == 200);
}

TEST_CASE("queue paces: of too many semaphores they begin again", "[unit]") {
  ManualClock clock;
  QueuePaces paces(&clock);
  paces.OnGrant("a");
  clock.Advance(Milliseconds(100));
  paces.OnGrant("a");
  for (size_t i = 0; i < QueuePaces::kSemaphoresMax; ++i) paces.OnGrant(std::to_string(i));
  CHECK(paces.ExpectedWaitMs("a", 1) == -1);
}

}  // namespace
}  // namespace semaphored
