// The end of a daemon, and the standard services beside ours.
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "adapters/steady_clock.h"
#include "proto/standard/services.pb.h"
#include "server/rpc/reflection.h"
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
  pb::HoldResponse event;
  REQUIRE(hold->Read(&event));
  Context session_context;
  auto session = world.stub().Session(&session_context);
  pb::SessionRequest open;
  open.mutable_open()->set_client_id("client");
  REQUIRE(session->Write(open));
  pb::SessionResponse opened;
  REQUIRE(session->Read(&opened));
  pb::SessionRequest take;
  pb::SessionCommand* command = take.add_commands();
  command->set_sequence(1);
  command->mutable_acquire()->set_semaphore("c");
  command->mutable_acquire()->set_limit(1);
  REQUIRE(session->Write(take));
  while (opened.results().empty()) REQUIRE(session->Read(&opened));
  Context watch_context;
  auto watch = world.stub().Watch(&watch_context, {});
  pb::WatchResponse watched;
  REQUIRE(watch->Read(&watched));
  REQUIRE(world.Becomes("a", [](const auto& info) { return info.waiting() == 1; }));

  const auto before = SteadyClock::now();
  auto stopped = std::async(std::launch::async, [&] { world.Stop(Milliseconds(10'000)); });
  acquire.get();
  CHECK(Say(acquire_status) == "UNAVAILABLE SHUTTING_DOWN");
  // This engine's leases end with the daemon: their holders hear of it first.
  while (hold->Read(&event)) {
  }
  CHECK(event.lost().cause() == pb::END_CAUSE_ENGINE_LOST);
  CHECK(hold->Finish().ok());
  bool lost = false;
  while (session->Read(&opened)) {
    for (const pb::SessionEvent& each : opened.events())
      lost = lost || each.lost().cause() == pb::END_CAUSE_ENGINE_LOST;
  }
  CHECK(lost);
  CHECK(Say(session->Finish()) == "UNAVAILABLE SHUTTING_DOWN");
  while (watch->Read(&watched)) {
  }
  CHECK(Say(watch->Finish()) == "UNAVAILABLE SHUTTING_DOWN");
  stopped.get();
  CHECK(SteadyClock::now() - before < std::chrono::seconds(9));
}

TEST_CASE("shutdown: a client that does not listen is cut off", "[service]") {
  World world;
  Context context;
  auto session = world.stub().Session(&context);
  pb::SessionRequest request;
  request.mutable_open()->set_client_id("client");
  REQUIRE(session->Write(request));
  pb::SessionResponse opened;
  REQUIRE(session->Read(&opened));
  // More answers than a connection takes while nobody reads them.
  const std::string unknown(200, 'a');
  request.Clear();
  for (int i = 1; i <= 1000; ++i) {
    pb::SessionCommand* command = request.add_commands();
    command->set_sequence(i);
    command->mutable_acquire()->set_semaphore(unknown);
  }
  for (int i = 0; i < 10; ++i) REQUIRE(session->Write(request));
  for (int i = 0; i < 2; ++i) REQUIRE(session->Read(&opened));
  const auto before = SteadyClock::now();
  world.Stop(Milliseconds(300));
  CHECK(SteadyClock::now() - before < kPatience / 2);
}

TEST_CASE("shutdown: while calls of every kind come, end and are given up", "[service]") {
  constexpr int kRounds = 30;
  constexpr int kClients = 6;
  for (int round = 0; round < kRounds; ++round) {
    World world;
    std::atomic<bool> over = false;
    std::vector<std::future<void>> clients;
    for (int client = 0; client < kClients; ++client) {
      clients.push_back(std::async(std::launch::async, [&world, &over, client] {
        for (int call = 0; !over; ++call) {
          grpc::ClientContext context;
          // Calls end by themselves, and by their deadlines, at any time.
          context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                            gpr_time_from_millis(call % 9, GPR_TIMESPAN)));
          if (client % 3 == 0) {
            pb::SessionResponse response;
            auto session = world.stub().Session(&context);
            if (call % 2 == 0) session->Read(&response);
            session->Finish().ok();
          } else if (client % 3 == 1) {
            pb::WatchResponse event;
            auto watch = world.stub().Watch(&context, {});
            while (watch->Read(&event)) {
            }
            watch->Finish().ok();
          } else {
            pb::AcquireResponse response;
            world.stub().Acquire(&context, world.Request("a", 1, call % 2 == 0 ? 0 : -1),
                                 &response);
          }
        }
      }));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10 + round));
    world.Stop(Milliseconds(round % 3));
    over = true;
    for (std::future<void>& client : clients) client.get();
  }
}

TEST_CASE("shutdown: an engine that does not answer does not hold it up", "[service]") {
  Gate gate;
  World world({}, [&gate](std::unique_ptr<Adapter> adapter) {
    return std::make_unique<GatedAdapter>(std::move(adapter), &gate);
  });
  const pb::Lease lease = world.MustAcquire("a", 1);
  gate.Hold(true);
  Context context;
  grpc::Status status;
  auto release = std::async(std::launch::async, [&] {
    pb::ReleaseRequest request;
    request.set_lease_id(lease.lease_id());
    pb::ReleaseResponse response;
    status = world.stub().Release(&context, request, &response);
  });
  Context acquire_context;
  grpc::Status acquire_status;
  auto acquire = std::async(std::launch::async, [&] {
    pb::AcquireResponse response;
    acquire_status = world.stub().Acquire(&acquire_context, world.Request("a", 1, -1), &response);
  });
  const auto before = SteadyClock::now();
  world.Stop(Milliseconds(300));
  CHECK(SteadyClock::now() - before < kPatience / 2);
  release.get();
  acquire.get();
  CHECK_FALSE(status.ok());
  CHECK_FALSE(acquire_status.ok());
  gate.Hold(false);
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
  // Out of touch with its engine it is not ready, and lives.
  const std::string not_serving("\x08\x02", 2);
  const std::string liveness("\x0a\x08liveness", 10);
  world.Vouch(false);
  CHECK(CallRaw(&world, "/grpc.health.v1.Health/Check", "", &status) == not_serving);
  CHECK(CallRaw(&world, "/grpc.health.v1.Health/Check", request, &status) == not_serving);
  CHECK(CallRaw(&world, "/grpc.health.v1.Health/Check", liveness, &status) == serving);
  world.Vouch(true);
  CHECK(CallRaw(&world, "/grpc.health.v1.Health/Check", "", &status) == serving);
  const std::string unknown("\x0a\x01x", 3);
  CallRaw(&world, "/grpc.health.v1.Health/Check", unknown, &status);
  CHECK(status.error_code() == grpc::StatusCode::NOT_FOUND);
}

TEST_CASE("standard services: a request of more than 4 KiB is refused before it is parsed",
          "[service]") {
  constexpr char kReflection[] = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
  World world;
  grpc::Status status;
  standard::ReflectionRequest request;
  request.set_list_services("");
  request.set_host(std::string(4'000, 'h'));
  standard::ReflectionResponse response;
  REQUIRE(
      response.ParseFromString(CallRaw(&world, kReflection, request.SerializeAsString(), &status)));
  CHECK(status.ok());
  CHECK(response.valid_host() == request.host());
  CHECK(response.list_services_response().service(0).name() == "semaphore.v1.SemaphoreService");
  request.set_host(std::string(5'000, 'h'));
  CHECK(CallRaw(&world, kReflection, request.SerializeAsString(), &status).empty());
  CHECK(Say(status) == "INVALID_ARGUMENT");
  CHECK(status.error_message().find("at most 4096 bytes, not 50") != std::string::npos);
  // Of fields that nothing knows.
  std::string unknown;
  while (unknown.size() < 5'000) unknown += std::string("\x7a\x00", 2);
  CHECK(CallRaw(&world, "/grpc.health.v1.Health/Check", unknown, &status).empty());
  CHECK(Say(status) == "INVALID_ARGUMENT");
}

// A stream of any method, of raw messages.
class RawStream {
 public:
  RawStream(const std::shared_ptr<grpc::Channel>& channel, const std::string& method)
      : stub_(channel), stream_(stub_.PrepareCall(&context_, method, &queue_)) {
    stream_->StartCall(nullptr);
    REQUIRE(Next());
  }
  ~RawStream() {
    context_.TryCancel();
    queue_.Shutdown();
    Next();
  }
  RawStream(const RawStream&) = delete;
  RawStream& operator=(const RawStream&) = delete;

  bool Write(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    stream_->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    return Next();
  }
  bool Read() {
    grpc::ByteBuffer bytes;
    stream_->Read(&bytes, nullptr);
    return Next();
  }
  // Calls `meanwhile` again and again until the stream has ended.
  grpc::Status Finish(const std::function<void()>& meanwhile = [] {}) {
    grpc::Status status;
    stream_->Finish(&status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    const auto moment = [] { return std::chrono::system_clock::now() + Milliseconds(10); };
    while (queue_.AsyncNext(&tag, &ok, moment()) == grpc::CompletionQueue::TIMEOUT) meanwhile();
    return status;
  }

 private:
  bool Next() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::CompletionQueue queue_;
  Context context_;
  grpc::GenericStub stub_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
};

TEST_CASE(
    "standard services: they take no streams, and the connection with most of them loses them",
    "[service]") {
  constexpr char kWatch[] = "/grpc.health.v1.Health/Watch";
  ServerOptions options;
  options.limits.streams_max = 1;
  options.limits.standard_calls_max = 2;
  World world(options);
  const auto greedy = world.Connect();
  RawStream first(greedy, kWatch), second(greedy, kWatch);
  for (RawStream* each : {&first, &second}) {
    REQUIRE(each->Write(""));
    REQUIRE(each->Read());
  }
  Context context;
  auto session = world.stub().Session(&context);
  pb::SessionRequest request;
  request.mutable_open()->set_client_id("client");
  REQUIRE(session->Write(request));
  pb::SessionResponse opened;
  CHECK(session->Read(&opened));
  // One too many, of another connection.
  RawStream other(world.channel(), kWatch);
  REQUIRE(other.Write(""));
  CHECK(other.Read());
  CHECK(Say(first.Finish()) == "RESOURCE_EXHAUSTED");
  CHECK(Say(second.Finish()) == "RESOURCE_EXHAUSTED");
  grpc::Status status;
  CallRaw(&world, "/grpc.health.v1.Health/Check", "", &status);
  CHECK(status.ok());
}

TEST_CASE("standard services: a request that does not come is not waited for", "[service]") {
  World world;
  for (const char* method : {"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch",
                             "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"}) {
    INFO(method);
    RawStream silent(world.channel(), method);
    const grpc::Status status =
        silent.Finish([&] { world.Leap(ServerOptions().limits.unread_max); });
    CHECK(Say(status) == "DEADLINE_EXCEEDED");
    CHECK(status.error_message() == "the request does not come");
  }
  // Who has said what to watch may be silent.
  RawStream watch(world.channel(), "/grpc.health.v1.Health/Watch");
  REQUIRE(watch.Write(""));
  REQUIRE(watch.Read());
  grpc::Status status;
  CallRaw(&world, "/grpc.health.v1.Health/Check", "", &status);  // The daemon knows of the reading.
  world.Leap(10 * ServerOptions().limits.unread_max);
  world.Vouch(false);
  CHECK(watch.Read());
}

TEST_CASE("reflection: a file is serialized once", "[service]") {
  const auto* const file = standard::ReflectionRequest::descriptor()->file();
  const std::string& text = Serialized(file);
  google::protobuf::FileDescriptorProto parsed;
  REQUIRE(parsed.ParseFromString(text));
  CHECK(parsed.name() == file->name());
  CHECK(Serialized(file).data() == text.data());
  standard::ReflectionRequest request;
  request.set_file_by_filename(file->name());
  const auto files = Reflect(request).file_descriptor_response();
  REQUIRE(files.file_descriptor_proto_size() == 1 + file->dependency_count());
  CHECK(files.file_descriptor_proto(0) == text);
}

}  // namespace
}  // namespace semaphored::test
