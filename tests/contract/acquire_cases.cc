// Taking permits: room, limits, slots, creation on first use.
#include "tests/contract/world.h"

namespace semaphored::contract {

CONTRACT_CASE("acquire grants at once while there is room") {
  Daemon& daemon = world.daemon();
  daemon.Create("team/db", 2);
  const LeasePtr lease = daemon.Grant("team/db", {.ttl_ms = 5'000, .holder = "host-1 pid 7"});
  CHECK(lease->slots == Slots{1});
  CHECK(lease->permits == 1);
  CHECK((lease->token != 0) == world.guarantees().fencing);
  CHECK(lease->holder == "host-1 pid 7");
  CHECK(lease->ttl_ms == 5'000);
  CHECK(lease->host == daemon.self());
  CHECK(lease->epoch == 1);
  CHECK(lease->detached());
  CHECK(lease->granted_at_unix_ms == world.now_unix_ms());
  CHECK_FALSE(lease->recall.pending());
  CHECK_FALSE(lease->foreign);
  CHECK(daemon.Describe("team/db").held == 1);
}

CONTRACT_CASE("acquire keeps the claim that the command names") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const AcquireCommand command = world.MakeAcquire("s", {});
  const Outcome outcome = daemon.Do(command);
  REQUIRE(outcome.kind == OutcomeKind::kGranted);
  CHECK(outcome.lease->id == command.claim);
}

CONTRACT_CASE("acquire of what does not exist is refused without a limit") {
  Daemon& daemon = world.daemon();
  CHECK(daemon.Acquire("nobody/made/it", {}).kind == OutcomeKind::kNoSuchSemaphore);
  CHECK(daemon.Acquire("nobody/made/it", {.wait = true}).kind == OutcomeKind::kNoSuchSemaphore);
  CHECK(daemon.Acquire("nobody/made/it", {.adopt_limit = true}).kind ==
        OutcomeKind::kNoSuchSemaphore);
  CHECK_FALSE(daemon.Exists("nobody/made/it"));
}

CONTRACT_CASE("acquire of what must exist makes nothing, and uses what there is") {
  Daemon& daemon = world.daemon();
  for (const bool wait : {false, true}) {
    CHECK(daemon.Acquire("s", {.limit = 2, .must_exist = true, .wait = wait}).kind ==
          OutcomeKind::kNoSuchSemaphore);
  }
  CHECK_FALSE(daemon.Exists("s"));
  daemon.Create("s", 2);
  daemon.Grant("s", {.limit = 2, .must_exist = true});
  daemon.Grant("s", {.must_exist = true});
  const Outcome other = daemon.Acquire("s", {.limit = 3, .must_exist = true});
  CHECK(other.kind == OutcomeKind::kLimitMismatch);
  CHECK(other.limit() == 2);
  CHECK(daemon.Describe("s").row.limit == 2);
}

CONTRACT_CASE("acquire with a limit creates the semaphore with the default settings") {
  Daemon& daemon = world.daemon();
  const LeasePtr lease = daemon.Grant("first/use", {.limit = 3});
  CHECK(lease->slots == Slots{1});
  const SemaphoreInfo info = daemon.Describe("first/use");
  CHECK(info.row.limit == 3);
  CHECK(info.row.settings == Settings{});
  CHECK(info.row.created_at_unix_ms == world.now_unix_ms());
  CHECK(info.row.revision > 0);
  CHECK_FALSE(info.row.paused);
  CHECK(info.held == 1);
}

CONTRACT_CASE("acquire with another limit than the stored one is refused and names it") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 4);
  for (const bool wait : {false, true}) {
    const Outcome outcome = daemon.Acquire("s", {.limit = 5, .wait = wait});
    CHECK(outcome.kind == OutcomeKind::kLimitMismatch);
    CHECK(outcome.limit() == 4);
  }
  CHECK(daemon.Describe("s").row.limit == 4);
  CHECK(daemon.Acquire("s", {.limit = 4}).kind == OutcomeKind::kGranted);
}

CONTRACT_CASE("acquire that adopts the limit takes the stored one as it is") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  daemon.Grant("s", {.limit = 9, .adopt_limit = true});
  CHECK(daemon.Acquire("s", {.limit = 9, .adopt_limit = true}).kind == OutcomeKind::kFull);
  CHECK(daemon.Describe("s").row.limit == 1);
}

CONTRACT_CASE("acquire of more than the limit is refused at once, waiting or not") {
  if (!world.guarantees().weighted) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  for (const bool wait : {false, true}) {
    const Outcome outcome = daemon.Acquire("s", {.permits = 3, .wait = wait});
    CHECK(outcome.kind == OutcomeKind::kExceedsLimit);
    CHECK(outcome.limit() == 2);
  }
  CHECK(daemon.Describe("s").waiting == 0);
}

CONTRACT_CASE("acquire of more than the limit that it brings creates nothing") {
  if (!world.guarantees().weighted) return;
  Daemon& daemon = world.daemon();
  const Outcome outcome = daemon.Acquire("s", {.permits = 3, .limit = 2, .wait = true});
  CHECK(outcome.kind == OutcomeKind::kExceedsLimit);
  CHECK(outcome.limit() == 2);
  CHECK_FALSE(daemon.Exists("s"));
}

CONTRACT_CASE("a full semaphore refuses who does not wait, and nothing changes") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  daemon.Grant("s");
  const uint64_t revision = daemon.Describe("s").row.revision;
  CHECK(daemon.Acquire("s", {}).kind == OutcomeKind::kFull);
  CHECK(daemon.Describe("s").row.revision == revision);
  CHECK(daemon.Describe("s").waiting == 0);
}

CONTRACT_CASE("slots are the lowest free ones") {
  if (!world.guarantees().lowest_slot) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 5);
  std::vector<LeasePtr> leases;
  for (uint32_t slot = 1; slot <= 5; ++slot) {
    leases.push_back(daemon.Grant("s"));
    CHECK(leases.back()->slots == Slots{slot});
  }
  daemon.GiveBack("s", leases[3]->id);
  daemon.GiveBack("s", leases[1]->id);
  CHECK(daemon.Grant("s")->slots == Slots{2});
  CHECK(daemon.Grant("s")->slots == Slots{4});
}

CONTRACT_CASE("a weighted acquire takes the lowest free slots around those of others") {
  if (!world.guarantees().weighted) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 6);
  const LeasePtr first = daemon.Grant("s");
  daemon.Grant("s");
  const LeasePtr third = daemon.Grant("s");
  daemon.GiveBack("s", first->id);
  daemon.GiveBack("s", third->id);
  const LeasePtr wide = daemon.Grant("s", {.permits = 4});
  CHECK(wide->slots == Slots{1, 3, 4, 5});
  CHECK(wide->permits == 4);
  CHECK(daemon.Acquire("s", {.permits = 2}).kind == OutcomeKind::kFull);
  CHECK(daemon.Grant("s")->slots == Slots{6});
}

CONTRACT_CASE("a weighted acquire is served whole or not at all") {
  if (!world.guarantees().weighted) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 4);
  daemon.Grant("s", {.permits = 3});
  CHECK(daemon.Acquire("s", {.permits = 2}).kind == OutcomeKind::kFull);
  CHECK(daemon.Describe("s").held == 3);
  CHECK(daemon.Grant("s")->slots == Slots{4});
}

CONTRACT_CASE("one acquire can take thousands of permits") {
  Daemon& daemon = world.daemon();
  const uint32_t permits = std::min(10'000u, world.guarantees().permits_per_request_max);
  daemon.Create("s", permits);
  const LeasePtr lease = daemon.Grant("s", {.permits = permits});
  CHECK(lease->slots.front() == 1);
  CHECK(lease->slots.back() == permits);
  CHECK(daemon.Acquire("s", {}).kind == OutcomeKind::kFull);
  const Outcome released = daemon.Release("s", lease->id);
  CHECK(released.kind == OutcomeKind::kReleased);
  CHECK(released.released() == permits);
}

CONTRACT_CASE("semaphores do not know of each other") {
  Daemon& daemon = world.daemon();
  // Where the engine keeps no names a name is a part of others: see guarantee_cases.cc.
  const size_t longest = world.guarantees().names ? 255 : 200;
  const std::vector<std::string> names = {"a",   "A",   "a/b", "a/b/c",
                                          "a.b", "a-b", "b",   std::string(longest, 'x')};
  for (const std::string& name : names) CHECK(daemon.Grant(name, {.limit = 1})->slots == Slots{1});
  for (const std::string& name : names) {
    CHECK(daemon.Acquire(name, {}).kind == OutcomeKind::kFull);
    CHECK(daemon.Describe(name).row.name == name);
  }
}

CONTRACT_CASE("a holder's text is kept as it is") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3);
  const std::vector<std::string> texts = {"", "Jürgen's \"build\" — \\ ' ; %s",
                                          std::string(256, 'h')};
  for (const std::string& text : texts) daemon.Grant("s", {.holder = text});
  const SemaphoreInfo info = daemon.Describe("s");
  REQUIRE(info.leases.size() == texts.size());
  for (size_t i = 0; i < texts.size(); ++i) CHECK(info.leases[i]->holder == texts[i]);
}

CONTRACT_CASE("a limit of zero grants nothing") {
  if (!world.CanBeZero()) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  REQUIRE(daemon.Resize("s", 0).kind == OutcomeKind::kDone);
  CHECK(daemon.Acquire("s", {}).kind == OutcomeKind::kExceedsLimit);
  CHECK(daemon.Acquire("s", {.wait = true}).kind == OutcomeKind::kExceedsLimit);
  daemon.CheckHeld("s", 0);
}

CONTRACT_CASE("the clock on the wall decides nothing") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr lease = daemon.Grant("s", {.ttl_ms = 1'000});
  const Id waiter = daemon.Queue("s");
  for (const int64_t unix_ms : {int64_t{0}, int64_t{4'000'000'000'000}}) {
    world.SetWallClock(unix_ms);
    daemon.Poll();
    CHECK(daemon.Verify("s", lease->id).kind == OutcomeKind::kHeld);
    CHECK(WaitersIn(daemon.Describe("s")) == std::vector{waiter});
  }
  daemon.GiveBack("s", lease->id);
  CHECK(Saw(daemon.TakeEvents(), Event::Kind::kGranted, waiter));
}

CONTRACT_CASE("a lease is never ended by the adapter on its own") {
  // Who lives is the server's to know: it says so by End. The adapter has no timers.
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr lease = daemon.Grant("s", {.ttl_ms = 1'000});
  world.Advance(3'600'000);
  daemon.Poll();
  CHECK(daemon.Verify("s", lease->id).kind == OutcomeKind::kHeld);
  CHECK(daemon.Acquire("s", {}).kind == OutcomeKind::kFull);
}

}  // namespace semaphored::contract
