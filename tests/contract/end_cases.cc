// Ends that are not the holder's doing, their conditions, and detached claims that move.
#include "tests/contract/world.h"

namespace semaphored::contract {

CONTRACT_CASE("an expiry ends the lease and passes the permit on") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr lease = daemon.Grant("s");
  const Id waiter = daemon.Queue("s");
  CHECK(daemon.End("s", lease->id, EndCause::kExpired).kind == OutcomeKind::kDone);
  const std::vector<SeenEvent> events = daemon.TakeEvents();
  CHECK(Saw(events, Event::Kind::kEnded, lease->id, EndCause::kExpired));
  CHECK(Saw(events, Event::Kind::kGranted, waiter));
  CHECK(Overtakes(world.guarantees(), *daemon.Verify("s", waiter).lease, *lease));
}

CONTRACT_CASE("an end with the session's present epoch is done") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  const LeasePtr lease = daemon.Grant("s");
  CHECK(daemon.End("s", lease->id, EndCause::kExpired, lease->epoch).kind == OutcomeKind::kDone);
  const Id session = world.NewId();
  REQUIRE(daemon.OpenSession(session).kind == OutcomeKind::kDone);
  const LeasePtr other = daemon.Grant("s", {.session = session});
  CHECK(daemon.End("s", other->id, EndCause::kExpired, 1).kind == OutcomeKind::kDone);
}

CONTRACT_CASE("an end with another epoch changes nothing") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr lease = daemon.Grant("s");
  const Id waiter = daemon.Queue("s");
  const uint64_t revision = daemon.Describe("s").row.revision;
  CHECK(daemon.End("s", lease->id, EndCause::kExpired, lease->epoch + 1).kind ==
        OutcomeKind::kStale);
  CHECK(daemon.End("s", waiter, EndCause::kExpired, 7).kind == OutcomeKind::kStale);
  CHECK(daemon.Verify("s", lease->id).kind == OutcomeKind::kHeld);
  CHECK(WaitersIn(daemon.Describe("s")) == std::vector{waiter});
  CHECK(daemon.Describe("s").row.revision == revision);
}

CONTRACT_CASE("an end of a wait that was sent before the request was repeated changes nothing") {
  OnEachPair(world, [&](Daemon& first, Daemon& second) {
    for (const bool one_shot : {false, true}) {
      const std::string name = "s" + world.NewId().Hex();
      first.Create(name, 1);
      const LeasePtr holds = first.Grant(name);
      Ask ask{.wait = true};
      if (one_shot) ask.one_shot = world.NewId();
      if (!one_shot) ask.client = name;
      if (!one_shot) ask.sequence = 1;
      const Id waits = first.Queue(name, ask);
      const EndCommand cancel{.semaphore = name,
                              .claim = waits,
                              .cause = EndCause::kCancelled,
                              .session = waits,
                              .epoch = 1,
                              .only_waiting = true};
      const Outcome again = second.Acquire(name, ask);
      REQUIRE(again.kind == OutcomeKind::kQueued);
      CHECK(again.claim == waits);
      CHECK(first.Do(cancel).kind == OutcomeKind::kStale);
      CHECK(WaitersIn(second.Describe(name)) == std::vector{waits});
      first.GiveBack(name, holds->id);
      second.PollUntil([&] { return Saw(second.events(), Event::Kind::kGranted, waits); });
    }
  });
}

CONTRACT_CASE("an end of what is gone is not held, and says how it went") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr lease = daemon.Grant("s");
  daemon.GiveBack("s", lease->id);
  const Outcome outcome = daemon.End("s", lease->id, EndCause::kExpired);
  CHECK(outcome.kind == OutcomeKind::kNotHeld);
  CHECK(outcome.cause == EndCause::kReleased);
  CHECK(daemon.End("s", world.NewId(), EndCause::kExpired).kind == OutcomeKind::kNotHeld);
  CHECK(daemon.End("no/such", lease->id, EndCause::kExpired).kind == OutcomeKind::kNotHeld);
}

CONTRACT_CASE("the end of a wait does not touch a lease that was granted meanwhile") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr first = daemon.Grant("s");
  const Id waiter = daemon.Queue("s");
  daemon.GiveBack("s", first->id);
  CHECK(daemon.EndWait("s", waiter, EndCause::kWaitExpired).kind == OutcomeKind::kStale);
  CHECK(daemon.Verify("s", waiter).kind == OutcomeKind::kHeld);
}

CONTRACT_CASE("an end without that condition ends a waiter too") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  daemon.Grant("s");
  const Id waiter = daemon.Queue("s");
  CHECK(daemon.End("s", waiter, EndCause::kExpired, 1).kind == OutcomeKind::kDone);
  CHECK(Saw(daemon.TakeEvents(), Event::Kind::kWaitEnded, waiter, EndCause::kExpired));
  CHECK(daemon.Describe("s").waiting == 0);
}

CONTRACT_CASE("adopting what is here already answers without a write") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr lease = daemon.Grant("s");
  const uint64_t revision = daemon.Describe("s").row.revision;
  const Outcome outcome = daemon.Do(AdoptCommand{"s", lease->id});
  REQUIRE(outcome.kind == OutcomeKind::kHeld);
  CHECK(outcome.lease->epoch == 1);
  CHECK(outcome.lease->token == lease->token);
  CHECK(daemon.Describe("s").row.revision == revision);
}

CONTRACT_CASE("adopting tells a waiter, a session's claim and what is gone apart") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  const Id session = world.NewId();
  REQUIRE(daemon.OpenSession(session).kind == OutcomeKind::kDone);
  const LeasePtr under_session = daemon.Grant("s", {.session = session});
  const LeasePtr ended = daemon.Grant("s");
  const Id waiter = daemon.Queue("s");
  const Id session_waiter = daemon.Queue("s", {.session = session});
  CHECK(daemon.Do(AdoptCommand{"s", under_session->id}).kind == OutcomeKind::kBelongsToSession);
  CHECK(daemon.Do(AdoptCommand{"s", session_waiter}).kind == OutcomeKind::kBelongsToSession);
  const Outcome waiting = daemon.Do(AdoptCommand{"s", waiter});
  CHECK(waiting.kind == OutcomeKind::kStillWaiting);
  CHECK(waiting.position() == 1);
  REQUIRE(daemon.End("s", ended->id, EndCause::kExpired).kind == OutcomeKind::kDone);
  const Outcome gone = daemon.Do(AdoptCommand{"s", ended->id});
  CHECK(gone.kind == OutcomeKind::kNotHeld);
  CHECK(gone.cause == EndCause::kExpired);
  CHECK(daemon.Do(AdoptCommand{"no/such", ended->id}).kind == OutcomeKind::kNotHeld);
}

CONTRACT_CASE("a recall is told, and the lease stands until it is ended") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr lease = daemon.Grant("s");
  const Id waiter = daemon.Queue("s");
  const Recall recall{Recall::Reason::kLongestHold, 2'000};
  const Outcome outcome = daemon.Do(RecallCommand{"s", lease->id, recall});
  REQUIRE(outcome.kind == OutcomeKind::kDone);
  REQUIRE(outcome.lease != nullptr);
  CHECK(outcome.lease->recall == recall);
  const std::vector<SeenEvent> events = daemon.TakeEvents();
  REQUIRE(events.size() == 1);
  CHECK(events[0].kind == Event::Kind::kRecalled);
  CHECK(events[0].claim == lease->id);
  CHECK(events[0].lease->recall.grace_ms == 2'000);
  const Outcome verified = daemon.Verify("s", lease->id);
  REQUIRE(verified.kind == OutcomeKind::kHeld);
  CHECK(verified.lease->recall.pending());
  CHECK(verified.lease->token == lease->token);
  CHECK(daemon.Describe("s").leases.at(0)->recall.reason == Recall::Reason::kLongestHold);
  REQUIRE(daemon.End("s", lease->id, EndCause::kRecalled).kind == OutcomeKind::kDone);
  CHECK(Saw(daemon.TakeEvents(), Event::Kind::kGranted, waiter));
}

CONTRACT_CASE("a second recall does not lengthen or shorten the first one's grace") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr lease = daemon.Grant("s");
  const Recall first{Recall::Reason::kLongestHold, 2'000};
  REQUIRE(daemon.Do(RecallCommand{"s", lease->id, first}).kind == OutcomeKind::kDone);
  const Outcome second =
      daemon.Do(RecallCommand{"s", lease->id, {Recall::Reason::kLongestHold, 9'000}});
  REQUIRE(second.kind == OutcomeKind::kDone);
  CHECK(second.lease->recall == first);
  CHECK(daemon.TakeEvents().size() == 1);
}

CONTRACT_CASE("a recall without grace ends the lease at once") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr lease = daemon.Grant("s");
  const Id waiter = daemon.Queue("s");
  const Outcome outcome =
      daemon.Do(RecallCommand{"s", lease->id, {Recall::Reason::kLongestHold, 0}});
  CHECK(outcome.kind == OutcomeKind::kDone);
  CHECK(outcome.lease == nullptr);
  const std::vector<SeenEvent> events = daemon.TakeEvents();
  CHECK(Saw(events, Event::Kind::kEnded, lease->id, EndCause::kRecalled));
  CHECK(Saw(events, Event::Kind::kGranted, waiter));
}

CONTRACT_CASE("a recall of what is gone, or only waits, is not held") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr lease = daemon.Grant("s");
  const Id waiter = daemon.Queue("s");
  const Recall recall{Recall::Reason::kAdministrator, 1'000};
  CHECK(daemon.Do(RecallCommand{"s", waiter, recall}).kind == OutcomeKind::kNotHeld);
  CHECK(daemon.Do(RecallCommand{"s", world.NewId(), recall}).kind == OutcomeKind::kNotHeld);
  CHECK(daemon.Do(RecallCommand{"no/such", lease->id, recall}).kind == OutcomeKind::kNotHeld);
  CHECK(WaitersIn(daemon.Describe("s")) == std::vector{waiter});
}

CONTRACT_CASE("a lease knows the longest hold that was set when it was granted") {
  if (!world.guarantees().settings) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2, {.longest_hold_ms = 60'000});
  CHECK(daemon.Grant("s")->longest_hold_ms == 60'000);
  daemon.Create("t", 1);
  // Where the engine has a bound of its own: see guarantee_cases.cc.
  if (world.guarantees().longest_hold_max_ms == 0) CHECK(daemon.Grant("t")->longest_hold_ms == 0);
}

}  // namespace semaphored::contract
