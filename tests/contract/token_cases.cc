// Promise 3: per slot, tokens strictly rise. Every case checks it for every grant that it sees
// (TokenWatch); these seek out the corners, and restart_cases.cc those of a restart.
#include <set>

#include "tests/contract/world.h"

namespace semaphored::contract {

CONTRACT_CASE("a slot's token rises with every grant, however the lease before it ended") {
  if (!world.guarantees().fencing) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  uint64_t last = 0;
  const auto next = [&] {
    const LeasePtr lease = daemon.Grant("s");
    CHECK(lease->token > last);
    last = lease->token;
    return lease->id;
  };
  daemon.GiveBack("s", next());
  for (const EndCause cause : {EndCause::kExpired, EndCause::kRecalled, EndCause::kDisconnected}) {
    REQUIRE(daemon.End("s", next(), cause).kind == OutcomeKind::kDone);
  }
  next();
  REQUIRE(daemon.Administer("s", AdminRevoke{}).kind == OutcomeKind::kDone);
  next();
  REQUIRE(daemon.Administer("s", AdminDestroy{DestroyPolicy::kForce}).kind == OutcomeKind::kDone);
  daemon.Create("s", 1);
  next();
}

CONTRACT_CASE("tokens rise within one batch that passes one slot from hand to hand") {
  if (!world.guarantees().grants_at_once) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  std::vector<Command> batch;
  for (int i = 0; i < 20; ++i) {
    const AcquireCommand acquire = world.MakeAcquire("s", {});
    batch.push_back(acquire);
    batch.push_back(world.MakeRelease("s", acquire.claim));
  }
  const std::vector<Outcome> outcomes = daemon.DoAll(std::move(batch));
  uint64_t last = 0;
  for (size_t i = 0; i < outcomes.size(); i += 2) {
    REQUIRE(outcomes[i].kind == OutcomeKind::kGranted);
    CHECK(outcomes[i].lease->slots == Slots{1});
    CHECK(outcomes[i].lease->token > last);
    last = outcomes[i].lease->token;
  }
}

CONTRACT_CASE("tokens rise over destroying and making anew in one batch") {
  Daemon& daemon = world.daemon();
  const LeasePtr before = daemon.Grant("s", {.limit = 1});
  std::vector<Command> batch;
  batch.push_back(AdminCommand{{}, "s", 0, AdminDestroy{DestroyPolicy::kForce}});
  batch.push_back(world.MakeAcquire("s", {.limit = 2}));
  const std::vector<Outcome> outcomes = daemon.DoAll(std::move(batch));
  LeasePtr after = outcomes[1].lease;
  if (!world.guarantees().grants_at_once && after == nullptr) after = daemon.GrantSoon("s");
  REQUIRE(after != nullptr);
  CHECK(Overtakes(world.guarantees(), *after, *before));
  CHECK(daemon.Describe("s").row.limit == 2);
  CHECK(daemon.Describe("s").held == 1);
}

CONTRACT_CASE("a semaphore is made, used and destroyed in one batch") {
  Daemon& daemon = world.daemon();
  LeasePtr last;
  for (int round = 0; round < 3; ++round) {
    const AcquireCommand acquire = world.MakeAcquire("s", {.limit = 1});
    std::vector<Command> batch;
    batch.push_back(acquire);
    batch.push_back(world.MakeRelease("s", acquire.claim));
    batch.push_back(AdminCommand{{}, "s", 0, AdminDestroy{}});
    const std::vector<Outcome> outcomes = daemon.DoAll(std::move(batch));
    REQUIRE(outcomes[0].kind == OutcomeKind::kGranted);
    if (last) CHECK(Overtakes(world.guarantees(), *outcomes[0].lease, *last));
    last = outcomes[0].lease;
    CHECK(outcomes[2].kind == OutcomeKind::kDone);
    CHECK_FALSE(daemon.Exists("s"));
  }
}

CONTRACT_CASE("all slots of a lease carry its one token") {
  if (!world.guarantees().fencing) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 4);
  const LeasePtr lease = daemon.Grant("s", {.permits = world.guarantees().weighted ? 3u : 1u});
  const SemaphoreInfo info = daemon.Describe("s");
  REQUIRE(info.leases.size() == 1);
  CHECK(info.leases[0]->token == lease->token);
  for (const uint32_t slot : lease->slots)
    CHECK(daemon.VerifySlot("s", slot, lease->token).kind == OutcomeKind::kHeld);
}

CONTRACT_CASE("a lease keeps its token through recall, adoption and partial release") {
  Daemon& daemon = world.daemon();
  const bool weighted = world.guarantees().weighted;
  daemon.Create("s", 2);
  const LeasePtr lease = daemon.Grant("s", {.permits = weighted ? 2u : 1u});
  const uint64_t token = lease->token;
  REQUIRE(daemon.Do(RecallCommand{"s", lease->id, {Recall::Reason::kLongestHold, 1'000}}).kind ==
          OutcomeKind::kDone);
  REQUIRE(daemon.Do(AdoptCommand{"s", lease->id}).kind == OutcomeKind::kHeld);
  if (weighted) REQUIRE(daemon.Release("s", lease->id, {2}).kind == OutcomeKind::kReleased);
  CHECK(daemon.Verify("s", lease->id).lease->token == token);
}

CONTRACT_CASE("tokens rise over a limit that is lowered and raised") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3);
  std::vector<LeasePtr> leases;
  for (int i = 0; i < 3; ++i) leases.push_back(daemon.Grant("s"));
  REQUIRE(daemon.Resize("s", 1).kind == OutcomeKind::kDone);
  for (const LeasePtr& lease : leases) daemon.GiveBack("s", lease->id);
  REQUIRE(daemon.Resize("s", 3).kind == OutcomeKind::kDone);
  std::set<uint32_t> slots;
  for (const LeasePtr& lease : leases) {
    const LeasePtr again = daemon.GrantSoon("s");
    slots.insert(again->slots.front());
    // Where a grant takes any slot, the watch over all grants (TokenWatch) compares it with the
    // last of that slot.
    if (!world.guarantees().lowest_slot) continue;
    CHECK(again->slots == lease->slots);
    CHECK(Overtakes(world.guarantees(), *again, *lease));
  }
  CHECK(slots == std::set<uint32_t>{1, 2, 3});
}

}  // namespace semaphored::contract
