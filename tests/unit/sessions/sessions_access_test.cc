// Claims that the access rules no longer allow.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "server/access/tenant.h"
#include "tests/unit/sessions/client_stream.h"
#include "tests/unit/sessions/sessions_world.h"

namespace semaphored {
namespace {

constexpr int64_t kAccessTtlMs = 10'000;

TenantPtr TenantNamed(const std::string& name) {
  auto tenant = std::make_shared<Tenant>();
  tenant->name = name;
  return tenant;
}

struct Access {
  SessionsWorld world;
  ClientStream stream;
  TenantPtr tenant = TenantNamed("a");

  Access() {
    OpenParams open;
    open.client_id = "client";
    open.ttl_ms = kAccessTtlMs;
    open.charge = std::make_shared<Charge>(tenant, Usage{.sessions = 1});
    world.sessions().Open(std::move(open), &stream);
    world.Settle();
  }
  AcquireParams Asking(const std::string& semaphore) {
    AcquireParams params;
    params.semaphore = semaphore;
    params.limit = 1;
    params.wait_ms = -1;
    params.ttl_ms = kAccessTtlMs;
    params.charge = std::make_shared<Charge>(tenant, Usage{.permits = 1, .waiters = 1});
    return params;
  }
  void AcquireIn(const std::string& semaphore, uint64_t sequence) {
    AcquireParams params = Asking(semaphore);
    params.requester = {"client", sequence};
    world.sessions().AcquireIn(stream.session, std::move(params), sequence, true);
    world.Settle();
  }
  // Only what begins with this is allowed from now on.
  void Allow(const std::string& prefix, const std::string& owner = "a") {
    world.sessions().Recheck([&](std::string_view of, const std::string& semaphore, bool) {
      return of == owner && semaphore.starts_with(prefix);
    });
    world.Settle();
  }
  uint64_t Held(const std::string& semaphore) { return world.Describe(semaphore)->held; }
  size_t Waiters(const std::string& semaphore) { return world.Describe(semaphore)->waiting; }
};

TEST_CASE("access: a wait that the rules no longer allow ends, and no other") {
  Access access;
  ClientStream first, second, allowed;
  for (const char* semaphore : {"no/s", "yes/s"}) {
    AcquireParams params = access.Asking(semaphore);
    params.charge = nullptr;  // Of a client of no known owner.
    access.world.sessions().Acquire(std::move(params), &first, 0);
    access.world.Settle();
  }
  REQUIRE(first.granted.size() == 2);
  access.world.sessions().Acquire(access.Asking("no/s"), &second, 0);
  access.world.sessions().Acquire(access.Asking("yes/s"), &allowed, 0);
  access.AcquireIn("no/s", 1);
  REQUIRE(access.Waiters("no/s") == 2);

  access.Allow("yes/");
  REQUIRE(second.refused.size() == 1);
  CHECK(second.refused[0].second.code == absl::StatusCode::kPermissionDenied);
  CHECK(second.refused[0].second.semaphore == "no/s");
  REQUIRE(access.stream.refused.size() == 1);
  CHECK(access.stream.reason() == Reason::kPermissionDenied);
  CHECK(access.Waiters("no/s") == 0);
  CHECK(access.Waiters("yes/s") == 1);
  CHECK(allowed.refused.empty());
  CHECK(first.ended.empty());  // Its owner is not known.
  CHECK(access.tenant->usage.waiters == 1);
}

TEST_CASE("access: a grant that was under way when the rules changed is not given") {
  Access access;
  ClientStream waiting;
  access.world.sessions().Acquire(access.Asking("no/s"), &waiting, 0);
  // The lane has not carried it out yet.
  access.Allow("yes/");
  CHECK(waiting.granted.empty());
  REQUIRE(waiting.refused.size() == 1);
  CHECK(waiting.refused[0].second.code == absl::StatusCode::kPermissionDenied);
  CHECK(access.Held("no/s") == 0);
  CHECK(access.tenant->usage == Usage{.sessions = 1});
}

TEST_CASE("access: a session's lease runs out within its TTL, however often it is pinged") {
  Access access;
  access.AcquireIn("no/s", 1);
  access.AcquireIn("yes/s", 2);
  REQUIRE(access.stream.granted.size() == 2);
  access.Allow("yes/");
  for (int64_t passed = 0; passed <= kAccessTtlMs + 1000; passed += 1000) {
    CHECK(access.Held("no/s") == (passed < kAccessTtlMs ? 1 : 0));
    access.world.sessions().TouchSession(access.stream.session);
    access.world.Pass(Milliseconds(1000));
  }
  CHECK(access.Held("yes/s") == 1);
  CHECK(access.stream.ended.size() == 1);
  // Once more changes nothing.
  access.Allow("yes/");
  CHECK(access.Held("yes/s") == 1);
}

TEST_CASE("access: of an identity that has gone all waits end and all leases run out") {
  Access access;
  access.AcquireIn("s", 1);
  access.Allow("", "b");
  access.world.sessions().TouchSession(access.stream.session);
  for (int i = 0; i < 11; ++i) {
    access.world.Pass(Milliseconds(1000));
    access.world.sessions().TouchSession(access.stream.session);
  }
  CHECK(access.Held("s") == 0);
}

}  // namespace
}  // namespace semaphored
