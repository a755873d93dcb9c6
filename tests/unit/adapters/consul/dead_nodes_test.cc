// Keys of dead nodes go when nothing else of the nodes is left, and their daemons stay fenced.
#include "adapters/consul/dead_nodes.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "adapters/consul/format.h"
#include "adapters/consul/node_table.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/consul/fixture.h"
#include "tests/unit/relay.h"

namespace semaphored::consul {
namespace {

using ledger::Transaction;
using Kind = ledger::CommitResult::Kind;
using Nodes = std::vector<NodeStore::Node>;
using std::chrono::milliseconds;

constexpr milliseconds kNoPause{0};

NodeStore::Node Seen(NodeTable& table, const std::string& node_id) {
  const Nodes seen = table.Observe().value();
  for (const NodeStore::Node& node : seen) {
    if (node.node_id == node_id) return node;
  }
  return {};
}

void DeclareDead(NodeTable& table, const std::string& node_id) {
  REQUIRE(table.DeclareDead(Seen(table, node_id)).value());
}

// Reads the nodes as a daemon does again and again. Those of the dead ones that are gone after it.
std::vector<NodeRef> RemoveDead(NodeTable& table, const std::vector<NodeRef>& dead) {
  Nodes nodes;
  for (int read = 0; read < 3; ++read) nodes = table.Observe().value();
  std::vector<NodeRef> removed;
  for (const NodeRef& ref : dead) {
    if (std::ranges::find(nodes, ref, &NodeStore::Node::ref) == nodes.end()) removed.push_back(ref);
  }
  return removed;
}

// A tenth of what tests/deep.sh has.
uint32_t DeadNodesOfTest() {
  const char* const count =
      std::getenv("SEMAPHORED_TEST_DEAD_NODES");  // NOLINT(concurrency-mt-unsafe)
  return count == nullptr ? 1'000 : static_cast<uint32_t>(std::atoi(count));
}

// A daemon that is declared dead by `observer` while it is only paused.
struct PausedDaemon {
  explicit PausedDaemon(const TestPrefix& prefix) : observer(prefix.ParsedUrl(), kNoPause) {
    REQUIRE(observer.Join("observer").ok());
    engine = OpenEngine(prefix.UrlText()).value();
    self = engine->nodes().Join("paused").value();
    open.store = std::make_unique<ConsulStore>(prefix.ParsedUrl(), engine->guarantees(), self, 0);
    open.self = self;
    REQUIRE(open.store->Start().ok());
  }

  NodeTable observer;
  std::unique_ptr<Engine> engine;
  OpenStore open;
  NodeRef self;
};

TEST_CASE("consul dead nodes: a row goes when nothing of the node is left, and stays till then",
          "[consul]") {
  TestPrefix prefix;
  PausedDaemon paused(prefix);
  OpenStore other = Open(prefix);
  LeasePtr lease = MakeLease(paused.open, 1);
  Transaction grant = Grant(paused.open, Make(paused.open, "s"), lease);
  REQUIRE(paused.open.Commit(grant).kind == Kind::kWon);
  DeclareDead(paused.observer, "paused");
  CHECK(RemoveDead(paused.observer, {paused.self}).empty());
  CHECK(Seen(paused.observer, "paused").dead);
  const ledger::LoadedSemaphore loaded = LoadOne(other, "s");
  Transaction end = Begin(other);
  ledger::SemaphoreDelta delta;
  delta.name = "s";
  delta.before = delta.after = loaded.row;
  delta.leases.push_back({loaded.leases[0], nullptr, EndCause::kExpired});
  end.semaphores.push_back(delta);
  end.concerns.emplace_back(paused.self.number, "s");  // Word for the dead node.
  REQUIRE(other.Commit(end).kind == Kind::kWon);
  CHECK(RemoveDead(paused.observer, {paused.self}) == std::vector<NodeRef>{paused.self});
  CHECK(Seen(paused.observer, "paused").ref.number == 0);
  CHECK(prefix.Tree(prefix.keys().Notices(paused.self.number)).empty());
  CHECK(prefix.Tree(prefix.keys().Heartbeat(paused.self.number)).empty());
  CHECK(prefix.Tree(prefix.keys().Lanes(paused.self.number)).empty());
}

TEST_CASE("consul dead nodes: a daemon that was only paused finds that it is dead", "[consul]") {
  TestPrefix prefix;
  PausedDaemon paused(prefix);
  const SemaphoreRow row = Make(paused.open, "s");
  DeclareDead(paused.observer, "paused");
  REQUIRE(RemoveDead(paused.observer, {paused.self}).size() == 1);
  const auto check = [&] {
    CHECK(absl::IsFailedPrecondition(paused.engine->nodes().Heartbeat()));
    CHECK(absl::IsFailedPrecondition(paused.engine->nodes().Leave()));
    Transaction grant = Grant(paused.open, row, MakeLease(paused.open, 1));
    const ledger::CommitResult result = paused.open.Commit(grant);
    CHECK(result.kind == Kind::kFailed);
    CHECK(absl::IsFailedPrecondition(result.status));
  };
  check();
  // Its id is taken again, by as many commits and heartbeats; and so is every other number.
  NodeTable next(prefix.ParsedUrl(), kNoPause);
  const NodeRef joined = next.Join("paused").value();
  CHECK(joined.number != paused.self.number);
  OpenStore lane;
  lane.self = joined;
  lane.store =
      std::make_unique<ConsulStore>(prefix.ParsedUrl(), paused.engine->guarantees(), joined, 0);
  REQUIRE(lane.store->Start().ok());
  for (const char* name : {"x", "y", "z"}) Make(lane, name);
  check();
  REQUIRE(next.Heartbeat().ok());
  NodeTable third(prefix.ParsedUrl(), kNoPause);
  CHECK(third.Join("third").value().number > joined.number);
}

TEST_CASE("consul dead nodes: numbers are not given twice, though the highest was removed",
          "[consul]") {
  TestPrefix prefix;
  NodeTable observer(prefix.ParsedUrl(), kNoPause);
  REQUIRE(observer.Join("observer").ok());
  uint32_t highest = 0;
  for (int i = 0; i < 5; ++i) {
    NodeTable pod(prefix.ParsedUrl(), kNoPause);
    const NodeRef ref = pod.Join(absl::StrCat("pod-", i)).value();
    CHECK(ref.number > highest);
    highest = ref.number;
    DeclareDead(observer, absl::StrCat("pod-", i));
    CHECK(RemoveDead(observer, {ref}) == std::vector<NodeRef>{ref});
  }
  CHECK(observer.Observe().value().size() == 1);
}

TEST_CASE("consul dead nodes: two daemons remove at once, and a next life stays", "[consul]") {
  TestPrefix prefix;
  NodeTable a(prefix.ParsedUrl(), kNoPause);
  NodeTable b(prefix.ParsedUrl(), kNoPause);
  REQUIRE(a.Join("a").ok());
  REQUIRE(b.Join("b").ok());
  for (int i = 0; i < 20; ++i) {
    NodeTable pod(prefix.ParsedUrl(), kNoPause);
    REQUIRE(pod.Join(absl::StrCat("pod-", i)).ok());
  }
  // Not one after the other: each reading of the nodes removes those that are dead.
  const Nodes nodes = a.Observe().value();
  for (const NodeStore::Node& node : nodes) {
    if (node.node_id.starts_with("pod-")) REQUIRE(a.DeclareDead(node).value());
  }
  // Both have read them as dead; then one of them has a next life.
  std::vector<DeadNode> dead;
  for (const Entry& entry : prefix.Tree(prefix.keys().Nodes())) {
    const auto json = nlohmann::json::parse(entry.value);
    if (json.at("dead").get<bool>())
      dead.push_back({{json.at("number").get<uint32_t>(), json.at("incarnation").get<uint32_t>()},
                      entry.key,
                      entry.modify_index});
  }
  REQUIRE(dead.size() == 20);
  NodeTable next(prefix.ParsedUrl(), kNoPause);
  const NodeRef alive = next.Join("pod-7").value();
  CHECK(alive.incarnation == 2);
  const Keys keys = prefix.keys();
  Client client(prefix.ParsedUrl());
  for (int daemon = 0; daemon < 2; ++daemon) {
    DeadNodes remover(&client, &keys, kNoPause);
    // Each call has a tenth of a second.
    std::set<uint32_t> removed;
    for (int call = 0; call < 100 && removed.size() < 19; ++call) {
      const std::vector<NodeRef> some = remover.RemoveSome(dead, SteadyClock::now()).value();
      for (const NodeRef& node : some) removed.insert(node.number);
    }
    CHECK(removed.size() == 19);
  }
  CHECK(a.Observe().value().size() == 3);
  CHECK(next.Heartbeat().ok());
}

struct ConsulStart {
  milliseconds took;
  uint64_t requests = 0;
};

TEST_CASE("consul dead nodes: a thousand go, some at a time", "[consul]") {
  TestPrefix prefix;
  const uint32_t dead = DeadNodesOfTest();
  const auto start = [&](const std::string& node_id) {
    Relay relay(prefix.port());
    const SteadyTime begun = SteadyClock::now();
    OpenStore open;
    open.engine = OpenEngine(prefix.UrlText("", relay.port())).value();
    REQUIRE(open.engine->nodes().Observe().ok());
    open.self = open.engine->nodes().Join(node_id).value();
    open.store = std::make_unique<ConsulStore>(prefix.ParsedUrl("", relay.port()),
                                               open.engine->guarantees(), open.self, 0);
    REQUIRE(open.store->Start().ok());
    const auto took = SteadyClock::now() - begun;
    return ConsulStart{std::chrono::duration_cast<milliseconds>(took), relay.http_requests()};
  };
  start("first");
  const ConsulStart without = start("a");
  {
    Client client(prefix.ParsedUrl());
    for (uint32_t number = 100; number < 100 + dead;) {
      TransactionRequest request;
      for (; request.size() + 2 <= TransactionRequest::kOperationsMax && number < 100 + dead;
           ++number) {
        const std::string id = absl::StrCat("pod-", number);
        request.Set(prefix.keys().Node(id),
                    WriteNode({id, {number, 1}, /*dead=*/true, /*stopped=*/true, "x"}));
        request.Set(prefix.keys().Heartbeat(number), "7");
      }
      REQUIRE(client.Put("/v1/txn", request.Body()).http_status == 200);
    }
    client.Put(HttpTarget("/v1/kv/", prefix.keys().HighestNode()), absl::StrCat(100 + dead));
  }
  const ConsulStart with = start("b");
  CHECK(with.requests == without.requests);
  NodeTable observer(prefix.ParsedUrl(), kNoPause);
  REQUIRE(observer.Join("observer").ok());
  const SteadyTime begun = SteadyClock::now();
  size_t removed = 0;
  milliseconds longest{0};
  int calls = 0;
  for (; removed < dead && calls < 1000; ++calls) {
    const SteadyTime called = SteadyClock::now();
    removed = 4 + dead - observer.Observe().value().size();
    longest =
        std::max(longest, std::chrono::duration_cast<milliseconds>(SteadyClock::now() - called));
  }
  const auto took = std::chrono::duration_cast<milliseconds>(SteadyClock::now() - begun);
  std::printf(
      "consul: a start takes %lld ms, with %u dead nodes %lld ms, by %llu requests; these are "
      "removed in %d calls, %lld ms, the longest %lld ms\n",
      static_cast<long long>(without.took.count()), dead, static_cast<long long>(with.took.count()),
      static_cast<unsigned long long>(with.requests), calls, static_cast<long long>(took.count()),
      static_cast<long long>(longest.count()));
  CHECK(removed == dead);
  CHECK(observer.Observe().value().size() == 4);
}

}  // namespace
}  // namespace semaphored::consul
