// The rules over DynamoDB where a command is about more claims than one transaction takes.
#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/open.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/dynamodb_fixture.h"

namespace semaphored::dynamodb {
namespace {

constexpr std::chrono::seconds kPatience{20};

class OneLane {
 public:
  OneLane(const StoreTable& table, const std::string& node_id)
      : engine_(OpenEngine(absl::StrCat("dynamodb://local/", table.url().table,
                                        "?endpoint=", table.url().endpoint))
                    .value()) {
    options_.self = engine_->nodes().Join(node_id).value();
    options_.now = [] { return std::chrono::steady_clock::now(); };
    options_.now_unix_ms = [] { return int64_t{1'800'000'000'000}; };
    lane_ = engine_->OpenLane(options_).value();
  }

  NodeRef self() const { return options_.self; }

  std::vector<Outcome> RunAll(std::vector<Command> commands) {
    std::vector<Submission> batch;
    for (Command& command : commands) batch.push_back({++number_, std::move(command)});
    absl::StatusOr<StepResult> result = lane_->Step(batch, Deadline());
    INFO(result.status().ToString());
    REQUIRE(result.ok());
    Collect(*result);
    return std::move(result->outcomes);
  }
  Outcome Run(Command command) {
    std::vector<Command> commands;
    commands.push_back(std::move(command));
    return std::move(RunAll(std::move(commands)).front());
  }
  // Lets events come until there are so many of a kind.
  void Await(Event::Kind kind, size_t count) {
    const SteadyTime bound = Deadline();
    while (claims[kind].size() < count && std::chrono::steady_clock::now() < bound) {
      const absl::StatusOr<StepResult> result =
          lane_->Step({}, std::chrono::steady_clock::now() + std::chrono::milliseconds(20));
      REQUIRE(result.ok());
      Collect(*result);
    }
    CHECK(claims[kind].size() == count);
  }

  AcquireCommand Ask(uint64_t number, const std::string& semaphore, bool wait) const {
    AcquireCommand acquire;
    acquire.requester = {absl::StrCat("client", number), 1};
    acquire.semaphore = semaphore;
    acquire.claim = acquire.session = MakeId(number);
    acquire.ttl_ms = 10'000;
    acquire.wait = wait;
    return acquire;
  }
  template <typename Act>
  Outcome Administer(Act act, const std::string& client = "") {
    AdminCommand command;
    if (!client.empty()) command.requester = {client, 1};
    command.semaphore = "s";
    command.act = std::move(act);
    return Run(command);
  }
  SemaphoreInfo Describe() { return *Administer(AdminDescribe{1000}).report->info; }
  // Leases or waiters with numbers from `first`.
  void Fill(uint64_t first, uint64_t count, OutcomeKind expected) {
    std::vector<Command> commands;
    for (uint64_t i = first; i < first + count; ++i) commands.push_back(Ask(i, "s", true));
    for (const Outcome& outcome : RunAll(std::move(commands))) REQUIRE(outcome.kind == expected);
  }

  std::map<Event::Kind, std::vector<Id>> claims;  // Of the events, in their order.

 private:
  static SteadyTime Deadline() { return std::chrono::steady_clock::now() + kPatience; }
  void Collect(const StepResult& result) {
    for (const Event& event : result.events) claims[event.kind].push_back(event.claim);
  }

  std::unique_ptr<Engine> engine_;
  ledger::LedgerOptions options_;
  std::unique_ptr<Adapter> lane_;
  uint64_t number_ = 0;
};

AdminCreate Limit(uint32_t limit) { return {limit, {}}; }

TEST_CASE("dynamodb large: whoever makes much room lets all in, in order", "[dynamodb]") {
  constexpr uint32_t kMany = 100;
  StoreTable table;
  OneLane lane(table, "a");
  REQUIRE(lane.Administer(Limit(kMany)).kind == OutcomeKind::kDone);
  AcquireCommand wide = lane.Ask(1, "s", false);
  wide.permits = kMany;
  REQUIRE(lane.Run(wide).kind == OutcomeKind::kGranted);
  lane.Fill(100, kMany, OutcomeKind::kQueued);
  ReleaseCommand release;
  release.semaphore = "s";
  release.claim = wide.claim;
  REQUIRE(lane.Run(release).kind == OutcomeKind::kReleased);
  lane.Await(Event::Kind::kGranted, kMany);
  for (uint32_t i = 0; i < kMany; ++i)
    REQUIRE(lane.claims[Event::Kind::kGranted][i] == MakeId(100 + i));
  const SemaphoreInfo info = lane.Describe();
  CHECK(info.held == kMany);
  CHECK(info.waiting == 0);
}

TEST_CASE("dynamodb large: a session with claims in very many semaphores moves and ends",
          "[dynamodb]") {
  constexpr uint64_t kMany = 150;
  StoreTable table;
  OneLane a(table, "a");
  const Id session = MakeId(7);
  OpenSessionCommand open;
  open.session = session;
  open.client_id = "c";
  open.ttl_ms = 10'000;
  REQUIRE(a.Run(open).kind == OutcomeKind::kDone);
  std::vector<Command> commands;
  for (uint64_t i = 0; i < kMany; ++i) {
    AcquireCommand acquire = a.Ask(1000 + i, absl::StrCat("s", i), false);
    acquire.session = session;
    acquire.limit = 1;
    commands.push_back(acquire);
  }
  for (const Outcome& outcome : a.RunAll(std::move(commands)))
    REQUIRE(outcome.kind == OutcomeKind::kGranted);

  OneLane b(table, "b");
  const Outcome adopted = b.Run(AdoptSessionCommand{session});
  REQUIRE(adopted.kind == OutcomeKind::kDone);
  CHECK(adopted.report->claims.size() == kMany);
  CHECK(adopted.report->session->host == b.self());
  a.Await(Event::Kind::kMoved, 1);
  CHECK(a.claims[Event::Kind::kMoved].front() == session);

  CHECK(a.Run(CloseSessionCommand{session, 1, EndCause::kExpired}).kind == OutcomeKind::kStale);
  CHECK(b.Run(CloseSessionCommand{session, 2, EndCause::kExpired}).kind == OutcomeKind::kDone);
  CHECK(b.claims[Event::Kind::kEnded].size() == kMany);
  CHECK(b.Run(AdoptSessionCommand{session}).kind == OutcomeKind::kSessionLost);
  CHECK(b.Run(a.Ask(1, "s149", false)).kind == OutcomeKind::kGranted);
}

TEST_CASE("dynamodb large: a semaphore with very many claims is destroyed", "[dynamodb]") {
  StoreTable table;
  OneLane lane(table, "a");
  REQUIRE(lane.Administer(Limit(60)).kind == OutcomeKind::kDone);
  lane.Fill(100, 60, OutcomeKind::kGranted);
  lane.Fill(200, 120, OutcomeKind::kQueued);
  const Outcome destroyed = lane.Administer(AdminDestroy{DestroyPolicy::kForce}, "admin");
  CHECK(destroyed.kind == OutcomeKind::kDone);
  CHECK(destroyed.number == 60);
  CHECK(destroyed.changed);
  CHECK(lane.claims[Event::Kind::kEnded].size() == 60);
  CHECK(lane.claims[Event::Kind::kWaitEnded].size() == 120);
  CHECK(lane.Administer(AdminDescribe{}).kind == OutcomeKind::kNoSuchSemaphore);
  // Repeated it is answered, and not done.
  REQUIRE(lane.Administer(Limit(1)).kind == OutcomeKind::kDone);
  CHECK(lane.Administer(AdminDestroy{DestroyPolicy::kForce}, "admin").kind == OutcomeKind::kDone);
  CHECK(lane.Describe().row.limit == 1);
}

TEST_CASE("dynamodb large: of very many leases all are revoked, and nobody else's", "[dynamodb]") {
  StoreTable table;
  OneLane lane(table, "a");
  REQUIRE(lane.Administer(Limit(120)).kind == OutcomeKind::kDone);
  lane.Fill(100, 120, OutcomeKind::kGranted);
  lane.Fill(300, 150, OutcomeKind::kQueued);
  const Outcome revoked = lane.Administer(AdminRevoke{}, "admin");
  CHECK(revoked.kind == OutcomeKind::kDone);
  CHECK(revoked.number == 120);
  lane.Await(Event::Kind::kGranted, 120);
  const std::vector<Id>& ended = lane.claims[Event::Kind::kEnded];
  CHECK(ended.size() == 120);
  for (const Id& id : ended) CHECK(id < MakeId(300));
  CHECK(lane.Describe().held == 120);
  CHECK(lane.Describe().waiting == 30);
}

TEST_CASE("dynamodb large: what was paused goes on with all who waited", "[dynamodb]") {
  StoreTable table;
  OneLane lane(table, "a");
  REQUIRE(lane.Administer(Limit(100)).kind == OutcomeKind::kDone);
  REQUIRE(lane.Administer(AdminPause{true}).kind == OutcomeKind::kDone);
  lane.Fill(100, 100, OutcomeKind::kQueued);
  REQUIRE(lane.Administer(AdminPause{false}).kind == OutcomeKind::kDone);
  lane.Await(Event::Kind::kGranted, 100);
  // Who comes now is behind nobody, and finds no room.
  CHECK(lane.Run(lane.Ask(5, "s", false)).kind == OutcomeKind::kFull);
}

}  // namespace
}  // namespace semaphored::dynamodb
