// Items of dead nodes go when nothing of the nodes is left, and their daemons stay fenced.
#include "adapters/dynamodb/dead_nodes.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/dynamodb/requests.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/dynamodb/fixture.h"
#include "tests/unit/relay.h"

namespace semaphored::dynamodb {
namespace {

using ledger::Transaction;
using Kind = ledger::CommitResult::Kind;
using Nodes = std::vector<NodeStore::Node>;
using std::chrono::milliseconds;

constexpr milliseconds kLookedAtAtOnce{0};

// A daemon's node alone.
struct Observer {
  explicit Observer(const StoreTable& table, const std::string& node_id)
      : nodes(table.url(), TestCredentials(), kLookedAtAtOnce), self(nodes.Join(node_id).value()) {}

  NodeStore::Node Seen(const std::string& node_id) {
    const Nodes seen = nodes.Observe().value();
    for (const NodeStore::Node& node : seen) {
      if (node.node_id == node_id) return node;
    }
    return {};
  }
  void DeclareDead(const std::string& node_id) {
    REQUIRE(nodes.DeclareDead(Seen(node_id)).value());
  }
  // Reads the nodes as a daemon does again and again. Whether this one is gone after it.
  bool Removes(NodeRef ref) {
    Nodes read;
    for (int times = 0; times < 3; ++times) read = nodes.Observe().value();
    return std::ranges::find(read, ref, &NodeStore::Node::ref) == read.end();
  }

  NodeTable nodes;
  const NodeRef self;
};

TEST_CASE("dynamodb dead nodes: an item goes when nothing of the node is left, and stays till then",
          "[dynamodb]") {
  StoreTable table;
  Observer observer(table, "observer");
  OpenStore paused = Open(table, {.node_id = "paused"});
  OpenStore other = Open(table, {.node_id = "other"});
  Transaction grant = Grant(paused, Make(paused, "s"), MakeLease(paused, 1));
  REQUIRE(paused.Commit(grant).kind == Kind::kWon);
  observer.DeclareDead("paused");
  CHECK_FALSE(observer.Removes(paused.self));
  CHECK(observer.Seen("paused").dead);
  const ledger::LoadedSemaphore loaded = LoadOne(other, "s");
  Transaction end = Touch(other, loaded.row);
  end.semaphores[0].leases.push_back({loaded.leases[0], nullptr, EndCause::kExpired});
  REQUIRE(other.Commit(end).kind == Kind::kWon);
  CHECK(observer.Removes(paused.self));
  CHECK(observer.Seen("paused").ref.number == 0);
  CHECK(table.Items(HostPartition(paused.self.number)).empty());
}

TEST_CASE("dynamodb dead nodes: a daemon that was only paused finds that it is dead",
          "[dynamodb]") {
  StoreTable table;
  Observer observer(table, "observer");
  OpenStore paused = Open(table, {.node_id = "paused"});
  const SemaphoreRow row = Make(paused, "s");
  REQUIRE(paused.nodes->Heartbeat().ok());
  observer.DeclareDead("paused");
  REQUIRE(observer.Removes(paused.self));
  const auto check = [&] {
    CHECK(absl::IsFailedPrecondition(paused.nodes->Heartbeat()));
    CHECK(absl::IsFailedPrecondition(paused.nodes->Leave()));
    Transaction grant = Grant(paused, row, MakeLease(paused, 1));
    CHECK(paused.Commit(grant).kind != Kind::kWon);
  };
  check();
  // Its id is taken again. The incarnation is the same, and the counter is lower.
  OpenStore next = Open(table, {.node_id = "paused"});
  CHECK(next.self.number != paused.self.number);
  CHECK(next.self.incarnation == paused.self.incarnation);
  check();
  CHECK(next.nodes->Heartbeat().ok());
  Make(next, "t");
}

TEST_CASE("dynamodb dead nodes: two daemons remove at once, and a next life stays", "[dynamodb]") {
  StoreTable table;
  Nodes dead;
  for (int i = 0; i < 20; ++i) {
    Observer pod(table, absl::StrCat("pod-", i));
    dead.push_back({pod.self, absl::StrCat("pod-", i), 1, true, false, ""});
    NodeTable other(table.url(), TestCredentials());
    REQUIRE(other.DeclareDead(dead.back()).value());
  }
  OpenStore alive = Open(table, {.node_id = "pod-7"});
  CHECK(alive.self.incarnation == 2);
  Transaction grant = Grant(alive, Make(alive, "s"), MakeLease(alive, 1));
  REQUIRE(alive.Commit(grant).kind == Kind::kWon);
  Client client(table.url(), TestCredentials());
  for (int daemon = 0; daemon < 2; ++daemon) {
    DeadNodes remover(&client, table.url().table, kLookedAtAtOnce, std::make_shared<Upkeep>());
    // The one that lives again, and has claims, is left alone.
    // Each call has a tenth of a second.
    std::set<uint32_t> removed;
    for (int call = 0; call < 100 && removed.size() < 19; ++call) {
      const std::vector<NodeRef> some =
          remover.RemoveSome(dead, SteadyClock::now(), kNever).value();
      for (const NodeRef& node : some) removed.insert(node.number);
    }
    CHECK(removed.size() == 19);
  }
  CHECK(alive.nodes->Observe().value().size() == 1);
  CHECK(alive.nodes->Heartbeat().ok());
  CHECK(table.Items(HostPartition(alive.self.number)).size() == 1);
}

// A tenth of what tests/deep.sh has.
uint32_t DeadItemsOfTest() {
  const char* const count =
      std::getenv("SEMAPHORED_TEST_DEAD_NODES");  // NOLINT(concurrency-mt-unsafe)
  return count == nullptr ? 1'000 : static_cast<uint32_t>(std::atoi(count));
}

struct DynamoStart {
  milliseconds took;
  uint64_t requests = 0;
};

TEST_CASE("dynamodb dead nodes: a thousand go, some at a time", "[dynamodb]") {
  StoreTable table;
  const uint32_t dead = DeadItemsOfTest();
  const auto start = [&](const std::string& node_id) {
    Relay relay(table.port());
    const std::string endpoint = absl::StrCat("http://127.0.0.1:", relay.port());
    const SteadyTime begun = SteadyClock::now();
    NodeTable nodes(table.UrlThrough(endpoint, std::chrono::seconds(20)), TestCredentials());
    REQUIRE(nodes.Observe().ok());
    REQUIRE(nodes.Join(node_id).ok());
    const OpenStore lane = Open(table, {.node_id = node_id, .endpoint = endpoint});
    const auto took = SteadyClock::now() - begun;
    return DynamoStart{std::chrono::duration_cast<milliseconds>(took), relay.http_requests()};
  };
  start("first");
  const DynamoStart without = start("a");
  Client client(table.url(), TestCredentials());
  for (uint32_t number = 100; number < 100 + dead;) {
    TransactionRequest request(table.url().table);
    for (; request.size() < TransactionRequest::kItemsMax && number < 100 + dead; ++number) {
      json item = ItemWith(NodeKey(absl::StrCat("pod-", number)));
      SetNumber(&item, "number", uint64_t{number});
      SetNumber(&item, "incarnation", uint64_t{1});
      SetNumber(&item, "beats", uint64_t{7});
      SetFlag(&item, "dead", true);
      request.Put(item);
    }
    REQUIRE(client.Repeat(request.ToRequest(absl::StrCat("fill-", number)), kNever).answered());
  }
  const DynamoStart with = start("b");
  // An answer has 1 MB, some 10,000 nodes: beyond, a reading of all of them takes one more.
  CHECK(with.requests <= without.requests * (1 + dead / 5'000));
  Observer observer(table, "observer");
  const SteadyTime begun = SteadyClock::now();
  size_t removed = 0;
  milliseconds longest{0};
  int calls = 0;
  for (; removed < dead && calls < 2000; ++calls) {
    const SteadyTime called = SteadyClock::now();
    removed = 4 + dead - observer.nodes.Observe().value().size();
    longest =
        std::max(longest, std::chrono::duration_cast<milliseconds>(SteadyClock::now() - called));
  }
  const auto took = std::chrono::duration_cast<milliseconds>(SteadyClock::now() - begun);
  std::printf(
      "dynamodb: a start takes %lld ms, with %u dead nodes %lld ms, by %llu requests; these are "
      "removed in %d calls, %lld ms, the longest %lld ms\n",
      static_cast<long long>(without.took.count()), dead, static_cast<long long>(with.took.count()),
      static_cast<unsigned long long>(with.requests), calls, static_cast<long long>(took.count()),
      static_cast<long long>(longest.count()));
  CHECK(removed == dead);
}

}  // namespace
}  // namespace semaphored::dynamodb
