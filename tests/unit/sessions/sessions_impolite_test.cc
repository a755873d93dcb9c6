// A client that uses one sequence number for two semaphores, which belong to two lanes of one daemon.
#include <memory>
#include <string>
#include <utility>

#include "catch2/catch_test_macros.hpp"
#include "tests/contract/shared_engine.h"
#include "tests/unit/sessions/client_stream.h"
#include "tests/unit/sessions/sessions_world.h"

namespace semaphored {
namespace {

std::string NameInLane(size_t lane, const char* letters) {
  std::string name = letters;
  while (LaneOf(name, 2) != lane) ++name[0];
  return name;
}

AcquireParams Ask(const std::string& semaphore, const std::string& client_id, uint64_t sequence,
                  int64_t wait_ms) {
  AcquireParams params;
  params.requester = {client_id, sequence};
  params.semaphore = semaphore;
  params.limit = 1;
  params.ttl_ms = 60'000;
  params.wait_ms = wait_ms;
  return params;
}

TEST_CASE("impolite: one sequence for semaphores of two lanes, and no third party notices") {
  // Which lane is first must not matter.
  for (const size_t first : {0, 1}) {
    const auto fixture = contract::MakeSharedFixture(false);
    SessionsWorld world{SessionsOptions(), fixture->Open().value(), "a", /*lanes=*/2};
    Sessions& sessions = world.sessions();
    const std::string names[2] = {NameInLane(first, "a"), NameInLane(1 - first, "a")};
    ClientStream holders[2];
    Id held[2];
    for (size_t i = 0; i < 2; ++i) {
      held[i] = sessions.Acquire(Ask(names[i], "", 0, 0), &holders[i], 1);
      world.Settle();
      REQUIRE(holders[i].granted.size() == 1);
    }
    // Both at the same time: each lane decides without the other.
    ClientStream client;
    for (uint64_t tag = 0; tag < 2; ++tag)
      sessions.Acquire(Ask(names[tag], "impolite", 1, -1), &client, tag);
    world.Settle();
    CHECK(client.queued.size() == 1);
    REQUIRE(client.refused.size() == 1);
    CHECK(client.reason() == Reason::kRequestIdReused);
    const uint64_t waits = client.queued[0];
    // The holders of both give back, and the other semaphore goes from hand to hand.
    for (size_t i = 0; i < 2; ++i) {
      ReleaseCommand release;
      release.semaphore = names[i];
      release.claim = held[i];
      uint32_t released = 0;
      sessions.Release(std::move(release),
                       [&](Result<ReleaseAnswer> answer) { released = answer.value.released; });
      world.Settle();
      CHECK(released == 1);
    }
    REQUIRE(client.granted.size() == 1);
    CHECK(client.granted[0].tag == waits);
    ClientStream next;
    sessions.Acquire(Ask(names[1 - waits], "", 0, 0), &next, 1);
    world.Settle();
    CHECK(next.granted.size() == 1);
  }
}

}  // namespace
}  // namespace semaphored
