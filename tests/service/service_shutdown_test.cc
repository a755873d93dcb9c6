// The end of a daemon, and the standard services beside ours.
#include <grpcpp/generic/generic_stub.h>

#include <future>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "tests/service/service_world.h"

namespace semaphored::test {
namespace {

TEST_CASE("shutdown: everybody is told, within a bound", "[service]") {
  World world;
  const pb::Lease lease = world.MustAcquire("a", 1);
  // One of each kind that stands open.
  Context acquire_context;
  grpc::Status acquire_status;
  auto acquire = std::async(std::launch::async, [&] {
    pb::AcquireResponse response;
    acquire_status = world.stub().Acquire(&acquire_context, world.Request("a", 1, -1), &response);
  });
  Context hold_context;
  pb::HoldRequest hold_request;
  *hold_request.mutable_acquire() = world.Request("b", 1);
  auto hold = world.stub().Hold(&hold_context, hold_request);
  pb::HoldEvent event;
  REQUIRE(hold->Read(&event));
  Context session_context;
  auto session = world.stub().Session(&session_context);
  pb::SessionRequest open;
  open.mutable_open()->set_client_id("client");
  REQUIRE(session->Write(open));
  pb::SessionResponse opened;
  REQUIRE(session->Read(&opened));
  Context watch_context;
  auto watch = world.stub().Watch(&watch_context, {});
  pb::WatchEvent watched;
  REQUIRE(watch->Read(&watched));
  REQUIRE(world.Becomes("a", [](const auto& info) { return info.waiting() == 1; }));

  const auto before = std::chrono::steady_clock::now();
  auto stopped = std::async(std::launch::async, [&] { world.Stop(Milliseconds(10'000)); });
  acquire.get();
  CHECK(Say(acquire_status) == "UNAVAILABLE SHUTTING_DOWN");
  while (hold->Read(&event)) {
  }
  CHECK(Say(hold->Finish()) == "UNAVAILABLE SHUTTING_DOWN");
  while (session->Read(&opened)) {
  }
  CHECK(Say(session->Finish()) == "UNAVAILABLE SHUTTING_DOWN");
  while (watch->Read(&watched)) {
  }
  CHECK(Say(watch->Finish()) == "UNAVAILABLE SHUTTING_DOWN");
  stopped.get();
  CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(9));
}

TEST_CASE("shutdown: a client that does not listen is cut off", "[service]") {
  World world;
  Context context;
  auto session = world.stub().Session(&context);
  // The first message never comes.
  session->WaitForInitialMetadata();
  const auto before = std::chrono::steady_clock::now();
  world.Stop(Milliseconds(300));
  CHECK(std::chrono::steady_clock::now() - before < kPatience);
  CHECK_FALSE(session->Finish().ok());
}

TEST_CASE("an address that is taken is refused", "[service]") {
  World world;
  ServerOptions options;
  options.listen = world.address();
  Server second(&SystemClock(), options);
  const absl::Status status = second.Listen();
  CHECK(status.code() == absl::StatusCode::kUnavailable);
}

// Calls a method by its name with these bytes, and gives the answer's bytes.
std::string CallRaw(World* world, const std::string& method, const std::string& bytes,
                    grpc::Status* status) {
  grpc::GenericStub stub(world->channel());
  Context context;
  grpc::CompletionQueue queue;
  const grpc::Slice slice(bytes);
  auto call = stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&slice, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  call->Finish(&response, status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  std::vector<grpc::Slice> slices;
  std::string text;
  if (response.Valid() && response.Dump(&slices).ok()) {
    for (const grpc::Slice& part : slices) {
      text.append(reinterpret_cast<const char*>(part.begin()), part.size());
    }
  }
  return text;
}

TEST_CASE("health says SERVING", "[service]") {
  World world;
  grpc::Status status;
  const std::string serving("\x08\x01", 2);  // HealthCheckResponse{status: SERVING}
  CHECK(CallRaw(&world, "/grpc.health.v1.Health/Check", "", &status) == serving);
  CHECK(status.ok());
  const std::string name = "semaphore.v1.SemaphoreService";
  const std::string request = std::string("\x0a") + static_cast<char>(name.size()) + name;
  CHECK(CallRaw(&world, "/grpc.health.v1.Health/Check", request, &status) == serving);
  const std::string unknown("\x0a\x01x", 3);
  CallRaw(&world, "/grpc.health.v1.Health/Check", unknown, &status);
  CHECK(status.error_code() == grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace semaphored::test
