// Sessions: one liveness for many claims.
#include <algorithm>
#include <map>

#include "tests/contract/world.h"

namespace semaphored::contract {

CONTRACT_CASE("opening a session twice is opening it once") {
  Daemon& daemon = world.daemon();
  const Id session = world.NewId();
  CHECK(daemon.OpenSession(session, "c", 5'000).kind == OutcomeKind::kDone);
  CHECK(daemon.OpenSession(session, "c", 5'000).kind == OutcomeKind::kDone);
  const Outcome adopted = daemon.Do(AdoptSessionCommand{session});
  REQUIRE(adopted.kind == OutcomeKind::kDone);
  CHECK(adopted.report->session->epoch == 1);
  CHECK(adopted.report->session->ttl_ms == 5'000);
}

CONTRACT_CASE("a session keeps what it was opened with") {
  Daemon& daemon = world.daemon();
  const Id id = world.NewId();
  REQUIRE(daemon.Do(OpenSessionCommand{id, "client-1", 7'000, "worker", true}).kind ==
          OutcomeKind::kDone);
  const Outcome adopted = daemon.Do(AdoptSessionCommand{id});
  REQUIRE(adopted.kind == OutcomeKind::kDone);
  const Session& session = adopted.report->session.value();
  CHECK(session.id == id);
  CHECK(session.ttl_ms == 7'000);
  CHECK(session.holder == "worker");
  CHECK(session.release_on_disconnect);
  CHECK(session.host == daemon.self());
  CHECK(adopted.report->claims.empty());
}

CONTRACT_CASE("a claim under a session that is not there is refused") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  CHECK(daemon.Acquire("s", {.session = world.NewId()}).kind == OutcomeKind::kSessionLost);
  CHECK(daemon.Acquire("t", {.limit = 1, .session = world.NewId()}).kind ==
        OutcomeKind::kSessionLost);
  CHECK(daemon.Describe("s").held == 0);
  CHECK_FALSE(daemon.Exists("t"));
}

CONTRACT_CASE("a session knows all its claims, leases and waiters, and only those") {
  Daemon& daemon = world.daemon();
  const Id session = world.NewId();
  const Id other = world.NewId();
  REQUIRE(daemon.OpenSession(session).kind == OutcomeKind::kDone);
  REQUIRE(daemon.OpenSession(other).kind == OutcomeKind::kDone);
  daemon.Create("a", 1);
  daemon.Create("b", 3);
  const LeasePtr in_a = daemon.Grant("a", {.session = session});
  const LeasePtr in_b = daemon.Grant("b", {.session = session});
  daemon.Grant("b", {.session = other});
  daemon.Grant("b");
  const Id waits_1 = daemon.Queue("b", {.session = session});
  daemon.Queue("b", {.session = other});
  const Id waits_2 = daemon.Queue("b", {.session = session});
  const Outcome adopted = daemon.Do(AdoptSessionCommand{session});
  REQUIRE(adopted.kind == OutcomeKind::kDone);
  std::vector<Id> ids;
  for (const ClaimInfo& claim : adopted.report->claims) {
    ids.push_back(claim.lease ? claim.lease->id : claim.waiter->id);
    CHECK((claim.lease == nullptr) != (claim.waiter == nullptr));
    CHECK(claim.semaphore == (ids.back() == in_a->id ? "a" : "b"));
  }
  // Rising by order within a semaphore, so that waits are taken up again as they stood.
  CHECK(std::ranges::find(ids, waits_1) < std::ranges::find(ids, waits_2));
  std::vector<Id> expected = {in_a->id, in_b->id, waits_1, waits_2};
  std::ranges::sort(ids);
  std::ranges::sort(expected);
  CHECK(ids == expected);
}

CONTRACT_CASE("adopting a session that is here already does not raise its epoch") {
  Daemon& daemon = world.daemon();
  const Id session = world.NewId();
  REQUIRE(daemon.OpenSession(session).kind == OutcomeKind::kDone);
  for (int i = 0; i < 2; ++i)
    CHECK(daemon.Do(AdoptSessionCommand{session}).report->session->epoch == 1);
  CHECK(daemon.TakeEvents().empty());
}

CONTRACT_CASE("adopting a session under another epoch is stale and changes nothing") {
  OnEachPair(world, [&](Daemon& a, Daemon& b) {
    const Id session = world.NewId();
    const uint32_t moves = &a == &b ? 0 : 1;
    REQUIRE(a.OpenSession(session).kind == OutcomeKind::kDone);
    for (const uint32_t epoch : {2U, 7U})
      CHECK(b.Do(AdoptSessionCommand{session, epoch}).kind == OutcomeKind::kStale);
    // It is where it was.
    CHECK(a.Do(AdoptSessionCommand{session}).report->session->epoch == 1);
    const Outcome adopted = b.Do(AdoptSessionCommand{session, 1});
    REQUIRE(adopted.kind == OutcomeKind::kDone);
    CHECK(adopted.changed == (moves == 1));
    CHECK(adopted.report->session->epoch == 1 + moves);
    CHECK(adopted.report->session->host == b.self());
    if (moves == 1) {
      CHECK(a.Do(AdoptSessionCommand{session, 1}).kind == OutcomeKind::kStale);
      CHECK(b.Do(AdoptSessionCommand{session, 2}).report->session->epoch == 2);
    }
  });
}

CONTRACT_CASE("closing a session ends all its claims and passes its permits on") {
  Daemon& daemon = world.daemon();
  const Id session = world.NewId();
  REQUIRE(daemon.OpenSession(session).kind == OutcomeKind::kDone);
  daemon.Create("a", 1);
  daemon.Create("b", 1);
  const LeasePtr in_a = daemon.Grant("a", {.session = session});
  const LeasePtr in_b = daemon.Grant("b", {.session = session});
  const Id own_wait = daemon.Queue("b", {.session = session});
  const Id next_a = daemon.Queue("a");
  const Id next_b = daemon.Queue("b");
  CHECK(daemon.Do(CloseSessionCommand{session, 0, EndCause::kExpired}).kind == OutcomeKind::kDone);
  const std::vector<SeenEvent> events = daemon.TakeEvents();
  CHECK(Saw(events, Event::Kind::kEnded, in_a->id, EndCause::kExpired));
  CHECK(Saw(events, Event::Kind::kEnded, in_b->id, EndCause::kExpired));
  CHECK(Saw(events, Event::Kind::kGranted, next_a));
  CHECK(Saw(events, Event::Kind::kGranted, next_b));
  CHECK(daemon.Describe("b").waiting == 0);
  CHECK(daemon.Verify("b", own_wait).kind == OutcomeKind::kNotHeld);
  CHECK(daemon.Do(AdoptSessionCommand{session}).kind == OutcomeKind::kSessionLost);
}

CONTRACT_CASE("a session with claims in many semaphores closes, and leaves nothing in any") {
  Daemon& daemon = world.daemon();
  constexpr int kSemaphores = 80;
  for (int i = 0; i < kSemaphores; ++i) daemon.Create("s/" + std::to_string(i), 1);
  for (const bool waits : {false, true}) {
    const Id session = world.NewId();
    REQUIRE(daemon.OpenSession(session).kind == OutcomeKind::kDone);
    std::map<std::string, LeasePtr> leases;
    for (int i = 0; i < kSemaphores; ++i) {
      const std::string name = "s/" + std::to_string(i);
      leases[name] = daemon.Grant(name, {.session = session});
      if (waits) daemon.Queue(name, {.session = session});
    }
    daemon.TakeEvents();
    REQUIRE(daemon.Do(CloseSessionCommand{session, 1, EndCause::kExpired}).kind ==
            OutcomeKind::kDone);
    const std::vector<SeenEvent> events = daemon.TakeEvents();
    for (const auto& [name, lease] : leases) {
      CHECK(Saw(events, Event::Kind::kEnded, lease->id, EndCause::kExpired));
      const SemaphoreInfo info = daemon.Describe(name);
      CHECK(info.held == 0);
      CHECK(info.waiting == 0);
    }
    CHECK(daemon.Do(AdoptSessionCommand{session}).kind == OutcomeKind::kSessionLost);
  }
}

// Its daemon may have lost touch with the engine between the mark and the end.
CONTRACT_CASE("what a closing session holds is ended under the epoch before the mark, too") {
  Daemon& daemon = world.daemon();
  const Id session = world.NewId();
  REQUIRE(daemon.OpenSession(session).kind == OutcomeKind::kDone);
  daemon.Create("s", 2);
  const LeasePtr first = daemon.Grant("s", {.session = session});
  const LeasePtr second = daemon.Grant("s", {.session = session});
  const Id waits = daemon.Queue("s", {.session = session});
  CloseSessionCommand mark{session, 1, EndCause::kExpired};
  mark.marks_only = true;
  REQUIRE(daemon.Do(mark).kind == OutcomeKind::kDone);
  REQUIRE(daemon.Do(mark).kind == OutcomeKind::kDone);
  CHECK(daemon.Acquire("s", {.session = session}).kind == OutcomeKind::kSessionLost);
  const auto end = [&](const Id& claim, uint32_t epoch) {
    EndCommand command;
    command.semaphore = "s";
    command.claim = claim;
    command.cause = EndCause::kExpired;
    command.session = session;
    command.epoch = epoch;
    return daemon.Do(command).kind;
  };
  CHECK(end(waits, 3) == OutcomeKind::kStale);
  CHECK(end(waits, 1) == OutcomeKind::kDone);
  CHECK(end(first->id, 3) == OutcomeKind::kStale);
  CHECK(end(first->id, 1) == OutcomeKind::kDone);
  CHECK(end(second->id, 2) == OutcomeKind::kDone);
  CHECK(daemon.Describe("s").held == 0);
  CHECK(daemon.Do(CloseSessionCommand{session, 1, EndCause::kExpired}).kind == OutcomeKind::kDone);
}

CONTRACT_CASE("a waiter of a closing session is passed over") {
  Daemon& daemon = world.daemon();
  const Id session = world.NewId();
  REQUIRE(daemon.OpenSession(session).kind == OutcomeKind::kDone);
  daemon.Create("s", 1);
  const LeasePtr lease = daemon.Grant("s");
  const Id leaves = daemon.Queue("s", {.session = session});
  const Id stays = daemon.Queue("s");
  CloseSessionCommand mark{session, 1, EndCause::kExpired};
  mark.marks_only = true;
  REQUIRE(daemon.Do(mark).kind == OutcomeKind::kDone);
  daemon.GiveBack("s", lease->id);
  const std::vector<SeenEvent> events = daemon.TakeEvents();
  CHECK(Saw(events, Event::Kind::kGranted, stays));
  CHECK_FALSE(Saw(events, Event::Kind::kGranted, leaves));
  CHECK(daemon.Do(CloseSessionCommand{session, 1, EndCause::kExpired}).kind == OutcomeKind::kDone);
  CHECK(daemon.Describe("s").waiting == 0);
  CHECK(daemon.Verify("s", stays).kind == OutcomeKind::kHeld);
}

CONTRACT_CASE("a clean close releases leases and cancels waits") {
  Daemon& daemon = world.daemon();
  const Id session = world.NewId();
  REQUIRE(daemon.OpenSession(session).kind == OutcomeKind::kDone);
  daemon.Create("s", 1);
  daemon.Create("t", 1);
  daemon.Grant("t");
  const LeasePtr lease = daemon.Grant("s", {.session = session});
  const Id waiter = daemon.Queue("t", {.session = session});
  REQUIRE(daemon.Do(CloseSessionCommand{session, 0, EndCause::kReleased}).kind ==
          OutcomeKind::kDone);
  const std::vector<SeenEvent> events = daemon.TakeEvents();
  CHECK(Saw(events, Event::Kind::kEnded, lease->id, EndCause::kReleased));
  CHECK(Saw(events, Event::Kind::kWaitEnded, waiter, EndCause::kCancelled));
}

CONTRACT_CASE("closing with another epoch is stale and changes nothing") {
  Daemon& daemon = world.daemon();
  const Id session = world.NewId();
  REQUIRE(daemon.OpenSession(session).kind == OutcomeKind::kDone);
  daemon.Create("s", 1);
  const LeasePtr lease = daemon.Grant("s", {.session = session});
  CHECK(daemon.Do(CloseSessionCommand{session, 2, EndCause::kExpired}).kind == OutcomeKind::kStale);
  CHECK(daemon.Verify("s", lease->id).kind == OutcomeKind::kHeld);
  CHECK(daemon.Do(CloseSessionCommand{session, 1, EndCause::kExpired}).kind == OutcomeKind::kDone);
  CHECK(daemon.Describe("s").held == 0);
}

CONTRACT_CASE("a session that is closed or never was is lost") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Id session = world.NewId();
  CHECK(daemon.Do(AdoptSessionCommand{session}).kind == OutcomeKind::kSessionLost);
  CHECK(daemon.Do(CloseSessionCommand{session, 0, EndCause::kExpired}).kind ==
        OutcomeKind::kSessionLost);
  REQUIRE(daemon.OpenSession(session).kind == OutcomeKind::kDone);
  REQUIRE(daemon.Do(CloseSessionCommand{session, 0, EndCause::kReleased}).kind ==
          OutcomeKind::kDone);
  CHECK(daemon.Do(CloseSessionCommand{session, 0, EndCause::kReleased}).kind ==
        OutcomeKind::kSessionLost);
  CHECK(daemon.Acquire("s", {.session = session}).kind == OutcomeKind::kSessionLost);
}

CONTRACT_CASE("a session is opened, used and closed in one batch") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Id session = world.NewId();
  std::vector<Command> batch;
  batch.push_back(OpenSessionCommand{session, "c", 30'000, "h", false});
  batch.push_back(world.MakeAcquire("s", {.session = session}));
  batch.push_back(world.MakeAcquire("s", {.wait = true, .session = session}));
  batch.push_back(CloseSessionCommand{session, 1, EndCause::kReleased});
  batch.push_back(world.MakeAcquire("s", {.session = session}));
  batch.push_back(world.MakeAcquire("s", {}));
  const std::vector<Outcome> outcomes = daemon.DoAll(std::move(batch));
  CHECK(outcomes[0].kind == OutcomeKind::kDone);
  CHECK(outcomes[1].kind == OutcomeKind::kGranted);
  CHECK(outcomes[2].kind == OutcomeKind::kQueued);
  CHECK(outcomes[3].kind == OutcomeKind::kDone);
  CHECK(outcomes[4].kind == OutcomeKind::kSessionLost);
  if (world.guarantees().grants_at_once) {
    CHECK(outcomes[5].kind == OutcomeKind::kGranted);
  } else if (outcomes[5].kind != OutcomeKind::kGranted) {
    daemon.GrantSoon("s");
  }
}

CONTRACT_CASE("what is hosted here is no orphan") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Id session = world.NewId();
  REQUIRE(daemon.OpenSession(session).kind == OutcomeKind::kDone);
  daemon.Grant("s", {.session = session});
  daemon.Queue("s");
  const Outcome outcome = daemon.Do(OrphansCommand{});
  CHECK(outcome.kind == OutcomeKind::kDone);
  CHECK(outcome.report->orphans.empty());
}

}  // namespace semaphored::contract
