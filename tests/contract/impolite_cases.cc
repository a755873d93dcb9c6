// Clients that misuse their request ids: the same id twice, from two places, for two things. One
// request wins, the other is refused, and no third party notices.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/contract/world.h"

namespace semaphored::contract {

CONTRACT_CASE("impolite: one id waits for one semaphore only, and others' commits succeed") {
  int round = 0;
  OnEachPairAndLanes(world, [&](Daemon& first, Daemon& second) {
    const std::string a = "a" + std::to_string(++round);
    const std::string b = "b" + std::to_string(round);
    const std::string client = "client" + std::to_string(round);
    first.Create(a, 1);
    second.Create(b, 1);
    const LeasePtr holds_a = first.Grant(a);
    const LeasePtr holds_b = second.Grant(b);
    const Id waits = first.Queue(a, {.client = client, .sequence = 1});
    const Outcome other = second.Acquire(b, {.wait = true, .client = client, .sequence = 1});
    CHECK(other.kind == OutcomeKind::kReused);
    // The holder of the other semaphore gives back, is resized, is revoked: nothing stands in the way.
    second.GiveBack(b, holds_b->id);
    CHECK(second.Resize(b, 2).kind == OutcomeKind::kDone);
    second.Grant(b);
    CHECK(second.Administer(b, AdminRevoke{}).kind == OutcomeKind::kDone);
    // And the one that waits is granted in its turn.
    first.GiveBack(a, holds_a->id);
    first.PollUntil([&] { return Saw(first.events(), Event::Kind::kGranted, waits); });
    CHECK(second.Acquire(b, {.client = client, .sequence = 1}).kind == OutcomeKind::kReused);
  });
}

CONTRACT_CASE("impolite: one id is granted one semaphore only, and others' commands are done") {
  int round = 0;
  OnEachPairAndLanes(world, [&](Daemon& first, Daemon& second) {
    const std::string a = "a" + std::to_string(++round);
    const std::string b = "b" + std::to_string(round);
    const std::string client = "client" + std::to_string(round);
    first.Create(a, 1);
    second.Create(b, 2);
    const LeasePtr others = second.Grant(b);
    const LeasePtr lease = first.Grant(a, {.client = client, .sequence = 1});
    // The one that is refused stands in a batch of others' commands.
    const std::vector<Outcome> outcomes =
        second.DoAll({world.MakeAcquire(b, {.client = client, .sequence = 1}),
                      world.MakeRelease(b, others->id), world.MakeAcquire(b, {})});
    CHECK(outcomes[0].kind == OutcomeKind::kReused);
    CHECK(outcomes[1].kind == OutcomeKind::kReleased);
    CHECK(outcomes[2].kind == OutcomeKind::kGranted);
    second.CheckHeld(b, 1);
    CHECK(first.Verify(a, lease->id).kind == OutcomeKind::kHeld);
    // The end of the lease does not free the id.
    first.GiveBack(a, lease->id);
    CHECK(second.Acquire(b, {.wait = true, .client = client, .sequence = 1}).kind ==
          OutcomeKind::kReused);
    CHECK(second.Describe(b).held == 1);
    CHECK(second.Describe(b).waiting == 0);
  });
}

CONTRACT_CASE("impolite: one id for two semaphores in one batch is one request") {
  Daemon& daemon = world.daemon();
  for (const bool waits : {false, true}) {
    const std::string a = waits ? "a1" : "a2";
    const std::string b = waits ? "b1" : "b2";
    const std::string client = waits ? "c1" : "c2";
    daemon.Create(a, 1);
    daemon.Create(b, 2);
    if (waits) daemon.Grant(a);
    const LeasePtr others = daemon.Grant(b);
    const Ask ask{.wait = waits, .client = client, .sequence = 1};
    const std::vector<Outcome> outcomes =
        daemon.DoAll({world.MakeAcquire(a, ask), world.MakeAcquire(b, ask),
                      world.MakeRelease(b, others->id), world.MakeAcquire(b, {})});
    CHECK(outcomes[0].kind == (waits ? OutcomeKind::kQueued : OutcomeKind::kGranted));
    CHECK(outcomes[1].kind == OutcomeKind::kReused);
    CHECK(outcomes[2].kind == OutcomeKind::kReleased);
    CHECK(outcomes[3].kind == OutcomeKind::kGranted);
    daemon.CheckHeld(b, 1);
    CHECK(daemon.Describe(b).waiting == 0);
    CHECK(daemon.Describe(a).held == 1);
    CHECK(daemon.Describe(a).waiting == (waits ? 1 : 0));
  }
}

CONTRACT_CASE("impolite: another act under the same id is refused, and not done") {
  int round = 0;
  OnEachPairAndLanes(world, [&](Daemon& first, Daemon& second) {
    const std::string name = "s" + std::to_string(++round);
    const std::string client = "admin" + std::to_string(round);
    first.Create(name, 3);
    const AdminCommand resize{
        {client, 1}, name, 0, AdminResize{AdminResize::Change::kSet, 5, 100, {}, {}}};
    CHECK(first.Do(resize).kind == OutcomeKind::kDone);
    AdminCommand other = resize;
    std::get<AdminResize>(other.act).amount = 7;
    CHECK(second.Do(other).kind == OutcomeKind::kReused);
    CHECK(second.Describe(name).row.limit == 5);
    if (world.guarantees().settings) {
      const AdminCommand pause{{client, 1}, name, 0, AdminPause{true}};
      CHECK(second.Do(pause).kind == OutcomeKind::kReused);
      CHECK_FALSE(second.Describe(name).row.paused);
    }
    const AdminCommand destroy{{client, 1}, name, 0, AdminDestroy{DestroyPolicy::kForce}};
    CHECK(second.Do(destroy).kind == OutcomeKind::kReused);
    const Outcome repeated = second.Do(resize);
    CHECK(repeated.kind == OutcomeKind::kDone);
    CHECK(repeated.changed);
    CHECK(second.Acquire(name, {.client = client, .sequence = 1}).kind == OutcomeKind::kReused);
    CHECK(first.Describe(name).row.limit == 5);
  });
}

CONTRACT_CASE("impolite: another acquire under the same id is refused") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 5);
  const LeasePtr lease = daemon.Grant("s", {.client = "c", .sequence = 1});
  const Ask same{.client = "c", .sequence = 1};
  Ask priority = same;
  priority.priority = 3;
  CHECK(daemon.Acquire("s", priority).kind == OutcomeKind::kReused);
  Ask holder = same;
  holder.holder = "another";
  CHECK(daemon.Acquire("s", holder).kind == OutcomeKind::kReused);
  Ask limit = same;
  limit.limit = 5;
  CHECK(daemon.Acquire("s", limit).kind == OutcomeKind::kReused);
  // What a client may change between two attempts is no other request.
  Ask patient = same;
  patient.wait = true;
  patient.ttl_ms = 60'000;
  CHECK(daemon.Acquire("s", patient).lease->id == lease->id);
  CHECK(daemon.Describe("s").held == 1);
}

CONTRACT_CASE("impolite: a wait that is repeated under another session moves there") {
  OnEachPair(world, [&](Daemon& first, Daemon& second) {
    const std::string name = "s" + world.NewId().Hex();
    first.Create(name, 1);
    const LeasePtr holds = first.Grant(name);
    const Id one = world.NewId();
    const Id two = world.NewId();
    REQUIRE(first.OpenSession(one, name).kind == OutcomeKind::kDone);
    REQUIRE(second.OpenSession(two, name).kind == OutcomeKind::kDone);
    const Id waits = first.Queue(name, {.session = one, .client = name, .sequence = 1});
    const Outcome again =
        second.Acquire(name, {.wait = true, .session = two, .client = name, .sequence = 1});
    REQUIRE(again.kind == OutcomeKind::kQueued);
    CHECK(again.claim == waits);
    // The end of the session that it has left does not end it.
    first.Do(EndCommand{.semaphore = name,
                        .claim = waits,
                        .cause = EndCause::kDisconnected,
                        .session = one,
                        .epoch = 1});
    CHECK(first.Do(CloseSessionCommand{one, 0, EndCause::kExpired}).kind == OutcomeKind::kDone);
    first.GiveBack(name, holds->id);
    second.PollUntil([&] { return Saw(second.events(), Event::Kind::kGranted, waits); });
    CHECK(second.Verify(name, waits).lease->session == two);
  });
}

// A call, or a Hold, has no session.
CONTRACT_CASE("impolite: a session's wait that is repeated by a call moves there, and back") {
  OnEachPair(world, [&](Daemon& first, Daemon& second) {
    const std::string name = "s" + world.NewId().Hex();
    first.Create(name, 1);
    const LeasePtr holds = first.Grant(name);
    const Id one = world.NewId();
    const Id two = world.NewId();
    REQUIRE(first.OpenSession(one, name).kind == OutcomeKind::kDone);
    REQUIRE(second.OpenSession(two, name).kind == OutcomeKind::kDone);
    const Id waits = first.Queue(name, {.session = one, .client = name, .sequence = 1});
    const Id behind = first.Queue(name);
    const Outcome called = second.Acquire(name, {.wait = true, .client = name, .sequence = 1});
    REQUIRE(called.kind == OutcomeKind::kQueued);
    CHECK(called.claim == waits);
    // The end of the session that it has left does not end it.
    CHECK(first.Do(CloseSessionCommand{one, 0, EndCause::kExpired}).kind == OutcomeKind::kDone);
    CHECK(second.Describe(name).waiting == 2);
    const Outcome again =
        second.Acquire(name, {.wait = true, .session = two, .client = name, .sequence = 1});
    REQUIRE(again.kind == OutcomeKind::kQueued);
    CHECK(again.claim == waits);
    CHECK(again.position() == 1);
    first.GiveBack(name, holds->id);
    second.PollUntil([&] { return Saw(second.events(), Event::Kind::kGranted, waits); });
    CHECK(second.Verify(name, waits).lease->session == two);
    second.CheckHeld(name, 1);
    CHECK(WaitersIn(second.Describe(name)) == std::vector{behind});
  });
}

CONTRACT_CASE("impolite: a lease that is repeated under another session is not granted twice") {
  OnEachPair(world, [&](Daemon& first, Daemon& second) {
    const std::string name = "s" + world.NewId().Hex();
    first.Create(name, 1);
    const Id one = world.NewId();
    const Id two = world.NewId();
    REQUIRE(first.OpenSession(one, name).kind == OutcomeKind::kDone);
    REQUIRE(second.OpenSession(two, name).kind == OutcomeKind::kDone);
    const LeasePtr lease = first.Grant(name, {.session = one, .client = name, .sequence = 1});
    const Ask repeated{.session = two, .client = name, .sequence = 1};
    for (int i = 0; i < 2; ++i) {
      const Outcome moving = second.Acquire(name, repeated);
      REQUIRE(moving.kind == OutcomeKind::kMoving);
      CHECK(moving.claim == lease->id);
    }
    // The former session's expiry, release and end come late: they change nothing.
    const EndCommand expiry{.semaphore = name, .claim = lease->id, .session = one, .epoch = 1};
    CHECK(first.Do(expiry).kind == OutcomeKind::kStale);
    ReleaseCommand release;
    release.semaphore = name;
    release.claim = lease->id;
    release.session = one;
    CHECK(first.Do(release).kind == OutcomeKind::kNotHeld);
    CHECK(first.Do(CloseSessionCommand{one, 0, EndCause::kExpired}).kind == OutcomeKind::kDone);
    CHECK(second.Describe(name).held == 1);
    CHECK(second.Acquire(name, {}).kind == OutcomeKind::kFull);
    // The former holder cannot count on it any more.
    AcquireCommand over = world.MakeAcquire(name, repeated);
    over.moved_is_over = true;
    const Outcome granted = second.Do(over);
    REQUIRE(granted.kind == OutcomeKind::kGranted);
    CHECK(granted.lease->id == lease->id);
    CHECK(granted.lease->slots == lease->slots);
    CHECK(granted.lease->token == lease->token);
    CHECK(second.Acquire(name, repeated).kind == OutcomeKind::kGranted);
    CHECK(second.Describe(name).held == 1);
  });
}

CONTRACT_CASE("impolite: a session's lease that is repeated by a call is not granted twice") {
  OnEachPair(world, [&](Daemon& first, Daemon& second) {
    const std::string name = "s" + world.NewId().Hex();
    first.Create(name, 1);
    const Id session = world.NewId();
    REQUIRE(first.OpenSession(session, name).kind == OutcomeKind::kDone);
    const LeasePtr lease = first.Grant(name, {.session = session, .client = name, .sequence = 1});
    const Ask call{.client = name, .sequence = 1};
    for (int i = 0; i < 2; ++i) {
      const Outcome moving = second.Acquire(name, call);
      REQUIRE(moving.kind == OutcomeKind::kMoving);
      CHECK(moving.claim == lease->id);
    }
    // The session ends, and takes nothing with it.
    CHECK(first.Do(CloseSessionCommand{session, 0, EndCause::kExpired}).kind == OutcomeKind::kDone);
    CHECK(second.Describe(name).held == 1);
    CHECK(second.Acquire(name, {}).kind == OutcomeKind::kFull);
    AcquireCommand over = world.MakeAcquire(name, call);
    over.moved_is_over = true;
    const Outcome granted = second.Do(over);
    REQUIRE(granted.kind == OutcomeKind::kGranted);
    CHECK(granted.lease->id == lease->id);
    CHECK(granted.lease->token == lease->token);
    CHECK(granted.lease->detached());
    CHECK(second.Describe(name).held == 1);
  });
}

CONTRACT_CASE("impolite: a wait is repeated in the very batch that lets it in") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr holds = daemon.Grant("s");
  const Id waits = daemon.Queue("s", {.client = "c", .sequence = 1});
  const std::vector<Outcome> outcomes =
      daemon.DoAll({world.MakeRelease("s", holds->id),
                    world.MakeAcquire("s", {.wait = true, .client = "c", .sequence = 1}),
                    world.MakeAcquire("s", {.wait = true, .client = "c", .sequence = 1})});
  for (size_t i = 1; i < outcomes.size(); ++i) {
    const bool granted = outcomes[i].kind == OutcomeKind::kGranted;
    CHECK((granted || outcomes[i].kind == OutcomeKind::kQueued));
    CHECK(outcomes[i].claim == waits);
  }
  daemon.CheckHeld("s", 1);
  CHECK(daemon.Describe("s").waiting == 0);
}

// A resume lets in as many as a commit may. The next Step serves the others before the repeats that it brings.
CONTRACT_CASE("impolite: waits are repeated in the Step that serves them, however many at once") {
  if (!world.guarantees().grants_at_once || !world.guarantees().settings) return;
  for (const uint32_t grants : {1, 20, 0}) {
    world.CloseAll();
    world.options().grants_per_commit_max = grants;
    Daemon& daemon = world.daemon();
    Daemon& other = SharesClaims(world) ? world.OpenAnother("b") : daemon;
    const std::string name = "s" + std::to_string(grants);
    const uint32_t many = grants == 1 ? 10 : 100;
    daemon.Create(name, many);
    REQUIRE(daemon.Administer(name, AdminPause{true}).kind == OutcomeKind::kDone);
    const auto ask = [&](uint32_t count) {
      std::vector<Command> asked;
      for (uint32_t i = 0; i < count; ++i) {
        const Ask each{.wait = true, .client = name, .sequence = i % many + 1};
        asked.emplace_back(world.MakeAcquire(name, each));
      }
      return daemon.DoAll(std::move(asked));
    };
    std::vector<Id> waits;
    for (const Outcome& outcome : ask(many)) {
      REQUIRE(outcome.kind == OutcomeKind::kQueued);
      waits.push_back(outcome.claim);
    }
    REQUIRE(other.Administer(name, AdminPause{false}).kind == OutcomeKind::kDone);
    daemon.Poll();  // It hears of that.
    const std::vector<Outcome> outcomes = ask(2 * many);
    for (size_t i = 0; i < outcomes.size(); ++i) {
      const OutcomeKind kind = outcomes[i].kind;
      REQUIRE((kind == OutcomeKind::kGranted || kind == OutcomeKind::kQueued));
      REQUIRE(outcomes[i].claim == waits[i % many]);
    }
    daemon.PollUntil([&] { return daemon.Describe(name, 0).held == many; });
    CHECK(daemon.Describe(name).waiting == 0);
    for (const Id& claim : waits) REQUIRE(daemon.Verify(name, claim).kind == OutcomeKind::kHeld);
  }
}

}  // namespace semaphored::contract
