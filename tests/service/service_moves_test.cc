// A request that is repeated in another session, in a unary call beside its session, or by a Hold.
#include <future>
#include <string>
#include <utility>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/service/service_world.h"

namespace semaphored::test {
namespace {

constexpr int64_t kTtlMs = 30'000;

// One Session stream of the client "client"; its requests name no holder.
class MovingStream {
 public:
  MovingStream(World* world, const std::string& holder, const std::string& resume = "")
      : stream_(world->stub().Session(&context_)) {
    pb::SessionRequest request;
    request.mutable_open()->set_client_id("client");
    request.mutable_open()->set_holder(holder);
    request.mutable_open()->set_ttl_ms(kTtlMs);
    request.mutable_open()->set_resume_session_id(resume);
    stream_->Write(request);
    Read();
    opened = message.opened();
  }
  ~MovingStream() { context_.TryCancel(); }

  // The answer to the request with sequence number 1.
  pb::SessionResult Ask(int64_t wait_ms = 0) {
    pb::SessionRequest request;
    pb::SessionCommand* command = request.add_commands();
    command->set_sequence(1);
    command->mutable_acquire()->set_semaphore("a");
    command->mutable_acquire()->set_limit(1);
    command->mutable_acquire()->set_wait_forever(wait_ms < 0);
    command->mutable_acquire()->set_report_queued(true);
    stream_->Write(request);
    return Result();
  }
  pb::SessionResult Result() {
    while (Read() && message.results_size() == 0) {
    }
    return message.results_size() == 0 ? pb::SessionResult() : message.results(0);
  }
  uint32_t Release(const std::string& lease_id, pb::EndCause* ended) {
    pb::SessionRequest request;
    pb::SessionCommand* command = request.add_commands();
    command->set_sequence(++releases_);
    command->mutable_release()->set_lease_id(lease_id);
    stream_->Write(request);
    const pb::ReleaseResponse released = Result().released();
    *ended = released.ended();
    return released.released();
  }
  // For how long the session is vouched for.
  int64_t Ping() {
    pb::SessionRequest request;
    request.mutable_ping()->set_ping_id(1);
    stream_->Write(request);
    while (Read() && !message.has_pong()) {
    }
    return message.pong().validity().valid_for_ms();
  }
  // The next loss that the daemon reports.
  pb::LeaseLost Lost() {
    while (message.events_size() == 0 && Read()) {
    }
    return message.events_size() == 0 ? pb::LeaseLost() : message.events(0).lost();
  }
  bool Read() { return stream_->Read(&message); }
  void Cancel() {
    context_.TryCancel();
    while (Read()) {
    }
    stream_->Finish();
  }

  pb::SessionOpened opened;
  pb::SessionResponse message;

 private:
  Context context_;
  std::unique_ptr<grpc::ClientReaderWriter<pb::SessionRequest, pb::SessionResponse>> stream_;
  uint64_t releases_ = 100;
};

pb::AcquireRequest SameRequest(World* world) {
  pb::AcquireRequest request = world->Request("a", 1);
  request.mutable_request_id()->mutable_numbered()->set_client_id("client");
  request.mutable_request_id()->mutable_numbered()->set_sequence(1);
  request.set_ttl_ms(kTtlMs);
  return request;
}

std::string Acquire(World* world, pb::Lease* lease) {
  Context context;
  pb::AcquireResponse response;
  const grpc::Status status = world->stub().Acquire(&context, SameRequest(world), &response);
  *lease = response.lease();
  return Say(status);
}

pb::VerifyResponse Verify(World* world, const pb::VerifyRequest& request) {
  Context context;
  pb::VerifyResponse response;
  CHECK(Say(world->stub().Verify(&context, request, &response)) == "OK");
  return response;
}

TEST_CASE("moves: another session repeats what one holds", "[service]") {
  World world;
  MovingStream first(&world, "one");
  const pb::Lease lease = first.Ask().granted();
  REQUIRE(lease.token() > 0);
  MovingStream second(&world, "two");  // Another holder, which the request does not name.
  pb::SessionResult result = second.Ask();
  REQUIRE(result.has_error());
  CHECK(ErrorOf(result.error()).reason == "MOVING");
  CHECK(ErrorOf(result.error()).retry_ms > 0);
  CHECK(result.error().code() == static_cast<int>(grpc::StatusCode::UNAVAILABLE));
  const pb::LeaseLost lost = first.Lost();
  CHECK(lost.lease_id() == lease.lease_id());
  CHECK(lost.cause() == pb::END_CAUSE_MOVED);

  pb::VerifyRequest by_id;
  by_id.set_lease_id(lease.lease_id());
  CHECK_FALSE(Verify(&world, by_id).held());
  CHECK(Verify(&world, by_id).ended() == pb::END_CAUSE_MOVED);
  pb::VerifyRequest by_slot;
  by_slot.set_semaphore("a");
  by_slot.set_slot(lease.slots(0).first());
  by_slot.set_token(lease.token());
  CHECK(Verify(&world, by_slot).held());

  world.Leap(Milliseconds(kTtlMs - 5'000));
  CHECK(first.Ping() > 0);
  CHECK(second.Ping() > 0);
  CHECK(ErrorOf(second.Ask().error()).reason == "MOVING");
  world.Leap(Milliseconds(5'000));
  result = second.Ask();
  REQUIRE(result.has_granted());
  CHECK(result.granted().lease_id() == lease.lease_id());
  CHECK(result.granted().token() == lease.token());
  CHECK(result.granted().session_id() == second.opened.session_id());
  CHECK(Verify(&world, by_id).held());

  pb::EndCause ended{};
  CHECK(first.Release(lease.lease_id(), &ended) == 0);
  CHECK(ended == pb::END_CAUSE_MOVED);
  first.Cancel();
  world.Leap(Milliseconds(kTtlMs - 5'000));
  CHECK(second.Ping() > 0);
  world.Leap(Milliseconds(6'000));  // The first session has expired.
  CHECK(second.Ping() > 0);
  CHECK(world.Describe("a").held() == 1);
  CHECK(second.Release(lease.lease_id(), &ended) == 1);
}

TEST_CASE("moves: a session that is resumed has not what has left it", "[service]") {
  World world;
  MovingStream first(&world, "one");
  REQUIRE(first.Ask().has_granted());
  first.Cancel();
  MovingStream second(&world, "two");
  CHECK(ErrorOf(second.Ask().error()).reason == "MOVING");
  second.Cancel();
  MovingStream first_again(&world, "one", first.opened.session_id());
  CHECK(first_again.opened.resumed());
  CHECK(first_again.opened.leases_size() == 0);
  MovingStream second_again(&world, "two", second.opened.session_id());
  CHECK(second_again.opened.resumed());
  CHECK(second_again.opened.leases_size() == 0);
  world.Leap(Milliseconds(kTtlMs - 1'000));
  CHECK(second_again.Ping() > 0);
  world.Leap(Milliseconds(1'000));
  CHECK(second_again.Ask().has_granted());
}

TEST_CASE("moves: a wait that is repeated while the former session's grace ends", "[service]") {
  World world;
  const pb::Lease lease = world.MustAcquire("a", 1);
  MovingStream first(&world, "one");
  REQUIRE(first.Ask(-1).has_queued());
  first.Cancel();
  MovingStream second(&world, "two");
  REQUIRE(second.Ask(-1).has_queued());
  world.Leap(Milliseconds(2'000));
  CHECK(second.Ping() > 0);
  CHECK(world.Describe("a").waiting() == 1);
  CHECK(world.Release(lease) == 1);
  CHECK(second.Result().has_granted());
}

TEST_CASE("moves: a wait that is repeated under the eyes of the former session", "[service]") {
  World world;
  const pb::Lease lease = world.MustAcquire("a", 1);
  MovingStream first(&world, "one");
  REQUIRE(first.Ask(-1).has_queued());
  MovingStream second(&world, "two");
  REQUIRE(second.Ask(-1).has_queued());
  const pb::SessionResult result = first.Result();
  CHECK(result.sequence() == 1);
  CHECK(result.error().code() == static_cast<int>(grpc::StatusCode::UNAVAILABLE));
  CHECK(world.Release(lease) == 1);
  CHECK(second.Result().has_granted());
}

TEST_CASE("moves: a unary call repeats what the session holds", "[service]") {
  World world;
  MovingStream first(&world, "one");
  const pb::Lease had = first.Ask().granted();
  pb::Lease lease;
  CHECK(Acquire(&world, &lease) == "UNAVAILABLE MOVING");
  CHECK(first.Lost().lease_id() == had.lease_id());
  pb::RenewRequest renew;
  renew.set_lease_id(had.lease_id());
  pb::RenewResponse renewed;
  {
    Context context;
    CHECK(Say(world.stub().Renew(&context, renew, &renewed)) == "UNAVAILABLE MOVING");
  }
  world.Leap(Milliseconds(kTtlMs));
  CHECK(Acquire(&world, &lease) == "OK");
  CHECK(lease.lease_id() == had.lease_id());
  CHECK(lease.session_id().empty());
  Context context;
  CHECK(Say(world.stub().Renew(&context, renew, &renewed)) == "OK");
}

TEST_CASE("moves: a Hold repeats what the session holds, and the session the Hold's", "[service]") {
  World world;
  MovingStream first(&world, "one");
  const pb::Lease lease = first.Ask().granted();
  pb::HoldRequest request;
  *request.mutable_acquire() = SameRequest(&world);
  pb::HoldResponse event;
  {
    Context context;
    const auto reader = world.stub().Hold(&context, request);
    CHECK_FALSE(reader->Read(&event));
    CHECK(Say(reader->Finish()) == "UNAVAILABLE MOVING");
  }
  world.Leap(Milliseconds(kTtlMs));
  Context context;
  const auto reader = world.stub().Hold(&context, request);
  REQUIRE(reader->Read(&event));
  REQUIRE(event.has_granted());
  CHECK(event.granted().lease().lease_id() == lease.lease_id());

  MovingStream second(&world, "two");
  CHECK(ErrorOf(second.Ask().error()).reason == "MOVING");
  while (reader->Read(&event) && !event.has_lost()) {
  }
  CHECK(event.lost().cause() == pb::END_CAUSE_MOVED);
  CHECK(Say(reader->Finish()) == "OK");
  world.Leap(Milliseconds(kTtlMs - 1'000));
  CHECK(second.Ping() > 0);
  world.Leap(Milliseconds(1'000));
  CHECK(second.Ask().has_granted());
  CHECK(world.Describe("a").held() == 1);
}

TEST_CASE("moves: a unary call repeats what waits in the session", "[service]") {
  World world;
  const pb::Lease held = world.MustAcquire("a", 1);
  MovingStream first(&world, "one");
  REQUIRE(first.Ask(-1).has_queued());
  Context context;
  pb::AcquireRequest request = SameRequest(&world);
  request.set_wait_forever(true);
  pb::AcquireResponse response;
  auto call = std::async(std::launch::async,
                         [&] { return Say(world.stub().Acquire(&context, request, &response)); });
  // The call has the wait when the session hears that it has it no longer.
  const pb::SessionResult result = first.Result();
  CHECK(result.sequence() == 1);
  CHECK(result.error().code() == static_cast<int>(grpc::StatusCode::UNAVAILABLE));
  CHECK(world.Describe("a").waiting() == 1);
  first.Cancel();
  CHECK(world.Release(held) == 1);
  CHECK(call.get() == "OK");
  CHECK(response.lease().session_id().empty());
  CHECK(world.Describe("a").held() == 1);
  CHECK(world.Describe("a").waiting() == 0);
}

TEST_CASE("moves: a Hold repeats what waits in the session, and the session the Hold's",
          "[service]") {
  World world;
  const pb::Lease held = world.MustAcquire("a", 1);
  MovingStream first(&world, "one");
  REQUIRE(first.Ask(-1).has_queued());
  pb::HoldRequest request;
  *request.mutable_acquire() = SameRequest(&world);
  request.mutable_acquire()->set_wait_forever(true);
  Context context;
  const auto reader = world.stub().Hold(&context, request);
  pb::HoldResponse event;
  REQUIRE(reader->Read(&event));
  CHECK(event.has_queued());
  CHECK(first.Result().error().code() == static_cast<int>(grpc::StatusCode::UNAVAILABLE));
  const bool goes_back = GENERATE(true, false);
  MovingStream second(&world, "two");
  if (goes_back) {
    REQUIRE(second.Ask(-1).has_queued());
    CHECK_FALSE(reader->Read(&event));
    CHECK(reader->Finish().error_code() == grpc::StatusCode::UNAVAILABLE);
  }
  CHECK(world.Describe("a").waiting() == 1);
  CHECK(world.Release(held) == 1);
  if (goes_back) {
    CHECK(second.Result().has_granted());
  } else {
    REQUIRE(reader->Read(&event));
    CHECK(event.has_granted());
  }
  CHECK(world.Describe("a").held() == 1);
  CHECK(world.Describe("a").waiting() == 0);
  if (goes_back) return;
  context.TryCancel();
  while (reader->Read(&event)) {
  }
  reader->Finish();
}

TEST_CASE("moves: the same id with another effect is another request", "[service]") {
  World world;
  MovingStream first(&world, "one");
  REQUIRE(first.Ask().has_granted());
  pb::AcquireRequest request = SameRequest(&world);
  SECTION("a holder") { request.set_holder("one"); }
  SECTION("permits") {
    request.set_permits(2);
    request.set_limit(1);
  }
  SECTION("a priority") { request.set_priority(1); }
  SECTION("a semaphore") { request.set_semaphore("b"); }
  Context context;
  pb::AcquireResponse response;
  CHECK(Say(world.stub().Acquire(&context, request, &response)) ==
        "INVALID_ARGUMENT REQUEST_ID_REUSED");
  CHECK(first.Ping() > 0);
  CHECK(first.message.events_size() == 0);
}

TEST_CASE("moves: a request without a holder is the same each time", "[service]") {
  World world;
  pb::Lease first;
  pb::Lease again;
  CHECK(Acquire(&world, &first) == "OK");
  CHECK(Acquire(&world, &again) == "OK");
  CHECK(again.lease_id() == first.lease_id());
}

}  // namespace
}  // namespace semaphored::test
