// Which spans a claim has, and what links them across a hand-off.
#include "server/sessions/lease_spans.h"

#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/sessions/sessions_world.h"

namespace semaphored {
namespace {

class KeptSpans : public SpanSink {
 public:
  void Push(Span span) override { spans.push_back(std::move(span)); }
  std::vector<Span> spans;
};

struct SpanWorld {
  ManualClock clock;
  KeptSpans sink;
  LeaseSpans spans{&clock, &sink};

  void Pass(int64_t ms) { clock.Advance(Milliseconds(ms)); }
  const Span& Last() const { return sink.spans.at(sink.spans.size() - 1); }
};

Lease LeaseOn(std::vector<uint32_t> slots, uint64_t token = 1) {
  Lease lease;
  lease.permits = static_cast<uint32_t>(slots.size());
  lease.slots = Slots(std::move(slots));
  lease.token = token;
  lease.holder = "me";
  return lease;
}

const TraceContext kTrace{1, 2, 3};

TEST_CASE("spans: a wait and a hold have the caller's span as their parent") {
  SpanWorld world;
  const auto claim = world.spans.Asked(kTrace);
  world.Pass(20);
  world.spans.Granted("s", LeaseOn({1}, 9), claim.get());
  REQUIRE(world.sink.spans.size() == 1);
  const Span wait = world.Last();
  CHECK(std::string(wait.name) == "wait");
  CHECK(wait.trace_high == 1);
  CHECK(wait.trace_low == 2);
  CHECK(wait.parent == 3);
  CHECK(wait.outcome == "GRANTED");
  CHECK(wait.token == 9);
  CHECK(wait.ended_unix_ns - wait.began_unix_ns == 20'000'000);
  CHECK(wait.links.empty());
  world.Pass(50);
  world.spans.Ended("s", LeaseOn({1}, 9), EndCause::kReleased, claim.get());
  REQUIRE(world.sink.spans.size() == 2);
  const Span hold = world.Last();
  CHECK(std::string(hold.name) == "hold");
  CHECK(hold.parent == 3);
  CHECK(hold.id != wait.id);
  CHECK(hold.outcome == "RELEASED");
  CHECK_FALSE(hold.failed);
  CHECK(hold.ended_unix_ns - hold.began_unix_ns == 50'000'000);
  // Once each.
  world.spans.Ended("s", LeaseOn({1}, 9), EndCause::kReleased, claim.get());
  world.spans.Refused("s", "FULL", claim.get());
  CHECK(world.sink.spans.size() == 2);
}

TEST_CASE("spans: the wait that a release lets in has a link to that hold") {
  SpanWorld world;
  const auto first = world.spans.Asked({});
  world.spans.Granted("s", LeaseOn({1}), first.get());
  world.Pass(5);
  const auto second = world.spans.Asked(kTrace);
  world.Pass(5);
  SECTION("the end is known before the grant") {
    world.spans.Ended("s", LeaseOn({1}), EndCause::kExpired, first.get());
    CHECK(world.Last().failed);
    world.spans.Granted("s", LeaseOn({1}), second.get());
  }
  SECTION("the end is known after the grant") {
    world.spans.Granted("s", LeaseOn({1}), second.get());
    world.spans.Ended("s", LeaseOn({1}), EndCause::kExpired, first.get());
  }
  const Span* wait = nullptr;
  const Span* hold = nullptr;
  for (const Span& span : world.sink.spans) {
    if (span.trace_low == 2) wait = &span;
    if (std::string(span.name) == "hold") hold = &span;
  }
  REQUIRE(wait != nullptr);
  REQUIRE(hold != nullptr);
  CHECK(wait->links == std::vector<SpanLink>{{hold->trace_high, hold->trace_low, hold->id}});
  // A request that comes later has waited for no release.
  world.spans.Ended("s", LeaseOn({1}), EndCause::kReleased, second.get());
  world.Pass(5);
  const auto third = world.spans.Asked(kTrace);
  world.spans.Granted("s", LeaseOn({1}), third.get());
  CHECK(world.Last().links.empty());
}

TEST_CASE("spans: of many slots there is a link to each hold, once") {
  SpanWorld world;
  const auto one = world.spans.Asked({});
  world.spans.Granted("s", LeaseOn({1, 2}), one.get());
  const auto two = world.spans.Asked({});
  world.spans.Granted("s", LeaseOn({3}), two.get());
  const auto wide = world.spans.Asked({});
  world.spans.Ended("s", LeaseOn({1, 2}), EndCause::kReleased, one.get());
  world.spans.Ended("s", LeaseOn({3}), EndCause::kReleased, two.get());
  world.spans.Granted("s", LeaseOn({1, 2, 3}), wide.get());
  CHECK(world.Last().links.size() == 2);
}

TEST_CASE("spans: what is refused, what is not sampled, and what no sink is there for") {
  SpanWorld world;
  const auto claim = world.spans.Asked(kTrace);
  world.spans.Refused("s", "FULL", claim.get());
  CHECK(world.Last().outcome == "FULL");
  CHECK(world.Last().failed);
  CHECK(world.sink.spans.size() == 1);

  TraceContext unsampled = kTrace;
  unsampled.sampled = false;
  CHECK(world.spans.Asked(unsampled) == nullptr);
  LeaseSpans none(&world.clock, nullptr);
  CHECK(none.Asked(kTrace) == nullptr);
  CHECK(none.Assigned("s", LeaseOn({1}), kTrace) == nullptr);
  none.Granted("s", LeaseOn({1}), nullptr);
  none.Refused("s", "FULL", nullptr);
  none.Ended("s", LeaseOn({1}), EndCause::kReleased, nullptr);
  CHECK(world.sink.spans.size() == 1);
}

TEST_CASE("spans: a ticket has a hold, and no wait") {
  SpanWorld world;
  const auto claim = world.spans.Assigned("s", LeaseOn({1}), kTrace);
  world.spans.Ended("s", LeaseOn({1}), EndCause::kReleased, claim.get());
  REQUIRE(world.sink.spans.size() == 1);
  CHECK(std::string(world.Last().name) == "hold");
}

}  // namespace
}  // namespace semaphored
