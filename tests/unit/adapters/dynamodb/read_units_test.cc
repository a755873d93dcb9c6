// The read units of docs/dynamodb.md, "Cost", as DynamoDB itself counts them.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/dynamodb/fixture.h"
#include "tests/unit/adapters/dynamodb/lane.h"

namespace semaphored::dynamodb {
namespace {

using ledger::Transaction;
using Kind = ledger::CommitResult::Kind;
using State = ledger::RequestRow::State;

// Of what goes through a proxy, but for the readings of change notices, which have a thread and a
// pace of their own (PollPace).
class ReadUnits {
 public:
  explicit ReadUnits(DynamoProxy* proxy) {
    proxy->OnRequest([this](DynamoProxy::Passing* passing) {
      const std::string& operation = passing->operation;
      counts_ = (operation == "Query" || operation == "GetItem" || operation == "BatchGetItem") &&
                passing->body.dump().find("MAIL#") == std::string::npos;
      if (counts_) passing->body["ReturnConsumedCapacity"] = "TOTAL";
    });
    proxy->OnAnswer([this](const std::string&, json* body) {
      if (!counts_) return;
      const json& consumed = body->at("ConsumedCapacity");
      for (const json& each : consumed.is_array() ? consumed : json::array({consumed}))
        units_ = units_ + each.at("CapacityUnits").get<double>();
    });
  }

  double Of(const std::function<void()>& act) {
    units_ = 0;
    act();
    return units_;
  }

 private:
  bool counts_ = false;  // The request that is passed on. Under the proxy's mutex.
  std::atomic<double> units_ = 0;
};

// A store whose requests are counted, and leases there, one after the other.
struct CountedStore {
  Transaction NextGrant() {
    ++leases;
    return Grant(open, row, MakeLease(open, leases, leases));
  }
  void Commit(Transaction grant) {
    REQUIRE(open.Commit(grant).kind == Kind::kWon);
    row = After(grant);
  }

  StoreTable table;
  DynamoProxy proxy{&table};
  ReadUnits units{&proxy};
  OpenStore open = Open(table, {.node_id = "a", .endpoint = proxy.endpoint()});
  SemaphoreRow row = Make(open, "s", 100);
  uint32_t leases = 0;
};

TEST_CASE("dynamodb read units: what is known costs nothing, and what is read by its size",
          "[dynamodb]") {
  constexpr uint32_t kLeases = 48;
  constexpr uint32_t kLeasesInUnit = 12;
  CountedStore counted;
  const auto load = [&] { LoadOne(counted.open, "s"); };
  counted.Commit(counted.NextGrant());
  CHECK(counted.units.Of([&] { counted.Commit(counted.NextGrant()); }) == 0);
  CHECK(counted.units.Of(load) == 1);
  while (counted.leases < kLeases) counted.Commit(counted.NextGrant());
  const double many = counted.units.Of(load);
  CHECK(many > 1);
  CHECK(many <= kLeases / kLeasesInUnit + 1);
}

TEST_CASE("dynamodb read units: sweeps and lists read the head of each semaphore", "[dynamodb]") {
  constexpr size_t kSemaphores = 10;
  CountedStore counted;
  while (counted.leases < 20) counted.Commit(counted.NextGrant());
  std::vector<SemaphoreRow> rows = {counted.row};
  while (rows.size() < kSemaphores)
    rows.push_back(Make(counted.open, absl::StrCat("t/", rows.size())));
  std::vector<const SemaphoreRow*> swept;
  std::vector<std::string> names;
  for (const SemaphoreRow& row : rows) swept.push_back(&row);
  ledger::SharedStore& store = *counted.open.store;
  CHECK(counted.units.Of([&] { CHECK(store.Changed(swept)->empty()); }) == kSemaphores);
  CHECK(counted.units.Of([&] { names = store.Names("", "", 1000).value(); }) == 1);
  CHECK(names.size() == kSemaphores);
  CHECK(counted.units.Of([&] { CHECK(store.Look(names)->semaphores.size() == kSemaphores); }) ==
        kSemaphores);
}

TEST_CASE("dynamodb read units: the first request of a client reads its highest", "[dynamodb]") {
  CountedStore counted;
  const auto grant = [&](uint32_t client, uint64_t sequence) {
    Transaction grant = counted.NextGrant();
    grant.new_clients.push_back({client, absl::StrCat("c", client)});
    grant.requests.push_back(Insert(client, sequence, State::kGranted));
    counted.Commit(std::move(grant));
  };
  // Another daemon has carried out a request of the client's. (DynamoDB Local counts nothing for what is not there.)
  OpenStore other = Open(counted.table, {.node_id = "b"});
  Transaction before = Grant(other, Make(other, "t"), MakeLease(other, 1'000));
  before.new_clients.push_back({8, "c8"});
  before.requests.push_back(Insert(8, 1, State::kGranted));
  REQUIRE(other.Commit(before).kind == Kind::kWon);
  grant(7, 1);
  CHECK(counted.units.Of([&] { grant(7, 2); }) == 0);
  CHECK(counted.units.Of([&] { grant(8, 2); }) == 1);
}

TEST_CASE("dynamodb read units: a request that finds no room, and a payload that is given out",
          "[dynamodb]") {
  constexpr size_t kPayloadBytes = 10'000;
  StoreTable table;
  DynamoProxy proxy(&table);
  ReadUnits units(&proxy);
  // No sweep comes between.
  OneLane lane(table, "a", proxy.endpoint(), std::chrono::hours(1));
  REQUIRE(lane.Administer(AdminCreate{1, {}}).kind == OutcomeKind::kDone);
  const auto ask = [&](uint64_t sequence) {
    AcquireCommand acquire = lane.Ask(sequence, "s", false);
    acquire.requester = {"client", sequence};
    return lane.Run(acquire).kind;
  };
  REQUIRE(ask(1) == OutcomeKind::kGranted);
  CHECK(units.Of([&] { CHECK(ask(2) == OutcomeKind::kFull); }) == 1);
  ReleaseCommand release;
  release.requester = {"client", 3};
  release.semaphore = "s";
  release.claim = MakeId(1);
  REQUIRE(lane.Run(release).kind == OutcomeKind::kReleased);
  REQUIRE(lane.Run(lane.Job(100, std::string(kPayloadBytes, 'x'))).kind == OutcomeKind::kEnqueued);
  CHECK(units.Of([&] { CHECK(lane.Run(lane.Offer(500)).kind == OutcomeKind::kGranted); }) == 3);
}

TEST_CASE("dynamodb read units: a heartbeat reads the items of some 20 nodes in one unit",
          "[dynamodb]") {
  constexpr int kNodesInUnit = 20;
  constexpr std::chrono::milliseconds kAtOnce{0};
  StoreTable table;
  DynamoProxy proxy(&table);
  ReadUnits units(&proxy);
  NodeTable observer(table.UrlThrough(proxy.endpoint(), std::chrono::seconds(20)),
                     TestCredentials(), kAtOnce);
  REQUIRE(observer.Join("observer").ok());
  for (int i = 2; i < kNodesInUnit; ++i) {
    NodeTable pod(table.url(), TestCredentials());
    REQUIRE(pod.Join(absl::StrCat("pod-", i), "0123456789abcdef0123456789abcdef", nullptr).ok());
  }
  OpenStore dead = Open(table, {.node_id = "dead"});
  Transaction grant = Grant(dead, Make(dead, "s"), MakeLease(dead, 1));
  REQUIRE(dead.Commit(grant).kind == Kind::kWon);
  const auto observe = [&] { CHECK(observer.Observe()->size() == kNodesInUnit); };
  CHECK(units.Of([&] { REQUIRE(observer.Heartbeat().ok()); }) == 0);
  CHECK(units.Of(observe) == 1);
  const std::vector<NodeStore::Node> nodes = observer.Observe().value();
  for (const NodeStore::Node& node : nodes) {
    if (node.ref == dead.self) REQUIRE(observer.DeclareDead(node).value());
  }
  // One for what the node has left, and one for the semaphore in which it has a claim.
  CHECK(units.Of(observe) == 1 + 2);
}

}  // namespace
}  // namespace semaphored::dynamodb
