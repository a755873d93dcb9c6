// A fault affects only its own command or semaphore.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/sessions/damaged_engine.h"

namespace semaphored::ledger {
namespace {

// One daemon's lane.
class Lane {
 public:
  Lane(DamagedWorld* world, bool exclusive, const std::string& node, SteadyTime* now) : now_(now) {
    options_.self = world->engine.Join(node);
    options_.now_unix_ms = [] { return int64_t{1}; };
    options_.now = [now] { return *now; };
    adapter_ =
        MakeLedgerAdapter(std::make_unique<DamagedStore>(world, exclusive), options_).value();
  }

  NodeRef self() const { return options_.self; }
  // Of one Step.
  absl::StatusOr<StepResult> Step(std::vector<Command> commands) {
    std::vector<Submission> batch;
    for (Command& command : commands) batch.push_back({++number_, std::move(command)});
    absl::StatusOr<StepResult> result = adapter_->Step(batch, *now_ + std::chrono::seconds(5));
    if (result.ok()) {
      for (Quarantine& each : result->quarantines) quarantines.push_back(std::move(each));
      for (Settled& each : result->settled) settled.push_back(std::move(each));
    }
    return result;
  }
  // The error of a command that fails alone is settled with the next Step.
  absl::StatusOr<Outcome> Do(Command command) {
    std::vector<Command> commands;
    commands.push_back(std::move(command));
    absl::StatusOr<StepResult> result = Step(std::move(commands));
    if (!result.ok()) return result.status();
    return std::move(result->outcomes.at(0));
  }
  OutcomeKind KindOf(Command command) {
    const absl::StatusOr<Outcome> outcome = Do(std::move(command));
    return outcome.ok() ? outcome->kind : OutcomeKind::kUnknown;
  }

  std::vector<Quarantine> quarantines;
  std::vector<Settled> settled;

 private:
  SteadyTime* now_;
  LedgerOptions options_;
  std::unique_ptr<Adapter> adapter_;
  uint64_t number_ = 0;
};

struct DamagedBench {
  explicit DamagedBench(bool exclusive) : lane(&world, exclusive, "a", &now) {}

  AcquireCommand Ask(const std::string& semaphore, const Id& session = {}, bool wait = false) {
    AcquireCommand acquire;
    acquire.semaphore = semaphore;
    acquire.claim = Id{1, ++ids};
    acquire.session = session.empty() ? acquire.claim : session;
    acquire.limit = 1;
    acquire.wait = wait;
    return acquire;
  }
  void Advance(int64_t ms) { now += std::chrono::milliseconds(ms); }

  DamagedWorld world;
  SteadyTime now{};
  uint64_t ids = 0;
  Lane lane;
};

const Id kSession{7, 7};

Command OpenSession(const Id& id) {
  OpenSessionCommand open;
  open.session = id;
  open.client_id = "client";
  open.ttl_ms = 10'000;
  return open;
}

VerifyCommand VerifyOf(const std::string& semaphore, const Id& claim) {
  VerifyCommand verify;
  verify.semaphore = semaphore;
  verify.claim = claim;
  return verify;
}

TEST_CASE("quarantine: a semaphore to which no commit succeeds is left alone, others go on") {
  for (const bool exclusive : {true, false}) {
    DamagedBench bench(exclusive);
    const AcquireCommand held = bench.Ask("bad");
    REQUIRE(bench.lane.KindOf(held) == OutcomeKind::kGranted);
    bench.world.unwritable = {"bad"};
    EndCommand end;
    end.semaphore = "bad";
    end.claim = held.claim;
    // The command's own error first; then a commit of the semaphore's own shows what is to blame.
    CHECK(absl::IsDataLoss(bench.lane.Do(end).status()));
    CHECK(bench.lane.quarantines.empty());
    REQUIRE(bench.lane.Step({}).ok());
    REQUIRE(bench.lane.quarantines.size() == 1);
    CHECK(bench.lane.quarantines[0].semaphore == "bad");
    CHECK(absl::IsDataLoss(bench.lane.quarantines[0].why));
    CHECK_FALSE(bench.lane.quarantines[0].unread);
    // From then on nothing is tried, and the caller receives the reason.
    const int commits = bench.world.commits;
    const absl::StatusOr<Outcome> refused = bench.lane.Do(end);
    REQUIRE(refused.ok());
    CHECK(refused->kind == OutcomeKind::kDamaged);
    CHECK(refused->message == "a row is damaged");
    CHECK(bench.world.commits == commits);
    // What can be read is shown; its permit stays held.
    CHECK(bench.lane.KindOf(VerifyOf("bad", held.claim)) == OutcomeKind::kHeld);
    CHECK(bench.lane.KindOf(bench.Ask("good")) == OutcomeKind::kGranted);
  }
}

TEST_CASE("quarantine: the ledger tries again with back-off, and goes on when it can") {
  for (const bool exclusive : {true, false}) {
    DamagedBench bench(exclusive);
    const AcquireCommand held = bench.Ask("bad");
    const AcquireCommand waits = bench.Ask("bad", {}, /*wait=*/true);
    REQUIRE(bench.lane.KindOf(held) == OutcomeKind::kGranted);
    REQUIRE(bench.lane.KindOf(waits) == OutcomeKind::kQueued);
    bench.world.unwritable = {"bad"};
    ReleaseCommand release;
    release.semaphore = "bad";
    release.claim = held.claim;
    CHECK(absl::IsDataLoss(bench.lane.Do(release).status()));
    REQUIRE(bench.lane.Step({}).ok());
    // Ten minutes, four Steps a second: 1, 2, 4, … 60 s apart.
    const int before = bench.world.commits;
    for (int i = 0; i < 2400; ++i) {
      bench.Advance(250);
      REQUIRE(bench.lane.Step({}).ok());
    }
    CHECK(bench.world.commits - before >= 10);
    CHECK(bench.world.commits - before <= 2 * 20);
    CHECK(bench.lane.quarantines.size() == 1);  // One, all the time.
    bench.world.unwritable.clear();
    bench.Advance(61'000);
    REQUIRE(bench.lane.Step({}).ok());
    REQUIRE(bench.lane.quarantines.size() == 2);
    CHECK(bench.lane.quarantines[1].semaphore == "bad");
    CHECK(bench.lane.quarantines[1].why.ok());
    CHECK(bench.lane.KindOf(release) == OutcomeKind::kReleased);
    CHECK(bench.lane.KindOf(VerifyOf("bad", waits.claim)) == OutcomeKind::kHeld);
  }
}

TEST_CASE("quarantine: a command that is itself to blame fails, and its semaphore stays in use") {
  for (const bool exclusive : {true, false}) {
    DamagedBench bench(exclusive);
    AdminCommand create;
    create.semaphore = "s";
    create.act = AdminCreate{10, {}};
    REQUIRE(bench.lane.KindOf(create) == OutcomeKind::kDone);
    bench.world.refuses = [](const Transaction& transaction) {
      for (const SemaphoreDelta& delta : transaction.semaphores) {
        for (const LeaseChange& change : delta.leases) {
          if (change.after && change.after->holder == "poison") return true;
        }
      }
      return false;
    };
    AcquireCommand poison = bench.Ask("s");
    poison.limit = 10;
    poison.holder = "poison";
    AcquireCommand good = bench.Ask("s");
    good.limit = 10;
    const absl::StatusOr<StepResult> result = bench.lane.Step({poison, good});
    REQUIRE(result.ok());
    CHECK(result->outcomes[0].kind == OutcomeKind::kUnknown);
    CHECK(result->outcomes[1].kind == OutcomeKind::kGranted);
    REQUIRE(bench.lane.Step({}).ok());
    REQUIRE(bench.lane.settled.size() == 1);
    CHECK(absl::IsDataLoss(bench.lane.settled[0].outcome.status()));
    CHECK(bench.lane.quarantines.empty());
    AcquireCommand later = bench.Ask("s");
    later.limit = 10;
    CHECK(bench.lane.KindOf(later) == OutcomeKind::kGranted);
  }
}

TEST_CASE("quarantine: a damaged semaphore that was never loaded concerns only who asks for it") {
  DamagedBench bench(/*exclusive=*/false);
  Lane other(&bench.world, false, "b", &bench.now);
  REQUIRE(other.KindOf(bench.Ask("bad")) == OutcomeKind::kGranted);
  bench.world.unreadable = {"bad"};
  std::vector<Command> commands;
  for (int i = 0; i < 100; ++i)
    commands.emplace_back(bench.Ask(i == 40 ? "bad" : "good-" + std::to_string(i)));
  const absl::StatusOr<StepResult> result = bench.lane.Step(std::move(commands));
  REQUIRE(result.ok());
  for (size_t i = 0; i < 100; ++i)
    CHECK(result->outcomes[i].kind == (i == 40 ? OutcomeKind::kDamaged : OutcomeKind::kGranted));
  CHECK(result->outcomes[40].message == "a row is damaged");
  CHECK(bench.world.commits == 2);  // One here, one of the other daemon.
  REQUIRE(bench.lane.quarantines.size() == 1);
  CHECK(bench.lane.quarantines[0].unread);
  // Repaired, it is found by the sweep, also if no client asks.
  bench.world.unreadable.clear();
  bench.Advance(6000);
  REQUIRE(bench.lane.Step({}).ok());
  REQUIRE(bench.lane.quarantines.size() == 2);
  CHECK(bench.lane.quarantines[1].why.ok());
  CHECK(bench.lane.KindOf(bench.Ask("bad")) == OutcomeKind::kFull);
}

// How the semaphore of a session that closes is damaged.
enum class Damage : uint8_t { kUnwritable, kUnreadable, kNeverLoaded };

void CheckClose(bool exclusive, Damage damage) {
  DamagedBench bench(exclusive);
  Lane opener(&bench.world, exclusive, "b", &bench.now);
  Lane& first = damage == Damage::kNeverLoaded ? opener : bench.lane;
  Lane& lane = bench.lane;
  REQUIRE(first.KindOf(OpenSession(kSession)) == OutcomeKind::kDone);
  for (const char* name : {"a", "bad", "c"})
    REQUIRE(first.KindOf(bench.Ask(name, kSession)) == OutcomeKind::kGranted);
  REQUIRE(first.KindOf(bench.Ask("bad", kSession, /*wait=*/true)) == OutcomeKind::kQueued);
  (damage == Damage::kUnwritable ? bench.world.unwritable : bench.world.unreadable) = {"bad"};
  // What reads the damage first.
  if (damage == Damage::kUnreadable) CHECK(lane.KindOf(bench.Ask("bad")) != OutcomeKind::kGranted);
  if (damage == Damage::kUnreadable) bench.Advance(6000);
  if (damage == Damage::kUnreadable) REQUIRE(lane.Step({}).ok());
  const CloseSessionCommand close{kSession, 1, EndCause::kReleased};
  absl::StatusOr<Outcome> closed = lane.Do(close);
  if (damage == Damage::kUnwritable) {
    CHECK(absl::IsDataLoss(closed.status()));
    REQUIRE(lane.Step({}).ok());
    REQUIRE(lane.quarantines.size() == 1);
    CHECK(lane.quarantines[0].semaphore == "bad");
    closed = lane.Do(close);
  }
  REQUIRE(closed.ok());
  CHECK(closed->kind == OutcomeKind::kDamaged);
  CHECK(closed->message == "bad: a row is damaged");
  CHECK(closed->closing_epoch() == 2);
  // The permits elsewhere are free, that one is held, and no daemon goes on with the session.
  CHECK(lane.KindOf(bench.Ask("a")) == OutcomeKind::kGranted);
  CHECK(lane.KindOf(bench.Ask("c")) == OutcomeKind::kGranted);
  CHECK(lane.KindOf(bench.Ask("bad")) == OutcomeKind::kDamaged);
  const absl::StatusOr<Outcome> adopted = lane.Do(AdoptSessionCommand{kSession});
  REQUIRE(adopted.ok());
  CHECK(adopted->kind == OutcomeKind::kSessionLost);
  CHECK(adopted->changed);
  CHECK(lane.KindOf(bench.Ask("d", kSession)) == OutcomeKind::kSessionLost);
  // It is asked for again, and in the end the row goes with the last claim.
  const int commits = bench.world.commits;
  CHECK(lane.KindOf(CloseSessionCommand{kSession, 2, EndCause::kExpired}) == OutcomeKind::kDamaged);
  CHECK(bench.world.commits == commits);
  bench.world.unwritable.clear();
  bench.world.unreadable.clear();
  bench.Advance(6000);
  REQUIRE(lane.Step({}).ok());
  CHECK(lane.KindOf(CloseSessionCommand{kSession, 2, EndCause::kExpired}) == OutcomeKind::kDone);
  CHECK(lane.KindOf(bench.Ask("bad")) == OutcomeKind::kGranted);
  CHECK(bench.world.engine.sessions().empty());
}

TEST_CASE("quarantine: a session that closes frees its permits in all other semaphores") {
  SECTION("exclusive, no commit succeeds") { CheckClose(true, Damage::kUnwritable); }
  SECTION("shared, no commit succeeds") { CheckClose(false, Damage::kUnwritable); }
  SECTION("shared, it cannot be read any more") { CheckClose(false, Damage::kUnreadable); }
  SECTION("shared, it was never read") { CheckClose(false, Damage::kNeverLoaded); }
}

TEST_CASE("quarantine: a session moves with what it has in the semaphores that can be used") {
  DamagedBench bench(/*exclusive=*/false);
  Lane other(&bench.world, false, "b", &bench.now);
  REQUIRE(bench.lane.KindOf(OpenSession(kSession)) == OutcomeKind::kDone);
  for (const char* name : {"a", "bad"})
    REQUIRE(bench.lane.KindOf(bench.Ask(name, kSession)) == OutcomeKind::kGranted);
  bench.world.unreadable = {"bad"};
  const absl::StatusOr<Outcome> adopted = other.Do(AdoptSessionCommand{kSession});
  REQUIRE(adopted.ok());
  CHECK(adopted->kind == OutcomeKind::kDone);
  REQUIRE(adopted->report->claims.size() == 1);
  CHECK(adopted->report->claims[0].semaphore == "a");
}

// What the lane remembers of the semaphore may be outdated.
TEST_CASE("quarantine: an act that is repeated shows nothing of what cannot be read") {
  DamagedBench bench(/*exclusive=*/false);
  Lane other(&bench.world, false, "b", &bench.now);
  const AdminCommand create{{"c", 1}, "bad", 0, AdminCreate{1, {}}};
  REQUIRE(bench.lane.KindOf(create) == OutcomeKind::kDone);
  REQUIRE(bench.lane.KindOf(bench.Ask("bad")) == OutcomeKind::kGranted);
  REQUIRE(other.KindOf(AdminCommand{{"c", 2}, "bad", 0, AdminPause{true}}) == OutcomeKind::kDone);
  bench.world.unreadable = {"bad"};
  bench.Advance(6000);
  REQUIRE(bench.lane.Step({}).ok());
  CHECK(bench.lane.KindOf(create) == OutcomeKind::kDamaged);
  bench.world.unreadable.clear();
  const absl::StatusOr<Outcome> repeated = bench.lane.Do(create);
  REQUIRE(repeated.ok());
  CHECK(repeated->kind == OutcomeKind::kDone);
  CHECK(repeated->report->info->row.paused);
}

// What the lane remembers of it may have ended, and its row be gone, but that cannot be read. The other semaphore is not
// what is damaged.
TEST_CASE(
    "quarantine: an id that is known from what cannot be read is refused for something else") {
  DamagedBench bench(/*exclusive=*/false);
  Lane other(&bench.world, false, "b", &bench.now);
  AcquireCommand held = bench.Ask("bad");
  held.requester = {"c", 1};
  REQUIRE(bench.lane.KindOf(held) == OutcomeKind::kGranted);
  bench.world.faults.rates.notification_lost = 1;
  REQUIRE(other.KindOf(ReleaseCommand{{"c", 2}, "bad", held.claim, {}}) == OutcomeKind::kReleased);
  // So far ahead that the rows of the first two are pruned.
  AcquireCommand ahead = bench.Ask("ahead");
  ahead.requester = {"c", 20'000};
  REQUIRE(other.KindOf(ahead) == OutcomeKind::kGranted);
  bench.world.unreadable = {"bad"};
  AcquireCommand again = bench.Ask("good");
  again.requester = {"c", 1};
  CHECK(bench.lane.KindOf(again) == OutcomeKind::kReused);
  bench.world.unreadable.clear();
  bench.Advance(6000);
  REQUIRE(bench.lane.Step({}).ok());
  CHECK(bench.lane.KindOf(again) == OutcomeKind::kTooOld);
}

TEST_CASE("quarantine: a batch whose answer is lost beside damage is never halved") {
  DamagedBench bench(/*exclusive=*/false);
  for (int i = 0; i < 100; ++i)
    REQUIRE(bench.lane.KindOf(bench.Ask("s" + std::to_string(i))) == OutcomeKind::kGranted);
  bench.world.unwritable = {"s40"};
  const auto batch = [&] {
    std::vector<Command> commands;
    for (int i = 0; i < 100; ++i)
      commands.emplace_back(bench.Ask("s" + std::to_string(i), {}, /*wait=*/true));
    return commands;
  };
  bench.world.commits = 0;
  bench.world.lose_commits = 1;
  const absl::StatusOr<StepResult> lost = bench.lane.Step(batch());
  REQUIRE(lost.ok());
  for (const Outcome& outcome : lost->outcomes) CHECK(outcome.kind == OutcomeKind::kUnknown);
  CHECK(bench.world.commits == 1);
  REQUIRE(bench.lane.Step({}).ok());
  // Settled as a whole, and decided again as a whole: nothing was done, and no command is blamed for
  // another one's semaphore.
  CHECK(bench.world.settled == std::vector<size_t>{100});
  CHECK(bench.world.commits == 2);
  REQUIRE(bench.lane.settled.size() == 100);
  for (const Settled& each : bench.lane.settled) CHECK(absl::IsUnavailable(each.outcome.status()));
  // Repeated, all but one are carried out.
  const absl::StatusOr<StepResult> again = bench.lane.Step(batch());
  REQUIRE(again.ok());
  for (size_t i = 0; i < 100; ++i)
    CHECK(again->outcomes[i].kind == (i == 40 ? OutcomeKind::kUnknown : OutcomeKind::kQueued));
}

}  // namespace
}  // namespace semaphored::ledger
