#include "server/lanes/joining.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "server/lanes/daemon_card.h"
#include "tests/simulation/memory_engine.h"
#include "tests/simulation/memory_store.h"
#include "tests/simulation/world.h"
#include "tests/unit/adapters/golden.h"

namespace semaphored {
namespace {

using Catch::Matchers::ContainsSubstring;
using std::chrono::seconds;

class JoiningClock final : public Clock {
 public:
  SteadyTime Now() const override { return now_; }
  int64_t NowUnixMs() const override { return 0; }
  void Advance(Milliseconds by) { now_ += by; }

 private:
  SteadyTime now_{seconds(1000)};
};

// A daemon's node store, with something that happens before its Join.
class HookedNodes final : public NodeStore {
 public:
  explicit HookedNodes(std::unique_ptr<NodeStore> nodes) : nodes_(std::move(nodes)) {}

  absl::StatusOr<NodeRef> Join(const std::string& node_id, const std::string& daemon,
                               const Node* seen) override {
    if (before_join) before_join();
    return nodes_->Join(node_id, daemon, seen);
  }
  absl::Status Heartbeat() override { return nodes_->Heartbeat(); }
  absl::Status Leave() override { return nodes_->Leave(); }
  absl::StatusOr<std::vector<Node>> Observe() override {
    if (!read_status.ok()) return read_status;
    return nodes_->Observe();
  }
  absl::StatusOr<bool> DeclareDead(const Node& seen) override { return nodes_->DeclareDead(seen); }

  std::function<void()> before_join;
  absl::Status read_status;

 private:
  std::unique_ptr<NodeStore> nodes_;
};

std::string CardOf(const std::string& address) {
  DaemonCard card;
  card.address = address;
  card.pid = 17;
  return WriteCard(card);
}

// An engine with a former daemon "a", which has joined once, and a newcomer.
struct JoiningWorld {
  JoiningWorld() {
    REQUIRE(former.Join("b", "", nullptr).ok());
    REQUIRE(former.Join("a", CardOf("former:1"), nullptr).ok());
    options.node_id = "a";
    options.node_ttl = seconds(10);
    options.card = [] { return CardOf("newcomer:2"); };
    options.has_ended = [this](const std::string& card) {
      return lock_is_free && card == CardOf("former:1");
    };
    options.wait = [this](Milliseconds time) {
      clock.Advance(time);
      if (meanwhile) meanwhile();
      return !stopping;
    };
    options.report = [this](const std::string& line, Milliseconds) { reports.push_back(line); };
  }

  std::unique_ptr<NodeStore> NewNodes() {
    return std::make_unique<simulation::MemoryNodeStore>(
        &engine, std::make_shared<simulation::EngineLink>(&world, &faults));
  }
  absl::StatusOr<NodeRef> Join() { return JoinWithCare(&newcomer, &clock, options); }
  Milliseconds waited() const {
    return std::chrono::duration_cast<Milliseconds>(clock.Now() - SteadyTime(seconds(1000)));
  }
  NodeStore::Node row() const { return engine.Nodes().at(1); }

  simulation::World world{/*seed=*/1, /*tracing=*/false};
  simulation::Faults faults;
  simulation::MemoryEngine engine;
  JoiningClock clock;
  HookedNodes former{NewNodes()};
  HookedNodes newcomer{NewNodes()};
  bool lock_is_free = false;
  bool stopping = false;
  std::function<void()> meanwhile;
  std::vector<std::string> reports;
  JoinOptions options;
};

void CheckRefused(JoiningWorld* world, const std::string& living) {
  const NodeStore::Node before = world->row();
  const absl::Status refused = world->Join().status();
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()), ContainsSubstring(living));
  CHECK_THAT(std::string(refused.message()), ContainsSubstring("pid 17"));
  CHECK_THAT(std::string(refused.message()), ContainsSubstring("--node-id"));
  CHECK(world->row().ref.incarnation >= before.ref.incarnation);
  CHECK(world->row().daemon != CardOf("newcomer:2"));
}

}  // namespace

TEST_CASE(
    "joining: an id without a row, of a daemon that has stopped, or is dead, is taken at once") {
  JoiningWorld world;
  uint32_t incarnation = 2;
  SECTION("no row") {
    world.options.node_id = "c";
    incarnation = 1;
  }
  SECTION("stopped") { REQUIRE(world.former.Leave().ok()); }
  SECTION("declared dead") { REQUIRE(world.newcomer.DeclareDead(world.row()).value()); }
  SECTION("its lock is free") { world.lock_is_free = true; }
  const absl::StatusOr<NodeRef> self = world.Join();
  REQUIRE(self.ok());
  CHECK(self->incarnation == incarnation);
  CHECK(world.waited() == Milliseconds(0));
  CHECK(world.reports.empty());
  const NodeStore::Node row = world.engine.Nodes().at(self->number - 1);
  CHECK(row.daemon == CardOf("newcomer:2"));
  CHECK_FALSE(row.dead);
  CHECK_FALSE(row.stopped);
}

TEST_CASE("joining: a daemon whose heartbeat moves keeps its id, and the newcomer names it") {
  JoiningWorld world;
  world.meanwhile = [&] {
    if (world.waited() == seconds(3)) REQUIRE(world.former.Heartbeat().ok());
  };
  CheckRefused(&world, "former:1");
  CHECK(world.waited() == seconds(3));
  CHECK(world.former.Heartbeat().ok());
}

TEST_CASE("joining: a daemon whose heartbeat stands still for a node TTL loses its id") {
  JoiningWorld world;
  const absl::StatusOr<NodeRef> self = world.Join();
  REQUIRE(self.ok());
  CHECK(self->incarnation == 2);
  CHECK(world.waited() == seconds(10));
  CHECK(absl::IsFailedPrecondition(world.former.Heartbeat()));
  // At once, and then every two seconds.
  REQUIRE(world.reports.size() == 5);
  CHECK_THAT(world.reports[0], ContainsSubstring("former:1"));
  CHECK_THAT(world.reports[0], ContainsSubstring("10.0 s"));
  CHECK_THAT(world.reports[4], ContainsSubstring("2.0 s"));
}

TEST_CASE("joining: a daemon that comes back at the last moment keeps its id") {
  JoiningWorld world;
  world.newcomer.before_join = [&] { REQUIRE(world.former.Heartbeat().ok()); };
  CheckRefused(&world, "former:1");
  CHECK(world.former.Heartbeat().ok());
}

TEST_CASE("joining: of two newcomers one gets the id, and the other names it") {
  JoiningWorld world;
  HookedNodes first(world.NewNodes());
  const auto joins = [&] {
    const NodeStore::Node row = world.row();
    REQUIRE(first.Join("a", CardOf("first:3"), &row).ok());
  };
  SECTION("both after the wait") { world.newcomer.before_join = joins; }
  SECTION("both at once") {
    REQUIRE(world.former.Leave().ok());
    world.newcomer.before_join = joins;
  }
  SECTION("one while the other waits") {
    world.meanwhile = [&] {
      if (world.waited() == seconds(9)) joins();
    };
  }
  CheckRefused(&world, "first:3");
  CHECK(first.Heartbeat().ok());
}

TEST_CASE("joining: what frees the id ends the wait") {
  JoiningWorld world;
  std::function<void()> frees;
  SECTION("the daemon stops") {
    frees = [&] { REQUIRE(world.former.Leave().ok()); };
  }
  SECTION("another daemon declares it dead") {
    frees = [&] { REQUIRE(world.former.DeclareDead(world.row()).value()); };
  }
  SECTION("its process ends") {
    frees = [&] { world.lock_is_free = true; };
  }
  world.meanwhile = [&] {
    if (world.waited() == seconds(2)) frees();
  };
  REQUIRE(world.Join().ok());
  CHECK(world.waited() == seconds(2));
}

TEST_CASE("joining: a pause of the newcomer does not count as watching") {
  JoiningWorld world;
  world.meanwhile = [&] {
    if (world.waited() == seconds(4)) world.clock.Advance(seconds(60));
  };
  REQUIRE(world.Join().ok());
  CHECK(world.waited() == seconds(74));
}

TEST_CASE("joining: a signal and an engine that fails end the wait, and nothing is changed") {
  JoiningWorld world;
  SECTION("a signal") {
    world.stopping = true;
    CHECK(absl::IsCancelled(world.Join().status()));
  }
  SECTION("the engine at once") {
    world.newcomer.read_status = absl::UnavailableError("away");
    CHECK(absl::IsUnavailable(world.Join().status()));
  }
  SECTION("the engine later") {
    world.meanwhile = [&] { world.newcomer.read_status = absl::UnavailableError("away"); };
    CHECK(absl::IsUnavailable(world.Join().status()));
  }
  CHECK(world.row().ref.incarnation == 1);
  CHECK(world.former.Heartbeat().ok());
}

// ---- what a daemon says of itself ----

TEST_CASE("a daemon's card comes back, and any text is taken for one") {
  DaemonCard card{"h\xff\n\"",
                  "127.0.0.1:7420",
                  17,
                  1'770'091'506'789,
                  {"boot", 2, UINT64_MAX, std::string(32, 'a')}};
  const DaemonCard read = ReadCard(WriteCard(card));
  CHECK(read.lock == card.lock);
  CHECK(read.address == card.address);
  CHECK(Describe(read) ==
        "the daemon at 127.0.0.1:7420 on host h????\", pid 17, since 2026-02-03T04:05:06.789Z");
  CHECK(Describe(ReadCard("")) == "a daemon");
  CHECK(Describe(ReadCard("[1]")) == "a daemon");
  CHECK(Describe(ReadCard(
            R"({"pid":-1,"address":5,"since_unix_ms":99999999999999999,"lock":7})")) == "a daemon");
  CHECK(Describe(ReadCard(R"({"pid":1e99,"address":")" + std::string(1000, 'x') + "\"}")) ==
        "the daemon at " + std::string(200, 'x'));
}

TEST_CASE("joining golden: a daemon's card") {
  constexpr char kStored[] =
      R"({"address":"127.0.0.1:7420","host":"db1","lock":{"boot":"boot","device":2,"inode":3,)"
      R"("nonce":"aa"},"pid":17,"since_unix_ms":1700000000000})";
  const DaemonCard card{"db1", "127.0.0.1:7420", 17, 1'700'000'000'000, {"boot", 2, 3, "aa"}};
  golden::CheckStored(WriteCard(card), kStored);
  CHECK(ReadCard(kStored).lock == card.lock);
}

}  // namespace semaphored
