#include "adapters/ledger/state/state.h"

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <string>

#include <catch2/catch_test_macros.hpp>

#include "adapters/commands.h"
#include "tests/unit/adapters/ledger/support.h"

namespace semaphored::ledger {
namespace {

LeaseChange Granted(LeasePtr lease) { return {nullptr, std::move(lease), EndCause::kNone}; }
LeaseChange Ended(LeasePtr lease) { return {std::move(lease), nullptr, EndCause::kReleased}; }
WaiterChange Queued(WaiterPtr waiter) { return {nullptr, std::move(waiter), EndCause::kNone}; }
WaiterChange Left(WaiterPtr waiter) { return {std::move(waiter), nullptr, EndCause::kCancelled}; }

}  // namespace

TEST_CASE("positions in a queue are by priority and order, after any comings and goings") {
  std::mt19937 random(11);
  LedgerState state;
  Semaphore* semaphore = state.Insert(MakeRow("s", 1));
  std::vector<WaiterPtr> expected;
  for (uint64_t i = 1; i < 2'000; ++i) {
    if (random() % 3 != 0 || expected.empty()) {
      const WaiterPtr waiter = MakeWaiter(i, static_cast<int32_t>(random() % 5) - 2, i);
      state.Apply(semaphore, Queued(waiter));
      const auto behind = std::ranges::find_if(
          expected, [&](const WaiterPtr& each) { return each->priority < waiter->priority; });
      expected.insert(behind, waiter);
    } else {
      const auto at = expected.begin() + static_cast<ptrdiff_t>(random() % expected.size());
      state.Apply(semaphore, Left(*at));
      expected.erase(at);
    }
    if (expected.empty()) continue;
    const size_t looked_at = random() % expected.size();
    REQUIRE(semaphore->PositionOf(*expected[looked_at]) == looked_at + 1);
    REQUIRE(semaphore->queue.begin()->second == expected.front());
  }
  CHECK(state.waiter_count() == expected.size());
  CHECK(state.CheckInvariants().empty());
}

TEST_CASE("a state counts what it is given") {
  LedgerState state;
  Semaphore* semaphore = state.Insert(MakeRow("s", 5));
  const LeasePtr wide = MakeLease(1, {1, 3});
  state.Apply(semaphore, Granted(wide));
  state.Apply(semaphore, Granted(MakeLease(2, {2})));
  state.Apply(semaphore, Queued(MakeWaiter(3, 0, 1)));
  CHECK(semaphore->held == 3);
  CHECK(state.lease_count() == 2);
  CHECK(state.waiter_count() == 1);
  CHECK(semaphore->FindLease(MakeId(1)) == wide);
  CHECK(semaphore->FindWaiter(MakeId(1)) == nullptr);
  CHECK(semaphore->FindWaiter(MakeId(3)) != nullptr);
  CHECK(state.CheckInvariants().empty());
  state.Apply(semaphore, Ended(wide));
  CHECK(semaphore->held == 1);
  CHECK(semaphore->slots.LowestFree(1) == Slots{1});
  CHECK(state.CheckInvariants().empty());
}

TEST_CASE("a change with before and after exchanged undoes it") {
  LedgerState state;
  SemaphoreRow row = MakeRow("s", 5);
  row.settings.permits_per_holder = 3;
  Semaphore* semaphore = state.Insert(row);
  const LeasePtr before = MakeLease(1, {1, 2, 3});
  const LeasePtr after = MakeLease(1, {2});
  state.Apply(semaphore, Granted(before));
  const std::string picture = Picture(state);
  state.Apply(semaphore, LeaseChange{before, after, EndCause::kNone});
  CHECK(Picture(state) != picture);
  state.Apply(semaphore, LeaseChange{after, before, EndCause::kNone});
  CHECK(Picture(state) == picture);
}

TEST_CASE("permits are counted by holder just while there is a cap") {
  LedgerState state;
  Semaphore* semaphore = state.Insert(MakeRow("s", 9));
  state.Apply(semaphore, Granted(MakeLease(1, {1, 2}, "x")));
  CHECK(semaphore->held_by.empty());
  SemaphoreRow row = semaphore->row;
  row.settings.permits_per_holder = 4;
  state.SetRow(semaphore, row);
  CHECK(semaphore->held_by.at("x") == 2);
  const LeasePtr more = MakeLease(2, {3}, "x");
  state.Apply(semaphore, Granted(more));
  state.Apply(semaphore, Granted(MakeLease(3, {4}, "y")));
  CHECK(semaphore->held_by.at("x") == 3);
  state.Apply(semaphore, Ended(more));
  CHECK(semaphore->held_by.at("x") == 2);
  CHECK(state.CheckInvariants().empty());
  row.settings.permits_per_holder = 0;
  state.SetRow(semaphore, row);
  CHECK(semaphore->held_by.empty());
}

TEST_CASE("a session's claims are found, a detached claim is no session's") {
  LedgerState state;
  Semaphore* semaphore = state.Insert(MakeRow("s", 9));
  const Id session = MakeId(100);
  const LeasePtr lease = MakeLease(1, {1});
  lease->session = session;
  const WaiterPtr waiter = MakeWaiter(2, 0, 1);
  waiter->session = session;
  state.Apply(semaphore, Granted(lease));
  state.Apply(semaphore, Queued(waiter));
  const LeasePtr detached = MakeLease(3, {2});
  state.Apply(semaphore, Granted(detached));
  CHECK(state.ClaimsOf(session).size() == 2);
  CHECK(state.ClaimsOf(session).at(MakeId(2)) == semaphore);
  CHECK(state.ClaimsOf(detached->id).empty());
  state.Apply(semaphore, Ended(lease));
  state.Apply(semaphore, Left(waiter));
  CHECK(state.ClaimsOf(session).empty());
}

TEST_CASE("a waiting request is found by its id, and a client's claims are counted") {
  LedgerState state;
  Semaphore* semaphore = state.Insert(MakeRow("s", 9));
  const WaiterPtr waiter = MakeWaiter(1, 0, 1);
  waiter->request = {7, 3};
  state.Apply(semaphore, Queued(waiter));
  const LeasePtr lease = MakeLease(2, {1});
  lease->request = {7, 4};
  state.Apply(semaphore, Granted(lease));
  CHECK(state.FindWaiting({7, 3}).second == waiter);
  CHECK(state.FindWaiting({7, 3}).first == semaphore);
  CHECK(state.FindWaiting({7, 4}).second == nullptr);
  CHECK(state.ClaimCountOf(7) == 2);
  state.Apply(semaphore, Left(waiter));
  CHECK(state.FindWaiting({7, 3}).second == nullptr);
  CHECK(state.ClaimCountOf(7) == 1);
  CHECK(state.ClaimCountOf(8) == 0);
}

TEST_CASE("a request that waits again is found, whenever the end of its earlier wait is heard of") {
  LedgerState state;
  Semaphore* a = state.Insert(MakeRow("a", 1));
  Semaphore* b = state.Insert(MakeRow("b", 1));
  const WaiterPtr earlier = MakeWaiter(1, 0, 1);
  const WaiterPtr later = MakeWaiter(2, 0, 1);
  earlier->request = later->request = {5, 7};
  state.Apply(a, Queued(earlier));
  state.Apply(b, Queued(later));
  state.Apply(a, Left(earlier));
  CHECK(state.FindWaiting({5, 7}) == std::pair(b, later));
  state.Apply(b, Left(later));
  CHECK(state.FindWaiting({5, 7}).second == nullptr);
}

TEST_CASE("a granted request is found by its id while its lease stands") {
  LedgerState state;
  Semaphore* semaphore = state.Insert(MakeRow("s", 9));
  const LeasePtr lease = MakeLease(2, {1});
  lease->request = {7, 4};
  state.Apply(semaphore, Granted(lease));
  state.Apply(semaphore, Granted(MakeLease(3, {2})));  // Its request has no id.
  CHECK(state.FindGranted({7, 4}).second == lease);
  CHECK(state.FindGranted({7, 4}).first == semaphore);
  CHECK(state.FindGranted({7, 3}).second == nullptr);
  CHECK(state.FindGranted({0, 0}).second == nullptr);
  const auto moved = std::make_shared<Lease>(*lease);
  moved->epoch = 2;
  state.Apply(semaphore, LeaseChange{lease, moved, EndCause::kNone});
  CHECK(state.FindGranted({7, 4}).second == moved);
  // A client that uses an id twice, at two daemons.
  const LeasePtr again = MakeLease(5, {3});
  again->request = {7, 4};
  state.Apply(semaphore, Granted(again));
  state.Apply(semaphore, LeaseChange{moved, nullptr, EndCause::kReleased});
  CHECK(state.FindGranted({7, 4}).second == again);
  CHECK(state.CheckInvariants().empty());
  state.Apply(semaphore, LeaseChange{again, nullptr, EndCause::kReleased});
  CHECK(state.FindGranted({7, 4}).second == nullptr);
}

TEST_CASE("semaphores are found by name and gone through in order") {
  LedgerState state;
  for (const char* name : {"b", "a/2", "a", "c"}) state.Insert(MakeRow(name, 1));
  CHECK(state.Find("a/2")->row.name == "a/2");
  CHECK(state.Find("a/") == nullptr);
  std::vector<std::string> names;
  for (auto at = state.From("a/"); at != state.end(); ++at) names.push_back(at->first);
  CHECK(names == std::vector<std::string>{"a/2", "b", "c"});
  state.Erase("b");
  CHECK(state.Find("b") == nullptr);
  CHECK(state.semaphore_count() == 3);
  CHECK(state.CheckInvariants().empty());
}

TEST_CASE("broken invariants are found") {
  LedgerState state;
  SemaphoreRow row = MakeRow("s", 9);
  row.settings.permits_per_holder = 5;
  Semaphore* semaphore = state.Insert(row);
  const LeasePtr lease = MakeLease(1, {1});
  const WaiterPtr waiter = MakeWaiter(2, 0, 1);
  state.Apply(semaphore, Granted(lease));
  state.Apply(semaphore, Queued(waiter));
  REQUIRE(state.CheckInvariants().empty());
  SECTION("a count") { semaphore->held = 2; }
  SECTION("a slot in the map") { semaphore->slots.Free({1}, lease->id); }
  SECTION("two leases of one slot") { state.Apply(semaphore, Granted(MakeLease(3, {1}))); }
  SECTION("slot 0") { lease->slots = {0}; }
  SECTION("slots and permits") { lease->permits = 2; }
  SECTION("a claim that is both") { semaphore->waiters[lease->id] = MakeWaiter(1, 0, 2); }
  SECTION("a queue without its waiter") { semaphore->waiters.clear(); }
  SECTION("a waiter at a wrong place") { waiter->priority = 5; }
  SECTION("a lease under another id") { lease->id = MakeId(9); }
  SECTION("permits by holder") { semaphore->held_by["h"] = 7; }
  SECTION("a claim of a session that is not filed") { lease->session = MakeId(50); }
  SECTION("a waiting request that is not filed") { waiter->request = {1, 1}; }
  CHECK_FALSE(state.CheckInvariants().empty());
}

TEST_CASE("lanes with a book count together what an identity has made, and each semaphore once") {
  const auto book = std::make_shared<OwnerBook>();
  LedgerState first({.book = book, .lane = 0, .lanes = 2});
  LedgerState second({.book = book, .lane = 1, .lanes = 2});
  LedgerState alone;
  size_t names = 0;
  std::array<size_t, 2> in_lane = {};
  while (in_lane[0] < 2 || in_lane[1] < 2) {
    SemaphoreRow row = MakeRow("s" + std::to_string(names++), 1);
    row.owner = "alice";
    ++in_lane.at(LaneOf(row.name, 2));
    // Lane 0 also loads semaphores of lane 1, of a session that it adopts.
    first.Insert(row);
    if (LaneOf(row.name, 2) == 1) second.Insert(row);
  }
  CHECK(first.UsageOf("alice").semaphores == names);
  CHECK(second.UsageOf("alice").semaphores == names);
  CHECK(alone.UsageOf("alice").semaphores == 0);
  CHECK(first.UsageOf("bob") == OwnerUsage());
  CHECK(first.CheckInvariants().empty());
  CHECK(second.CheckInvariants().empty());
  for (size_t i = 0; i < names; ++i) {
    const std::string name = "s" + std::to_string(i);
    first.Erase(name);
    second.Erase(name);
  }
  CHECK(first.UsageOf("alice") == OwnerUsage());
}

TEST_CASE("a semaphore that gets another owner is counted for the new one") {
  LedgerState state;
  SemaphoreRow row = MakeRow("s", 1);
  row.owner = "alice";
  Semaphore* semaphore = state.Insert(row);
  row.owner = "bob";
  state.SetRow(semaphore, row);
  CHECK(state.UsageOf("alice") == OwnerUsage());
  CHECK(state.UsageOf("bob").semaphores == 1);
  CHECK(state.CheckInvariants().empty());
}

}  // namespace semaphored::ledger
