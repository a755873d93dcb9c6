// Giving permits back, asking whether one still has them, and losing them.
#include "tests/contract/world.h"

namespace semaphored::contract {

CONTRACT_CASE("a release gives all permits back") {
  Daemon& daemon = world.daemon();
  const uint32_t permits = world.guarantees().weighted ? 3 : 1;
  daemon.Create("s", 3);
  const LeasePtr lease = daemon.Grant("s", {.permits = permits});
  const Outcome outcome = daemon.Release("s", lease->id);
  CHECK(outcome.kind == OutcomeKind::kReleased);
  CHECK(outcome.released() == permits);
  CHECK(outcome.remaining() == 0);
  CHECK(Saw(daemon.TakeEvents(), Event::Kind::kEnded, lease->id, EndCause::kReleased));
  CHECK(daemon.Describe("s").held == 0);
  CHECK(daemon.Describe("s").leases.empty());
}

CONTRACT_CASE("a partial release keeps the rest with its slots and token") {
  if (!world.guarantees().weighted) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 4);
  const LeasePtr lease = daemon.Grant("s", {.permits = 4});
  const uint64_t token = lease->token;
  const Outcome outcome = daemon.Release("s", lease->id, {1, 3});
  CHECK(outcome.kind == OutcomeKind::kReleased);
  CHECK(outcome.released() == 2);
  CHECK(outcome.remaining() == 2);
  const Outcome rest = daemon.Verify("s", lease->id);
  REQUIRE(rest.kind == OutcomeKind::kHeld);
  CHECK(rest.lease->slots == Slots{2, 4});
  CHECK(rest.lease->permits == 2);
  CHECK(rest.lease->token == token);
  CHECK_FALSE(Saw(daemon.TakeEvents(), Event::Kind::kEnded, lease->id, EndCause::kReleased));
  CHECK(daemon.Describe("s").held == 2);
  CHECK(daemon.Grant("s", {.permits = 2})->slots == Slots{1, 3});
}

CONTRACT_CASE("slots to release may be named in any order") {
  if (!world.guarantees().weighted) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 4);
  const LeasePtr lease = daemon.Grant("s", {.permits = 4});
  CHECK(daemon.Release("s", lease->id, {4, 1}).released() == 2);
  CHECK(daemon.Verify("s", lease->id).lease->slots == Slots{2, 3});
}

CONTRACT_CASE("half of very many slots are given back in one go") {
  if (!world.guarantees().weighted) return;
  Daemon& daemon = world.daemon();
  const uint32_t permits = std::min(400'000u, world.guarantees().permits_per_request_max);
  daemon.Create("s", permits);
  const LeasePtr lease = daemon.Grant("s", {.permits = permits});
  Slots half;
  half.Append({permits / 2 + 1, permits});
  const Outcome outcome = daemon.Release("s", lease->id, half);
  CHECK(outcome.released() == half.size());
  CHECK(outcome.remaining() == permits - half.size());
  CHECK(daemon.Verify("s", lease->id).lease->slots.back() == outcome.remaining());
}

CONTRACT_CASE("releasing all slots by name ends the lease") {
  Daemon& daemon = world.daemon();
  const uint32_t permits = world.guarantees().weighted ? 2 : 1;
  daemon.Create("s", 2);
  const LeasePtr lease = daemon.Grant("s", {.permits = permits});
  const Outcome outcome = daemon.Release("s", lease->id, lease->slots);
  CHECK(outcome.kind == OutcomeKind::kReleased);
  CHECK(outcome.released() == permits);
  CHECK(outcome.remaining() == 0);
  CHECK(daemon.Verify("s", lease->id).kind == OutcomeKind::kNotHeld);
}

CONTRACT_CASE("a slot that the lease does not hold releases nothing") {
  Daemon& daemon = world.daemon();
  const uint32_t permits = world.guarantees().weighted ? 2 : 1;
  daemon.Create("s", 4);
  const LeasePtr lease = daemon.Grant("s", {.permits = permits});
  const Slots slots = lease->slots;
  const uint32_t own = slots.front();
  const Slots others = daemon.Grant("s")->slots;
  CHECK(daemon.Release("s", lease->id, others).kind == OutcomeKind::kNoSuchSlot);
  CHECK(daemon.Release("s", lease->id, {own, 9}).kind == OutcomeKind::kNoSuchSlot);
  CHECK(daemon.Release("s", lease->id, {0}).kind == OutcomeKind::kNoSuchSlot);
  CHECK(daemon.Release("s", lease->id, {4'294'967'295u}).wrong_slot() == 4'294'967'295u);
  CHECK(daemon.Verify("s", lease->id).lease->slots == slots);
  CHECK(daemon.Describe("s").held == permits + 1);
}

CONTRACT_CASE("a release of what never was says so and changes nothing") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr lease = daemon.Grant("s");
  const uint64_t revision = daemon.Describe("s").row.revision;
  const Outcome unknown = daemon.Release("s", world.NewId());
  CHECK(unknown.kind == OutcomeKind::kNotHeld);
  CHECK(unknown.cause == EndCause::kUnknown);
  CHECK(daemon.Release("no/such", lease->id).kind == OutcomeKind::kNotHeld);
  CHECK(daemon.Describe("s").row.revision == revision);
}

CONTRACT_CASE("a lease is not released under another semaphore's name") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  daemon.Create("t", 1);
  const LeasePtr lease = daemon.Grant("s");
  daemon.Grant("t");
  CHECK(daemon.Release("t", lease->id).kind == OutcomeKind::kNotHeld);
  CHECK(daemon.Describe("s").held == 1);
  CHECK(daemon.Describe("t").held == 1);
}

CONTRACT_CASE("a second release says that the lease was released") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr lease = daemon.Grant("s");
  daemon.GiveBack("s", lease->id);
  const LeasePtr next = daemon.Grant("s");
  const Outcome again = daemon.Release("s", lease->id);
  CHECK(again.kind == OutcomeKind::kNotHeld);
  CHECK(again.cause == EndCause::kReleased);
  CHECK(daemon.Verify("s", next->id).kind == OutcomeKind::kHeld);
}

CONTRACT_CASE("a release after the lease expired says so and leaves the next holder alone") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr late = daemon.Grant("s");
  REQUIRE(daemon.End("s", late->id, EndCause::kExpired).kind == OutcomeKind::kDone);
  const LeasePtr next = daemon.Grant("s");
  const Outcome outcome = daemon.Release("s", late->id);
  CHECK(outcome.kind == OutcomeKind::kNotHeld);
  CHECK(outcome.cause == EndCause::kExpired);
  CHECK(daemon.Release("s", late->id, {1}).kind == OutcomeKind::kNotHeld);
  CHECK(daemon.Verify("s", next->id).kind == OutcomeKind::kHeld);
  CHECK(daemon.Describe("s").held == 1);
}

CONTRACT_CASE("a release of a claim that still waits leaves it waiting") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  daemon.Grant("s");
  const Id waiter = daemon.Queue("s");
  CHECK(daemon.Release("s", waiter).kind == OutcomeKind::kNotHeld);
  CHECK(WaitersIn(daemon.Describe("s")) == std::vector{waiter});
}

CONTRACT_CASE("the holder verifies by its claim") {
  Daemon& daemon = world.daemon();
  const uint32_t permits = world.guarantees().weighted ? 2 : 1;
  daemon.Create("s", 2);
  const LeasePtr lease = daemon.Grant("s", {.permits = permits});
  const Outcome outcome = daemon.Verify("s", lease->id);
  REQUIRE(outcome.kind == OutcomeKind::kHeld);
  CHECK(outcome.lease->id == lease->id);
  CHECK(outcome.lease->slots == lease->slots);
  CHECK(outcome.lease->token == lease->token);
}

CONTRACT_CASE("verify says how a lease came to its end") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 9);
  for (const EndCause cause : {EndCause::kExpired, EndCause::kRecalled, EndCause::kDisconnected}) {
    const LeasePtr lease = daemon.Grant("s");
    REQUIRE(daemon.End("s", lease->id, cause).kind == OutcomeKind::kDone);
    const Outcome outcome = daemon.Verify("s", lease->id);
    CHECK(outcome.kind == OutcomeKind::kNotHeld);
    CHECK(outcome.cause == cause);
  }
  const Outcome unknown = daemon.Verify("s", world.NewId());
  CHECK(unknown.kind == OutcomeKind::kNotHeld);
  CHECK(unknown.cause == EndCause::kUnknown);
  CHECK(daemon.Verify("no/such", world.NewId()).kind == OutcomeKind::kNotHeld);
}

CONTRACT_CASE("the resource verifies by slot and token") {
  if (!world.guarantees().fencing) return;
  Daemon& daemon = world.daemon();
  const uint32_t permits = world.guarantees().weighted ? 2 : 1;
  daemon.Create("s", 2);
  const LeasePtr lease = daemon.Grant("s", {.permits = permits});
  REQUIRE(lease->slots.size() == permits);
  for (const uint32_t slot : lease->slots) {
    const Outcome outcome = daemon.VerifySlot("s", slot, lease->token);
    REQUIRE(outcome.kind == OutcomeKind::kHeld);
    CHECK(outcome.lease->id == lease->id);
    CHECK(outcome.slot_token() == lease->token);
  }
}

CONTRACT_CASE("an overtaken token is not held, and the present one is told") {
  if (!world.guarantees().fencing) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr overtaken = daemon.Grant("s");
  REQUIRE(daemon.End("s", overtaken->id, EndCause::kExpired).kind == OutcomeKind::kDone);
  const LeasePtr now = daemon.Grant("s");
  for (const uint64_t token : {overtaken->token, now->token + 1, uint64_t{0}}) {
    const Outcome outcome = daemon.VerifySlot("s", 1, token);
    CHECK(outcome.kind == OutcomeKind::kNotHeld);
    CHECK(outcome.slot_token() == now->token);
  }
}

CONTRACT_CASE("a free slot is held by no token") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  const LeasePtr lease = daemon.Grant("s");
  daemon.GiveBack("s", lease->id);
  for (const uint32_t slot : {1u, 2u, 3u, 4'000'000'000u}) {
    const Outcome outcome = daemon.VerifySlot("s", slot, lease->token);
    CHECK(outcome.kind == OutcomeKind::kNotHeld);
    CHECK(outcome.slot_token() == 0);
  }
  const Outcome gone = daemon.VerifySlot("no/such", 1, lease->token);
  CHECK(gone.kind == OutcomeKind::kNotHeld);
  CHECK(gone.slot_token() == 0);
}

CONTRACT_CASE("a slot given back in part is no longer held by the token") {
  if (!world.guarantees().weighted) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  const LeasePtr lease = daemon.Grant("s", {.permits = 2});
  REQUIRE(daemon.Release("s", lease->id, {1}).kind == OutcomeKind::kReleased);
  CHECK(daemon.VerifySlot("s", 1, lease->token).kind == OutcomeKind::kNotHeld);
  CHECK(daemon.VerifySlot("s", 2, lease->token).kind == OutcomeKind::kHeld);
}

CONTRACT_CASE("verify changes nothing") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr lease = daemon.Grant("s");
  const uint64_t revision = daemon.Describe("s").row.revision;
  daemon.Verify("s", lease->id);
  daemon.VerifySlot("s", 1, lease->token);
  daemon.Verify("s", world.NewId());
  CHECK(daemon.Describe("s").row.revision == revision);
}

CONTRACT_CASE("a claim that waits is not held") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  daemon.Grant("s");
  const Id waiter = daemon.Queue("s");
  const Outcome outcome = daemon.Verify("s", waiter);
  CHECK(outcome.kind == OutcomeKind::kStillWaiting);
  CHECK(outcome.lease == nullptr);
}

}  // namespace semaphored::contract
