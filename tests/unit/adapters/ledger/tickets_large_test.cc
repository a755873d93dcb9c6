// Commands about more tickets and offers than the engine takes in one commit: done in parts, and to
// the same end.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adapters/ledger/ledger.h"
#include "adapters/sqlite/schema.h"
#include "adapters/sqlite/store.h"
#include "catch2/catch_test_macros.hpp"
#include "catch2/generators/catch_generators.hpp"
#include "tests/unit/adapters/sqlite/fixture.h"

namespace semaphored::ledger {
namespace {

using sqlite::MakeId;

constexpr size_t kRowsMax = 9;

// As a store that takes a few rows in a commit, and lets in two at once.
class SmallStore : public sqlite::SqliteStore {
 public:
  SmallStore(std::shared_ptr<sqlite::Database> database, std::shared_ptr<sqlite::NodeTable> nodes)
      : SqliteStore(std::move(database), std::move(nodes), {}) {
    guarantees_ = SqliteStore::guarantees();
    guarantees_.grants_per_commit_max = 2;
  }

  const Guarantees& guarantees() const override { return guarantees_; }
  CommitResult Commit(Transaction& transaction, SteadyTime deadline) override {
    size_t rows = 0;
    for (const SemaphoreDelta& delta : transaction.semaphores)
      rows += delta.leases.size() + delta.waiters.size() + delta.tickets.size();
    if (rows <= kRowsMax) return SqliteStore::Commit(transaction, deadline);
    CommitResult result;
    result.kind = CommitResult::Kind::kFailed;
    result.status = absl::OutOfRangeError("too many rows");
    return result;
  }

 private:
  Guarantees guarantees_;
};

class Daemon {
 public:
  Daemon() {
    database_ = sqlite::Database::Open({.path = "", .synchronous = false, .vfs = ""}).value();
    REQUIRE(sqlite::PrepareSchema(*database_).ok());
    auto nodes = std::make_shared<sqlite::NodeTable>(database_);
    LedgerOptions options;
    options.self = nodes->Join("node").value();
    options.now = [] { return std::chrono::steady_clock::now(); };
    options.now_unix_ms = [] { return int64_t{0}; };
    lane_ = MakeLedgerAdapter(std::make_unique<SmallStore>(database_, nodes), options).value();
  }

  Outcome Do(Command command) {
    const Submission submission{++number_, std::move(command)};
    StepResult result = lane_->Step({&submission, 1}, SteadyTime::max()).value();
    Collect(result);
    return std::move(result.outcomes.front());
  }

  // Until all who could be let in have been.
  void Settle() {
    for (int i = 0; i < 20; ++i) {
      const StepResult result = lane_->Step({}, SteadyTime{}).value();
      Collect(result);
    }
  }

  template <typename Act>
  Outcome Administer(Act act) {
    return Do(AdminCommand{{}, "s", 0, std::move(act)});
  }

  void Enqueue(uint64_t ticket) {
    EnqueueCommand command;
    command.semaphore = "s";
    command.ticket = MakeId(ticket);
    REQUIRE(Do(command).kind == OutcomeKind::kEnqueued);
  }

  OutcomeKind Acquire(uint64_t claim) {
    AcquireCommand command;
    command.semaphore = "s";
    command.claim = command.session = MakeId(claim);
    return Do(command).kind;
  }

  OutcomeKind Take(uint64_t claim, const Id& session = {}) {
    TakeCommand command;
    command.semaphore = "s";
    command.claim = MakeId(claim);
    command.session = session.empty() ? command.claim : session;
    command.keep = OfferKept::kAlways;
    return Do(command).kind;
  }

  SemaphoreInfo Describe() { return *Administer(AdminDescribe{}).report->info; }

  // Claims whose end was told, with this cause.
  size_t Ended(Event::Kind kind, EndCause cause) const {
    return static_cast<size_t>(std::ranges::count(events_, std::pair(kind, cause)));
  }

 private:
  void Collect(const StepResult& result) {
    for (const Event& event : result.events) events_.emplace_back(event.kind, event.cause);
  }

  std::shared_ptr<sqlite::Database> database_;
  std::unique_ptr<Adapter> lane_;
  uint64_t number_ = 0;
  std::vector<std::pair<Event::Kind, EndCause>> events_;
};

}  // namespace

TEST_CASE("large: a destroy by force takes all tickets along, and all who have or want them") {
  const uint32_t live = GENERATE(0, 1, 12);
  CAPTURE(live);
  Daemon daemon;
  REQUIRE(daemon.Administer(AdminCreate{live + 5, {}}).kind == OutcomeKind::kDone);
  for (uint64_t i = 0; i < live; ++i) REQUIRE(daemon.Acquire(400 + i) == OutcomeKind::kGranted);
  for (uint64_t i = 0; i < 30; ++i) daemon.Enqueue(100 + i);
  for (uint64_t i = 0; i < 5; ++i) REQUIRE(daemon.Take(200 + i) == OutcomeKind::kGranted);
  for (uint64_t i = 0; i < 12; ++i) REQUIRE(daemon.Take(300 + i) == OutcomeKind::kQueued);
  const Outcome refused = daemon.Administer(AdminDestroy{DestroyPolicy::kWait});
  CHECK(refused.kind == OutcomeKind::kInUse);
  CHECK(daemon.Describe().offers == 12);
  const Outcome gone = daemon.Administer(AdminDestroy{DestroyPolicy::kForce});
  CHECK(gone.kind == OutcomeKind::kDone);
  CHECK(gone.affected() == live + 5);
  CHECK(daemon.Administer(AdminDescribe{}).kind == OutcomeKind::kNoSuchSemaphore);
  CHECK(daemon.Ended(Event::Kind::kEnded, EndCause::kDestroyed) == live + 5);
  CHECK(daemon.Ended(Event::Kind::kWaitEnded, EndCause::kDestroyed) == 12);
}

TEST_CASE("large: a session that ends with many offers and tickets gives them back, untaken") {
  Daemon daemon;
  REQUIRE(daemon.Administer(AdminCreate{6, {}}).kind == OutcomeKind::kDone);
  const Id session = MakeId(1);
  REQUIRE(daemon.Do(OpenSessionCommand{session, "c", 1'000, "h", false}).kind ==
          OutcomeKind::kDone);
  for (uint64_t i = 0; i < 10; ++i) daemon.Enqueue(100 + i);
  for (uint64_t i = 0; i < 6; ++i) REQUIRE(daemon.Take(200 + i, session) == OutcomeKind::kGranted);
  for (uint64_t i = 0; i < 14; ++i) REQUIRE(daemon.Take(300 + i, session) == OutcomeKind::kQueued);
  REQUIRE(daemon.Do(CloseSessionCommand{session, 0, EndCause::kExpired}).kind ==
          OutcomeKind::kDone);
  const SemaphoreInfo info = daemon.Describe();
  CHECK(info.held == 0);
  CHECK(info.offers == 0);
  CHECK(info.tickets == TicketCounts{10, 0, 0, 0});
  CHECK(daemon.Ended(Event::Kind::kGranted, EndCause::kNone) == 0);
}

TEST_CASE("large: many offers are served in commits of their own, all in the end") {
  Daemon daemon;
  REQUIRE(daemon.Administer(AdminCreate{1, {}}).kind == OutcomeKind::kDone);
  REQUIRE(daemon.Administer(AdminPause{true}).kind == OutcomeKind::kDone);
  for (uint64_t i = 0; i < 12; ++i) daemon.Enqueue(100 + i);
  for (uint64_t i = 0; i < 12; ++i) REQUIRE(daemon.Take(300 + i) == OutcomeKind::kQueued);
  const AdminResize grow{AdminResize::Change::kSet, 20, 100, ShrinkPolicy::kWait, {}};
  REQUIRE(daemon.Administer(grow).kind == OutcomeKind::kDone);
  REQUIRE(daemon.Administer(AdminPause{false}).kind == OutcomeKind::kDone);
  CHECK(daemon.Describe().held < 12);
  daemon.Settle();
  CHECK(daemon.Describe().held == 12);
  CHECK(daemon.Ended(Event::Kind::kGranted, EndCause::kNone) == 12);
}

TEST_CASE("large: all dead letters are requeued, or purged, however many") {
  Daemon daemon;
  REQUIRE(daemon.Administer(AdminCreate{1, {}}).kind == OutcomeKind::kDone);
  uint64_t claim = 200;
  const auto bury = [&] {
    for (uint64_t i = 0; i < 12; ++i) {
      REQUIRE(daemon.Take(++claim) == OutcomeKind::kGranted);
      FinishCommand finish;
      finish.semaphore = "s";
      finish.claim = MakeId(claim);
      finish.result = FinishCommand::Result::kReject;
      REQUIRE(daemon.Do(finish).kind == OutcomeKind::kReleased);
    }
  };
  for (uint64_t i = 0; i < 12; ++i) daemon.Enqueue(100 + i);
  bury();
  const Outcome requeued = daemon.Administer(AdminRequeue{});
  CHECK(requeued.kind == OutcomeKind::kDone);
  CHECK(requeued.affected() == 12);
  CHECK(daemon.Describe().tickets == TicketCounts{12, 0, 0, 0});
  bury();
  const Outcome purged = daemon.Administer(AdminPurge{});
  CHECK(purged.kind == OutcomeKind::kDone);
  CHECK(purged.affected() == 12);
  CHECK(daemon.Describe().tickets == TicketCounts());
}

}  // namespace semaphored::ledger
