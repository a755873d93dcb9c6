// What a batch is: one command after the other, together and durably.
#include <chrono>
#include <thread>

#include "adapters/steady_clock.h"
#include "tests/contract/world.h"

namespace semaphored::contract {

CONTRACT_CASE("in a batch each command sees those before it") {
  Daemon& daemon = world.daemon();
  std::vector<Command> batch;
  const AcquireCommand first = world.MakeAcquire("s", {.limit = 1});
  const AcquireCommand second = world.MakeAcquire("s", {.wait = true});
  batch.push_back(world.MakeAcquire("s", {}));                  // 0: does not exist yet.
  batch.push_back(first);                                       // 1: makes it and takes it.
  batch.push_back(world.MakeAcquire("s", {}));                  // 2: full.
  batch.push_back(second);                                      // 3: queues.
  batch.push_back(VerifyCommand{"s", first.claim, 0, 0});       // 4: held.
  batch.push_back(world.MakeRelease("s", first.claim));         // 5: makes room for the second.
  batch.push_back(VerifyCommand{"s", first.claim, 0, 0});       // 6: not held any more.
  batch.push_back(VerifyCommand{"s", second.claim, 0, 0});      // 7: held, perhaps soon only.
  batch.push_back(AdminCommand{{}, "s", 0, AdminDescribe{9}});  // 8
  const std::vector<Outcome> outcomes = daemon.DoAll(std::move(batch));
  CHECK(outcomes[0].kind == OutcomeKind::kNoSuchSemaphore);
  CHECK(outcomes[1].kind == OutcomeKind::kGranted);
  CHECK(outcomes[2].kind == OutcomeKind::kFull);
  CHECK(outcomes[3].kind == OutcomeKind::kQueued);
  CHECK(outcomes[4].kind == OutcomeKind::kHeld);
  CHECK(outcomes[5].kind == OutcomeKind::kReleased);
  CHECK(outcomes[6].kind == OutcomeKind::kNotHeld);
  CHECK(outcomes[6].cause == EndCause::kReleased);
  if (world.guarantees().grants_at_once) {
    REQUIRE(outcomes[7].kind == OutcomeKind::kHeld);
    CHECK(outcomes[7].lease->id == second.claim);
    CHECK(outcomes[8].report->info->held == 1);
  } else {
    CHECK(outcomes[7].kind == OutcomeKind::kStillWaiting);
    CHECK(outcomes[8].report->info->waiting == 1);
  }
  CHECK(Saw(daemon.TakeEvents(), Event::Kind::kGranted, second.claim));
}

CONTRACT_CASE("a command that fails does not disturb its batch") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3);
  std::vector<Command> batch;
  batch.push_back(world.MakeAcquire("s", {}));
  batch.push_back(world.MakeAcquire("s", {.permits = 9}));
  batch.push_back(world.MakeAcquire("s", {.limit = 7}));
  batch.push_back(world.MakeRelease("s", world.NewId()));
  batch.push_back(AdminCommand{{}, "s", 0, AdminDestroy{}});
  batch.push_back(world.MakeAcquire("s", {}));
  const std::vector<Outcome> outcomes = daemon.DoAll(std::move(batch));
  CHECK(outcomes[0].kind == OutcomeKind::kGranted);
  CHECK(outcomes[1].kind ==
        (world.guarantees().weighted ? OutcomeKind::kExceedsLimit : OutcomeKind::kUnsupported));
  CHECK(outcomes[2].kind == OutcomeKind::kLimitMismatch);
  CHECK(outcomes[3].kind == OutcomeKind::kNotHeld);
  CHECK(outcomes[4].kind == OutcomeKind::kInUse);
  CHECK(outcomes[5].kind == OutcomeKind::kGranted);
  CHECK(daemon.Describe("s").held == 2);
}

CONTRACT_CASE("a batch may be about many semaphores") {
  Daemon& daemon = world.daemon();
  std::vector<Command> batch;
  for (int i = 0; i < 50; ++i)
    batch.push_back(world.MakeAcquire("s/" + std::to_string(i % 10), {.limit = 4}));
  const std::vector<Outcome> outcomes = daemon.DoAll(std::move(batch));
  for (size_t i = 0; i < outcomes.size(); ++i) {
    CHECK(outcomes[i].kind == (i < 40 ? OutcomeKind::kGranted : OutcomeKind::kFull));
    if (i < 40) CHECK(outcomes[i].lease->slots == Slots{static_cast<uint32_t>(i / 10 + 1)});
  }
  for (int i = 0; i < 10; ++i) CHECK(daemon.Describe("s/" + std::to_string(i)).held == 4);
}

CONTRACT_CASE("a batch raises a revision once") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 9);
  const uint64_t before = daemon.Describe("s").row.revision;
  std::vector<Command> batch;
  for (int i = 0; i < 5; ++i) batch.push_back(world.MakeAcquire("s", {}));
  daemon.DoAll(std::move(batch));
  const uint64_t raised = world.guarantees().revision_counts_claims ? 1 : 0;
  CHECK(daemon.Describe("s").row.revision == before + raised);
}

CONTRACT_CASE("an expected revision does not hold any more after a change in the same batch") {
  if (!world.guarantees().revisions) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 9);
  const uint64_t revision = daemon.Describe("s").row.revision;
  std::vector<Command> batch;
  batch.push_back(AdminCommand{{}, "s", revision, AdminPause{true}});
  batch.push_back(AdminCommand{{}, "s", revision, AdminDestroy{}});
  const std::vector<Outcome> outcomes = daemon.DoAll(std::move(batch));
  CHECK(outcomes[0].kind == OutcomeKind::kDone);
  CHECK(outcomes[1].kind == OutcomeKind::kRevisionMismatch);
  CHECK(daemon.Exists("s"));
}

CONTRACT_CASE("events of a batch come in the order in which things happened to a claim") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr first = daemon.Grant("s");
  const Id waiter = daemon.Queue("s");
  std::vector<Command> batch;
  batch.push_back(world.MakeRelease("s", first->id));
  batch.push_back(RecallCommand{"s", waiter, {Recall::Reason::kLongestHold, 1'000}});
  batch.push_back(EndCommand{.semaphore = "s", .claim = waiter, .cause = EndCause::kRecalled});
  if (world.guarantees().grants_at_once) {
    daemon.DoAll(std::move(batch));
  } else {
    for (Command& command : batch) daemon.Do(std::move(command));
  }
  std::vector<Event::Kind> kinds;
  for (const SeenEvent& event : daemon.TakeEvents()) {
    if (event.claim == waiter) kinds.push_back(event.kind);
  }
  CHECK(kinds == std::vector{Event::Kind::kGranted, Event::Kind::kRecalled, Event::Kind::kEnded});
}

CONTRACT_CASE("an immediate grant is no event, it is the outcome") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  daemon.Grant("s");
  daemon.Poll();
  CHECK(daemon.TakeEvents().empty());
}

CONTRACT_CASE("an empty batch with a deadline that has passed returns at once") {
  Daemon& daemon = world.daemon();
  const auto before = SteadyClock::now();
  daemon.Poll();
  CHECK(SteadyClock::now() - before < std::chrono::seconds(5));
  CHECK(daemon.TakeEvents().empty());
}

CONTRACT_CASE("a wake ends the next wait") {
  Daemon& daemon = world.daemon();
  daemon.lane().Wake();
  const auto before = SteadyClock::now();
  REQUIRE(daemon.lane().Step({}, before + std::chrono::seconds(60)).ok());
  CHECK(SteadyClock::now() - before < std::chrono::seconds(30));
}

CONTRACT_CASE("a wake from another thread ends a wait") {
  Daemon& daemon = world.daemon();
  const auto before = SteadyClock::now();
  std::thread waker([&] { daemon.lane().Wake(); });
  const bool ok = daemon.lane().Step({}, before + std::chrono::seconds(60)).ok();
  waker.join();
  REQUIRE(ok);
  CHECK(SteadyClock::now() - before < std::chrono::seconds(30));
}

CONTRACT_CASE("commands are carried out right after a wake") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  daemon.lane().Wake();
  CHECK(daemon.Acquire("s", {}).kind == OutcomeKind::kGranted);
}

}  // namespace semaphored::contract
