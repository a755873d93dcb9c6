// Hold: a lease that lives by the stream on which it was granted.
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <memory>
#include <string>
#include <utility>

#include <catch2/catch_test_macros.hpp>

#include "tests/service/service_world.h"

namespace semaphored::test {
namespace {

using Case = pb::HoldResponse::EventCase;

// One Hold stream.
class Holding {
 public:
  Holding(World* world, pb::AcquireRequest acquire, bool release_on_disconnect = false)
      : Holding(&world->stub(), std::move(acquire), release_on_disconnect) {}
  Holding(pb::SemaphoreService::Stub* stub, pb::AcquireRequest acquire,
          bool release_on_disconnect) {
    pb::HoldRequest request;
    *request.mutable_acquire() = std::move(acquire);
    request.set_release_on_disconnect(release_on_disconnect);
    request.set_beat_interval_ms(100);
    reader_ = stub->Hold(&context_, request);
  }
  // The next event, which is left in `event`; EVENT_NOT_SET at the end.
  Case Next() {
    event.Clear();
    return reader_->Read(&event) ? event.event_case() : pb::HoldResponse::EVENT_NOT_SET;
  }
  // The first event of this case, passing over others.
  bool Until(Case wanted) {
    for (Case got = Next(); got != pb::HoldResponse::EVENT_NOT_SET; got = Next()) {
      if (got == wanted) return true;
    }
    return false;
  }
  grpc::Status Finish() {
    while (Next() != pb::HoldResponse::EVENT_NOT_SET) {
    }
    return reader_->Finish();
  }
  void Cancel() {
    context_.TryCancel();
    Finish();
  }

  pb::HoldResponse event;

 private:
  Context context_;
  std::unique_ptr<grpc::ClientReader<pb::HoldResponse>> reader_;
};

TEST_CASE("hold: granted, beats, released, the end", "[service]") {
  World world;
  Holding holding(&world, world.Request("a", 1));
  REQUIRE(holding.Next() == pb::HoldResponse::kGranted);
  const pb::Lease lease = holding.event.granted().lease();
  CHECK(holding.event.granted().validity().valid_for_ms() > 0);
  uint64_t elapsed = 0;
  for (int i = 0; i < 2; ++i) {
    REQUIRE(holding.Next() == pb::HoldResponse::kBeat);
    CHECK(holding.event.beat().valid_for_ms() > 0);
    CHECK(holding.event.beat().elapsed_ms() > elapsed);
    elapsed = holding.event.beat().elapsed_ms();
  }
  CHECK(world.Release(lease) == 1);
  REQUIRE(holding.Until(pb::HoldResponse::kLost));
  CHECK(holding.event.lost().lease_id() == lease.lease_id());
  CHECK(holding.event.lost().cause() == pb::END_CAUSE_RELEASED);
  CHECK(Say(holding.Finish()) == "OK");
}

TEST_CASE("hold: who has to wait is told the place", "[service]") {
  World world;
  const pb::Lease lease = world.MustAcquire("a", 1);
  Holding holding(&world, world.Request("a", 1, -1));
  REQUIRE(holding.Next() == pb::HoldResponse::kQueued);
  CHECK(holding.event.queued().position() == 1);
  CHECK(world.Release(lease) == 1);
  REQUIRE(holding.Until(pb::HoldResponse::kGranted));
  CHECK(holding.event.granted().lease().token() > lease.token());
  holding.Cancel();
}

TEST_CASE("hold: refused as Acquire is", "[service]") {
  World world;
  world.MustAcquire("a", 1);
  Holding full(&world, world.Request("a", 1));
  CHECK(Say(full.Finish()) == "RESOURCE_EXHAUSTED FULL");
  Holding late(&world, world.Request("a", 1, 20));
  CHECK(Say(late.Finish()) == "DEADLINE_EXCEEDED WAIT_EXPIRED");
  Holding nameless(&world, world.Request("/a", 1));
  const grpc::Status status = nameless.Finish();
  CHECK(Say(status) == "INVALID_ARGUMENT INVALID_FIELD");
  CHECK(status.error_message().starts_with("acquire.semaphore: "));
}

TEST_CASE("hold: a lost stream keeps the lease for its TTL", "[service]") {
  World world;
  Holding holding(&world, world.Request("a", 1));
  REQUIRE(holding.Next() == pb::HoldResponse::kGranted);
  const pb::Lease lease = holding.event.granted().lease();
  holding.Cancel();
  pb::VerifyRequest request;
  request.set_lease_id(lease.lease_id());
  pb::VerifyResponse response;
  Context context;
  REQUIRE(world.stub().Verify(&context, request, &response).ok());
  CHECK(response.held());
  CHECK(world.Release(lease) == 1);
}

TEST_CASE("hold: a lost stream gives back at once, if so asked", "[service]") {
  World world;
  Holding holding(&world, world.Request("a", 1), /*release_on_disconnect=*/true);
  REQUIRE(holding.Next() == pb::HoldResponse::kGranted);
  holding.Cancel();
  CHECK(world.Becomes("a", [](const auto& info) { return info.held() == 0; }));
}

TEST_CASE("hold: a lost stream leaves the queue", "[service]") {
  World world;
  world.MustAcquire("a", 1);
  Holding holding(&world, world.Request("a", 1, -1));
  REQUIRE(holding.Next() == pb::HoldResponse::kQueued);
  holding.Cancel();
  CHECK(world.Becomes("a", [](const auto& info) { return info.waiting() == 0; }));
}

TEST_CASE("hold: called again it goes on with the same lease", "[service]") {
  World world;
  pb::AcquireRequest request = world.Request("a", 1);
  request.mutable_request_id()->mutable_numbered()->set_client_id("client");
  request.mutable_request_id()->mutable_numbered()->set_sequence(1);
  Holding first(&world, request);
  REQUIRE(first.Next() == pb::HoldResponse::kGranted);
  const pb::Lease lease = first.event.granted().lease();
  first.Cancel();
  Holding second(&world, request);
  REQUIRE(second.Next() == pb::HoldResponse::kGranted);
  CHECK(second.event.granted().lease().lease_id() == lease.lease_id());
  CHECK(second.event.granted().lease().token() == lease.token());
  CHECK(second.Next() == pb::HoldResponse::kBeat);
  second.Cancel();
}

TEST_CASE("hold: ends when nothing can be vouched for", "[service]") {
  World world;
  Holding holding(&world, world.Request("a", 1));
  REQUIRE(holding.Next() == pb::HoldResponse::kGranted);
  world.Vouch(false);
  CHECK(Say(holding.Finish()) == "UNAVAILABLE NOT_VOUCHED");
}

TEST_CASE("hold: asked to give back, then revoked", "[service]") {
  World world;
  pb::AcquireRequest request = world.Request("a", 1);
  request.set_ttl_ms(1'000);
  Holding holding(&world, request);
  REQUIRE(holding.Next() == pb::HoldResponse::kGranted);
  pb::AdministerRequest revoke;
  revoke.set_semaphore("a");
  revoke.mutable_revoke()->set_all(true);
  revoke.mutable_revoke()->set_grace_ms(50);
  pb::AdministerResponse response;
  REQUIRE(Say(world.Administer(revoke, &response)) == "OK");
  CHECK(response.revoke().revoked() == 1);
  REQUIRE(holding.Until(pb::HoldResponse::kRecalled));
  CHECK(holding.event.recalled().recall().grace_ms() <= 50);
  CHECK_FALSE(holding.event.recalled().recall().reason().empty());
  REQUIRE(holding.Until(pb::HoldResponse::kLost));
  CHECK(holding.event.lost().cause() == pb::END_CAUSE_REVOKED);
  CHECK(Say(holding.Finish()) == "OK");
}

// A client that reads nothing receives so few bytes.
std::unique_ptr<pb::SemaphoreService::Stub> NarrowStub(const World& world) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4'096);
  return pb::SemaphoreService::NewStub(
      grpc::CreateCustomChannel(world.address(), grpc::InsecureChannelCredentials(), arguments));
}

TEST_CASE("hold: of the recalls that a client does not read, the latest one waits for it",
          "[service]") {
  constexpr uint32_t kRecalls = 1'000;
  constexpr uint32_t kGraceMs = 10'000'000;
  constexpr uint32_t kShorterByMs = 1'000;
  World world;
  const std::string name(200, 'a');
  const auto stub = NarrowStub(world);
  Holding holding(stub.get(), world.Request(name, 1), /*release_on_disconnect=*/false);
  REQUIRE(holding.Next() == pb::HoldResponse::kGranted);
  const pb::Lease lease = holding.event.granted().lease();
  pb::AdministerRequest revoke;
  revoke.set_semaphore(name);
  revoke.mutable_revoke()->set_all(true);
  pb::AdministerResponse response;
  for (uint32_t i = 1; i <= kRecalls; ++i) {
    revoke.mutable_revoke()->set_grace_ms(kGraceMs - i * kShorterByMs);
    REQUIRE(Say(world.Administer(revoke, &response)) == "OK");
  }
  CHECK(world.Release(lease) == 1);
  uint32_t recalls = 0;
  pb::LeaseRecalled latest;
  for (Case got = holding.Next(); got != pb::HoldResponse::kLost; got = holding.Next()) {
    REQUIRE(got != pb::HoldResponse::EVENT_NOT_SET);
    if (got != pb::HoldResponse::kRecalled) continue;
    ++recalls;
    latest = holding.event.recalled();
  }
  CHECK(recalls > 0);
  CHECK(recalls < kRecalls);
  CHECK(latest.lease_id() == lease.lease_id());
  CHECK(latest.recall().grace_ms() <= kGraceMs - kRecalls * kShorterByMs);
  CHECK(Say(holding.Finish()) == "OK");
}

}  // namespace
}  // namespace semaphored::test
