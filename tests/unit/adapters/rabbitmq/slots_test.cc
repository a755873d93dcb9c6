// layout=slots on a real broker: the queues, as others see them.
#include <algorithm>
#include <chrono>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "adapters/rabbitmq/slot_broker.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/rabbitmq/slots_support.h"

namespace semaphored::rabbitmq::slots_test {
namespace {

using std::chrono::seconds;
using Attempt = SlotBroker::Attempt;

TEST_CASE("rabbitmq slots: the queues are those of amqp-locks, with their arguments",
          "[rabbitmq]") {
  const Name name;
  Other ours;
  Other other;
  REQUIRE(ours.Create(name.text, 2).ok());
  REQUIRE(ours.broker.TryTake(name.text, 2).value() == Attempt::kTaken);
  // Declared anew with equal arguments they are the same, otherwise that is refused.
  CHECK(other.DeclareSlot(name.text, 1).ok());
  CHECK(other.DeclareSlot(name.text, 2).ok());
  CHECK_FALSE(other.Declare(name.text + "-A-1", {.durable = true}).ok());
  CHECK_FALSE(other.Declare(name.text + "-A-1", {.durable = false, .messages_max = 0}).ok());
  CHECK_FALSE(other.Exists(name.text + "-A-3"));
  CHECK_FALSE(other.Exists(name.text + "-A-0"));
  CHECK(ours.Hold(name.text, 2).ok());
  CHECK_FALSE(ours.Declare(name.text + "-B-2", {.durable = false, .exclusive = true}).ok());
  CHECK(absl::IsAlreadyExists(other.Hold(name.text, 2)));
  CHECK_FALSE(other.Exists(name.text + "-B-1"));
  CHECK_FALSE(other.Exists(name.text));  // The mutex was given back.
}

TEST_CASE("rabbitmq slots: the size is where the first gap is", "[rabbitmq]") {
  const Name name;
  Other other;
  CHECK(other.broker.Look(name.text, 1).value().size == 0);
  for (const uint32_t slot : {1, 2, 4, 5, 19}) REQUIRE(other.DeclareSlot(name.text, slot).ok());
  // Whatever was expected.
  for (const uint32_t guess : {0, 1, 2, 3, 7, 40}) {
    CAPTURE(guess);
    const SlotView view = other.broker.Look(name.text, guess).value();
    CHECK(view.size == 2);
    CHECK(view.looked >= std::max(guess, 3u));
  }
  REQUIRE(other.Hold(name.text, 5).ok());
  const SlotView wide = other.broker.Look(name.text, 1, kOvershoot).value();
  CHECK(wide.strays == std::set<uint32_t>{4, 5});
  CHECK(wide.taken == std::set<uint32_t>{5});
  // One that begins with a gap is none.
  REQUIRE(other.Delete(name.text + "-A-1").ok());
  CHECK(other.broker.Look(name.text, 1).value().size == 0);
  for (const uint32_t slot : {2, 4, 5, 19})
    REQUIRE(other.Delete(absl::StrCat(name.text, "-A-", slot)).ok());
}

TEST_CASE("rabbitmq slots: hundreds of slots are probed in a few round trips", "[rabbitmq]") {
  const Name name;
  Other other;
  REQUIRE(other.Create(name.text, 300).ok());
  CHECK(other.broker.Look(name.text, 1).value().size == 300);
  const auto begun = SteadyClock::now();
  CHECK(other.broker.Look(name.text, 301).value().size == 300);
  CHECK(SteadyClock::now() - begun < seconds(2));
  REQUIRE(other.Destroy(name.text).ok());
  CHECK(other.broker.Look(name.text, 1, kOvershoot).value().size == 0);
}

TEST_CASE("rabbitmq slots: slots are added and removed at the top", "[rabbitmq]") {
  const Name name;
  Other other;
  REQUIRE(other.Create(name.text, 2).ok());
  CHECK(absl::IsAlreadyExists(other.Create(name.text, 2)));
  REQUIRE(other.Resize(name.text, 2, 5).ok());
  CHECK(other.Size(name.text) == 5);
  CHECK(absl::IsAborted(other.Resize(name.text, 2, 3)));
  REQUIRE(other.Hold(name.text, 5).ok());
  REQUIRE(other.Resize(name.text, 5, 3).ok());
  CHECK(other.Size(name.text) == 3);
  // Whoever had the fifth still has it.
  CHECK(other.broker.Look(name.text, 5).value().taken == std::set<uint32_t>{5});
  REQUIRE(other.Destroy(name.text).ok());
  CHECK(other.Size(name.text) == 0);
  CHECK(other.Destroy(name.text).ok());
  CHECK(other.broker.Look(name.text, 5).value().taken == std::set<uint32_t>{5});
}

TEST_CASE("rabbitmq slots: every act deletes what it finds beyond the end", "[rabbitmq]") {
  const Name name;
  Other other;
  const auto strays = [&] { return other.broker.Look(name.text, 1, 40).value().strays; };
  REQUIRE(other.DeclareSlot(name.text, 4).ok());
  REQUIRE(other.Create(name.text, 2).ok());
  CHECK(strays().empty());
  REQUIRE(other.DeclareSlot(name.text, 18).ok());
  REQUIRE(other.DeclareSlot(name.text, 4).ok());
  REQUIRE(other.Resize(name.text, 2, 3).ok());
  CHECK(other.Size(name.text) == 3);  // Not five: the stray fourth went first.
  CHECK(strays().empty());
  REQUIRE(other.DeclareSlot(name.text, 19).ok());
  REQUIRE(other.Resize(name.text, 3, 1).ok());
  CHECK(strays().empty());
  REQUIRE(other.DeclareSlot(name.text, 3).ok());
  REQUIRE(other.DeclareSlot(name.text, 17).ok());
  CHECK(other.broker.DeleteStrays(name.text).value() == 2);
  CHECK(other.broker.DeleteStrays(name.text).value() == 0);
  CHECK(other.Size(name.text) == 1);
  REQUIRE(other.DeclareSlot(name.text, 3).ok());
  REQUIRE(other.Destroy(name.text).ok());
  CHECK(strays().empty());
}

TEST_CASE("rabbitmq slots: every act needs the mutex, and gives it back also when it fails",
          "[rabbitmq]") {
  const Name name;
  Other ours;
  REQUIRE(ours.Create(name.text, 1).ok());
  {
    Other other;
    REQUIRE(
        other.Declare(name.text, {.durable = false, .exclusive = true, .messages_max = 0}).ok());
    CHECK(absl::IsUnavailable(ours.Create(name.text, 1)));
    CHECK(absl::IsUnavailable(ours.Resize(name.text, 1, 2)));
    CHECK(absl::IsUnavailable(ours.broker.DeleteStrays(name.text).status()));
    CHECK(absl::IsUnavailable(ours.Destroy(name.text)));
    CHECK(ours.Size(name.text) == 1);
    REQUIRE(other.Delete(name.text).ok());
    // Acts that fail midway: there is a queue that is somebody's own.
    REQUIRE(other.Declare(name.text + "-A-5", {.durable = false, .exclusive = true}).ok());
    CHECK(absl::IsUnavailable(ours.Resize(name.text, 1, 2)));
    CHECK(absl::IsUnavailable(ours.broker.DeleteStrays(name.text).status()));
    CHECK(absl::IsUnavailable(ours.Destroy(name.text)));
    CHECK(ours.Size(name.text) == 1);
    CHECK_FALSE(other.Exists(name.text));
    REQUIRE(other.Delete(name.text + "-A-5").ok());
    CHECK(absl::IsAlreadyExists(ours.Create(name.text, 1)));
    CHECK(absl::IsAborted(ours.Resize(name.text, 2, 3)));
    CHECK_FALSE(other.Exists(name.text));
  }
  CHECK(ours.Destroy(name.text).ok());
}

TEST_CASE("rabbitmq slots: who loses a race loses a channel, and nothing that it holds",
          "[rabbitmq]") {
  const Name name;
  Other ours;
  Other other;
  REQUIRE(ours.Create(name.text, 2).ok());
  REQUIRE(ours.broker.TryTake(name.text, 1).value() == Attempt::kTaken);
  REQUIRE(other.broker.TryTake(name.text, 2).value() == Attempt::kTaken);
  const uint64_t life = ours.connection->life();
  for (int i = 0; i < 20; ++i) CHECK(ours.broker.TryTake(name.text, 2).value() == Attempt::kHeld);
  CHECK(ours.connection->is_open());
  CHECK(ours.connection->life() == life);
  CHECK(other.broker.TryTake(name.text, 1).value() == Attempt::kHeld);
  CHECK(ours.broker.IsOurs(name.text, 1).value());
  CHECK_FALSE(ours.broker.IsOurs(name.text, 2).value());
  // A slot that is there no more is not taken, and nothing is left behind.
  CHECK(ours.broker.TryTake(name.text, 3).value() == Attempt::kNoSlot);
  CHECK_FALSE(other.Exists(name.text + "-B-3"));
}

TEST_CASE("rabbitmq slots: names and sizes that cannot be", "[rabbitmq]") {
  CHECK(WhyNoSlots("jobs", 1).empty());
  CHECK(WhyNoSlots("jobs-A-", 1).empty());
  CHECK(WhyNoSlots("jobs-C-1", 1).empty());
  CHECK(WhyNoSlots("-1", 1).empty());
  CHECK_FALSE(WhyNoSlots("jobs-A-1", 1).empty());
  CHECK_FALSE(WhyNoSlots("jobs-B-27", 1).empty());
  CHECK_FALSE(WhyNoSlots("jobs", 0).empty());
  CHECK_FALSE(WhyNoSlots("jobs", kSlotsMax + 1).empty());
  CHECK_FALSE(WhyNoSlots(std::string(250, 'x'), 1).empty());
  Daemon daemon;
  CHECK(daemon.Acquire("jobs-A-1", false, 2).kind == OutcomeKind::kUnsupported);
  CHECK(daemon.Acquire(std::string(250, 'x'), false, 2).kind == OutcomeKind::kUnsupported);
  CHECK(daemon.Acquire(std::string(250, 'x')).kind == OutcomeKind::kNoSuchSemaphore);
  const Name name;
  daemon.Create(name.text, 1);
  CHECK(daemon.Resize(name.text, 0).kind == OutcomeKind::kUnsupported);
  CHECK(daemon.Resize(name.text, kSlotsMax + 1).kind == OutcomeKind::kUnsupported);
}

}  // namespace
}  // namespace semaphored::rabbitmq::slots_test
