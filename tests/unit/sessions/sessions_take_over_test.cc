// What a dead daemon leaves is learned by several lanes, page by page, while they serve clients.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "tests/unit/sessions/client_stream.h"
#include "tests/unit/sessions/damaged_engine.h"
#include "tests/unit/sessions/sessions_world.h"

namespace semaphored {
namespace {

constexpr size_t kLanes = 3;

struct TakeOvers {
  DamagedWorld engine;
  SessionsWorld dead{SessionsOptions(), std::make_unique<DamagedEngine>(&engine), "dead"};
  SessionsWorld heir{SessionsOptions(), std::make_unique<DamagedEngine>(&engine), "heir", kLanes};
  ClientStream stream;
  uint64_t requests = 0;

  static void Open(SessionsWorld& at, ClientStream* stream, const Id& resume = {}) {
    OpenParams params;
    params.client_id = "client";
    params.ttl_ms = 10'000;
    params.resume = resume;
    at.sessions().Open(std::move(params), stream);
    at.Settle();
  }
  void Ask(SessionsWorld& at, const ClientStream& from, const std::string& semaphore) {
    AcquireParams params;
    params.requester = {"client", ++requests};
    params.semaphore = semaphore;
    params.permits = 1;
    params.limit = 1;
    at.sessions().AcquireIn(from.session, std::move(params), requests, true);
  }
  // One lease of each of so many semaphores, for one session of the daemon that dies.
  void Hold(int leases) {
    Open(dead, &stream);
    for (int i = 0; i < leases; ++i) Ask(dead, stream, "s" + std::to_string(i));
    dead.Settle();
    REQUIRE(stream.granted.size() == static_cast<size_t>(leases));
    engine.loaded = 0;
    engine.loaded_max = 0;
    engine.loads.clear();
  }
  void Die() {
    for (const NodeStore::Node& node : engine.engine.Nodes()) {
      if (node.ref == dead.self()) engine.engine.DeclareDead(node);
    }
  }
  size_t ReadTwice() const {
    return static_cast<size_t>(
        std::ranges::count_if(engine.loads, [](const auto& each) { return each.second != 1; }));
  }
};

TEST_CASE("take-over: three lanes read each semaphore once, a page at a time") {
  for (const int leases : {1500, 3000}) {
    TakeOvers world;
    world.Hold(leases);
    world.Die();
    world.heir.TakeOver(world.dead.self());
    CHECK(world.engine.loaded == leases);
    CHECK(world.engine.loads.size() == static_cast<size_t>(leases));
    CHECK(world.ReadTwice() == 0);
    CHECK(world.engine.loaded_max <= 256);
    CHECK(world.heir.sessions().counts().leases == static_cast<size_t>(leases));
    ClientStream back;
    TakeOvers::Open(world.heir, &back, world.stream.session);
    CHECK(back.resumed);
    CHECK(back.held.size() == static_cast<size_t>(leases));
  }
}

TEST_CASE("take-over: what no client comes for ends after its TTL, in every lane") {
  TakeOvers world;
  world.Hold(600);
  world.Die();
  world.heir.TakeOver(world.dead.self());
  world.heir.Pass(Milliseconds(9'000));
  CHECK(world.heir.sessions().counts().leases == 600);
  world.heir.Pass(Milliseconds(2'000));
  CHECK(world.heir.sessions().counts().leases == 0);
  for (const auto& [name, stored] : world.engine.engine.semaphores()) CHECK(stored.leases.empty());
}

// The daemon from which the session had moved may vouch for it until it hears of the move.
TEST_CASE("take-over: what had moved to the dead daemon is kept for as long as after a move") {
  TakeOvers world;
  SessionsWorld before{SessionsOptions(), std::make_unique<DamagedEngine>(&world.engine), "before"};
  TakeOvers::Open(before, &world.stream);
  world.Ask(before, world.stream, "s");
  before.Settle();
  ClientStream call;
  AcquireParams params;
  params.requester = {"other", 1};
  params.semaphore = "t";
  params.limit = 1;
  params.ttl_ms = 10'000;
  const Id claim = before.sessions().Acquire(std::move(params), &call, 1);
  before.Settle();
  REQUIRE(call.granted.size() == 1);
  ClientStream moved;
  TakeOvers::Open(world.dead, &moved, world.stream.session);
  REQUIRE(moved.resumed);
  bool renewed = false;
  world.dead.sessions().Renew({{"t", claim}},
                              [&](const Result<RenewAnswer>& result) { renewed = result.ok(); });
  world.dead.Settle();
  REQUIRE(renewed);
  world.Die();
  world.heir.TakeOver(world.dead.self());
  // The TTL, the node TTL and the sweep's interval.
  world.heir.Pass(Milliseconds(24'000));
  CHECK(world.engine.engine.Find("s")->held() == 1);
  CHECK(world.engine.engine.Find("t")->held() == 1);
  world.heir.Pass(Milliseconds(2'000));
  CHECK(world.engine.engine.Find("s")->held() == 0);
  CHECK(world.engine.engine.Find("t")->held() == 0);
}

TEST_CASE("take-over: clients are served between two pages") {
  TakeOvers world;
  world.Hold(2000);
  world.Die();
  ClientStream client;
  TakeOvers::Open(world.heir, &client);
  bool ready = false;
  world.heir.sessions().TakeOver({world.dead.self()}, [&](const absl::Status& status) {
    CHECK(status.ok());
    ready = true;
  });
  std::vector<size_t> answered_at;
  int rounds = 0;
  while (!ready) {
    REQUIRE(rounds < 1000);
    const size_t before = client.granted.size();
    world.Ask(world.heir, client, "new" + std::to_string(rounds));
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const int loaded = world.engine.loaded;
      LaneResults results = world.heir.Run(lane);
      CHECK(world.engine.loaded - loaded <= 256 + 1);  // A page, and what the client asks for.
      world.heir.Tell(lane, std::move(results));
    }
    CHECK(client.granted.size() == before + 1);
    ++rounds;
  }
  CHECK(rounds > 3);
  CHECK(world.heir.sessions().counts().leases == 2000 + static_cast<size_t>(rounds));
}

TEST_CASE("take-over: a client resumes its session half-way") {
  TakeOvers world;
  world.Hold(2000);
  world.Die();
  bool ready = false;
  world.heir.sessions().TakeOver({world.dead.self()}, [&](const absl::Status&) { ready = true; });
  for (size_t lane = 0; lane < kLanes; ++lane) world.heir.Tell(lane, world.heir.Run(lane));
  REQUIRE(!ready);
  ClientStream back;
  TakeOvers::Open(world.heir, &back, world.stream.session);
  CHECK(ready);
  CHECK(back.resumed);
  CHECK(back.held.size() == 2000);
  CHECK(world.heir.sessions().counts().leases == 2000);
  world.heir.Pass(Milliseconds(5'000));
  world.heir.sessions().TouchSession(world.stream.session);
  world.heir.Pass(Milliseconds(8'000));
  CHECK(world.heir.sessions().counts().leases == 2000);
  CHECK(back.ended.empty());
}

TEST_CASE("take-over: one that fails half-way begins again, and finds each claim once") {
  TakeOvers world;
  world.Hold(2000);
  world.Die();
  int pages = 0;
  world.engine.on_load = [&] {
    return ++pages < 10 ? absl::OkStatus() : absl::UnavailableError("the engine is away");
  };
  absl::Status first;
  world.heir.sessions().TakeOver({world.dead.self()},
                                 [&](const absl::Status& status) { first = status; });
  world.heir.Settle();
  CHECK(absl::IsUnavailable(first));
  const size_t found = world.heir.sessions().counts().leases;
  CHECK(found > 0);
  CHECK(found < 2000);
  world.engine.on_load = nullptr;
  world.heir.TakeOver(world.dead.self());
  CHECK(world.heir.sessions().counts().leases == 2000);
  ClientStream back;
  TakeOvers::Open(world.heir, &back, world.stream.session);
  CHECK(back.held.size() == 2000);
}

TEST_CASE("take-over: the daemon that takes over dies half-way, and the next one begins again") {
  TakeOvers world;
  world.Hold(2000);
  world.Die();
  world.heir.sessions().TakeOver({world.dead.self()}, [](const absl::Status&) {});
  for (size_t lane = 0; lane < kLanes; ++lane) world.heir.Tell(lane, world.heir.Run(lane));
  CHECK(world.heir.sessions().pages_taken_over() > 0);
  CHECK(world.heir.sessions().counts().leases < 2000);
  // It is not heard of again.
  SessionsWorld next{SessionsOptions(), std::make_unique<DamagedEngine>(&world.engine), "next",
                     kLanes};
  next.sessions().TakeOver({world.dead.self(), world.heir.self()},
                           [](const absl::Status& status) { CHECK(status.ok()); });
  next.Settle();
  CHECK(next.sessions().counts().leases == 2000);
}

TEST_CASE("take-over: wide semaphores make pages of fewer semaphores") {
  TakeOvers world;
  TakeOvers::Open(world.dead, &world.stream);
  constexpr uint32_t kWide = 200;
  constexpr int kSemaphores = 200;
  for (int i = 0; i < kSemaphores; ++i) {
    for (uint32_t lease = 0; lease < kWide; ++lease) {
      AcquireParams params;
      params.requester = {"client", ++world.requests};
      params.semaphore = "wide" + std::to_string(i);
      params.permits = 1;
      params.limit = kWide;
      world.dead.sessions().AcquireIn(world.stream.session, std::move(params), world.requests,
                                      true);
    }
    world.dead.Settle();
  }
  world.Die();
  world.engine.loaded_max = 0;
  world.heir.TakeOver(world.dead.self());
  CHECK(world.heir.sessions().counts().leases == kSemaphores * kWide);
  // The first page is a guess; 4,096 claims make twenty semaphores.
  CHECK(world.heir.sessions().pages_taken_over() > 2 * kLanes);
  CHECK(world.engine.loaded_max <= 32);
}

}  // namespace
}  // namespace semaphored
