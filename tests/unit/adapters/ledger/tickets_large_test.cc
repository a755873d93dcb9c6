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
    CommitResult result;
    result.kind = CommitResult::Kind::kFailed;
    if (rows <= kRowsMax && ++fitting_ == busy_at_) {
      result.status = absl::UnavailableError("a row is locked");
      result.busy = {"s"};
      return result;
    }
    if (rows <= kRowsMax) return SqliteStore::Commit(transaction, deadline);
    result.status = absl::OutOfRangeError("too many rows");
    return result;
  }

  // The so-many-th commit from now on finds the semaphore locked by another client of the engine.
  void BusyAfter(int commits) { busy_at_ = fitting_ + commits; }

 private:
  Guarantees guarantees_;
  int fitting_ = 0;  // Commits that were not too large.
  int busy_at_ = 0;
};

class QueueDaemon {
 public:
  QueueDaemon() {
    database_ = sqlite::Database::Open({.path = "", .synchronous = false, .vfs = ""}).value();
    REQUIRE(sqlite::PrepareSchema(*database_).ok());
    auto nodes = std::make_shared<sqlite::NodeTable>(database_);
    LedgerOptions options;
    options.self = nodes->Join("node").value();
    options.now = [this] { return now_; };
    options.now_unix_ms = [] { return int64_t{0}; };
    options.busy_pause = std::chrono::milliseconds(20);
    auto store = std::make_unique<SmallStore>(database_, nodes);
    store_ = store.get();
    lane_ = MakeLedgerAdapter(std::move(store), options).value();
  }

  Outcome Do(Command command) {
    const Submission submission{++number_, std::move(command)};
    StepResult result = lane_->Step({&submission, 1}, SteadyTime::max()).value();
    Collect(result);
    return std::move(result.outcomes.front());
  }

  absl::StatusOr<StepResult> Step(Command command) {
    const Submission submission{++number_, std::move(command)};
    return lane_->Step({&submission, 1}, SteadyTime::max());
  }
  SmallStore& store() { return *store_; }
  void Pass(std::chrono::milliseconds time) { now_ += time; }

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
    command.ticket = sqlite::MakeId(ticket);
    REQUIRE(Do(command).kind == OutcomeKind::kEnqueued);
  }

  OutcomeKind Acquire(uint64_t claim) {
    AcquireCommand command;
    command.semaphore = "s";
    command.claim = command.session = sqlite::MakeId(claim);
    return Do(command).kind;
  }

  OutcomeKind Take(uint64_t claim, const Id& session = {}) {
    TakeCommand command;
    command.semaphore = "s";
    command.claim = sqlite::MakeId(claim);
    command.session = session.empty() ? command.claim : session;
    command.keep = OfferKept::kAlways;
    return Do(command).kind;
  }

  // So many tickets are taken and rejected, one by one.
  void Bury(int tickets) {
    for (int i = 0; i < tickets; ++i) {
      REQUIRE(Take(++buried_) == OutcomeKind::kGranted);
      FinishCommand finish;
      finish.semaphore = "s";
      finish.claim = sqlite::MakeId(buried_);
      finish.result = FinishCommand::Result::kReject;
      REQUIRE(Do(finish).kind == OutcomeKind::kReleased);
    }
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
  SmallStore* store_ = nullptr;
  std::unique_ptr<Adapter> lane_;
  SteadyTime now_{};
  uint64_t number_ = 0;
  uint64_t buried_ = 1000;  // The last claim of those.
  std::vector<std::pair<Event::Kind, EndCause>> events_;
};

}  // namespace

TEST_CASE("large: a destroy by force takes all tickets along, and all who have or want them") {
  const uint32_t live = GENERATE(0, 1, 12);
  CAPTURE(live);
  QueueDaemon daemon;
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
  QueueDaemon daemon;
  REQUIRE(daemon.Administer(AdminCreate{6, {}}).kind == OutcomeKind::kDone);
  const Id session = sqlite::MakeId(1);
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

TEST_CASE("large: a session that ends in parts, one of which finds a row locked, is ended later") {
  QueueDaemon daemon;
  REQUIRE(daemon.Administer(AdminCreate{1, {}}).kind == OutcomeKind::kDone);
  const Id session = sqlite::MakeId(1);
  REQUIRE(daemon.Do(OpenSessionCommand{session, "c", 1'000, "h", false}).kind ==
          OutcomeKind::kDone);
  for (uint64_t i = 0; i < 24; ++i) REQUIRE(daemon.Take(300 + i, session) == OutcomeKind::kQueued);
  daemon.store().BusyAfter(2);
  // Its row is closing by then, with another epoch: repeated as it was, it goes on.
  const uint32_t epoch = GENERATE(0u, 1u);
  const Command close = CloseSessionCommand{session, epoch, EndCause::kExpired};
  const absl::StatusOr<StepResult> result = daemon.Step(close);
  CHECK(absl::IsUnavailable(result.status()));
  daemon.Pass(std::chrono::milliseconds(100));
  CHECK(daemon.Do(close).kind == OutcomeKind::kDone);
  CHECK(daemon.Describe().offers == 0);
}

TEST_CASE("large: many offers are served in commits of their own, all in the end") {
  QueueDaemon daemon;
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
  QueueDaemon daemon;
  REQUIRE(daemon.Administer(AdminCreate{1, {}}).kind == OutcomeKind::kDone);
  const auto bury = [&] { daemon.Bury(12); };
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

// The last part alone has the request's row.
TEST_CASE("large: an act in parts that is repeated has the first answer") {
  QueueDaemon daemon;
  REQUIRE(daemon.Administer(AdminCreate{1, {}}).kind == OutcomeKind::kDone);
  for (uint64_t i = 0; i < 30; ++i) daemon.Enqueue(100 + i);
  daemon.Bury(30);
  const AdminCommand requeue{{"c", 1}, "s", 0, AdminRequeue{}};
  for (int i = 0; i < 2; ++i) {
    const Outcome requeued = daemon.Do(requeue);
    CHECK(requeued.kind == OutcomeKind::kDone);
    CHECK(requeued.affected() == 30);
    CHECK(requeued.changed);
  }
  daemon.Bury(30);
  const AdminCommand purge{{"c", 2}, "s", 0, AdminPurge{}};
  for (int i = 0; i < 2; ++i) CHECK(daemon.Do(purge).affected() == 30);
}

}  // namespace semaphored::ledger
