// What a session's stream hears of a request that waits.
#include <string>
#include <utility>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "tests/unit/client_stream.h"
#include "tests/unit/sessions_world.h"

namespace semaphored {

TEST_CASE("queued: a request that waits hears why") {
  SessionsWorld world;
  ClientStream stream;
  OpenParams open;
  open.client_id = "client";
  open.ttl_ms = 10'000;
  world.sessions().Open(std::move(open), &stream);
  world.Settle();
  uint64_t tag = 0;
  const auto ask = [&](uint32_t permits) {
    AcquireParams params;
    params.semaphore = "s";
    params.permits = permits;
    params.limit = 3;
    params.wait_ms = -1;
    world.sessions().AcquireIn(stream.session, std::move(params), ++tag, true);
    world.Settle();
  };
  ask(2);
  ask(2);
  ask(1);
  CHECK(stream.granted.size() == 1);
  CHECK(stream.queued == std::vector<uint64_t>{2, 3});
  CHECK(stream.queued_for == std::vector{WaitReason::kFull, WaitReason::kBehind});
  const std::optional<SemaphoreInfo> info = world.Describe("s");
  REQUIRE(info);
  REQUIRE(info->waiters.size() == 2);
  CHECK(info->waiters[0].reason == WaitReason::kFull);
  CHECK(info->waiters[1].reason == WaitReason::kBehind);
}

}  // namespace semaphored
