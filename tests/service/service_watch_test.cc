// Watch: what happens to semaphores.
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "tests/service/service_world.h"

namespace semaphored::test {
namespace {

using Kind = pb::WatchEventKind;

class Watching {
 public:
  Watching(World* world, const std::string& prefix, const std::string& semaphore = "",
           uint64_t start_revision = 0) {
    pb::WatchRequest request;
    request.set_prefix(prefix);
    request.set_semaphore(semaphore);
    request.set_start_revision(start_revision);
    reader_ = world->stub().Watch(&context_, request);
  }
  ~Watching() { context_.TryCancel(); }
  // The kind of the next event, which is left in `event`; UNSPECIFIED at the end.
  Kind Next() {
    event.Clear();
    return reader_->Read(&event) ? event.kind() : pb::WATCH_EVENT_KIND_UNSPECIFIED;
  }
  grpc::Status Finish() {
    while (Next() != pb::WATCH_EVENT_KIND_UNSPECIFIED) {
    }
    return reader_->Finish();
  }

  pb::WatchResponse event;

 private:
  Context context_;
  std::unique_ptr<grpc::ClientReader<pb::WatchResponse>> reader_;
};

TEST_CASE("watch: the snapshot, then what happens", "[service]") {
  World world;
  world.Release(world.MustAcquire("x/1", 1));
  world.Release(world.MustAcquire("y", 1));
  Watching watching(&world, "x/");
  REQUIRE(watching.Next() == pb::WATCH_EVENT_KIND_SNAPSHOT);
  CHECK(watching.event.semaphore().semaphore() == "x/1");
  const pb::Lease lease = world.MustAcquire("x/1", 1);
  REQUIRE(watching.Next() == pb::WATCH_EVENT_KIND_GRANTED);
  CHECK(watching.event.token() == lease.token());
  CHECK(watching.event.holder() == lease.holder());
  CHECK(watching.event.semaphore().held() == 1);
  world.MustAcquire("y", 1);
  CHECK(world.Release(lease) == 1);
  REQUIRE(watching.Next() == pb::WATCH_EVENT_KIND_ENDED);
  CHECK(watching.event.cause() == pb::END_CAUSE_RELEASED);
  CHECK(watching.event.semaphore().held() == 0);
  world.MustAcquire("x/2", 1);
  REQUIRE(watching.Next() == pb::WATCH_EVENT_KIND_CREATED);
  CHECK(watching.event.semaphore().semaphore() == "x/2");
}

TEST_CASE("watch: exactly one name", "[service]") {
  World world;
  world.MustAcquire("a", 1);
  world.MustAcquire("ab", 1);
  Watching watching(&world, "", "a");
  REQUIRE(watching.Next() == pb::WATCH_EVENT_KIND_SNAPSHOT);
  CHECK(watching.event.semaphore().semaphore() == "a");
  pb::AdministerRequest destroy;
  pb::AdministerResponse response;
  destroy.mutable_destroy()->set_policy(pb::DESTROY_POLICY_FORCE);
  destroy.mutable_destroy()->set_now(true);
  for (const char* name : {"ab", "a"}) {
    destroy.set_semaphore(name);
    REQUIRE(Say(world.Administer(destroy, &response)) == "OK");
  }
  while (watching.Next() != pb::WATCH_EVENT_KIND_DESTROYED)
    REQUIRE(watching.event.semaphore().semaphore() == "a");
  CHECK(watching.event.semaphore().semaphore() == "a");
}

TEST_CASE("watch: a wrong question", "[service]") {
  World world;
  Watching both(&world, "a", "a");
  CHECK(Say(both.Finish()) == "INVALID_ARGUMENT INVALID_FIELD");
  Watching wrong(&world, "", "/a");
  CHECK(Say(wrong.Finish()) == "INVALID_ARGUMENT INVALID_FIELD");
}

TEST_CASE("watch: a reader that falls behind is told so", "[service]") {
  ServerOptions options;
  options.limits.watch_events_max = 50;
  World world(options);
  world.MustAcquire("a", 1'000'000);
  Watching watching(&world, "a");
  REQUIRE(watching.Next() == pb::WATCH_EVENT_KIND_SNAPSHOT);
  // Nothing is read while far more happens than the transport's windows and the daemon's bound
  // take.
  auto stub = pb::SemaphoreService::NewStub(world.Connect());
  Context context;
  auto stream = stub->Session(&context);
  pb::SessionRequest request;
  request.mutable_open()->set_client_id("busy");
  REQUIRE(stream->Write(request));
  pb::SessionResponse response;
  REQUIRE(stream->Read(&response));
  constexpr int kMessages = 30;
  int left = 0;
  for (int i = 0; i < kMessages; ++i) {
    request.Clear();
    for (int j = 0; j < 1000; ++j, ++left) {
      pb::SessionCommand* command = request.add_commands();
      command->set_sequence(left + 1);
      command->mutable_acquire()->set_semaphore("a");
    }
    REQUIRE(stream->Write(request));
  }
  while (left > 0 && stream->Read(&response)) left -= response.results_size();
  CHECK(left == 0);
  CHECK(Say(watching.Finish()) == "RESOURCE_EXHAUSTED SLOW_READER");
  // The daemon goes on.
  CHECK(world.Describe("a").held() == 30'001);
  context.TryCancel();
  stream->Finish();
}

TEST_CASE("watch: from a revision on", "[service]") {
  World world;
  world.Release(world.MustAcquire("a", 1));
  uint64_t revision = 0;
  {
    Watching watching(&world, "", "a");
    REQUIRE(watching.Next() == pb::WATCH_EVENT_KIND_SNAPSHOT);
    CHECK(watching.event.time().seconds() > 1'700'000'000);
    revision = watching.event.semaphore().revision();
  }
  // Nothing has changed since: what comes first is what happens next.
  Watching watching(&world, "", "a", revision);
  REQUIRE(world.Becomes("a", [&](const auto& info) { return info.revision() == revision; }));
  const pb::Lease lease = world.MustAcquire("a", 1);
  Kind kind = watching.Next();
  CHECK(kind == pb::WATCH_EVENT_KIND_GRANTED);
  CHECK(watching.event.semaphore().revision() > revision);
  CHECK(watching.event.time().seconds() > 1'700'000'000);
  // It has changed since: how it stands comes first.
  Watching again(&world, "", "a", revision);
  REQUIRE(again.Next() == pb::WATCH_EVENT_KIND_SNAPSHOT);
  CHECK(again.event.semaphore().held() == 1);
  world.Release(lease);
}

TEST_CASE("watch: a long snapshot comes before all changes, complete and in order", "[service]") {
  World world;
  constexpr int kSemaphores = 300;  // More than are read at once.
  const auto name = [](int i) { return "s" + std::to_string(1000 + i); };
  for (int i = 0; i < kSemaphores; ++i) world.Release(world.MustAcquire(name(i), 1));
  Watching watching(&world, "s");
  REQUIRE(watching.Next() == pb::WATCH_EVENT_KIND_SNAPSHOT);
  // While it goes on: of one that has been read, and of one that may not have been.
  world.MustAcquire(name(0), 1);
  world.MustAcquire(name(kSemaphores - 1), 1);
  int held = static_cast<int>(watching.event.semaphore().held());
  for (int i = 1; i < kSemaphores; ++i) {
    REQUIRE(watching.Next() == pb::WATCH_EVENT_KIND_SNAPSHOT);
    REQUIRE(watching.event.semaphore().semaphore() == name(i));
    held += static_cast<int>(watching.event.semaphore().held());
  }
  // What the snapshot lacks follows it.
  for (; held < 2; ++held) REQUIRE(watching.Next() == pb::WATCH_EVENT_KIND_GRANTED);
}

// On an engine that daemons share, names may come and go faster than the snapshot is read.
TEST_CASE("watch: what is kept of a snapshot counts as bytes of its stream", "[service]") {
  ServerOptions options;
  options.limits.stream_bytes_max = 40'000;
  World world(options);
  constexpr int kSemaphores = 300;
  const std::string prefix(200, 's');
  for (int i = 0; i < kSemaphores; ++i)
    world.Release(world.MustAcquire(prefix + std::to_string(1000 + i), 1));
  Watching watching(&world, prefix);
  int rows = 0;
  while (rows < kSemaphores && watching.Next() == pb::WATCH_EVENT_KIND_SNAPSHOT) ++rows;
  REQUIRE(rows < kSemaphores);
  CHECK(Say(watching.Finish()) == "RESOURCE_EXHAUSTED SLOW_READER");
  // One that is not as long.
  Watching shorter(&world, prefix + "100");
  for (int i = 0; i < 10; ++i) REQUIRE(shorter.Next() == pb::WATCH_EVENT_KIND_SNAPSHOT);
  world.MustAcquire(prefix + "1000", 1);
  CHECK(shorter.Next() == pb::WATCH_EVENT_KIND_GRANTED);
}

TEST_CASE("watch: of all streams the one that leaves most unread ends", "[service]") {
  ServerOptions options;
  options.limits.streams_bytes_max = 40'000;
  World world(options);
  constexpr int kSemaphores = 300;
  const std::string prefix(200, 's');
  for (int i = 0; i < kSemaphores; ++i)
    world.Release(world.MustAcquire(prefix + std::to_string(1000 + i), 1));
  Watching shorter(&world, prefix + "100");
  for (int i = 0; i < 10; ++i) REQUIRE(shorter.Next() == pb::WATCH_EVENT_KIND_SNAPSHOT);
  Watching watching(&world, prefix);
  int rows = 0;
  while (rows < kSemaphores && watching.Next() == pb::WATCH_EVENT_KIND_SNAPSHOT) ++rows;
  REQUIRE(rows < kSemaphores);
  const grpc::Status status = watching.Finish();
  CHECK(Say(status) == "RESOURCE_EXHAUSTED SLOW_READER");
  CHECK(status.error_message().find("streams_bytes_max (40000)") != std::string::npos);
  world.MustAcquire(prefix + "1000", 1);
  CHECK(shorter.Next() == pb::WATCH_EVENT_KIND_GRANTED);
}

TEST_CASE("watch: a call that watches again does not receive the snapshot of the watch before",
          "[service]") {
  World world;
  for (int i = 0; i < 200; ++i) world.MustAcquire("a" + std::to_string(i), 1);
  world.MustAcquire("b", 1);
  // Watches that end while their snapshots are read.
  for (int round = 0; round < 50; ++round) {
    { const Watching left(&world, "a"); }
    Watching watching(&world, "", "b");
    REQUIRE(watching.Next() == pb::WATCH_EVENT_KIND_SNAPSHOT);
    REQUIRE(watching.event.semaphore().semaphore() == "b");
  }
}

}  // namespace
}  // namespace semaphored::test
