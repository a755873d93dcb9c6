// Watch: what happens to semaphores.
#include <string>

#include <catch2/catch_test_macros.hpp>

#include "tests/service/service_world.h"

namespace semaphored::test {
namespace {

using Kind = pb::WatchEvent;

class Watching {
 public:
  Watching(World* world, const std::string& prefix, const std::string& semaphore = "") {
    pb::WatchRequest request;
    request.set_prefix(prefix);
    request.set_semaphore(semaphore);
    reader_ = world->stub().Watch(&context_, request);
  }
  ~Watching() { context_.TryCancel(); }
  // The kind of the next event, which is left in `event`; KIND_UNSPECIFIED at the end.
  Kind::Kind Next() {
    event.Clear();
    return reader_->Read(&event) ? event.kind() : Kind::KIND_UNSPECIFIED;
  }
  grpc::Status Finish() {
    while (Next() != Kind::KIND_UNSPECIFIED) {
    }
    return reader_->Finish();
  }

  pb::WatchEvent event;

 private:
  Context context_;
  std::unique_ptr<grpc::ClientReader<pb::WatchEvent>> reader_;
};

TEST_CASE("watch: the snapshot, then what happens", "[service]") {
  World world;
  world.Release(world.MustAcquire("x/1", 1));
  world.Release(world.MustAcquire("y", 1));
  Watching watching(&world, "x/");
  REQUIRE(watching.Next() == Kind::SNAPSHOT);
  CHECK(watching.event.semaphore().semaphore() == "x/1");
  const pb::Lease lease = world.MustAcquire("x/1", 1);
  REQUIRE(watching.Next() == Kind::GRANTED);
  CHECK(watching.event.token() == lease.token());
  CHECK(watching.event.holder() == lease.holder());
  CHECK(watching.event.semaphore().held() == 1);
  world.MustAcquire("y", 1);
  CHECK(world.Release(lease) == 1);
  REQUIRE(watching.Next() == Kind::ENDED);
  CHECK(watching.event.cause() == pb::END_CAUSE_RELEASED);
  CHECK(watching.event.semaphore().held() == 0);
  world.MustAcquire("x/2", 1);
  REQUIRE(watching.Next() == Kind::CREATED);
  CHECK(watching.event.semaphore().semaphore() == "x/2");
}

TEST_CASE("watch: exactly one name", "[service]") {
  World world;
  world.MustAcquire("a", 1);
  world.MustAcquire("ab", 1);
  Watching watching(&world, "", "a");
  REQUIRE(watching.Next() == Kind::SNAPSHOT);
  CHECK(watching.event.semaphore().semaphore() == "a");
  pb::AdministerRequest destroy;
  pb::AdministerResponse response;
  destroy.mutable_destroy()->set_policy(pb::DESTROY_POLICY_FORCE);
  for (const char* name : {"ab", "a"}) {
    destroy.set_semaphore(name);
    REQUIRE(Say(world.Administer(destroy, &response)) == "OK");
  }
  while (watching.Next() != Kind::DESTROYED) REQUIRE(watching.event.semaphore().semaphore() == "a");
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
  REQUIRE(watching.Next() == Kind::SNAPSHOT);
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

}  // namespace
}  // namespace semaphored::test
