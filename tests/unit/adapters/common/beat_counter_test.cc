#include "adapters/common/beat_counter.h"

#include <catch2/catch_test_macros.hpp>

namespace semaphored {

namespace {

// A node's row, and a heartbeat of one of the processes that take it for theirs.
struct BeatRow {
  uint64_t counter = 7;
  bool Beat(BeatCounter* of) {
    if (!of->MayBe(counter)) return false;
    counter = of->next();
    of->Sent();
    return true;
  }
};

}  // namespace

TEST_CASE("beat counter: two processes with one row cannot both count") {
  BeatRow row;
  BeatCounter a;
  BeatCounter b;
  a.Joined(row.counter);
  b.Joined(row.counter);
  CHECK(row.Beat(&a));
  CHECK_FALSE(row.Beat(&b));
  CHECK(row.Beat(&a));
  CHECK_FALSE(row.Beat(&b));
  CHECK(row.counter == 9);
}

TEST_CASE("beat counter: a heartbeat whose answer was lost is its own, carried out or not") {
  for (const bool carried_out : {false, true}) {
    BeatRow row;
    BeatCounter counter;
    counter.Joined(row.counter);
    const BeatCounter late = counter;  // As the lost one has it in its condition.
    if (carried_out) row.counter = counter.next();
    counter.Sent();
    const uint64_t before = row.counter;
    CHECK(row.Beat(&counter));
    CHECK(row.counter > before);
    CHECK_FALSE(late.MayBe(row.counter));
  }
}

TEST_CASE("beat counter: a store that lost the last heartbeats is no reason to end") {
  BeatRow row;
  BeatCounter counter;
  counter.Joined(row.counter);
  CHECK(row.Beat(&counter));
  CHECK(row.Beat(&counter));
  row.counter -= 2;
  CHECK(row.Beat(&counter));
  CHECK(row.counter == 10);
}

}  // namespace semaphored
