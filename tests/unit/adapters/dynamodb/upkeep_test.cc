// What fails without a caller that receives the error is counted.
#include "adapters/common/upkeep.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "adapters/dynamodb/table.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/dynamodb/fixture.h"
#include "tests/unit/adapters/dynamodb/lane.h"

namespace semaphored::dynamodb {
namespace {

using ledger::Transaction;
using Kind = ledger::CommitResult::Kind;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr int64_t kNowS = 1'800'000'000;

uint64_t Errors(const Upkeep& upkeep, UpkeepWork work) {
  return upkeep.figures().errors[static_cast<size_t>(work)];
}

// A table behind a proxy that refuses one operation, and a store whose time passes as the test says.
struct Refused {
  StoreTable table;
  DynamoProxy proxy{&table};
  SteadyTime now = SteadyTime{} + hours(1);
  OpenStore open = Open(table, {.endpoint = proxy.endpoint(), .now = [this] { return now; }});

  void Refuse(const std::string& operation) {
    proxy.OnRequest([operation](DynamoProxy::Passing* passing) {
      passing->refuse = passing->operation == operation;
      passing->error = "AccessDeniedException";
    });
  }
  // As a lane that has nothing to do.
  void Idle(minutes time) {
    now += time;
    open.store->Wake();
    REQUIRE(open.store->Wait(SteadyClock::now() + seconds(10)).ok());
  }
  uint64_t errors(UpkeepWork work) const { return Errors(*open.upkeep, work); }
  // A lease of "s" that has ended.
  void EndOne() {
    const LeasePtr lease = MakeLease(open, 1);
    Transaction grant = Grant(open, Make(open, "s"), lease);
    REQUIRE(open.Commit(grant).kind == Kind::kWon);
    Transaction release = Touch(open, After(grant));
    release.semaphores[0].leases.push_back({lease, nullptr, EndCause::kReleased});
    release.history.push_back({0, "s", lease, 5, EndCause::kReleased});
    REQUIRE(open.Commit(release).kind == Kind::kWon);
  }
};

TEST_CASE("dynamodb upkeep: items that mean nothing any more and cannot be deleted are counted",
          "[dynamodb]") {
  Refused refused;
  refused.EndOne();
  refused.Idle(minutes(2));
  refused.Refuse("DeleteItem");
  refused.Idle(minutes(20));
  CHECK(refused.errors(UpkeepWork::kLeftovers) == 1);
  CHECK(refused.errors(UpkeepWork::kHistory) == 0);
}

TEST_CASE("dynamodb upkeep: requests that cannot be looked for are counted", "[dynamodb]") {
  Refused refused;
  refused.open.store->SweepOneShots(hours(1));
  refused.Idle(minutes(1));
  refused.Refuse("Query");
  refused.Idle(minutes(1));
  CHECK(refused.errors(UpkeepWork::kRequests) == 1);
  refused.proxy.OnRequest(nullptr);
  refused.Idle(minutes(1));
  CHECK(refused.errors(UpkeepWork::kRequests) == 1);
}

TEST_CASE("dynamodb upkeep: what is left of dead nodes and cannot be deleted is counted",
          "[dynamodb]") {
  Refused refused;
  NodeTable dead(refused.table.url(), TestCredentials());
  const NodeRef ref = dead.Join("dead").value();
  const auto upkeep = std::make_shared<Upkeep>();
  NodeTable nodes(refused.table.UrlThrough(refused.proxy.endpoint(), seconds(20)),
                  TestCredentials(), milliseconds(0), upkeep);
  REQUIRE(nodes.Join("observer").ok());
  REQUIRE(nodes.DeclareDead({ref, "dead", 1, false, false, ""}).value());
  refused.Refuse("DeleteItem");
  CHECK(nodes.Observe()->size() == 3);
  CHECK(Errors(*upkeep, UpkeepWork::kNodes) == 1);
  refused.proxy.OnRequest(nullptr);
  CHECK(nodes.Observe()->size() == 2);
  CHECK(Errors(*upkeep, UpkeepWork::kNodes) == 1);
}

TEST_CASE("dynamodb upkeep: a box of notices that cannot be read is counted, as its engine shows",
          "[dynamodb]") {
  StoreTable table;
  DynamoProxy proxy(&table);
  OneLane lane(table, "a", proxy.endpoint());
  AdminCreate create;
  create.limit = 1;
  REQUIRE(lane.Administer(create).kind == OutcomeKind::kDone);
  proxy.OnRequest([](DynamoProxy::Passing* passing) {
    passing->refuse =
        passing->operation == "Query" && passing->body.dump().find("MAIL#") != std::string::npos;
    passing->error = "AccessDeniedException";
  });
  lane.Fill(1, 1, OutcomeKind::kGranted);
  lane.Fill(2, 1, OutcomeKind::kQueued);
  const SteadyTime bound = SteadyClock::now() + seconds(20);
  while (Errors(lane.upkeep(), UpkeepWork::kNotices) == 0 && SteadyClock::now() < bound)
    lane.Await(Event::Kind::kGranted, 0);
  CHECK(Errors(lane.upkeep(), UpkeepWork::kNotices) > 0);
}

TEST_CASE("dynamodb upkeep: history that stays long after it has expired is counted",
          "[dynamodb]") {
  Refused refused;
  const auto put = [&](hours expired) {
    json item = ItemWith(HistoryKey("s", 1));
    SetSigned(&item, kExpiresAt, kNowS - seconds(expired).count());
    refused.table.Put(item);
  };
  // DynamoDB may take some days.
  put(hours(48));
  refused.EndOne();
  refused.Idle(minutes(2));
  CHECK(refused.errors(UpkeepWork::kHistory) == 0);
  put(hours(120));
  Transaction more = Touch(refused.open, LoadOne(refused.open, "s").row);
  more.history.push_back({0, "s", MakeLease(refused.open, 2), 6, EndCause::kReleased});
  REQUIRE(refused.open.Commit(more).kind == Kind::kWon);
  refused.Idle(minutes(2));
  CHECK(refused.errors(UpkeepWork::kHistory) == 1);
  // It is looked at where something was written, and not again.
  refused.Idle(minutes(2));
  CHECK(refused.errors(UpkeepWork::kHistory) == 1);
}

}  // namespace
}  // namespace semaphored::dynamodb
