// The history of ended leases, and what watchers are told.
#include "tests/contract/world.h"

namespace semaphored::contract {
namespace {

using Kind = SemaphoreChange::Kind;

Outcome History(Daemon& daemon, const std::string& semaphore, uint32_t rows_max,
                uint64_t before = 0) {
  Outcome outcome = daemon.Do(HistoryCommand{semaphore, rows_max, before});
  REQUIRE(outcome.kind == OutcomeKind::kDone);
  REQUIRE(outcome.report != nullptr);
  return outcome;
}

// False: this engine keeps none, and it was checked that it says so.
bool KeepsHistory(World& world) {
  if (world.guarantees().history) return true;
  const Outcome outcome = world.daemon().Do(HistoryCommand{"s", 10, 0});
  CHECK(outcome.kind == OutcomeKind::kUnsupported);
  CHECK(outcome.message.find(world.guarantees().adapter) != std::string::npos);
  return false;
}

std::vector<Kind> KindsIn(const std::vector<SemaphoreChange>& changes) {
  std::vector<Kind> kinds;
  for (const SemaphoreChange& change : changes) kinds.push_back(change.kind);
  return kinds;
}

}  // namespace

CONTRACT_CASE("history tells who held what, from when to when, and how it ended") {
  if (!KeepsHistory(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3);
  const int64_t granted_at = world.now_unix_ms();
  const LeasePtr lease = daemon.Grant("s", {.permits = 2, .holder = "batch job 7"});
  world.Advance(1'500);
  daemon.GiveBack("s", lease->id);
  const Outcome outcome = History(daemon, "s", 10);
  REQUIRE(outcome.report->history.size() == 1);
  const HistoryRow& row = outcome.report->history[0];
  CHECK(row.number > 0);
  CHECK(row.semaphore == "s");
  CHECK(row.lease->holder == "batch job 7");
  CHECK(row.lease->slots == Slots{1, 2});
  CHECK(row.lease->token == lease->token);
  CHECK(row.lease->granted_at_unix_ms == granted_at);
  CHECK(row.ended_at_unix_ms == granted_at + 1'500);
  CHECK(row.cause == EndCause::kReleased);
}

CONTRACT_CASE("history has a row for every end, newest first") {
  if (!KeepsHistory(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const std::vector<EndCause> causes = {EndCause::kExpired, EndCause::kDisconnected,
                                        EndCause::kRecalled};
  for (const EndCause cause : causes) daemon.End("s", daemon.Grant("s")->id, cause);
  daemon.Grant("s");
  daemon.Administer("s", AdminRevoke{});
  daemon.Grant("s");
  daemon.Administer("s", AdminDestroy{DestroyPolicy::kForce});
  std::vector<EndCause> seen;
  const Outcome outcome = History(daemon, "s", 100);
  for (const HistoryRow& row : outcome.report->history) seen.push_back(row.cause);
  CHECK(seen == std::vector{EndCause::kDestroyed, EndCause::kRevoked, EndCause::kRecalled,
                            EndCause::kDisconnected, EndCause::kExpired});
}

CONTRACT_CASE("history is read page by page") {
  if (!KeepsHistory(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  std::vector<Id> ended;
  for (int i = 0; i < 7; ++i) {
    ended.insert(ended.begin(), daemon.Grant("s")->id);
    daemon.GiveBack("s", ended.front());
  }
  std::vector<Id> seen;
  uint64_t before = 0;
  for (const bool more : {true, true, false}) {
    const Outcome page = History(daemon, "s", 3, before);
    for (const HistoryRow& row : page.report->history) {
      CHECK((before == 0 || row.number < before));
      before = row.number;
      seen.push_back(row.lease->id);
    }
    CHECK(page.report->more == more);
  }
  CHECK(seen == ended);
  CHECK(History(daemon, "s", 3, before).report->history.empty());
}

CONTRACT_CASE("history of one semaphore, or of all") {
  if (!KeepsHistory(world)) return;
  Daemon& daemon = world.daemon();
  for (const char* name : {"a", "b", "a"}) {
    daemon.GiveBack(name, daemon.Grant(name, {.limit = 1})->id);
  }
  CHECK(History(daemon, "a", 10).report->history.size() == 2);
  CHECK(History(daemon, "b", 10).report->history.size() == 1);
  CHECK(History(daemon, "c", 10).report->history.empty());
  const Outcome all = History(daemon, "", 10);
  REQUIRE(all.report->history.size() == 3);
  CHECK(all.report->history[1].semaphore == "b");
}

CONTRACT_CASE("a partial release is no end") {
  if (!KeepsHistory(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  const LeasePtr lease = daemon.Grant("s", {.permits = 2});
  REQUIRE(daemon.Release("s", lease->id, {1}).kind == OutcomeKind::kReleased);
  CHECK(History(daemon, "s", 10).report->history.empty());
  daemon.GiveBack("s", lease->id);
  const Outcome history = History(daemon, "s", 10);
  REQUIRE(history.report->history.size() == 1);
  CHECK(history.report->history[0].lease->slots == Slots{2});
  CHECK(history.report->history[0].lease->permits == 1);
}

CONTRACT_CASE("a lease that began and ended in one batch is in the history") {
  if (!KeepsHistory(world)) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const AcquireCommand acquire = world.MakeAcquire("s", {});
  std::vector<Command> batch;
  batch.push_back(acquire);
  batch.push_back(world.MakeRelease("s", acquire.claim));
  const std::vector<Outcome> outcomes = daemon.DoAll(std::move(batch));
  const Outcome history = History(daemon, "s", 10);
  REQUIRE(history.report->history.size() == 1);
  CHECK(history.report->history[0].lease->token == outcomes[0].lease->token);
}

// ---- Watching ----

CONTRACT_CASE("changes of what is watched are reported, as long as it is") {
  Daemon& daemon = world.daemon();
  daemon.Create("a", 1);
  CHECK(daemon.TakeChanges().empty());
  WatchedNames::Watch prefix = world.watched().Add("b/", "");
  const WatchedNames::Watch name = world.watched().Add("", "c");
  daemon.Create("b/1", 1);
  CHECK(daemon.TakeChanges().size() == 1);
  daemon.Create("c", 1);
  CHECK(daemon.TakeChanges().size() == 1);
  daemon.Create("b", 1);
  daemon.Create("c/1", 1);
  CHECK(daemon.TakeChanges().empty());
  prefix = {};
  daemon.Create("b/2", 1);
  CHECK(daemon.TakeChanges().empty());
  CHECK(daemon.Do(FlushCommand{}).kind == OutcomeKind::kDone);
}

CONTRACT_CASE("every kind of change is told") {
  Daemon& daemon = world.daemon();
  const WatchedNames::Watch watch = world.watched().Add("", "");
  const auto kinds = [&] { return KindsIn(daemon.TakeChanges()); };
  daemon.Create("s", 1);
  CHECK(kinds() == std::vector{Kind::kCreated});
  const LeasePtr lease = daemon.Grant("s");
  CHECK(kinds() == std::vector{Kind::kGranted});
  const Id waiter = daemon.Queue("s");
  CHECK(kinds() == std::vector{Kind::kQueued});
  daemon.Do(RecallCommand{"s", lease->id, {Recall::Reason::kLongestHold, 1'000}});
  CHECK(kinds() == std::vector{Kind::kRecalled});
  daemon.EndWait("s", waiter, EndCause::kWaitExpired);
  CHECK(kinds() == std::vector{Kind::kWaitEnded});
  daemon.GiveBack("s", lease->id);
  CHECK(kinds() == std::vector{Kind::kEnded});
  if (world.guarantees().settings) {
    daemon.Administer("s", AdminPause{true});
    CHECK(kinds() == std::vector{Kind::kChanged});
  }
  daemon.Resize("s", 2);
  CHECK(kinds() == std::vector{Kind::kChanged});
  daemon.Administer("s", AdminDestroy{});
  CHECK(kinds() == std::vector{Kind::kDestroyed});
  daemon.Acquire("s", {});
  daemon.Do(ListCommand{});
  CHECK(kinds().empty());
}

CONTRACT_CASE("a change shows the semaphore after it, and what it was about") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3);
  const WatchedNames::Watch watch = world.watched().Add("", "");
  const LeasePtr lease = daemon.Grant("s", {.holder = "h"});
  std::vector<SemaphoreChange> changes = daemon.TakeChanges();
  REQUIRE(changes.size() == 1);
  CHECK(changes[0].info.row.name == "s");
  CHECK(changes[0].info.row.limit == 3);
  CHECK(changes[0].info.held == 1);
  CHECK(changes[0].info.leases.empty());
  REQUIRE(changes[0].lease != nullptr);
  CHECK(changes[0].lease->holder == "h");
  CHECK(changes[0].lease->slots == lease->slots);
  CHECK(changes[0].lease->token == lease->token);
  CHECK(changes[0].info.row.revision == daemon.Describe("s").row.revision);
  daemon.End("s", lease->id, EndCause::kExpired);
  changes = daemon.TakeChanges();
  REQUIRE(changes.size() == 1);
  CHECK(changes[0].cause == EndCause::kExpired);
  CHECK(changes[0].lease->id == lease->id);
  CHECK(changes[0].info.held == 0);
}

CONTRACT_CASE("a hand-off is an end and a grant") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr lease = daemon.Grant("s");
  const Id waiter = daemon.Queue("s");
  const WatchedNames::Watch watch = world.watched().Add("", "");
  daemon.GiveBack("s", lease->id);
  const std::vector<SemaphoreChange> changes = daemon.TakeChanges();
  REQUIRE(KindsIn(changes) == std::vector{Kind::kEnded, Kind::kGranted});
  CHECK(changes[0].lease->id == lease->id);
  CHECK(changes[1].lease->id == waiter);
}

}  // namespace semaphored::contract
