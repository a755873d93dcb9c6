// The rules over DynamoDB where a command is about more claims than one transaction takes.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/dynamodb/lane.h"

namespace semaphored::dynamodb {
namespace {

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

TEST_CASE("dynamodb large: very many leases are recalled at once", "[dynamodb]") {
  StoreTable table;
  OneLane lane(table, "a");
  REQUIRE(lane.Administer(Limit(120)).kind == OutcomeKind::kDone);
  lane.Fill(100, 120, OutcomeKind::kGranted);
  AdminResize resize;
  resize.amount = 5;
  resize.limit_max = 120;
  resize.policy = ShrinkPolicy::kRecall;
  resize.grace_ms = 0;
  const Outcome resized = lane.Administer(resize, "admin");
  CHECK(resized.kind == OutcomeKind::kDone);
  CHECK(resized.affected() == 115);
  const SemaphoreInfo info = lane.Describe();
  CHECK(info.row.limit == 5);
  CHECK(info.held == 5);
}

TEST_CASE("dynamodb large: a semaphore with very many claims is destroyed", "[dynamodb]") {
  StoreTable table;
  OneLane lane(table, "a");
  REQUIRE(lane.Administer(Limit(60)).kind == OutcomeKind::kDone);
  lane.Fill(100, 60, OutcomeKind::kGranted);
  lane.Fill(200, 120, OutcomeKind::kQueued);
  const Outcome destroyed = lane.Administer(AdminDestroy{DestroyPolicy::kForce}, "admin");
  CHECK(destroyed.kind == OutcomeKind::kDone);
  CHECK(destroyed.affected() == 60);
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
  CHECK(revoked.affected() == 120);
  lane.Await(Event::Kind::kGranted, 120);
  const std::vector<Id>& ended = lane.claims[Event::Kind::kEnded];
  CHECK(ended.size() == 120);
  for (const Id& id : ended) CHECK(id < MakeId(300));
  CHECK(lane.Describe().held == 120);
  CHECK(lane.Describe().waiting == 30);
}

TEST_CASE("dynamodb large: what waits at its holder's cap costs others nothing", "[dynamodb]") {
  StoreTable table;
  DynamoProxy proxy(&table);
  OneLane lane(table, "a", proxy.endpoint());
  REQUIRE(lane.Administer(AdminCreate{2, {.permits_per_holder = 1}}).kind == OutcomeKind::kDone);
  const auto ask = [&](uint64_t number, const std::string& holder) {
    AcquireCommand acquire = lane.Ask(number, "s", true);
    acquire.holder = holder;
    return acquire;
  };
  REQUIRE(lane.Run(ask(1, "greedy")).kind == OutcomeKind::kGranted);
  uint64_t holds = 2;
  REQUIRE(lane.Run(ask(holds, "modest")).kind == OutcomeKind::kGranted);
  // Items and writes of a release that lets one in behind all of them.
  std::vector<size_t> items;
  uint64_t number = 1000;
  for (const uint64_t capped : {1, 10, 80}) {
    std::vector<Command> commands;
    for (uint64_t i = 0; i < capped; ++i) commands.emplace_back(ask(++number, "greedy"));
    for (const Outcome& outcome : lane.RunAll(std::move(commands)))
      REQUIRE(outcome.kind == OutcomeKind::kQueued);
    REQUIRE(lane.Run(ask(holds + 1, absl::StrCat("modest", holds))).kind == OutcomeKind::kQueued);
    proxy.Take();
    ReleaseCommand release;
    release.semaphore = "s";
    release.claim = MakeId(holds);
    REQUIRE(lane.Run(release).kind == OutcomeKind::kReleased);
    const DynamoProxy::Counted counted = proxy.Take();
    CHECK(counted.requests.at("TransactWriteItems") == 1);
    items.push_back(counted.items);
    lane.Await(Event::Kind::kGranted, items.size());
    ++holds;
    CHECK(lane.claims[Event::Kind::kGranted].back() == MakeId(holds));
  }
  CHECK(items[1] == items[0]);
  CHECK(items[2] == items[0]);
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
