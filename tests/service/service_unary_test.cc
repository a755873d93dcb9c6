// Acquire, Renew, Release and Verify as a client sees them.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <future>
#include <string>
#include <thread>

#include <catch2/catch_test_macros.hpp>

#include "tests/service/service_world.h"

namespace semaphored::test {
namespace {

// An Acquire that waits, on a thread of its own.
struct Waiting {
  Waiting(World* world, pb::AcquireRequest request) {
    done = std::async(std::launch::async, [this, world, request = std::move(request)] {
      status = world->stub().Acquire(&context, request, &response);
    });
  }
  Context context;
  pb::AcquireResponse response;
  grpc::Status status;
  std::future<void> done;
};

TEST_CASE("an error names the semaphore, the field and when to try again", "[service]") {
  World world;
  world.MustAcquire("team/db", 1);
  const auto refused = [&](const pb::AcquireRequest& request) {
    Context context;
    pb::AcquireResponse response;
    return world.stub().Acquire(&context, request, &response);
  };
  const grpc::Status full = refused(world.Request("team/db", 1));
  CHECK(full.error_message().starts_with("team/db: "));
  CHECK(ErrorOf(full).retry_ms > 0);
  CHECK(ErrorOf(full).field.empty());

  const grpc::Status mismatch = refused(world.Request("team/db", 7));
  REQUIRE(Say(mismatch) == "FAILED_PRECONDITION LIMIT_MISMATCH");
  CHECK(mismatch.error_message() ==
        "team/db: limit: the semaphore has the limit 1, and the request asks for 7");
  CHECK(ErrorOf(mismatch).retry_ms == 0);

  pb::AcquireRequest wrong = world.Request("team/db", 1);
  wrong.set_priority(1'001);
  CHECK(ErrorOf(refused(wrong)).field == "priority");
  CHECK(ErrorOf(refused(wrong)).retry_ms == 0);
}

TEST_CASE("acquire, renew, verify, release", "[service]") {
  World world;
  pb::AcquireRequest request = world.Request("team/db", 2);
  request.set_permits(2);
  request.set_holder("me");
  request.set_ttl_ms(5000);
  pb::AcquireResponse acquired;
  {
    Context context;
    REQUIRE(Say(world.stub().Acquire(&context, request, &acquired)) == "OK");
  }
  const pb::Lease& lease = acquired.lease();
  CHECK(lease.semaphore() == "team/db");
  CHECK(lease.lease_id().starts_with("team/db#"));
  REQUIRE(lease.slots_size() == 1);
  CHECK(lease.slots(0).first() == 1);
  CHECK(lease.slots(0).last() == 2);
  CHECK(lease.token() > 0);
  CHECK(lease.holder() == "me");
  CHECK(lease.ttl_ms() == 5000);
  CHECK(lease.session_id().empty());
  CHECK(acquired.validity().valid_for_ms() > 0);
  CHECK(acquired.validity().valid_for_ms() <= 5000);
  CHECK(acquired.validity().epoch() == 1);

  pb::RenewRequest renew;
  renew.set_lease_id(lease.lease_id());
  pb::RenewResponse renewed;
  {
    Context context;
    REQUIRE(Say(world.stub().Renew(&context, renew, &renewed)) == "OK");
  }
  CHECK(renewed.lease().token() == lease.token());
  CHECK(renewed.validity().valid_for_ms() > 0);
  CHECK_FALSE(renewed.has_recall());

  pb::VerifyRequest verify;
  verify.set_semaphore("team/db");
  verify.set_slot(2);
  verify.set_token(lease.token());
  pb::VerifyResponse verified;
  {
    Context context;
    REQUIRE(Say(world.stub().Verify(&context, verify, &verified)) == "OK");
  }
  CHECK(verified.held());
  CHECK(verified.slot_token() == lease.token());
  CHECK(verified.validity().valid_for_ms() > 0);

  CHECK(world.Release(lease) == 2);
  CHECK(world.Release(lease) == 0);
  verify.Clear();
  verify.set_lease_id(lease.lease_id());
  {
    Context context;
    verified.Clear();
    REQUIRE(Say(world.stub().Verify(&context, verify, &verified)) == "OK");
  }
  CHECK_FALSE(verified.held());
  CHECK(verified.ended() == pb::END_CAUSE_RELEASED);
  {
    Context context;
    CHECK(Say(world.stub().Renew(&context, renew, &renewed)) == "NOT_FOUND NOT_HELD");
  }
}

TEST_CASE("a refusal says why, of what, and who", "[service]") {
  World world;
  pb::AcquireResponse response;
  {
    Context context;
    const grpc::Status status = world.stub().Acquire(&context, world.Request("a", 0), &response);
    CHECK(Say(status) == "NOT_FOUND NO_SUCH_SEMAPHORE");
  }
  world.MustAcquire("a", 1);
  Context context;
  const grpc::Status status = world.stub().Acquire(&context, world.Request("a", 1), &response);
  CHECK(Say(status) == "RESOURCE_EXHAUSTED FULL");
  const Error error = ErrorOf(status);
  CHECK(error.domain == "semaphored");
  CHECK(error.semaphore == "a");
  CHECK(error.adapter == "sqlite");
  CHECK_FALSE(status.error_message().empty());
  {
    Context again;
    CHECK(Say(world.stub().Acquire(&again, world.Request("a", 2), &response)) ==
          "FAILED_PRECONDITION LIMIT_MISMATCH");
  }
  {
    Context again;
    pb::AcquireRequest request = world.Request("a", 1);
    request.set_permits(2);
    CHECK(Say(world.stub().Acquire(&again, request, &response)) ==
          "FAILED_PRECONDITION EXCEEDS_LIMIT");
  }
}

TEST_CASE("the same UUID gets the same lease, and stands for nothing else", "[service]") {
  World world;
  pb::AcquireRequest request = world.Request("a", 5);
  request.mutable_request_id()->set_one_shot("123e4567-e89b-42d3-a456-426614174000");
  pb::AcquireResponse first;
  pb::AcquireResponse second;
  for (pb::AcquireResponse* response : {&first, &second}) {
    Context context;
    REQUIRE(world.stub().Acquire(&context, request, response).ok());
  }
  CHECK(first.lease().lease_id() == second.lease().lease_id());
  CHECK(world.Describe("a").held() == 1);
  {
    Context context;
    request.set_priority(1);
    CHECK(Say(world.stub().Acquire(&context, request, &second)) ==
          "INVALID_ARGUMENT REQUEST_ID_REUSED");
  }
  pb::ReleaseRequest release;
  release.set_lease_id(first.lease().lease_id());
  release.mutable_request_id()->set_one_shot("123e4567-e89b-42d3-a456-426614174001");
  for (int i = 0; i < 2; ++i) {
    Context context;
    pb::ReleaseResponse response;
    REQUIRE(world.stub().Release(&context, release, &response).ok());
    CHECK(response.released() == 1);
  }
  CHECK(world.Describe("a").held() == 0);
}

TEST_CASE("the same request id gets the same lease", "[service]") {
  World world;
  pb::AcquireRequest request = world.Request("a", 5);
  request.mutable_request_id()->mutable_numbered()->set_client_id("client");
  request.mutable_request_id()->mutable_numbered()->set_sequence(1);
  pb::AcquireResponse first;
  pb::AcquireResponse second;
  {
    Context context;
    REQUIRE(world.stub().Acquire(&context, request, &first).ok());
  }
  {
    Context context;
    REQUIRE(world.stub().Acquire(&context, request, &second).ok());
  }
  CHECK(first.lease().lease_id() == second.lease().lease_id());
  CHECK(first.lease().holder() == "client");
  CHECK(second.validity().valid_for_ms() > 0);
  CHECK(world.Describe("a").held() == 1);
  request.set_semaphore("b");
  Context context;
  CHECK(Say(world.stub().Acquire(&context, request, &second)) ==
        "INVALID_ARGUMENT REQUEST_ID_REUSED");
}

TEST_CASE("who waits is served when a permit comes back", "[service]") {
  World world;
  const pb::Lease lease = world.MustAcquire("a", 1);
  Waiting waiting(&world, world.Request("a", 1, -1));
  REQUIRE(world.Becomes("a", [](const auto& info) { return info.waiting() == 1; }));
  CHECK(world.Release(lease) == 1);
  waiting.done.get();
  REQUIRE(Say(waiting.status) == "OK");
  CHECK(waiting.response.lease().token() > lease.token());
}

TEST_CASE("a wait that runs out", "[service]") {
  World world;
  world.MustAcquire("a", 1);
  Waiting waiting(&world, world.Request("a", 1, 20));
  waiting.done.get();
  CHECK(Say(waiting.status) == "DEADLINE_EXCEEDED WAIT_EXPIRED");
  CHECK(world.Describe("a").waiting() == 0);
}

TEST_CASE("a call that is cancelled leaves the queue", "[service]") {
  World world;
  const pb::Lease lease = world.MustAcquire("a", 1);
  Waiting waiting(&world, world.Request("a", 1, -1));
  REQUIRE(world.Becomes("a", [](const auto& info) { return info.waiting() == 1; }));
  waiting.context.TryCancel();
  waiting.done.get();
  CHECK(Say(waiting.status) == "CANCELLED");
  CHECK(world.Becomes("a", [](const auto& info) { return info.waiting() == 0; }));
  CHECK(world.Release(lease) == 1);
  CHECK(world.Becomes("a", [](const auto& info) { return info.held() == 0; }));
}

TEST_CASE("a connection that breaks while its call waits", "[service]") {
  World world;
  world.MustAcquire("a", 1);
  auto channel = world.Connect();
  auto stub = pb::SemaphoreService::NewStub(channel);
  grpc::CompletionQueue queue;
  auto context = std::make_unique<Context>();
  const pb::AcquireRequest request = world.Request("a", 1, -1);
  auto call = stub->AsyncAcquire(context.get(), request, &queue);
  pb::AcquireResponse response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  REQUIRE(world.Becomes("a", [](const auto& info) { return info.waiting() == 1; }));
  context->TryCancel();
  channel.reset();
  CHECK(world.Becomes("a", [](const auto& info) { return info.waiting() == 0; }));
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
}

TEST_CASE("a holder that gives no name gets one", "[service]") {
  World world;
  const pb::Lease one = world.MustAcquire("a", 2);
  const pb::Lease other = world.MustAcquire("a", 2);
  CHECK(one.holder().starts_with("client-"));
  CHECK(one.holder() != other.holder());
}

TEST_CASE("bytes that are no message are refused in words", "[service]") {
  World world;
  grpc::GenericStub stub(world.channel());
  for (const char* method :
       {"Acquire", "Renew", "Release", "Verify", "Administer", "DescribeDaemon"}) {
    CAPTURE(method);
    Context context;
    grpc::CompletionQueue queue;
    const grpc::Slice slice("\xff\xff\xff\xff garbage");
    const grpc::ByteBuffer bytes(&slice, 1);
    auto call = stub.PrepareUnaryCall(
        &context, std::string("/semaphore.v1.SemaphoreService/") + method, bytes, &queue);
    call->StartCall();
    grpc::ByteBuffer response;
    grpc::Status status;
    call->Finish(&response, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    REQUIRE(queue.Next(&tag, &ok));
    CHECK(Say(status) == "INVALID_ARGUMENT INVALID_FIELD");
    queue.Shutdown();
    while (queue.Next(&tag, &ok)) {
    }
  }
}

TEST_CASE("nothing is vouched for out of touch with the engine", "[service]") {
  World world;
  const pb::Lease lease = world.MustAcquire("a", 1);
  world.Vouch(false);
  pb::RenewRequest request;
  request.set_lease_id(lease.lease_id());
  pb::RenewResponse response;
  {
    Context context;
    CHECK(Say(world.stub().Renew(&context, request, &response)) == "UNAVAILABLE NOT_VOUCHED");
  }
  {
    // Nor is anybody granted, since nobody could be told that he still holds.
    Context context;
    pb::AcquireResponse granted;
    CHECK(Say(world.stub().Acquire(&context, world.Request("a", 2, 0), &granted)) ==
          "UNAVAILABLE NOT_VOUCHED");
  }
  world.Vouch(true);
  Context context;
  CHECK(Say(world.stub().Renew(&context, request, &response)) == "OK");
}

TEST_CASE("more calls at once than the daemon takes", "[service]") {
  ServerOptions options;
  options.limits.calls_max = 1;
  World world(options);
  world.MustAcquire("a", 1);
  // A stream tells when the first call waits: a question would be a call itself.
  Context watch_context;
  auto watch = world.stub().Watch(&watch_context, {});
  pb::WatchResponse event;
  REQUIRE(watch->Read(&event));
  Waiting waiting(&world, world.Request("a", 1, -1));
  while (event.kind() != pb::WATCH_EVENT_KIND_QUEUED) REQUIRE(watch->Read(&event));
  pb::RenewRequest renew;
  renew.set_lease_id("a#00000000000000000000000000000001");
  pb::RenewResponse response;
  {
    Context context;
    CHECK(Say(world.stub().Renew(&context, renew, &response)) ==
          "RESOURCE_EXHAUSTED LIMIT_REACHED");
  }
  waiting.context.TryCancel();
  waiting.done.get();
  while (event.kind() != pb::WATCH_EVENT_KIND_WAIT_ENDED) REQUIRE(watch->Read(&event));
  Context context;
  CHECK(Say(world.stub().Renew(&context, renew, &response)) == "NOT_FOUND NOT_HELD");
  watch_context.TryCancel();
}

}  // namespace
TEST_CASE("unary: what ran out while the machine was suspended ends when it wakes", "[service]") {
  World world;
  pb::AcquireRequest request = world.Request("a", 1);
  request.set_ttl_ms(600'000);
  Context context;
  pb::AcquireResponse held;
  REQUIRE(Say(world.stub().Acquire(&context, request, &held)) == "OK");
  Context waiting;
  pb::AcquireResponse granted;
  std::string said;
  std::thread other(
      [&] { said = Say(world.stub().Acquire(&waiting, world.Request("a", 1, -1), &granted)); });
  const bool waits = world.Becomes("a", [](const auto& info) { return info.waiting() == 1; });
  world.Suspend(Milliseconds(600'000));
  other.join();
  CHECK(waits);
  CHECK(said == "OK");
  CHECK(granted.lease().token() > held.lease().token());
}

}  // namespace semaphored::test
