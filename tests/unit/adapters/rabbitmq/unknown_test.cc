// Acts whose connection breaks midway: what has become of them is found out before it is told.
#include <chrono>
#include <cstdint>
#include <string>

#include "catch2/catch_test_macros.hpp"
#include "catch2/generators/catch_generators.hpp"
#include "tests/unit/adapters/rabbitmq/daemon.h"
#include "tests/unit/adapters/rabbitmq/slots_support.h"
#include "tests/unit/relay.h"

namespace semaphored::rabbitmq {
namespace {

Command CreateOf(const std::string& name, uint32_t limit) {
  AdminCreate create;
  create.limit = limit;
  return AdminCommand{{}, name, 0, create};
}

Command ResizeOf(const std::string& name, uint32_t limit) {
  AdminResize resize;
  resize.amount = limit;
  resize.limit_max = 1000;
  return AdminCommand{{}, name, 0, resize};
}

// Behind a relay that loses the broker's answers: it gives its connections up, and makes new ones.
struct Troubled {
  Relay relay{TestPort()};
  Daemon daemon;

  explicit Troubled(const std::string& options)
      : daemon(std::chrono::milliseconds(100),
               TestUrlThrough(relay.port(), "?heartbeat_s=1&timeout_ms=800" + options)) {
    // All its connections are there.
    CHECK(daemon.Acquire("unit test: none").kind == OutcomeKind::kNoSuchSemaphore);
  }

  // What came of it, for certain.
  absl::StatusOr<Outcome> DoThrough(Command command, size_t answer_bytes) {
    relay.LoseAnswersAfter(answer_bytes);
    return std::move(daemon.DoAll({std::move(command)})[0]);
  }
};

TEST_CASE("rabbitmq unknown: slots are added all or not at all, and removed to the end",
          "[rabbitmq]") {
  const slots_test::Name name;
  slots_test::Other other;
  Troubled troubled("&layout=slots");
  // Enough for the mutex; then it breaks somewhere, also in the middle.
  const size_t bytes = GENERATE(30, 200);
  SECTION("made") {
    const auto made = troubled.DoThrough(CreateOf(name.text, 12), bytes);
    CAPTURE(made.status().ToString());
    CHECK(other.Size(name.text) == (made.ok() ? 12 : 0));
  }
  SECTION("raised") {
    REQUIRE(other.Create(name.text, 2).ok());
    const auto raised = troubled.DoThrough(ResizeOf(name.text, 14), bytes);
    CAPTURE(raised.status().ToString());
    CHECK(other.Size(name.text) == (raised.ok() ? 14 : 2));
  }
  SECTION("lowered") {
    REQUIRE(other.Create(name.text, 14).ok());
    const auto lowered = troubled.DoThrough(ResizeOf(name.text, 2), bytes);
    CAPTURE(lowered.status().ToString());
    CHECK(other.Size(name.text) == (lowered.ok() ? 2 : 14));
  }
  SECTION("destroyed") {
    REQUIRE(other.Create(name.text, 12).ok());
    const auto gone = troubled.DoThrough(AdminCommand{{}, name.text, 0, AdminDestroy{}}, bytes);
    CAPTURE(gone.status().ToString());
    CHECK(other.Size(name.text) == (gone.ok() ? 0 : 12));
  }
}

TEST_CASE("rabbitmq unknown: of tokens, what an act has done is what it says", "[rabbitmq]") {
  const Name name;
  Daemon other;
  Troubled troubled("");
  // Once the broker has given up the connection that broke, with its mutexes.
  const auto limit = [&]() -> uint32_t {
    for (;;) {
      const auto outcomes = other.DoAll({AdminCommand{{}, name.text, 0, AdminDescribe{0}}});
      const auto& outcome = outcomes[0];
      if (absl::IsUnavailable(outcome.status())) continue;
      return outcome->kind == OutcomeKind::kDone ? outcome->report->info->row.limit : 0;
    }
  };
  const size_t bytes = GENERATE(900, 2100);
  SECTION("made") {
    const auto made = troubled.DoThrough(CreateOf(name.text, 3), bytes);
    CAPTURE(made.status().ToString());
    CHECK(limit() == (made.ok() ? 3 : 0));
  }
  SECTION("raised") {
    other.Create(name.text, 2);
    const auto raised = troubled.DoThrough(ResizeOf(name.text, 5), bytes);
    CAPTURE(raised.status().ToString());
    CHECK(limit() == (raised.ok() ? 5 : 2));
  }
  SECTION("destroyed") {
    other.Create(name.text, 2);
    const auto gone = troubled.DoThrough(AdminCommand{{}, name.text, 0, AdminDestroy{}}, bytes);
    CAPTURE(gone.status().ToString());
    CHECK(limit() == (gone.ok() ? 0 : 2));
  }
}

// Nobody else's semaphore is destroyed because an answer was late.
TEST_CASE("rabbitmq unknown: a destroy leaves alone what was made since", "[rabbitmq]") {
  const Name name;
  const auto connection = Connect();
  TokenBroker broker(connection.get());
  SemaphoreRow row;
  row.name = name.text;
  row.limit = 1;
  bool begun = false;
  const uint64_t first = Persist([&] { return broker.Create(row, 1, &begun); }).value().incarnation;
  REQUIRE(Persist([&] { return broker.Destroy(name.text, first, &begun); }).ok());
  const uint64_t second =
      Persist([&] { return broker.Create(row, 2, &begun); }).value().incarnation;
  begun = false;
  CHECK(Persist([&] { return broker.Destroy(name.text, first, &begun); }).ok());
  CHECK_FALSE(begun);
  CHECK(broker.Read(name.text).value().has_value());
  CHECK(Persist([&] { return broker.Destroy(name.text, second, &begun); }).ok());
  CHECK_FALSE(broker.Read(name.text).value().has_value());
}

// "Full" would be an answer about the semaphore, which nobody could ask about.
TEST_CASE("rabbitmq unknown: who does not wait is not told that it is full if it cannot be seen",
          "[rabbitmq]") {
  const std::string layout = GENERATE(std::string("tokens"), std::string("slots"));
  const Name name;
  const slots_test::Name slots_name;
  const std::string& text = layout == "slots" ? slots_name.text : name.text;
  Troubled troubled("&layout=" + layout);
  // (Of its own leases a daemon need not ask.)
  Daemon other(std::chrono::milliseconds(100), TestUrl("?layout=" + layout));
  other.Create(text, 1);
  REQUIRE(other.Acquire(text).kind == OutcomeKind::kGranted);
  REQUIRE(troubled.daemon.Acquire(text).kind == OutcomeKind::kFull);
  troubled.relay.LoseAllAnswers();
  AcquireCommand acquire;
  acquire.semaphore = text;
  acquire.claim = acquire.session = NewClaim();
  acquire.ttl_ms = 30'000;
  // (A busy one is told as UNAVAILABLE, too.)
  const auto outcomes = troubled.daemon.DoAll({acquire});
  if (outcomes[0].ok()) {
    CHECK(outcomes[0]->kind == OutcomeKind::kBusy);
  } else {
    CHECK(absl::IsUnavailable(outcomes[0].status()));
  }
}

TEST_CASE("rabbitmq unknown: what cannot be asked for one semaphore holds up no other",
          "[rabbitmq]") {
  const Name bad;
  const Name good;
  Daemon daemon(std::chrono::hours(1));
  daemon.Create(bad.text, 1);
  daemon.Create(good.text, 2);
  const LeasePtr lease = daemon.Grant(good.text);
  // Its queue is now one that only a stranger may ask.
  const auto stranger = Connect();
  const Channel channel = stranger->OpenChannel().value();
  REQUIRE(stranger->Delete(channel, bad.queue()).ok());
  REQUIRE(stranger->Declare(channel, bad.queue(), {.durable = false, .exclusive = true}).ok());
  const auto acquire_of = [](const std::string& semaphore) {
    AcquireCommand acquire;
    acquire.semaphore = semaphore;
    acquire.claim = acquire.session = NewClaim();
    acquire.ttl_ms = 30'000;
    return acquire;
  };
  ReleaseCommand release;
  release.semaphore = good.text;
  release.claim = lease->id;
  AcquireCommand patient = acquire_of(bad.text);
  patient.wait = true;
  const auto results =
      daemon.DoAll({acquire_of(bad.text), acquire_of(good.text), release, patient});
  REQUIRE(results[0].ok());
  CHECK(results[0]->kind == OutcomeKind::kBusy);
  REQUIRE(results[1].ok());
  CHECK(results[1]->kind == OutcomeKind::kGranted);
  REQUIRE(results[2].ok());
  CHECK(results[2]->kind == OutcomeKind::kReleased);
  // Nor who waits for that one.
  REQUIRE(results[3].ok());
  CHECK(results[3]->kind == OutcomeKind::kQueued);
}

}  // namespace
}  // namespace semaphored::rabbitmq
