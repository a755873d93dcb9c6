// Leases that are recalled, once and again.
#include <string>

#include "catch2/catch_test_macros.hpp"
#include "tests/unit/client_stream.h"
#include "tests/unit/sessions_world.h"

namespace semaphored {
namespace {

struct Recalls {
  SessionsWorld world;
  ClientStream stream;

  Recalls() {
    OpenParams open;
    open.client_id = "client";
    open.ttl_ms = 1'000'000;
    world.sessions().Open(std::move(open), &stream);
    world.Settle();
    AcquireParams params;
    params.requester = {"client", 1};
    params.semaphore = "s";
    params.limit = 1;
    world.sessions().AcquireIn(stream.session, std::move(params), 1, true);
    world.Settle();
    REQUIRE(stream.granted.size() == 1);
  }
  void Revoke(int64_t grace_ms) {
    AdminCommand revoke;
    revoke.semaphore = "s";
    revoke.act = AdminRevoke{{}, "", grace_ms};
    world.sessions().Administer(std::move(revoke), 0, [](const Result<AdminAnswer>& result) {
      REQUIRE(result.ok());
      CHECK(result.value.affected == 1);
    });
    world.Settle();
  }
  bool Held() { return world.Describe("s")->held == 1; }
};

TEST_CASE("recall: a later revoke with a longer grace does not lengthen an earlier one") {
  Recalls recalls;
  recalls.Revoke(5'000);
  recalls.world.Pass(Milliseconds(1'000));
  recalls.Revoke(60'000);
  CHECK(recalls.stream.recalls.size() == 1);
  recalls.world.Pass(Milliseconds(3'900));
  CHECK(recalls.Held());
  recalls.world.Pass(Milliseconds(200));
  CHECK_FALSE(recalls.Held());
  REQUIRE(recalls.stream.ended.size() == 1);
  CHECK(recalls.stream.ended[0].second == EndCause::kRevoked);
}

TEST_CASE("recall: a later revoke with a shorter grace shortens an earlier one") {
  Recalls recalls;
  recalls.Revoke(60'000);
  recalls.Revoke(2'000);
  REQUIRE(recalls.stream.recalls.size() == 2);
  CHECK(recalls.stream.recalls[1].grace_ms == 2'000);
  recalls.world.Pass(Milliseconds(1'900));
  CHECK(recalls.Held());
  recalls.world.Pass(Milliseconds(200));
  CHECK_FALSE(recalls.Held());
}

TEST_CASE("recall: a shorter grace that begins late ends no later than the earlier one") {
  Recalls recalls;
  recalls.Revoke(10'000);
  recalls.world.Pass(Milliseconds(8'000));
  recalls.Revoke(5'000);
  // The holder receives the time that is left.
  REQUIRE(recalls.stream.recalls.size() == 2);
  CHECK(recalls.stream.recalls[1].grace_ms == 2'000);
  recalls.world.Pass(Milliseconds(1'900));
  CHECK(recalls.Held());
  recalls.world.Pass(Milliseconds(200));
  CHECK_FALSE(recalls.Held());
}

TEST_CASE("recall: a revoke without grace ends a lease with a pending recall") {
  Recalls recalls;
  recalls.Revoke(60'000);
  recalls.Revoke(0);
  CHECK_FALSE(recalls.Held());
}

}  // namespace
}  // namespace semaphored
