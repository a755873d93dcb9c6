// Leases that are recalled, once and again: who ends them, and when.
#include <string>

#include "catch2/catch_test_macros.hpp"
#include "catch2/generators/catch_generators.hpp"
#include "tests/unit/sessions/client_stream.h"
#include "tests/unit/sessions/sessions_world.h"

namespace semaphored {
namespace {

constexpr int64_t kRecallTtlMs = 10'000;

// A client whose session holds the only permit of "s", and an administrator.
struct Recalls {
  SessionsWorld world;
  ClientStream stream;

  explicit Recalls(int64_t ttl_ms = kRecallTtlMs) {
    OpenParams open;
    open.client_id = "client";
    open.ttl_ms = ttl_ms;
    world.sessions().Open(std::move(open), &stream);
    world.Settle();
    Acquire("s", 1);
    REQUIRE(stream.granted.size() == 1);
  }
  void Acquire(const std::string& semaphore, uint64_t sequence) {
    AcquireParams params;
    params.requester = {"client", sequence};
    params.semaphore = semaphore;
    params.limit = 1;
    params.wait_ms = -1;
    world.sessions().AcquireIn(stream.session, std::move(params), sequence, true);
    world.Settle();
  }
  void Do(decltype(AdminCommand::act) act) {
    AdminCommand command;
    command.semaphore = "s";
    command.act = std::move(act);
    world.sessions().Administer(std::move(command), 0,
                                [](const Result<AdminAnswer>& result) { REQUIRE(result.ok()); });
    world.Settle();
  }
  void Revoke(int64_t grace_ms) { Do(AdminRevoke{{}, "", grace_ms}); }
  void Acknowledge(uint64_t recall) {
    world.sessions().AcknowledgeRecall(stream.session, stream.granted[0].lease->id, recall);
    world.Settle();
  }
  int64_t Ping() { return world.sessions().TouchSession(stream.session).valid_for_ms; }
  bool Held() { return world.Describe("s")->held == 1; }
  // It is held for another `ms`, and then no more.
  void EndsAfter(int64_t ms) {
    world.Pass(Milliseconds(ms - 100));
    CHECK(Held());
    world.Pass(Milliseconds(200));
    CHECK_FALSE(Held());
  }
};

TEST_CASE("recall: the lease stands until all that was vouched for is over") {
  Recalls recalls;
  recalls.world.Pass(Milliseconds(4'000));
  recalls.Revoke(2'000);
  // Granted with 10 s, of which 4 s are over.
  CHECK(recalls.Ping() == 6'000);
  recalls.EndsAfter(6'000);
  REQUIRE(recalls.stream.ended.size() == 1);
  CHECK(recalls.stream.ended[0].second == EndCause::kRevoked);
}

TEST_CASE("recall: a grace that is longer than what was vouched for counts in full") {
  Recalls recalls;
  recalls.Revoke(30'000);
  for (int i = 0; i < 5; ++i) {
    recalls.world.Pass(Milliseconds(5'000));
    recalls.Ping();
  }
  recalls.EndsAfter(5'000);
}

TEST_CASE("recall: signs of life of a client that ignores it do not lengthen the lease") {
  Recalls recalls;
  recalls.Revoke(1);
  for (int i = 0; i < 9; ++i) {
    recalls.world.Pass(Milliseconds(1'000));
    CHECK(recalls.Ping() == 9'000 - i * 1'000);
  }
  CHECK(recalls.Held());
  recalls.world.Pass(Milliseconds(1'001));
  CHECK_FALSE(recalls.Held());
  // The session goes on, and may hold other leases.
  CHECK(recalls.stream.over.empty());
  CHECK(recalls.Ping() == kRecallTtlMs);
}

TEST_CASE("recall: one that is acknowledged ends with its grace") {
  Recalls recalls;
  recalls.Revoke(2'000);
  REQUIRE(recalls.stream.recalls.size() == 1);
  recalls.Acknowledge(recalls.stream.recalls[0].id);
  CHECK(recalls.Ping() == 2'000);
  recalls.EndsAfter(2'000);
}

TEST_CASE("recall: an acknowledgement after the grace ends the lease at once") {
  Recalls recalls;
  recalls.Revoke(2'000);
  recalls.world.Pass(Milliseconds(5'000));
  CHECK(recalls.Held());
  recalls.Acknowledge(recalls.stream.recalls[0].id);
  recalls.world.Pass(Milliseconds(1));
  CHECK_FALSE(recalls.Held());
}

TEST_CASE("recall: the acknowledgement of another recall, or by another session, changes nothing") {
  Recalls recalls;
  recalls.Revoke(4'000);
  recalls.Revoke(2'000);
  REQUIRE(recalls.stream.recalls.size() == 2);
  CHECK(recalls.stream.recalls[0].id != recalls.stream.recalls[1].id);
  recalls.Acknowledge(recalls.stream.recalls[0].id);
  recalls.Acknowledge(recalls.stream.recalls[1].id + 1);
  recalls.Acknowledge(0);
  recalls.world.sessions().AcknowledgeRecall(Id{0, 77}, recalls.stream.granted[0].lease->id,
                                             recalls.stream.recalls[1].id);
  recalls.world.sessions().AcknowledgeRecall(recalls.stream.session, Id{0, 78},
                                             recalls.stream.recalls[1].id);
  recalls.EndsAfter(kRecallTtlMs);
}

TEST_CASE("recall: while a session has a lease that is not recalled it is vouched for in full") {
  Recalls recalls;
  recalls.Acquire("other", 2);
  recalls.Revoke(2'000);
  recalls.world.Pass(Milliseconds(3'000));
  CHECK(recalls.Ping() == kRecallTtlMs);
  // For the recalled lease that counts for nothing.
  recalls.EndsAfter(7'000);
  CHECK(recalls.world.Describe("other")->held == 1);
  CHECK(recalls.Ping() == kRecallTtlMs);
}

TEST_CASE("recall: a session whose other leases have gone is vouched for until the recall's end") {
  Recalls recalls;
  recalls.Acquire("other", 2);
  recalls.Revoke(15'000);
  recalls.world.Pass(Milliseconds(9'000));
  CHECK(recalls.Ping() == kRecallTtlMs);
  ReleaseCommand release;
  release.semaphore = "other";
  release.claim = recalls.stream.granted[1].lease->id;
  recalls.world.sessions().Release(std::move(release), [](const Result<ReleaseAnswer>&) {});
  recalls.world.Settle();
  CHECK(recalls.Ping() == 6'000);
  recalls.EndsAfter(6'000);
}

TEST_CASE(
    "recall: a lowered limit, a longest hold and a destroy by force leave the end to the host") {
  Recalls recalls;
  const auto act = GENERATE(0, 1, 2);
  if (act == 0) {
    AdminResize resize;
    resize.amount = 0;
    resize.limit_max = 8;
    resize.policy = ShrinkPolicy::kRecall;
    resize.grace_ms = 1;
    recalls.Do(resize);
  } else if (act == 1) {
    recalls.Do(AdminDestroy{DestroyPolicy::kForce, 1});
  } else {
    recalls.Revoke(1);
  }
  recalls.world.Pass(Milliseconds(kRecallTtlMs - 100));
  recalls.Ping();
  CHECK(recalls.stream.ended.empty());
  recalls.world.Pass(Milliseconds(200));
  REQUIRE(recalls.stream.ended.size() == 1);
  CHECK(recalls.stream.ended[0].second == (act == 0   ? EndCause::kRecalled
                                           : act == 1 ? EndCause::kDestroyed
                                                      : EndCause::kRevoked));
}

TEST_CASE("recall: an act that ends leases at once does not wait") {
  Recalls recalls;
  SECTION("alone") {}
  SECTION("after a recall") { recalls.Revoke(60'000); }
  recalls.Revoke(Recall::kNow);
  CHECK_FALSE(recalls.Held());
}

// As many as the daemon sweeps its timers for.
TEST_CASE("recall: after very many recalls the lease ends with the shortest grace") {
  Recalls recalls;
  for (int64_t i = 0; i < 1'500; ++i) recalls.Revoke(30'000 - i);
  for (int i = 0; i < 5; ++i) {
    recalls.world.Pass(Milliseconds(5'000));
    recalls.Ping();
  }
  recalls.EndsAfter(3'501);
}

TEST_CASE("recall: a later revoke with a longer grace does not lengthen an earlier one") {
  Recalls recalls;
  recalls.Revoke(15'000);
  recalls.world.Pass(Milliseconds(1'000));
  recalls.Revoke(60'000);
  CHECK(recalls.stream.recalls.size() == 1);
  recalls.Ping();
  recalls.world.Pass(Milliseconds(9'000));
  recalls.Ping();
  recalls.EndsAfter(5'000);
}

TEST_CASE("recall: a later revoke with a shorter grace shortens an earlier one") {
  Recalls recalls;
  recalls.Revoke(60'000);
  recalls.Revoke(12'000);
  REQUIRE(recalls.stream.recalls.size() == 2);
  CHECK(recalls.stream.recalls[1].grace_ms == 12'000);
  recalls.world.Pass(Milliseconds(6'000));
  recalls.Ping();
  recalls.EndsAfter(6'000);
}

TEST_CASE("recall: a shorter grace that begins late ends no later than the earlier one") {
  Recalls recalls;
  recalls.Revoke(20'000);
  recalls.world.Pass(Milliseconds(9'000));
  recalls.Ping();
  recalls.world.Pass(Milliseconds(9'000));
  recalls.Ping();
  recalls.Revoke(5'000);
  // The holder receives the time that is left.
  REQUIRE(recalls.stream.recalls.size() == 2);
  CHECK(recalls.stream.recalls[1].grace_ms == 2'000);
  recalls.EndsAfter(2'000);
}

// ---- detached leases ----

struct Detached {
  SessionsWorld world;
  ClientStream caller;
  Id claim;

  Detached() {
    AcquireParams params;
    params.requester = {"client", 1};
    params.semaphore = "s";
    params.limit = 1;
    params.ttl_ms = kRecallTtlMs;
    const Id asked = world.sessions().Acquire(std::move(params), &caller, 0);
    world.Settle();
    REQUIRE(caller.granted.size() == 1);
    world.sessions().Detach(asked);
    claim = caller.granted[0].lease->id;
  }
  void Revoke(int64_t grace_ms) {
    AdminCommand command;
    command.semaphore = "s";
    command.act = AdminRevoke{claim, "", grace_ms};
    world.sessions().Administer(std::move(command), 0, [](const Result<AdminAnswer>&) {});
    world.Settle();
  }
  Vouch Renew(uint64_t acknowledged) {
    Vouch vouch;
    world.sessions().Renew({{"s", claim}, acknowledged}, [&](Result<RenewAnswer> result) {
      if (result.ok()) vouch = result.value.vouch;
    });
    world.Settle();
    return vouch;
  }
  bool Held() { return world.Describe("s")->held == 1; }
};

TEST_CASE("recall: no answer about a detached lease reaches beyond its end, nor acknowledges it") {
  Detached detached;
  detached.world.Pass(Milliseconds(1'000));
  detached.Revoke(2'000);
  const Vouch first = detached.Renew(0);
  CHECK(first.valid_for_ms == 9'000);
  CHECK(first.recall.grace_ms == 2'000);
  detached.world.Pass(Milliseconds(5'000));
  const Vouch second = detached.Renew(0);
  CHECK(second.valid_for_ms == 4'000);
  CHECK(second.recall.grace_ms == 0);
  CHECK(second.recall.id == first.recall.id);
  detached.world.Pass(Milliseconds(3'900));
  CHECK(detached.Held());
  detached.world.Pass(Milliseconds(200));
  CHECK_FALSE(detached.Held());
}

TEST_CASE("recall: the next renewal acknowledges it, and the lease ends with its grace") {
  Detached detached;
  detached.Revoke(5'000);
  const Vouch first = detached.Renew(0);
  CHECK(first.valid_for_ms == kRecallTtlMs);
  detached.world.Pass(Milliseconds(1'000));
  CHECK(detached.Renew(first.recall.id).valid_for_ms == 4'000);
  detached.world.Pass(Milliseconds(3'900));
  CHECK(detached.Held());
  detached.world.Pass(Milliseconds(200));
  CHECK_FALSE(detached.Held());
}

}  // namespace
}  // namespace semaphored
