#include "server/sessions/vouching.h"

#include <algorithm>
#include <memory>

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/sessions/room_host.h"

namespace semaphored {
namespace {

struct VouchingWorld {
  RoomHost host;
  ClaimBook claims;
  UnreadSemaphores unread{Milliseconds(9000)};
  Vouching vouching{&host, &claims, &unread, /*node_ttl_ms=*/10'000, /*sweep_interval_ms=*/5000};
  SessionRecord session;

  VouchingWorld() {
    session.life.ttl_ms = 30'000;
    vouching.Revive(&session.life);
  }
  ClaimRecord* Held(const Id& id, const std::string& semaphore) {
    ClaimRecord* claim = claims.Add(id, semaphore, &session);
    claim->state = ClaimRecord::State::kHeld;
    claim->lease = std::make_shared<Lease>();
    return claim;
  }
  int64_t ValidMs() { return vouching.For(&session).valid_for_ms; }
};

TEST_CASE("vouching: a client counts on a lease for the TTL, and no longer than the host allows",
          "[unit]") {
  VouchingWorld world;
  CHECK(world.ValidMs() == 30'000);
  CHECK(world.session.life.vouched_until == world.host.time.Now() + Milliseconds(30'000));
  world.host.Pass(Milliseconds(10'000));
  CHECK(world.ValidMs() == 20'000);
  world.vouching.Revive(&world.session.life);
  CHECK(world.ValidMs() == 30'000);
  world.host.vouched_until = world.host.time.Now() + Milliseconds(700);
  CHECK(world.ValidMs() == 700);
  world.host.Pass(Milliseconds(700));
  CHECK(world.vouching.For(&world.session).none());
}

TEST_CASE("vouching: nothing is vouched for what is not hosted here, or is expiring", "[unit]") {
  VouchingWorld world;
  SECTION("not hosted") { world.session.life.hosted = false; }
  SECTION("expiring") {
    world.session.life.expiring = true;
    world.host.Pass(Milliseconds(40'000));
    world.vouching.Revive(&world.session.life);
    CHECK(world.session.life.expires_at < world.host.time.Now());
  }
  CHECK(world.vouching.For(&world.session).none());
}

TEST_CASE("vouching: a semaphore that cannot be read bounds the sessions that hold it", "[unit]") {
  VouchingWorld world;
  ClaimRecord* claim = world.Held(Id{2, 1}, "damaged");
  world.unread.Add("damaged", world.host.time.Now());
  world.vouching.Bound(claim);
  CHECK(world.ValidMs() == 9000);
  claim->lost = true;  // Its holder knows.
  world.vouching.Bound(claim);
  CHECK(world.ValidMs() == 30'000);
  claim->lost = false;
  world.unread.Remove("damaged");
  world.vouching.Bound(&world.session);
  CHECK(world.ValidMs() == 30'000);
}

TEST_CASE("vouching: only recalls of all its leases bound a session", "[unit]") {
  VouchingWorld world;
  ClaimRecord* first = world.Held(Id{2, 1}, "a");
  ClaimRecord* second = world.Held(Id{2, 2}, "a");
  first->recall.id = 5;
  first->recall.grace_until = first->recall.end_at = world.host.time.Now() + Milliseconds(1000);
  world.session.recalls_changed = true;
  CHECK(world.ValidMs() == 30'000);
  CHECK(world.vouching.For(first).recall.id == 5);
  CHECK(world.vouching.For(first).recall.grace_ms == 1000);
  CHECK(world.vouching.For(second).recall.id == 0);
  second->recall = first->recall;
  second->recall.end_at += Milliseconds(500);
  world.session.recalls_changed = true;
  CHECK(world.ValidMs() == 1500);
  world.host.Pass(Milliseconds(2000));
  const Vouch vouch = world.vouching.For(&world.session);
  CHECK(vouch.valid_for_ms == 0);
  CHECK(vouch.recalled);
  CHECK_FALSE(vouch.none());
}

TEST_CASE("vouching: what moved here is kept until its former host vouches for it no longer",
          "[unit]") {
  VouchingWorld world;
  Lease lease;
  lease.ttl_ms = 30'000;
  const SteadyTime now = world.host.time.Now();
  SECTION("on an engine of this daemon alone there is no former host") {
    world.vouching.KeepAfterMove(&world.session.life, 30'000);
    CHECK(world.session.life.keep_until < now);
    CHECK(world.vouching.MoveOverAt(lease) == now + Milliseconds(30'000));
  }
  SECTION("on a shared engine") {
    world.host.promises.exclusive = false;
    world.vouching.KeepAfterMove(&world.session.life, 30'000);
    CHECK(world.session.life.keep_until == now + Milliseconds(45'000));
    CHECK(world.session.life.vouched_until == now + Milliseconds(15'000));
    world.vouching.Revive(&world.session.life);
    CHECK(world.session.life.expires_at == now + Milliseconds(45'000));
    CHECK(world.vouching.MoveOverAt(lease) == now + Milliseconds(15'000));
    // A former host whose lane hangs answers pings with short validities, one after the other.
    lease.ttl_ms = 1'000;
    CHECK(world.vouching.MoveOverAt(lease) == now + Milliseconds(15'000));
  }
}

}  // namespace
}  // namespace semaphored
