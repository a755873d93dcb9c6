// Impolite repeats, and costs, counted on an engine in memory.
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "adapters/ledger/requests.h"
#include "server/sessions/refusals.h"
#include "tests/unit/sessions/damaged_engine.h"

namespace semaphored::ledger {
namespace {

struct Daemon {
  explicit Daemon(DamagedWorld* world, bool exclusive = false, const std::string& node = "a") {
    options.self = world->engine.Join(node);
    options.now_unix_ms = [] { return int64_t{1}; };
    options.now = [this] { return now; };
    lane = MakeLedgerAdapter(std::make_unique<DamagedStore>(world, exclusive), options).value();
  }

  StepResult Step(std::vector<Command> commands) {
    std::vector<Submission> batch;
    for (Command& command : commands) batch.push_back({++number, std::move(command)});
    StepResult result = lane->Step(batch, now + std::chrono::seconds(5)).value();
    for (const Event& event : result.events) {
      if (event.kind == Event::Kind::kGranted) granted.push_back(event.claim);
    }
    return result;
  }
  Outcome Do(Command command) {
    std::vector<Command> commands;
    commands.push_back(std::move(command));
    return std::move(Step(std::move(commands)).outcomes.at(0));
  }
  AcquireCommand Ask(const std::string& semaphore, uint32_t limit, uint64_t sequence = 0) {
    AcquireCommand acquire;
    acquire.requester = {"client", sequence};
    acquire.semaphore = semaphore;
    acquire.claim = acquire.session = Id{options.self.number, ++ids};
    acquire.limit = limit;
    acquire.wait = true;
    acquire.ttl_ms = 10'000;
    return acquire;
  }

  LedgerOptions options;
  SteadyTime now{};
  std::unique_ptr<Adapter> lane;
  std::vector<Id> granted;
  uint64_t number = 0;
  uint64_t ids = 0;
};

ReleaseCommand ReleaseOfClaim(const std::string& semaphore, const Id& claim) {
  ReleaseCommand release;
  release.semaphore = semaphore;
  release.claim = claim;
  return release;
}

TEST_CASE(
    "fault: waits are repeated in the batch that lets them in, however many a commit grants") {
  DamagedWorld world;
  world.grants_per_commit_max = GENERATE(0u, 1u, 20u);
  const bool exclusive = GENERATE(false, true);
  CAPTURE(world.grants_per_commit_max, exclusive);
  Daemon daemon(&world, exclusive);
  constexpr uint32_t kLimit = 3;
  std::vector<Id> held;
  for (uint32_t i = 0; i < kLimit; ++i)
    held.push_back(daemon.Do(daemon.Ask("s", kLimit)).lease->id);
  std::vector<Id> waits;
  for (uint64_t sequence = 1; sequence <= 5; ++sequence)
    waits.push_back(daemon.Do(daemon.Ask("s", kLimit, sequence)).claim);
  // Everything is given back, and everything is asked for again, twice, in one batch; and so three
  // times.
  for (int round = 0; round < 3; ++round) {
    std::vector<Command> batch;
    for (const Id& claim : held) batch.emplace_back(ReleaseOfClaim("s", claim));
    held.clear();
    for (int twice = 0; twice < 2; ++twice) {
      for (uint64_t sequence = 1; sequence <= 5; ++sequence)
        batch.emplace_back(daemon.Ask("s", kLimit, sequence));
    }
    const StepResult result = daemon.Step(std::move(batch));
    const size_t first = result.outcomes.size() - 10;
    for (size_t i = 0; i < 10; ++i) {
      const Outcome& outcome = result.outcomes[first + i];
      const bool stands =
          outcome.kind == OutcomeKind::kGranted || outcome.kind == OutcomeKind::kQueued;
      CHECK(stands);
      CHECK(outcome.claim == waits[i % 5]);
    }
    for (int i = 0; i < 5; ++i) daemon.Step({});
    const simulation::StoredSemaphore* stored = world.engine.Find("s");
    CHECK(stored->held() == kLimit);
    CHECK(stored->leases.size() + stored->waiters.size() == 5);
  }
  CHECK(daemon.granted == std::vector<Id>{waits[0], waits[1], waits[2]});
}

TEST_CASE("fault: waits are repeated in the step in which the room that others made lets them in") {
  DamagedWorld world;
  world.grants_per_commit_max = GENERATE(0u, 1u, 20u);
  CAPTURE(world.grants_per_commit_max);
  Daemon a(&world);
  Daemon b(&world, false, "b");
  constexpr uint32_t kLimit = 30;
  std::vector<Command> takes;
  for (uint32_t i = 0; i < kLimit; ++i) takes.emplace_back(b.Ask("s", kLimit));
  std::vector<Command> releases;
  for (const Outcome& outcome : b.Step(std::move(takes)).outcomes)
    releases.emplace_back(ReleaseOfClaim("s", outcome.lease->id));
  std::vector<Id> waits;
  for (uint64_t sequence = 1; sequence <= kLimit; ++sequence)
    waits.push_back(a.Do(a.Ask("s", kLimit, sequence)).claim);
  b.Step(std::move(releases));
  std::vector<Command> repeats;
  for (uint64_t i = 0; i < uint64_t{2} * kLimit; ++i)
    repeats.emplace_back(a.Ask("s", kLimit, i % kLimit + 1));
  const StepResult result = a.Step(std::move(repeats));
  REQUIRE(result.outcomes.size() == size_t{2} * kLimit);
  for (size_t i = 0; i < result.outcomes.size(); ++i) {
    const Outcome& outcome = result.outcomes[i];
    CHECK((outcome.kind == OutcomeKind::kGranted || outcome.kind == OutcomeKind::kQueued));
    CHECK(outcome.claim == waits[i % kLimit]);
  }
  for (uint32_t i = 0; i < kLimit; ++i) a.Step({});
  const simulation::StoredSemaphore* stored = world.engine.Find("s");
  CHECK(stored->held() == kLimit);
  CHECK(stored->leases.size() == kLimit);
  CHECK(stored->waiters.empty());
}

// As after a hand in the engine's tables.
TEST_CASE("fault: a request whose row speaks of a waiter that is not there fails alone") {
  DamagedWorld world;
  Daemon a(&world);
  Daemon b(&world, false, "b");
  a.Do(a.Ask("s", 1));
  a.Do(a.Ask("s", 1, 1));
  auto* stored =  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast)
      const_cast<simulation::StoredSemaphore*>(world.engine.Find("s"));
  stored->waiters.clear();
  std::vector<Command> batch = {b.Ask("s", 1, 1)};
  batch.emplace_back(b.Ask("other", 1, 2));
  const int loaded = world.loaded;
  CHECK(b.Step(std::move(batch)).outcomes.at(1).kind == OutcomeKind::kGranted);
  CHECK(world.loaded - loaded < 50);
  const StepResult later = b.Step({});
  REQUIRE(later.settled.size() == 1);
  CHECK(absl::IsDataLoss(later.settled[0].outcome.status()));
}

TEST_CASE("fault: a queue of tickets without a worker is not read again by every sweep") {
  DamagedWorld world;
  Daemon daemon(&world);
  constexpr int kTickets = 50;
  for (int i = 0; i < kTickets; ++i) {
    EnqueueCommand enqueue;
    enqueue.semaphore = "tickets-" + std::to_string(i);
    enqueue.ticket = Id{9, static_cast<uint64_t>(i) + 1};
    enqueue.limit = 1;
    enqueue.adopt_limit = true;
    REQUIRE(daemon.Do(enqueue).kind == OutcomeKind::kEnqueued);
  }
  const int loaded = world.loaded;
  for (int sweep = 0; sweep < 20; ++sweep) {
    daemon.now += std::chrono::seconds(6);
    daemon.Step({});
    // Its users look at it now and then.
    AdminCommand list;
    list.semaphore = "tickets-7";
    list.act = AdminListTickets{};
    REQUIRE(daemon.Do(list).report->tickets.size() == 1);
  }
  CHECK(world.loaded == loaded);
}

TEST_CASE("fault: a commit to a wide semaphore names each daemon once") {
  DamagedWorld world;
  Daemon a(&world);
  Daemon b(&world, false, "b");
  constexpr uint32_t kLimit = 3000;
  std::vector<Command> batch;
  for (uint32_t i = 0; i < kLimit; ++i) batch.emplace_back(b.Ask("s", kLimit));
  b.Step(std::move(batch));
  batch.clear();
  for (uint32_t i = 0; i < kLimit; ++i) batch.emplace_back(a.Ask("s", kLimit));
  world.concerns_max = 0;
  a.Step(std::move(batch));
  CHECK(world.engine.Find("s")->waiters.size() == kLimit);
  CHECK(world.concerns_max == 1);
}

TEST_CASE("fault: a claim that lands while its session moves is in the answer") {
  DamagedWorld world;
  Daemon former(&world);
  Daemon heir(&world, false, "heir");
  OpenSessionCommand open;
  open.session = Id{7, 1};
  open.client_id = "client";
  open.ttl_ms = 10'000;
  REQUIRE(former.Do(open).kind == OutcomeKind::kDone);
  const bool waits = GENERATE(false, true);
  const bool known_to_heir = GENERATE(false, true);
  CAPTURE(waits, known_to_heir);
  if (known_to_heir) heir.Do(heir.Ask("late", 2));
  if (waits) {
    AcquireCommand rest = former.Ask("late", 2);
    rest.permits = known_to_heir ? 1 : 2;
    REQUIRE(former.Do(rest).kind == OutcomeKind::kGranted);
  }
  AcquireCommand late = former.Ask("late", 2, 1);
  late.session = open.session;
  late.epoch = 1;
  world.before_commit = [&] { former.Do(late); };
  const Outcome moved = heir.Do(AdoptSessionCommand{open.session});
  REQUIRE(moved.kind == OutcomeKind::kDone);
  REQUIRE(moved.changed);
  REQUIRE(moved.report->claims.size() == 1);
  const ClaimInfo& info = moved.report->claims[0];
  CHECK((info.lease ? info.lease->id : info.waiter->id) == late.claim);
  CHECK((info.waiter != nullptr) == waits);
  // The heir touches the semaphore, and the former host's next sweep finds that.
  heir.Step({});
  former.now += std::chrono::seconds(6);
  const StepResult heard = former.Step({});
  CHECK(std::ranges::any_of(heard.events, [&](const Event& event) {
    return event.kind == Event::Kind::kMoved && event.claim == open.session;
  }));
}

TEST_CASE("fault: an id is free once its wait was given up, also where that is not known yet") {
  DamagedWorld world;
  Daemon first(&world);
  Daemon second(&world, false, "second");
  first.Do(first.Ask("a", 1));
  first.Do(first.Ask("b", 1));
  const Id given_up = first.Do(first.Ask("a", 1, 7)).claim;
  // The second daemon knows that the request waits, as long as it waits.
  AdminCommand look;
  look.semaphore = "a";
  look.act = AdminDescribe{10};
  REQUIRE(second.Do(look).report->info->waiting == 1);
  AcquireCommand other = second.Ask("b", 1, 7);
  REQUIRE(second.Do(other).kind == OutcomeKind::kReused);
  EndCommand end;
  end.semaphore = "a";
  end.claim = given_up;
  end.cause = EndCause::kCancelled;
  world.notifier.silent = true;
  REQUIRE(first.Do(end).kind == OutcomeKind::kDone);
  REQUIRE(second.Do(other).kind == OutcomeKind::kQueued);
  // The id stands for this now, whatever becomes known of the earlier wait.
  REQUIRE(second.Do(look).report->info->waiting == 0);
  CHECK(second.Do(second.Ask("a", 1, 7)).kind == OutcomeKind::kReused);
  CHECK(second.Do(other).kind == OutcomeKind::kQueued);
}

TEST_CASE("fault: a take-over reads each semaphore once, in pages of its own lane") {
  DamagedWorld world;
  Daemon dead(&world, false, "dead");
  Daemon heir(&world, false, "heir");
  constexpr uint32_t kMany = 5000;
  constexpr uint32_t kSessions = 700;
  std::vector<Command> batch;
  for (uint32_t i = 0; i < kSessions; ++i) {
    OpenSessionCommand open;
    open.session = Id{7, i + 1};
    open.client_id = "client";
    open.ttl_ms = 10'000;
    batch.emplace_back(open);
  }
  // Half of the leases belong to sessions, and half of the sessions have none.
  for (uint32_t i = 0; i < kMany; ++i) {
    AcquireCommand acquire = dead.Ask("s" + std::to_string(i), 1);
    if (i % 2 == 0) acquire.session = Id{7, i % (kSessions / 2) + 1};
    batch.emplace_back(std::move(acquire));
  }
  dead.Step(std::move(batch));
  world.loads.clear();
  const uint32_t lanes = GENERATE(1u, 3u);
  std::set<Id> sessions;
  std::set<Id> claims;
  int pages = 0;
  for (uint32_t lane = 0; lane < lanes; ++lane) {
    OrphansCommand page{{dead.options.self}, lane, lanes, "", 200};
    do {
      world.loaded = 0;
      const Outcome outcome = heir.Do(page);
      REQUIRE(outcome.kind == OutcomeKind::kDone);
      CHECK(world.loaded <= 200);
      CHECK(outcome.affected() == static_cast<uint32_t>(world.loaded));
      CHECK(outcome.report->orphans.size() <= 400);
      for (const Orphan& orphan : outcome.report->orphans) {
        if (orphan.session.high == 7) sessions.insert(orphan.session);
        for (const ClaimInfo& info : orphan.claims) {
          CHECK(LaneOf(info.semaphore, lanes) == lane);
          CHECK(claims.insert(info.lease->id).second);
        }
      }
      page.after = outcome.report->next;
      ++pages;
    } while (!page.after.empty());
  }
  CHECK(sessions.size() == kSessions);
  CHECK(claims.size() == kMany);
  CHECK(world.loads.size() == kMany);
  CHECK(std::ranges::all_of(world.loads, [](const auto& each) { return each.second == 1; }));
  CHECK(pages <= static_cast<int>((kMany + kSessions) / 200 + 2 * lanes));
}

TEST_CASE("fault: a page of a take-over whose list was forgotten is read again") {
  DamagedWorld world;
  Daemon dead(&world, false, "dead");
  Daemon heir(&world, false, "heir");
  for (int i = 0; i < 10; ++i) dead.Do(dead.Ask("s" + std::to_string(i), 1));
  const NodeRef other = world.engine.Join("other");
  OrphansCommand page{{dead.options.self}, 0, 1, "", 4};
  std::set<Id> claims;
  do {
    const Outcome outcome = heir.Do(page);
    for (const Orphan& orphan : outcome.report->orphans) claims.insert(orphan.session);
    page.after = outcome.report->next;
    // Other take-overs begin, and are given up.
    for (uint32_t i = 1; i < 9; ++i)
      heir.Do(OrphansCommand{{dead.options.self, {other.number, i}}, 0, 1, "", 1});
  } while (!page.after.empty());
  CHECK(claims.size() == 10);
}

// A ticket that was rejected.
void Bury(Daemon* daemon, uint64_t number) {
  EnqueueCommand enqueue;
  enqueue.semaphore = "s";
  enqueue.ticket = Id{8, number};
  enqueue.limit = 1;
  enqueue.payload = std::make_shared<const std::string>("work");
  REQUIRE(daemon->Do(enqueue).kind == OutcomeKind::kEnqueued);
  TakeCommand take;
  take.semaphore = "s";
  take.claim = take.session = Id{9, number};
  take.ttl_ms = 10'000;
  REQUIRE(daemon->Do(take).kind == OutcomeKind::kGranted);
  FinishCommand finish;
  finish.semaphore = "s";
  finish.claim = take.claim;
  finish.result = FinishCommand::Result::kReject;
  REQUIRE(daemon->Do(finish).kind == OutcomeKind::kReleased);
}

TEST_CASE("fault: a revision that is expected of an act in parts binds its first part alone") {
  constexpr uint32_t kDead = 6;
  DamagedWorld world;
  Daemon a(&world);
  Daemon b(&world, false, "b");
  for (uint64_t i = 1; i <= kDead; ++i) Bury(&a, i);
  world.damage = absl::OutOfRangeError("too many rows");
  world.refuses = [](const Transaction& transaction) {
    size_t rows = 0;
    for (const SemaphoreDelta& delta : transaction.semaphores) rows += delta.tickets.size();
    return rows > 2;
  };
  const auto describe = [](Daemon* daemon) {
    const AdminCommand command{{}, "s", 0, AdminDescribe{0}};
    return daemon->Do(command).report->info.value();
  };
  const bool purges = GENERATE(false, true);
  AdminCommand act{{"admin", 1}, "s", describe(&a).row.revision, AdminRequeue{}};
  if (purges) act.act = AdminPurge{};
  // Another daemon changes the semaphore when the act as a whole is on its way, and is too large.
  world.before_commit = [&] {
    const AdminCommand pause{{}, "s", 0, AdminPause{true}};
    REQUIRE(b.Do(pause).kind == OutcomeKind::kDone);
  };
  const Outcome refused = a.Do(act);
  CHECK(refused.kind == OutcomeKind::kRevisionMismatch);
  CHECK(refused.report->info->tickets.dead == kDead);
  CHECK(describe(&b).tickets.dead == kDead);
  act.expected_revision = describe(&a).row.revision;
  act.requester.sequence = 2;
  // Repeated it is answered, and not compared again.
  for (int i = 0; i < 2; ++i) {
    const Outcome done = a.Do(act);
    CHECK(done.kind == OutcomeKind::kDone);
    CHECK(done.affected() == kDead);
    CHECK(done.report->info->tickets.dead == 0);
  }
}

// What the second daemon reads of the semaphore is older than what it finds of the request.
TEST_CASE("fault: a request that is granted while its repeat is read was not ended") {
  DamagedWorld world;
  Daemon first(&world);
  Daemon second(&world, false, "second");
  first.Do(first.Ask("s", 2));
  // Either only its earlier fate is asked for, or the second daemon knows a later one of the client.
  const bool only_if_repeated = GENERATE(false, true);
  CAPTURE(only_if_repeated);
  if (!only_if_repeated) second.Do(second.Ask("t", 1, /*sequence=*/9));
  const AcquireCommand late = first.Ask("s", 2, /*sequence=*/7);
  world.before_find = [&] { REQUIRE(first.Do(late).kind == OutcomeKind::kGranted); };
  AcquireCommand again = second.Ask("s", 2, /*sequence=*/7);
  again.only_if_repeated = only_if_repeated;
  const Outcome outcome = second.Do(again);
  REQUIRE(outcome.kind == OutcomeKind::kGranted);
  CHECK(outcome.lease->id == late.claim);
}

// Says of each request that it waits in "s", or that it was granted there.
class ContradictoryStore : public DamagedStore {
 public:
  ContradictoryStore(DamagedWorld* world, const Id& fingerprint, RequestRow::State state)
      : DamagedStore(world, /*exclusive=*/false), fingerprint_(fingerprint), state_(state) {}
  absl::StatusOr<std::vector<FoundRequest>> FindRequests(absl::Span<const NamedRequest> requests,
                                                         uint64_t) override {
    std::vector<FoundRequest> found(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      RequestRow& row = found[i].row.emplace();
      row.request = requests[i].request;
      row.fingerprint = fingerprint_;
      row.state = state_;
      row.semaphore = "s";
      row.claim = Id{5, 5};
    }
    return found;
  }

 private:
  const Id fingerprint_;
  const RequestRow::State state_;
};

TEST_CASE("fault: a request whose row contradicts its semaphore has an advice that helps") {
  DamagedWorld world;
  Daemon daemon(&world);
  AcquireCommand again = daemon.Ask("s", 1, /*sequence=*/1);
  again.only_if_repeated = true;
  daemon.lane =
      MakeLedgerAdapter(std::make_unique<ContradictoryStore>(
                            &world, FingerprintOf(again),
                            GENERATE(RequestRow::State::kWaiting, RequestRow::State::kGranted)),
                        daemon.options)
          .value();
  const Submission submission{1, again};
  const absl::Status status = daemon.lane->Step({&submission, 1}, SteadyTime::max()).status();
  REQUIRE(absl::IsDataLoss(status));
  CHECK(status.message().find("the row of this request contradicts s") != std::string::npos);
  const Refusal refusal = RefusalOf(status, "s");
  CHECK(refusal.reason == Reason::kEngineCorrupt);
  CHECK(refusal.advice == "send it under a new request id; no back-up has to be restored");
  CHECK(RefusalOf(world.damage, "s").advice == "restore the store from a back-up");
  // Others are served.
  CHECK(daemon.Do(daemon.Ask("t", 1)).kind == OutcomeKind::kGranted);
}

}  // namespace
}  // namespace semaphored::ledger
