// The Consul store on a real server: commits whose answer is lost, and foreign clients who do
// things to the same keys.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/consul/engine.h"
#include "adapters/consul/lock_record.h"
#include "adapters/consul/node_table.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/consul/fixture.h"
#include "tests/unit/relay.h"

namespace semaphored::consul {
namespace {

using ledger::CommitResult;
using ledger::Transaction;
using std::chrono::milliseconds;
using Kind = CommitResult::Kind;

constexpr milliseconds kTimeout{1500};

// A store behind a relay, with a semaphore "s" at `row`.
struct Behind {
  TestPrefix prefix;
  Relay relay{prefix.port()};
  OpenStore open = Open(prefix, relay.port(), kTimeout);
  SemaphoreRow row = Make(open, "s");

  // With a place to spare: the next grant has nothing to ask for.
  Behind() {
    const LeasePtr first = MakeLease(open, 99);
    Transaction grant = Grant(open, row, first);
    REQUIRE(open.Commit(grant).kind == Kind::kWon);
    Transaction release = Grant(open, LoadOne(open, "s").row, first);
    release.semaphores[0].leases = {{first, nullptr, EndCause::kReleased}};
    REQUIRE(open.Commit(release).kind == Kind::kWon);
    row = LoadOne(open, "s").row;
  }

  Document Stored() {
    const Keys keys = prefix.keys();
    for (const Entry& entry : prefix.Tree(keys.Document("s"))) {
      return ReadDocument("s", entry.value, entry.create_index, entry.modify_index,
                          [](const std::string&) { return 1; })
          .value();
    }
    FAIL("no document");
    return {};
  }
};

// ---- lost answers ----

TEST_CASE("consul: a commit whose answer was lost had landed", "[consul]") {
  Behind behind;
  const LeasePtr lease = MakeLease(behind.open, 1);
  Transaction grant = Grant(behind.open, behind.row, lease);
  behind.relay.LoseAnswers();
  REQUIRE(behind.open.Commit(grant).kind == Kind::kUnknown);
  CHECK(lease->token == 0);
  behind.relay.CutClients();
  REQUIRE(behind.open.Settle(grant).kind == Kind::kWon);
  CHECK(lease->token != 0);
  const Document stored = behind.Stored();
  REQUIRE(stored.leases.contains(lease->id));
  CHECK(stored.leases.at(lease->id)->token == lease->token);
  CHECK(stored.row.revision == behind.row.revision + 1);
  Transaction next =
      Grant(behind.open, LoadOne(behind.open, "s").row, MakeLease(behind.open, 2, 2));
  CHECK(behind.open.Commit(next).kind == Kind::kWon);
}

TEST_CASE("consul: a commit that had not arrived is settled, and cannot land later", "[consul]") {
  Behind behind;
  Transaction grant = Grant(behind.open, behind.row, MakeLease(behind.open, 1));
  behind.relay.DelayRequests();
  REQUIRE(behind.open.Commit(grant).kind == Kind::kUnknown);
  CHECK(behind.Stored().leases.empty());
  const CommitResult settled = behind.open.Settle(grant);
  CHECK(settled.kind == Kind::kLost);
  CHECK(settled.stale == std::vector<std::string>{"s"});
  REQUIRE(behind.relay.DeliverDelayed());
  CHECK(behind.Stored().leases.empty());
  CHECK(behind.Stored().row.revision == behind.row.revision);
  Transaction again = Grant(behind.open, LoadOne(behind.open, "s").row, MakeLease(behind.open, 1));
  CHECK(behind.open.Commit(again).kind == Kind::kWon);
}

TEST_CASE("consul: a commit that arrives before it is settled has landed", "[consul]") {
  Behind behind;
  const LeasePtr lease = MakeLease(behind.open, 1);
  Transaction grant = Grant(behind.open, behind.row, lease);
  behind.relay.DelayRequests();
  REQUIRE(behind.open.Commit(grant).kind == Kind::kUnknown);
  behind.relay.CutClients();
  REQUIRE(behind.relay.DeliverDelayed());
  REQUIRE(behind.open.Settle(grant).kind == Kind::kWon);
  CHECK(lease->token == behind.Stored().leases.at(lease->id)->token);
}

TEST_CASE("consul: nothing of a node that was declared dead lands", "[consul]") {
  TestPrefix prefix;
  OpenStore open = Open(prefix);
  const SemaphoreRow row = Make(open, "s");
  const absl::StatusOr<std::unique_ptr<Engine>> other = OpenEngine(prefix.UrlText());
  REQUIRE(other.ok());
  REQUIRE((*other)->nodes().Join("b").ok());
  const std::vector<NodeStore::Node> nodes = (*other)->nodes().Observe().value();
  for (const NodeStore::Node& node : nodes) {
    if (node.ref == open.self) REQUIRE((*other)->nodes().DeclareDead(node).value_or(false));
  }
  Transaction grant = Grant(open, row, MakeLease(open, 1));
  const CommitResult result = open.Commit(grant);
  CHECK(result.kind == Kind::kFailed);
  CHECK(result.status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(open.engine->nodes().Heartbeat().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("consul: a heartbeat whose answer was lost, or that is late, is known as its own",
          "[consul]") {
  TestPrefix prefix;
  Relay relay{prefix.port()};
  NodeTable nodes(prefix.ParsedUrl(absl::StrCat("?timeout_ms=", kTimeout.count()), relay.port()));
  REQUIRE(nodes.Join("a").ok());
  REQUIRE(nodes.Heartbeat().ok());
  relay.LoseAnswers();
  CHECK(nodes.Heartbeat().code() == absl::StatusCode::kUnavailable);
  CHECK(nodes.Heartbeat().ok());
  relay.DelayRequests();
  CHECK(nodes.Heartbeat().code() == absl::StatusCode::kUnavailable);
  CHECK(nodes.Heartbeat().ok());
  const uint64_t counter = nodes.Observe().value().front().counter;
  REQUIRE(relay.DeliverDelayed());
  CHECK(nodes.Observe().value().front().counter == counter);
  CHECK(nodes.Heartbeat().ok());
}

// The call's one request changes the key, and its kept connection ends before the answer comes.
template <typename Call>
auto WithoutAnswer(const TestPrefix& prefix, const std::string& key, Relay* relay, Call call) {
  const uint64_t before = relay->http_requests();
  const std::string value = prefix.Value(key);
  relay->LoseAnswers();
  std::thread cuts([&] {
    while (prefix.Value(key) == value) std::this_thread::yield();
    relay->CutClients();
  });
  auto result = call();
  cuts.join();
  CHECK(relay->http_requests() == before + 1);
  return result;
}

TEST_CASE("consul: a write is not sent again where its kept connection ends without an answer",
          "[consul]") {
  SECTION("a heartbeat") {
    TestPrefix prefix;
    Relay relay{prefix.port()};
    NodeTable nodes(prefix.ParsedUrl("", relay.port()));
    const absl::StatusOr<NodeRef> self = nodes.Join("a");
    REQUIRE(self.ok());
    for (int i = 0; i < 3; ++i) {
      REQUIRE(nodes.Heartbeat().ok());
      const absl::Status lost = WithoutAnswer(prefix, prefix.keys().Heartbeat(self->number), &relay,
                                              [&] { return nodes.Heartbeat(); });
      CHECK(lost.code() == absl::StatusCode::kUnavailable);
      CHECK(nodes.Heartbeat().ok());
    }
  }
  SECTION("a commit") {
    Behind behind;
    const LeasePtr lease = MakeLease(behind.open, 1);
    Transaction grant = Grant(behind.open, behind.row, lease);
    const CommitResult lost =
        WithoutAnswer(behind.prefix, behind.prefix.keys().Document("s"), &behind.relay,
                      [&] { return behind.open.Commit(grant); });
    REQUIRE(lost.kind == Kind::kUnknown);
    REQUIRE(behind.open.Settle(grant).kind == Kind::kWon);
    CHECK(behind.Stored().leases.contains(lease->id));
  }
}

// ---- foreign clients ----

TEST_CASE("consul: foreign holders count, and are not ended while they live", "[consul]") {
  TestPrefix prefix;
  OpenStore open = Open(prefix);
  SemaphoreRow row = Make(open, "s", 2);
  CHECK(prefix.Value(prefix.keys().Lock("s")) == R"({"Limit":2,"Holders":{}})");
  ForeignClient foreign(&prefix, "s", 2);
  REQUIRE(foreign.TryAcquire());
  // It was not known when this was decided.
  Transaction grant = Grant(open, row, MakeLease(open, 1));
  REQUIRE(open.Commit(grant).kind == Kind::kLost);
  ledger::LoadedSemaphore loaded = LoadOne(open, "s");
  REQUIRE(loaded.leases.size() == 1);
  CHECK(loaded.leases[0]->foreign);
  grant = Grant(open, loaded.row, MakeLease(open, 1));
  REQUIRE(open.Commit(grant).kind == Kind::kWon);
  CHECK(Record(prefix, "s").holders.size() == 2);
  CHECK(Record(prefix, "s").holders.contains(foreign.session()));
  ForeignClient late(&prefix, "s", 2);
  CHECK_FALSE(late.TryAcquire());
  foreign.Release();
  CHECK(late.TryAcquire());
  CHECK(LoadOne(open, "s").leases.size() == 2);
}

TEST_CASE("consul: a foreign holder whose session has ended is pruned", "[consul]") {
  TestPrefix prefix;
  OpenStore open = Open(prefix);
  Make(open, "s", 1);
  ForeignClient foreign(&prefix, "s", 1);
  REQUIRE(foreign.TryAcquire());
  CHECK(LoadOne(open, "s").leases.size() == 1);
  foreign.Die();
  CHECK(LoadOne(open, "s").leases.empty());
  CHECK(Record(prefix, "s").holders.empty());
}

TEST_CASE("consul: a contender without a session holds nothing, and its entry is removed",
          "[consul]") {
  TestPrefix prefix;
  OpenStore open = Open(prefix);
  Make(open, "s", 1);
  const std::string dead = "11111111-2222-3333-4444-555555555555";
  const std::string folder = prefix.keys().Folder("s");
  for (const std::string& key : {dead, std::string("note"), "eu/" + dead})
    prefix.Put(folder + key, "{}", 0);
  prefix.Put(prefix.keys().Lock("s"), WriteLockRecord({1, {dead}}));
  CHECK(LoadOne(open, "s").leases.empty());
  CHECK(Record(prefix, "s").holders.empty());
  CHECK(prefix.Value(folder + dead).empty());
  // Of other keys nothing is known.
  CHECK(prefix.Value(folder + "note") == "{}");
  CHECK(prefix.Value(folder + "eu/" + dead) == "{}");
}

TEST_CASE("consul: a permit goes from hand to hand without foreign clients noticing", "[consul]") {
  TestPrefix prefix;
  OpenStore open = Open(prefix);
  const SemaphoreRow row = Make(open, "s", 1);
  const LeasePtr first = MakeLease(open, 1);
  Transaction grant = Grant(open, row, first);
  REQUIRE(open.Commit(grant).kind == Kind::kWon);
  const std::vector<Entry> before = prefix.Tree(prefix.keys().Folder("s"));
  Transaction pass = Grant(open, LoadOne(open, "s").row, MakeLease(open, 2));
  pass.semaphores[0].leases.insert(pass.semaphores[0].leases.begin(),
                                   {first, nullptr, EndCause::kReleased});
  REQUIRE(open.Commit(pass).kind == Kind::kWon);
  CHECK(prefix.Tree(prefix.keys().Folder("s")) == before);
}

TEST_CASE("consul: those who contend and do not hold are waiters, by age", "[consul]") {
  TestPrefix prefix;
  OpenStore open = Open(prefix);
  Transaction grant = Grant(open, Make(open, "s", 1), MakeLease(open, 1));
  REQUIRE(open.Commit(grant).kind == Kind::kWon);
  ForeignClient first(&prefix, "s", 1);
  ForeignClient second(&prefix, "s", 1);
  CHECK_FALSE(first.TryAcquire());
  const ledger::LoadedSemaphore loaded = LoadOne(open, "s");
  REQUIRE(loaded.waiters.size() == 2);
  for (const WaiterPtr& waiter : loaded.waiters) {
    CHECK(waiter->foreign);
    CHECK(waiter->order < loaded.row.next_order);
  }
  CHECK(loaded.leases.size() == 1);
}

TEST_CASE("consul: a semaphore of foreign clients has their limit", "[consul]") {
  TestPrefix prefix;
  ForeignClient foreign(&prefix, "theirs", 3);
  REQUIRE(foreign.TryAcquire());
  OpenStore open = Open(prefix);
  const ledger::LoadedSemaphore loaded = LoadOne(open, "theirs");
  CHECK(loaded.row.limit == 3);
  CHECK(loaded.leases.size() == 1);
  CHECK(open.store->Names("", "", 10).value() == std::vector<std::string>{"theirs"});
  Transaction grant = Grant(open, loaded.row, MakeLease(open, 1));
  REQUIRE(open.Commit(grant).kind == Kind::kWon);
  CHECK(Record(prefix, "theirs").holders.size() == 2);
  CHECK(LoadOne(open, "theirs").row.revision == grant.semaphores[0].revision);
}

TEST_CASE("consul: with two limits nothing is granted while foreign clients are there",
          "[consul]") {
  TestPrefix prefix;
  OpenStore open = Open(prefix);
  Make(open, "s", 4);
  // As if it had been made before ours: with another limit.
  prefix.Put(prefix.keys().Lock("s"), R"({"Limit":2,"Holders":{}})");
  ForeignClient foreign(&prefix, "s", 2);
  REQUIRE(foreign.TryAcquire());
  const ledger::LoadedSemaphore loaded = LoadOne(open, "s");
  uint32_t held = 0;
  for (const LeasePtr& lease : loaded.leases) held += lease->permits;
  CHECK(held == loaded.row.limit);
  const std::string why(open.store->WhyUnusable("s").message());
  CHECK(why.find("a limit of 2") != std::string::npos);
  CHECK(Record(prefix, "s").limit == 2);
  foreign.Die();
  CHECK(LoadOne(open, "s").leases.empty());
  CHECK(open.store->WhyUnusable("s").ok());
  CHECK(Record(prefix, "s").limit == 4);
}

// ---- limits ----

TEST_CASE("consul: the same word is heard each time that it is said", "[consul]") {
  TestPrefix prefix;
  OpenStore open = Open(prefix);
  const auto hears = [&] {
    const SteadyTime until = SteadyClock::now() + std::chrono::seconds(10);
    while (SteadyClock::now() < until) {
      (void)open.store->TakeMissedNotices();
      const absl::StatusOr<std::vector<ledger::ChangeNotice>> notices = open.store->Wait(until);
      if (notices.ok() && notices->size() == 1 && notices->front().semaphore == "gone") return true;
    }
    return false;
  };
  for (int i = 0; i < 2; ++i) {
    Transaction word = Begin(open);
    word.concerns.emplace_back(open.self.number, "gone");
    REQUIRE(open.Commit(word).kind == Kind::kWon);
    CHECK(hears());
  }
}

TEST_CASE("consul: a lease may not be good for longer than a session", "[consul]") {
  TestPrefix prefix;
  OpenStore open = Open(prefix);
  const LeasePtr lease = MakeLease(open, 1);
  lease->ttl_ms = int64_t{3'600'001};
  Transaction grant = Grant(open, Make(open, "s"), lease);
  CHECK(open.Commit(grant).status.code() == absl::StatusCode::kOutOfRange);
}

TEST_CASE("consul: a server that does not answer is told, and bounded", "[consul]") {
  SilentListener silent;
  TestPrefix prefix;
  const auto start = SteadyClock::now();
  const absl::StatusOr<std::unique_ptr<Engine>> engine =
      OpenEngine(prefix.UrlText("?timeout_ms=300", silent.port()));
  CHECK(engine.status().code() == absl::StatusCode::kUnavailable);
  CHECK(SteadyClock::now() - start < std::chrono::seconds(5));
}

}  // namespace
}  // namespace semaphored::consul
