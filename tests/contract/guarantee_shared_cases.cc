// What an engine says of itself to several daemons: what they know of each other, and in which
// order they are served.
#include <algorithm>
#include <map>
#include <vector>

#include "tests/contract/world.h"

namespace semaphored::contract {

CONTRACT_CASE("guarantee: daemons see each other's claims, or only how much is held") {
  if (world.guarantees().exclusive) return;
  const bool shares = world.guarantees().shares_claims;
  Daemon& a = world.daemon();
  Daemon& b = world.OpenAnother("b");
  a.Create("s", 2);
  const LeasePtr lease = a.Grant("s");
  a.Grant("s");
  const Id waiter = a.Queue("s");
  b.CheckHeld("s", 2);
  const SemaphoreInfo info = b.Describe("s");
  CHECK(info.leases.size() == (shares ? 2u : 0u));
  CHECK(WaitersIn(info) == (shares ? std::vector{waiter} : std::vector<Id>{}));
  CHECK(b.Verify("s", lease->id).kind == (shares ? OutcomeKind::kHeld : OutcomeKind::kNotHeld));
  const Outcome verified = b.VerifySlot("s", lease->slots.front(), lease->token);
  CHECK(verified.kind == (shares ? OutcomeKind::kHeld : OutcomeKind::kNotHeld));
  // What others hold is in the way all the same.
  CHECK(b.Acquire("s", {}).kind == OutcomeKind::kFull);
  CHECK(b.Administer("s", AdminDestroy{}).kind == OutcomeKind::kInUse);
  const Outcome refused = b.Resize("s", 1, ShrinkPolicy::kRefuse);
  CHECK(refused.kind == OutcomeKind::kWouldOvershoot);
  CHECK(refused.report->info->held == 2);
}

CONTRACT_CASE("guarantee: a daemon ends what others hold, or leaves it alone") {
  if (world.guarantees().exclusive) return;
  const bool shares = world.guarantees().shares_claims;
  Daemon& a = world.daemon();
  Daemon& b = world.OpenAnother("b");
  a.Create("s", 2);
  const Id lease = a.Grant("s")->id;
  const Outcome released = b.Release("s", lease);
  CHECK(released.kind == (shares ? OutcomeKind::kReleased : OutcomeKind::kNotHeld));
  const Id other = a.Grant("s")->id;
  const Outcome revoked = b.Administer("s", AdminRevoke{});
  CHECK(revoked.affected() == (shares ? 1u : 0u));
  const bool reaches = world.guarantees().administers_all;
  CHECK(revoked.report->others_asked == (reaches && !shares));
  if (reaches) {
    a.PollUntil([&] { return a.Verify("s", other).kind == OutcomeKind::kNotHeld; });
    CHECK(IsCause(world.guarantees(), a.Verify("s", other).cause, EndCause::kRevoked));
  }
  CHECK((a.Verify("s", other).kind == OutcomeKind::kHeld) == !reaches);
}

CONTRACT_CASE("guarantee: a lowered limit recalls what is too much from all daemons, or from one") {
  if (world.guarantees().exclusive) return;
  Daemon& a = world.daemon();
  Daemon& b = world.OpenAnother("b");
  a.Create("s", 3);
  const Id here = b.Grant("s")->id;
  const Id there[] = {a.Grant("s")->id, a.Grant("s")->id};
  AdminResize lower;
  lower.amount = 1;
  lower.limit_max = 10;
  lower.policy = ShrinkPolicy::kRecall;
  lower.grace_ms = 0;
  const Outcome lowered = b.Administer("s", lower);
  CHECK(lowered.kind == OutcomeKind::kDone);
  const auto held = [&] {
    return (b.Verify("s", here).kind == OutcomeKind::kHeld ? 1 : 0) +
           std::ranges::count_if(there, [&](const Id& lease) {
             return a.Verify("s", lease).kind == OutcomeKind::kHeld;
           });
  };
  if (world.guarantees().administers_all) {
    a.PollUntil([&] { return held() == 1; });
    CHECK(held() == 1);
  } else {
    CHECK_FALSE(lowered.report->others_asked);
    const bool removed_are_held = world.guarantees().verifies_removed_slots;
    CHECK(held() == (removed_are_held ? 2 : 0));
    CHECK(a.Describe("s").held == 2);
  }
}

CONTRACT_CASE("guarantee: a session is known to all daemons, or to its own") {
  if (world.guarantees().exclusive) return;
  const bool shares = world.guarantees().shares_claims;
  Daemon& a = world.daemon();
  Daemon& b = world.OpenAnother("b");
  a.Create("s", 1);
  const Id session = world.NewId();
  REQUIRE(a.OpenSession(session).kind == OutcomeKind::kDone);
  const LeasePtr lease = a.Grant("s", {.session = session});
  const Outcome adopted = b.Do(AdoptSessionCommand{session});
  CHECK(adopted.kind == (shares ? OutcomeKind::kDone : OutcomeKind::kSessionLost));
  CHECK(a.Verify("s", lease->id).kind == OutcomeKind::kHeld);
}

CONTRACT_CASE("guarantee: a node id is taken over, or belongs to who has it") {
  if (world.guarantees().exclusive) return;
  Daemon& first = world.daemon();
  first.Create("s", 3);
  const LeasePtr lease = first.Grant("s");
  const absl::StatusOr<std::unique_ptr<Daemon>> second = world.TryOpen("a");
  CHECK(second.ok() == world.guarantees().shares_claims);
  if (second.ok()) return;  // shared_cases.cc goes on with it.
  CHECK(second.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(first.engine().nodes().Heartbeat().ok());
  CHECK(first.Verify("s", lease->id).kind == OutcomeKind::kHeld);
}

CONTRACT_CASE("guarantee: waiters are served in their order over all daemons, or within each") {
  if (world.guarantees().exclusive) return;
  Daemon* const daemons[] = {&world.daemon(), &world.OpenAnother("b")};
  daemons[0]->Create("s", 1);
  Id holds = daemons[0]->Grant("s")->id;
  Daemon* holder = daemons[0];
  std::vector<Id> order;
  std::map<Id, Daemon*> owners;
  for (size_t i = 0; i < 6; ++i) {
    order.push_back(daemons[i % 2]->Queue("s"));
    owners[order.back()] = daemons[i % 2];
  }
  std::vector<Id> served;
  const auto next_is_served = [&] {
    const size_t before = served.size();
    for (Daemon* daemon : daemons) {
      daemon->Poll();
      for (const Id& claim : ClaimsIn(daemon->TakeEvents(), Event::Kind::kGranted)) {
        if (owners.at(claim) == daemon) served.push_back(claim);
      }
    }
    return served.size() > before;
  };
  for (size_t i = 1; i <= order.size(); ++i) {
    holder->GiveBack("s", holds);
    holder->PollUntil(next_is_served);
    REQUIRE(served.size() == i);
    holds = served.back();
    holder = owners.at(holds);
  }
  if (world.guarantees().queue) CHECK(served == order);
  for (Daemon* daemon : daemons) {
    const auto is_others = [&](const Id& claim) { return owners.at(claim) != daemon; };
    std::vector<Id> asked = order;
    std::vector<Id> got = served;
    std::erase_if(asked, is_others);
    std::erase_if(got, is_others);
    CHECK(got == asked);
  }
}

CONTRACT_CASE("guarantee: prune takes no permit away, or says why it cannot mend") {
  Daemon& a = world.daemon();
  Daemon& b = world.guarantees().exclusive ? a : world.OpenAnother("b");
  a.Create("s", 4);
  const Id here = a.Grant("s")->id;
  const Id there = b.Grant("s")->id;
  const Outcome outcome = a.Administer("s", AdminPrune{});
  if (outcome.kind == OutcomeKind::kInUse) {
    // Whether what others hold is lost cannot be said.
    CHECK_FALSE(world.guarantees().shares_claims);
    CHECK(outcome.message.find(world.guarantees().adapter) != std::string::npos);
  } else {
    CHECK(outcome.kind == OutcomeKind::kDone);
    CHECK(outcome.affected() == 0);
  }
  CHECK(a.Verify("s", here).kind == OutcomeKind::kHeld);
  CHECK(b.Verify("s", there).kind == OutcomeKind::kHeld);
  a.CheckHeld("s", 2);
  for (int i = 0; i < 2; ++i) a.GrantSoon("s");
  CHECK(b.Acquire("s", {}).kind == OutcomeKind::kFull);
}

}  // namespace semaphored::contract
