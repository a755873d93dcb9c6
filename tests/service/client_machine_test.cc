// The rules of the client's session: deadlines, resuming, losses.
#include <chrono>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "client/semaphore/errors.h"
#include "tests/service/client_machine_world.h"

namespace semaphore {
namespace {

using std::chrono::milliseconds;
using test::World;

TEST_CASE("an acquire opens a session and is sent once it is open") {
  World world;
  auto acquired = world.Acquire("db", milliseconds(5'000));
  const v1::OpenSession open = world.Connect();
  CHECK(open.client_id() == "client-1");
  CHECK(open.resume_session_id().empty());
  CHECK(open.ttl_ms() == 9'000);
  CHECK_FALSE(world.Next().has_open());
  world.now += milliseconds(1'000);
  world.Opened();
  const v1::SessionRequest request = world.Next();
  REQUIRE(request.commands_size() == 1);
  CHECK(request.commands(0).sequence() == 1);
  CHECK(request.commands(0).acquire().wait_ms() == 4'000);
  CHECK(request.commands(0).acquire().report_queued());
  world.Granted(1, "L1");
  REQUIRE(acquired->result->ok());
  CHECK((**acquired->result)->token == 7);
}

TEST_CASE("all that waits goes into one message") {
  World world;
  for (int i = 0; i < 10; ++i) world.Acquire("db" + std::to_string(i));
  world.Connect();
  world.Opened();
  CHECK(world.Next().commands_size() == 10);
  CHECK(world.Next().commands_size() == 0);
}

TEST_CASE(
    "the deadline counts from the ping's own sending, plus elapsed and validity, less the margin") {
  World world;
  const TimePoint opened_at = world.now;
  auto acquired = world.Holding();
  const std::shared_ptr<LeaseState> lease = **acquired->result;
  CHECK(lease->GoodUntil() == opened_at + milliseconds(8'900));
  world.Advance(milliseconds(3'000));
  const TimePoint ping_sent = world.now;
  REQUIRE(world.Next().ping().ping_id() == 1);
  world.Advance(milliseconds(1'500));
  world.Pong(1, milliseconds(200), milliseconds(8'000), 1);
  CHECK(lease->GoodUntil() == ping_sent + milliseconds(200 + 8'000 - 100));
}

TEST_CASE("one percent of the validity is the margin when that is more") {
  ClientOptions options = World::Options();
  options.margin = milliseconds(10);
  World world(options);
  const TimePoint opened_at = world.now;
  auto acquired = world.Holding();
  CHECK((**acquired->result)->GoodUntil() == opened_at + milliseconds(9'000 - 90));
}

TEST_CASE("a ping goes out eight times within the TTL") {
  World world;
  auto acquired = world.Holding();
  for (int ping = 1; ping <= 20; ++ping) {
    world.Advance(milliseconds(1'124));
    CHECK_FALSE(world.Next().has_ping());
    world.Advance(milliseconds(1));
    REQUIRE(world.Next().has_ping());
    world.Pong(ping, milliseconds(0), milliseconds(9'000), 1);
  }
  CHECK_FALSE(acquired->loss.has_value());
}

TEST_CASE("silence up to the deadline loses the permit, not a moment later") {
  World world;
  auto acquired = world.Holding();
  world.Advance(milliseconds(8'899));
  CHECK_FALSE(acquired->loss.has_value());
  CHECK((**acquired->result)->Held(world.now));
  world.Advance(milliseconds(1));
  REQUIRE(acquired->loss.has_value());
  CHECK(acquired->loss->cause == LossCause::kNoContact);
  CHECK((**acquired->result)->stop_token().stop_requested());
  CHECK_FALSE((**acquired->result)->Held(world.now));
}

TEST_CASE("who is not let in again is told so, and keeps what is held up to its deadline") {
  for (const absl::StatusCode code :
       {absl::StatusCode::kUnauthenticated, absl::StatusCode::kPermissionDenied}) {
    World world;
    auto held = world.Holding();
    auto waiting = world.Acquire("other");
    world.End(absl::StatusCode::kUnavailable);
    CHECK_FALSE(waiting->result.has_value());
    world.Connect();
    world.End(code);
    REQUIRE(waiting->result.has_value());
    CHECK(waiting->result->status().code() == code);
    CHECK_FALSE(held->loss.has_value());
    CHECK((**held->result)->Held(world.now));
    // It may be let in yet.
    CHECK(world.Connect().resume_session_id() == "s1");
  }
}

TEST_CASE("an answer that comes after the deadline does not bring the permit back") {
  World world;
  auto acquired = world.Holding();
  world.Advance(milliseconds(3'000));
  REQUIRE(world.Next().has_ping());
  world.now += milliseconds(6'000);  // the process stood still
  world.Pong(1, milliseconds(0), milliseconds(9'000), 1);
  CHECK(acquired->loss.has_value());
}

TEST_CASE("an answer with an older epoch is ignored") {
  World world;
  auto acquired = world.Holding();
  world.Advance(milliseconds(3'000));
  REQUIRE(world.Next().has_ping());
  world.Pong(1, milliseconds(0), milliseconds(9'000), 2);
  const TimePoint good_until = (**acquired->result)->GoodUntil();
  world.Advance(milliseconds(3'000));
  REQUIRE(world.Next().has_ping());
  world.Pong(2, milliseconds(0), milliseconds(9'000), 1);
  CHECK((**acquired->result)->GoodUntil() == good_until);
}

TEST_CASE("a daemon that was overtaken is left at once") {
  World world;
  world.Holding();
  world.End(absl::StatusCode::kUnavailable);
  world.Connect();
  world.Opened({"L1"}, true, "s1", 3);
  world.End(absl::StatusCode::kUnavailable);
  world.Connect();
  const std::size_t overtaken = world.endpoint;
  world.Opened({"L1"}, true, "s1", 2);
  CHECK(world.dropped == 1);
  world.Connect();
  CHECK(world.endpoint != overtaken);
}

TEST_CASE("a silent connection is given up a quarter of the TTL after its ping") {
  World world;
  world.Holding();
  world.Advance(milliseconds(3'000));
  REQUIRE(world.Next().has_ping());
  world.Advance(milliseconds(2'249));
  CHECK(world.dropped == 0);
  world.Advance(milliseconds(1));
  CHECK(world.dropped == 1);
  CHECK(world.Connect().resume_session_id() == "s1");
  CHECK(world.endpoint == 1);
}

TEST_CASE("a broken connection is resumed: same client, same numbers, same content") {
  World world;
  auto held = world.Holding();
  auto waiting = world.Acquire("db", milliseconds(60'000));
  const v1::SessionCommand sent = world.Next().commands(0);
  world.Queued(2);
  CHECK(waiting->queued == 1);
  world.End(absl::StatusCode::kUnavailable);
  const v1::OpenSession open = world.Connect();
  CHECK(open.client_id() == "client-1");
  CHECK(open.resume_session_id() == "s1");
  world.Opened({"L1"}, true);
  const v1::SessionRequest again = world.Next();
  REQUIRE(again.commands_size() == 1);
  CHECK(again.commands(0).SerializeAsString() == sent.SerializeAsString());
  CHECK_FALSE(held->loss.has_value());
  world.Granted(2, "L2");
  CHECK(waiting->result->ok());
}

// The session is resumed and lists these, of which L1 is known. The acquire, which may have been
// granted L2, is about to be sent again.
void ResumeWith(World* world, const std::vector<std::string>& leases) {
  world->Next();  // granted there as L2, and the answer was lost
  world->End(absl::StatusCode::kUnavailable);
  world->Connect();
  world->Opened(leases, true);
}

TEST_CASE("a lease that a resumed session does not list is lost") {
  World world;
  auto held = world.Holding();
  world.End(absl::StatusCode::kUnavailable);
  world.Connect();
  world.Opened({}, true);
  REQUIRE(held->loss.has_value());
  CHECK(held->loss->cause == LossCause::kUnknown);
}

TEST_CASE("each page of what is resumed has its own time") {
  World world;
  auto held = world.Holding();
  world.End(absl::StatusCode::kUnavailable);
  world.Connect();
  // Together they take longer than the daemon has for one.
  for (int page = 0; page < 3; ++page) {
    world.Advance(milliseconds(1'500));
    world.Opened({"L" + std::to_string(page)}, true, "s1", 1, /*more=*/page < 2);
  }
  CHECK_FALSE(held->loss.has_value());
  world.Next();
  world.Opened({}, true);  // It is open: a further one is not one to be gathered.
  CHECK_FALSE(held->loss.has_value());
}

TEST_CASE("what a resumed session lists in several pages is listed") {
  World world;
  auto held = world.Holding();
  auto acquired = world.Acquire("other");
  world.Next();
  world.End(absl::StatusCode::kUnavailable);
  world.Connect();
  world.Opened({"L7"}, true, "s1", 1, /*more=*/true);
  CHECK_FALSE(held->loss.has_value());
  CHECK(world.Next().commands_size() == 0);
  world.Opened({"L1"}, true);
  CHECK_FALSE(held->loss.has_value());
  const v1::SessionRequest again = world.Next();
  REQUIRE(again.commands_size() == 1);
  // The pages of an attempt that broke off do not count.
  world.End(absl::StatusCode::kUnavailable);
  world.Connect();
  world.Opened({"L1"}, true, "s1", 1, /*more=*/true);
  world.End(absl::StatusCode::kUnavailable);
  world.Connect();
  world.Opened({}, true);
  CHECK(held->loss.has_value());
}

TEST_CASE(
    "a lease that nobody here knows is given back after a resume, but not one whose answer was "
    "lost") {
  World world;
  world.Holding();
  auto acquired = world.Acquire("other");
  ResumeWith(&world, {"L1", "L2", "L3"});
  const v1::SessionRequest again = world.Next();
  REQUIRE(again.commands_size() == 1);
  world.Granted(again.commands(0).sequence(), "L2");
  CHECK(acquired->result->ok());
  const v1::SessionRequest given_back = world.Next();
  REQUIRE(given_back.commands_size() == 1);
  CHECK(given_back.commands(0).release().lease_id() == "L3");
}

TEST_CASE("a lease that is listed is not given back while its acquire is to be sent again") {
  World world;
  world.Holding();
  auto acquired = world.Acquire("other");
  ResumeWith(&world, {"L1", "L2"});
  const std::uint64_t sequence = world.Next().commands(0).sequence();
  world.Error(sequence, absl::StatusCode::kUnavailable, "NOT_VOUCHED");
  CHECK(world.Next().commands_size() == 0);
  world.Advance(milliseconds(200));
  const v1::SessionRequest again = world.Next();
  REQUIRE(again.commands_size() == 1);
  CHECK(again.commands(0).sequence() == sequence);
  SECTION("it is its grant") {
    world.Granted(sequence, "L2");
    CHECK(acquired->result->ok());
    CHECK(world.Next().commands_size() == 0);
  }
  SECTION("once it has failed, nobody can claim it") {
    world.Error(sequence, absl::StatusCode::kPermissionDenied, "PERMISSION_DENIED");
    CHECK_FALSE(acquired->result->ok());
    const v1::SessionRequest given_back = world.Next();
    REQUIRE(given_back.commands_size() == 1);
    CHECK(given_back.commands(0).release().lease_id() == "L2");
  }
  SECTION("nor if it is asked anew under another number") {
    world.Error(sequence, absl::StatusCode::kAborted, "REQUEST_TOO_OLD");
    const v1::SessionRequest anew = world.Next();
    REQUIRE(anew.commands_size() == 3);
    CHECK(anew.commands(2).release().lease_id() == "L2");
  }
}

TEST_CASE(
    "a lost session loses its permits, and what waits goes on in a new one under a new client id") {
  World world;
  auto held = world.Holding();
  auto waiting = world.Acquire("db");
  world.Next();
  world.Queued(2);
  auto released = world.Release(*held);
  world.End(absl::StatusCode::kUnavailable);
  world.Connect();
  world.End(absl::StatusCode::kNotFound);
  REQUIRE(held->loss.has_value());
  CHECK(held->loss->cause == LossCause::kExpired);
  REQUIRE(released->has_value());
  CHECK((*released)->code() == absl::StatusCode::kNotFound);
  const v1::OpenSession open = world.Connect();
  CHECK(open.resume_session_id().empty());
  CHECK(open.client_id() != "client-1");
  world.Opened({}, false, "s2");
  const v1::SessionRequest request = world.Next();
  REQUIRE(request.commands_size() == 1);
  CHECK(request.commands(0).sequence() == 1);
  world.Granted(1, "L9");
  CHECK(waiting->result->ok());
}

TEST_CASE("the loss that the daemon tells is passed on, and the release after it says so") {
  World world;
  auto held = world.Holding();
  v1::SessionResponse response;
  v1::LeaseLost* lost = response.add_events()->mutable_lost();
  lost->set_lease_id("L1");
  lost->set_cause(v1::END_CAUSE_REVOKED);
  world.Receive(response);
  REQUIRE(held->loss.has_value());
  CHECK(held->loss->cause == LossCause::kRevoked);
  auto released = world.Release(*held);
  REQUIRE(released->has_value());
  CHECK((*released)->code() == absl::StatusCode::kNotFound);
  CHECK(ErrorReason(**released) == "NOT_HELD");
  CHECK(world.Next().commands_size() == 0);
}

TEST_CASE("a recalled permit is lost a margin before its grace ends") {
  World world;
  auto held = world.Holding();
  v1::SessionResponse response;
  v1::LeaseRecalled* recalled = response.add_events()->mutable_recalled();
  recalled->set_lease_id("L1");
  recalled->mutable_recall()->set_grace_ms(2'000);
  recalled->mutable_recall()->set_reason("limit lowered");
  world.Receive(response);
  REQUIRE(held->recall.has_value());
  CHECK(held->recall->grace == milliseconds(2'000));
  CHECK(held->recall->reason == "limit lowered");
  world.Advance(milliseconds(1'899));
  CHECK_FALSE(held->loss.has_value());
  world.Advance(milliseconds(1));
  REQUIRE(held->loss.has_value());
  CHECK(held->loss->cause == LossCause::kRecalled);
}

TEST_CASE(
    "a permit that was lost here is still released there, or it would be kept alive for ever") {
  World world;
  auto held = world.Holding();
  world.Advance(milliseconds(8'900));
  REQUIRE(held->loss.has_value());
  auto released = world.Release(*held);
  REQUIRE(released->has_value());
  CHECK((*released)->code() == absl::StatusCode::kNotFound);
  world.Connect();
  world.Opened({"L1"}, true);
  const v1::SessionRequest request = world.Next();
  REQUIRE(request.commands_size() == 1);
  CHECK(request.commands(0).release().lease_id() == "L1");
}

TEST_CASE("a release is answered once, and repeated over a broken connection") {
  World world;
  auto held = world.Holding();
  auto released = world.Release(*held);
  const v1::SessionRequest first = world.Next();
  REQUIRE(first.commands_size() == 1);
  world.End(absl::StatusCode::kUnavailable);
  world.Connect();
  world.Opened({"L1"}, true);
  const v1::SessionRequest second = world.Next();
  REQUIRE(second.commands_size() == 1);
  CHECK(second.commands(0).SerializeAsString() == first.commands(0).SerializeAsString());
  CHECK_FALSE(released->has_value());
  world.Released(2);
  REQUIRE(released->has_value());
  CHECK((*released)->ok());
}

TEST_CASE("a release that comes after the lease ended says so") {
  World world;
  auto held = world.Holding();
  auto released = world.Release(*held);
  world.Next();
  world.Released(2, 0);
  CHECK((*released)->code() == absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace semaphore
