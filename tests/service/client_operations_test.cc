// What becomes of acquires and releases: given up, sent again, bounded.
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

TEST_CASE("a wait that is given up is cancelled there, and a grant that crosses it goes back") {
  World world;
  auto acquired = world.Acquire("db");
  world.Connect();
  world.Opened();
  world.Next();
  world.machine.Cancel(acquired->operation, world.now);
  world.Effect();
  CHECK(acquired->result->status().code() == absl::StatusCode::kCancelled);
  const v1::SessionRequest cancel = world.Next();
  REQUIRE(cancel.commands_size() == 1);
  CHECK(cancel.commands(0).cancel() == 1);
  world.Granted(1, "L1");
  const v1::SessionRequest given_back = world.Next();
  REQUIRE(given_back.commands_size() == 1);
  CHECK(given_back.commands(0).release().lease_id() == "L1");
}

TEST_CASE("a grant that is told twice is not given back while it is in use") {
  World world;
  auto acquired = world.Acquire("db");
  world.Connect();
  world.Opened();
  world.Next();
  world.Granted(1, "L1");
  world.Effect();
  REQUIRE(acquired->result.has_value());
  CHECK(acquired->result->ok());
  world.Granted(1, "L1");
  // One of which nothing is known is nobody's.
  world.Granted(1, "L2");
  const v1::SessionRequest given_back = world.Next();
  REQUIRE(given_back.commands_size() == 1);
  CHECK(given_back.commands(0).release().lease_id() == "L2");
}

TEST_CASE("a wait that is given up before it was sent is never sent") {
  World world;
  auto acquired = world.Acquire("db");
  world.machine.Cancel(acquired->operation, world.now);
  world.Effect();
  CHECK(acquired->result->status().code() == absl::StatusCode::kCancelled);
  world.Advance(milliseconds(0));
  CHECK_FALSE(world.machine.StartConnecting(&world.endpoint, world.now));
}

TEST_CASE("errors of the daemon come through with their reason") {
  World world;
  auto acquired = world.Acquire("db", milliseconds(0));
  world.Connect();
  world.Opened();
  world.Next();
  world.Error(1, absl::StatusCode::kResourceExhausted, "FULL");
  CHECK(acquired->result->status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(ErrorReason(acquired->result->status()) == "FULL");
}

TEST_CASE("what the daemon cannot do now is sent again with the same number") {
  World world;
  auto acquired = world.Acquire("db");
  world.Connect();
  world.Opened();
  const v1::SessionCommand sent = world.Next().commands(0);
  world.Error(1, absl::StatusCode::kUnavailable, "ENGINE_UNAVAILABLE");
  CHECK_FALSE(acquired->result.has_value());
  CHECK(world.Next().commands_size() == 0);
  world.Advance(milliseconds(200));
  const v1::SessionRequest again = world.Next();
  REQUIRE(again.commands_size() == 1);
  CHECK(again.commands(0).SerializeAsString() == sent.SerializeAsString());
  world.Granted(1, "L1");
  CHECK(acquired->result->ok());
}

TEST_CASE("another answer ends the time for which the daemon was unavailable") {
  ClientOptions options = World::Options();
  options.reconnect_timeout = milliseconds(1'000);
  World world(options);
  auto acquired = world.Acquire("db");
  world.Connect();
  world.Opened();
  world.Next();
  for (int i = 0; i < 3; ++i) {
    world.Error(1, absl::StatusCode::kUnavailable, "ENGINE_UNAVAILABLE");
    world.Advance(milliseconds(600));
    CHECK(world.Next().commands_size() == 1);
    world.Queued(1);
  }
  CHECK_FALSE(acquired->result.has_value());
}

TEST_CASE("an acquire whose number was forgotten is given up there and asked anew") {
  World world;
  auto acquired = world.Acquire("db");
  world.Connect();
  world.Opened();
  world.Next();
  world.Error(1, absl::StatusCode::kAborted, "REQUEST_TOO_OLD");
  const v1::SessionRequest anew = world.Next();
  REQUIRE(anew.commands_size() == 2);
  CHECK(anew.commands(0).cancel() == 1);
  CHECK(anew.commands(1).has_acquire());
  CHECK(anew.commands(1).sequence() == 3);
  world.Granted(1, "L1");  // the old one came through after all
  world.Granted(3, "L2");
  REQUIRE(acquired->result->ok());
  CHECK((**acquired->result)->lease_id == "L2");
  const v1::SessionRequest given_back = world.Next();
  REQUIRE(given_back.commands_size() == 1);
  CHECK(given_back.commands(0).release().lease_id() == "L1");
}

TEST_CASE("numbers stay within the daemon's window of the first that is unanswered") {
  World world;
  for (int i = 0; i < 1'500; ++i) world.Acquire("db");
  world.Connect();
  world.Opened();
  CHECK(world.Next().commands_size() == 1'000);
  CHECK(world.Next().commands_size() == 0);
  for (int i = 2; i <= 100; ++i) world.Granted(i, "L" + std::to_string(i));
  CHECK(world.Next().commands_size() == 0);
  world.Queued(
      1);  // it stands in the queue, where the daemon knows it by another way than the window
  CHECK(world.Next().commands_size() == 100);
}

TEST_CASE("nobody answers: an acquire fails closed, within the time to connect") {
  World world;
  auto acquired = world.Acquire("db");
  const TimePoint called = world.now;
  while (!acquired->result.has_value() && world.now < called + std::chrono::seconds(60)) {
    if (world.machine.StartConnecting(&world.endpoint, world.now)) {
      world.Next();
      world.End(absl::StatusCode::kUnavailable);
    }
    world.now = std::max(world.now, world.machine.NextDue(true));
    world.machine.Tick(world.now);
    world.Effect();
  }
  REQUIRE(acquired->result.has_value());
  CHECK(acquired->result->status().code() == absl::StatusCode::kUnavailable);
  CHECK(ErrorReason(acquired->result->status()) == "UNREACHABLE");
  CHECK(world.now - called == World::Options().connect_timeout);
}

TEST_CASE("one that waits in the queue outlasts a restart, up to the time to reconnect") {
  World world;
  auto waiting = world.Acquire("db");
  world.Connect();
  world.Opened();
  world.Next();
  world.Queued(1);
  const TimePoint broken = world.now;
  world.End(absl::StatusCode::kUnavailable);
  while (!waiting->result.has_value() && world.now < broken + std::chrono::minutes(5)) {
    if (world.machine.StartConnecting(&world.endpoint, world.now)) {
      world.Next();
      world.End(absl::StatusCode::kUnavailable);
    }
    world.now = std::max(world.now, world.machine.NextDue(true));
    world.machine.Tick(world.now);
    world.Effect();
  }
  REQUIRE(waiting->result.has_value());
  CHECK(ErrorReason(waiting->result->status()) == "UNREACHABLE");
  CHECK(world.now - broken == World::Options().reconnect_timeout);
}

TEST_CASE("an acquire that must not wait ends after the first round without a daemon") {
  World world;
  auto waiting = world.Acquire("db");
  auto not_waiting = world.Acquire("db", milliseconds(0));
  const TimePoint called = world.now;
  for (int endpoint = 0; endpoint < 2; ++endpoint) {
    CHECK_FALSE(not_waiting->result.has_value());
    world.Connect();
    world.End(absl::StatusCode::kUnavailable);
  }
  REQUIRE(not_waiting->result.has_value());
  CHECK(ErrorReason(not_waiting->result->status()) == "UNREACHABLE");
  CHECK(world.now == called);
  CHECK_FALSE(waiting->result.has_value());
}

TEST_CASE("a client that had reached a daemon looks for it again, also for what must not wait") {
  World world;
  world.Acquire("other");
  world.Connect();
  world.Opened();
  world.End(absl::StatusCode::kUnavailable);
  auto not_waiting = world.Acquire("db", milliseconds(0));
  world.Connect();
  world.End(absl::StatusCode::kUnavailable);
  world.Connect();
  world.End(absl::StatusCode::kUnavailable);
  CHECK_FALSE(not_waiting->result.has_value());
}

TEST_CASE("every endpoint is tried before the first pause, and pauses grow") {
  World world;
  world.Acquire("db");
  std::vector<TimePoint> at;
  std::vector<std::size_t> endpoints;
  while (at.size() < 8) {
    world.Connect();
    at.push_back(world.now);
    endpoints.push_back(world.endpoint);
    world.End(absl::StatusCode::kUnavailable);
  }
  CHECK(endpoints == std::vector<std::size_t>{0, 1, 0, 1, 0, 1, 0, 1});
  CHECK(at[1] == at[0]);
  CHECK(at[2] - at[1] >= milliseconds(25));
  CHECK(at[4] - at[3] > milliseconds(49));
  CHECK(at[6] - at[5] > milliseconds(99));
}

TEST_CASE("a wait ends here when the daemon does not end it") {
  World world;
  auto acquired = world.Acquire("db", milliseconds(1'000));
  world.Connect();
  world.Opened();
  world.Next();
  world.Advance(milliseconds(1'249));
  CHECK_FALSE(acquired->result.has_value());
  world.Advance(milliseconds(1));
  REQUIRE(acquired->result.has_value());
  CHECK(acquired->result->status().code() == absl::StatusCode::kDeadlineExceeded);
  const v1::SessionRequest cancel = world.Next();
  REQUIRE(cancel.commands_size() == 1);
  CHECK(cancel.commands(0).cancel() == 1);
}

TEST_CASE("an open that is refused for good fails the acquires that wait for it") {
  World world;
  auto acquired = world.Acquire("db");
  world.Connect();
  world.End(absl::StatusCode::kInvalidArgument);
  REQUIRE(acquired->result.has_value());
  CHECK(acquired->result->status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("the client's own limit") {
  ClientOptions options = World::Options();
  options.operations_max = 2;
  World world(options);
  world.Acquire("db");
  world.Acquire("db");
  auto acquired = world.Acquire("db");
  CHECK(acquired->result->status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(ErrorReason(acquired->result->status()) == "LIMIT_REACHED");
}

TEST_CASE("closing releases, says close, and ends with the stream") {
  World world;
  auto held = world.Holding();
  auto released = world.Release(*held);
  world.machine.Close(world.now);
  world.Effect();
  const v1::SessionRequest last = world.Next();
  CHECK(last.commands_size() == 1);
  CHECK(last.close());
  CHECK_FALSE(world.machine.closed());
  world.Released(2);
  CHECK((*released)->ok());
  world.End(absl::StatusCode::kOk);
  CHECK(world.machine.closed());
}

TEST_CASE("closing is bounded when nobody answers") {
  World world;
  world.Holding();
  world.machine.Close(world.now);
  world.Next();
  world.Advance(World::Options().release_timeout);
  CHECK(world.machine.closed());
}

TEST_CASE("a client that wants nothing does not reconnect") {
  World world;
  auto held = world.Holding();
  world.Release(*held);
  world.Next();
  world.Released(2);
  world.End(absl::StatusCode::kUnavailable);
  world.Advance(std::chrono::seconds(5));
  CHECK_FALSE(world.machine.StartConnecting(&world.endpoint, world.now));
  CHECK(world.machine.NextDue(true) == kNever);
  world.Acquire("db");
  CHECK(world.Connect().resume_session_id() == "s1");
}

}  // namespace
}  // namespace semaphore
