#include "server/lanes/membership.h"

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

namespace semaphored {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ClockByHand final : public Clock {
 public:
  SteadyTime Now() const override { return now_; }
  int64_t NowUnixMs() const override { return 0; }
  void Advance(Milliseconds by) { now_ += by; }

 private:
  SteadyTime now_{seconds(1000)};
};

// Nodes in memory; each call can be scripted to fail, or to take time.
class ScriptedNodes final : public NodeStore {
 public:
  explicit ScriptedNodes(ClockByHand* clock) : clock_(clock) {
    rows_[1] = {{1, 1}, "self", 0, false};
  }

  absl::StatusOr<NodeRef> Join(const std::string&, const std::string&, const Node*) override {
    return rows_[1].ref;
  }

  absl::Status Heartbeat() override {
    ++heartbeats;
    clock_->Advance(heartbeat_takes);
    if (!heartbeat_status.ok()) return heartbeat_status;
    ++rows_[1].counter;
    return absl::OkStatus();
  }

  absl::Status Leave() override {
    rows_[1].stopped = true;
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Node>> Observe() override {
    ++reads;
    clock_->Advance(read_takes);
    if (!read_status.ok()) return read_status;
    std::vector<Node> nodes;
    for (const auto& [number, node] : rows_) nodes.push_back(node);
    return nodes;
  }

  absl::StatusOr<bool> DeclareDead(const Node& seen) override {
    declared.push_back(seen);
    if (before_declare) before_declare();
    if (!declare_status.ok()) return declare_status;
    Node& node = rows_[seen.ref.number];
    if (node.counter != seen.counter || !(node.ref == seen.ref)) return false;
    node.dead = true;
    return true;
  }

  Node& row(uint32_t number) { return rows_[number]; }
  void Add(uint32_t number, uint32_t incarnation = 1) {
    rows_[number] = {{number, incarnation}, "other", 0, false};
  }
  void Remove(uint32_t number) { rows_.erase(number); }

  absl::Status heartbeat_status, read_status, declare_status;
  Milliseconds heartbeat_takes{0}, read_takes{0};
  std::function<void()> before_declare;
  std::vector<Node> declared;
  int heartbeats = 0;
  int reads = 0;

 private:
  ClockByHand* clock_;
  std::map<uint32_t, Node> rows_;
};

struct World {
  explicit World(bool exclusive = false)
      : membership(
            &nodes, NodeRef{1, 1}, &clock,
            MembershipOptions{.node_ttl = seconds(9), .exclusive = exclusive, .node_id = "self"},
            [this](SteadyTime since) {
              asked_since = since;
              return lanes_progressed;
            }) {}

  // One interval later, one Tick.
  Membership::TickResult Beat() {
    clock.Advance(membership.interval());
    return membership.Tick();
  }

  ClockByHand clock;
  ScriptedNodes nodes{&clock};
  bool lanes_progressed = true;
  SteadyTime asked_since{};
  Membership membership;
};

TEST_CASE("vouching lasts from when the heartbeat was sent, not from when it was answered") {
  World world;
  CHECK(world.membership.vouch_until() == SteadyTime::min());
  const SteadyTime sent = world.clock.Now();
  world.nodes.heartbeat_takes = seconds(2);
  REQUIRE(world.membership.Tick().heartbeat.ok());
  CHECK(world.membership.vouch_until() == sent + seconds(9) - milliseconds(900));
}

TEST_CASE("a node is called by the id that it was given, as far as it has been read") {
  World world;
  CHECK(world.membership.NameOf({1, 7}) == "self");
  CHECK(world.membership.NameOf({2, 3}) == "2.3");
  world.nodes.Add(2, 3);
  world.Beat();
  CHECK(world.membership.NameOf({2, 3}) == "other");
  world.nodes.Remove(2);
  world.Beat();
  CHECK(world.membership.NameOf({2, 3}) == "2.3");
}

TEST_CASE("a heartbeat that fails leaves the vouching where it was") {
  World world;
  world.membership.Tick();
  const SteadyTime until = world.membership.vouch_until();
  world.nodes.heartbeat_status = absl::UnavailableError("cut off");
  const auto result = world.Beat();
  CHECK(absl::IsUnavailable(result.heartbeat));
  CHECK(result.fatal.ok());
  CHECK(world.membership.vouch_until() == until);
  world.nodes.heartbeat_status = absl::OkStatus();
  world.Beat();
  CHECK(world.membership.vouch_until() > until);
}

TEST_CASE("no heartbeat is sent while a lane makes no progress") {
  World world;
  const SteadyTime first_sent = world.clock.Now();
  world.membership.Tick();
  world.lanes_progressed = false;
  CHECK_FALSE(world.Beat().heartbeat.ok());
  CHECK(world.asked_since == first_sent);
  CHECK_FALSE(world.Beat().heartbeat.ok());
  CHECK(world.asked_since == first_sent);
  CHECK(world.nodes.heartbeats == 1);
  world.lanes_progressed = true;
  CHECK(world.Beat().heartbeat.ok());
  CHECK(world.nodes.heartbeats == 2);
}

TEST_CASE("an exclusive engine is vouched for until another process has it, and observes nobody") {
  World world(/*exclusive=*/true);
  world.nodes.Add(2);
  CHECK(world.membership.vouch_until() == SteadyTime::max());
  world.nodes.heartbeat_status = absl::UnavailableError("disk");
  for (int i = 0; i < 10; ++i) CHECK(world.Beat().dead.empty());
  CHECK(world.membership.vouch_until() == SteadyTime::max());
  CHECK(world.nodes.reads == 0);
  world.nodes.heartbeat_status = absl::FailedPreconditionError("the file was replaced");
  CHECK(absl::IsFailedPrecondition(world.Beat().fatal));
  CHECK(world.membership.vouch_until() == SteadyTime::min());
}

TEST_CASE("a superseded node stops for ever") {
  World world;
  world.membership.Tick();
  world.nodes.heartbeat_status = absl::FailedPreconditionError("taken");
  CHECK(absl::IsFailedPrecondition(world.Beat().fatal));
  world.nodes.heartbeat_status = absl::OkStatus();
  const int heartbeats = world.nodes.heartbeats;
  CHECK(absl::IsFailedPrecondition(world.Beat().fatal));
  CHECK(world.nodes.heartbeats == heartbeats);
  CHECK(world.membership.vouch_until() == SteadyTime::min());
}

TEST_CASE("a node that reads of its own end stops as well") {
  World world;
  world.membership.Tick();
  SECTION("declared dead") { world.nodes.row(1).dead = true; }
  SECTION("replaced") { world.nodes.row(1).ref.incarnation = 2; }
  const auto result = world.Beat();
  CHECK(absl::IsFailedPrecondition(result.fatal));
  CHECK(world.membership.vouch_until() == SteadyTime::min());
}

TEST_CASE("a node that ends says so, unless it is out of touch or was replaced") {
  World world;
  CHECK(world.membership.Leave().ok());
  CHECK_FALSE(world.nodes.row(1).stopped);
  world.membership.Tick();
  bool says = true;
  SECTION("in touch") {}
  SECTION("out of touch") {
    world.nodes.heartbeat_status = absl::UnavailableError("cut off");
    world.Beat();
    says = false;
  }
  SECTION("replaced") {
    world.nodes.row(1).ref.incarnation = 2;
    world.Beat();
    says = false;
  }
  CHECK(world.membership.Leave().ok());
  CHECK(world.nodes.row(1).stopped == says);
}

TEST_CASE("a silent node is declared dead after one whole node TTL of unbroken reading, once") {
  World world;
  world.nodes.Add(2);
  world.membership.Tick();           // First read.
  CHECK(world.Beat().dead.empty());  // 3 s
  CHECK(world.Beat().dead.empty());  // 6 s
  const auto result = world.Beat();  // 9 s
  CHECK(result.dead == std::vector<NodeRef>{{2, 1}});
  CHECK(world.nodes.row(2).dead);
  for (int i = 0; i < 5; ++i) CHECK(world.Beat().dead.empty());
  CHECK(world.nodes.declared.size() == 1);
}

TEST_CASE("the time that a read takes does not count towards a death") {
  World world;
  world.nodes.Add(2);
  world.nodes.read_takes = milliseconds(600);
  world.membership.Tick();
  // Reads are sent 3 s after the last one returned, so the third is sent 3 * 3 + 2 * 0.6 s after
  // the first returned.
  CHECK(world.Beat().dead.empty());
  CHECK(world.Beat().dead.empty());
  CHECK(world.Beat().dead.size() == 1);
}

TEST_CASE("a node that counts on is never declared dead") {
  World world;
  world.nodes.Add(2);
  world.membership.Tick();
  for (int i = 0; i < 30; ++i) {
    if (i % 2 == 0) ++world.nodes.row(2).counter;
    CHECK(world.Beat().dead.empty());
  }
  CHECK(world.nodes.declared.empty());
}

TEST_CASE("a new incarnation is observed anew, though its counter is the same") {
  World world;
  world.nodes.Add(2);
  world.membership.Tick();
  world.Beat();
  world.Beat();
  world.nodes.row(2).ref.incarnation = 2;
  CHECK(world.Beat().dead.empty());
  CHECK(world.Beat().dead.empty());
  CHECK(world.Beat().dead.empty());
  CHECK(world.Beat().dead == std::vector<NodeRef>{{2, 2}});
}

TEST_CASE("any gap in the reading starts the observation anew") {
  World world;
  world.nodes.Add(2);
  world.membership.Tick();
  world.Beat();
  world.Beat();  // 6 s seen.
  SECTION("a failed read") {
    world.nodes.read_status = absl::UnavailableError("engine down");
    CHECK(world.Beat().dead.empty());
    world.nodes.read_status = absl::OkStatus();
    CHECK(world.Beat().dead.empty());
  }
  SECTION("this process was paused") {
    world.clock.Advance(seconds(20));
    CHECK(world.Beat().dead.empty());
  }
  SECTION("a read that took long") {
    world.nodes.read_takes = seconds(5);
    CHECK(world.Beat().dead.empty());
    world.nodes.read_takes = seconds(0);
  }
  SECTION("an engine that is read but takes no writes") {
    world.nodes.heartbeat_status = absl::UnavailableError("read only");
    CHECK(world.Beat().dead.empty());
    world.nodes.heartbeat_status = absl::OkStatus();
    CHECK(world.Beat().dead.empty());
  }
  // A whole node TTL from here on.
  CHECK(world.Beat().dead.empty());
  CHECK(world.Beat().dead.empty());
  CHECK(world.nodes.declared.empty());
  CHECK(world.Beat().dead.size() == 1);
}

TEST_CASE("a node that beats between the last read and the declaration stays alive") {
  World world;
  world.nodes.Add(2);
  world.nodes.before_declare = [&] { ++world.nodes.row(2).counter; };
  world.membership.Tick();
  for (int i = 0; i < 3; ++i) CHECK(world.Beat().dead.empty());
  CHECK(world.nodes.declared.size() == 1);
  CHECK_FALSE(world.nodes.row(2).dead);
}

TEST_CASE("a declaration whose answer was lost is told when the death is read") {
  World world;
  world.nodes.Add(2);
  world.nodes.before_declare = [&] { world.nodes.row(2).dead = true; };
  world.nodes.declare_status = absl::UnavailableError("lost");
  world.membership.Tick();
  for (int i = 0; i < 3; ++i) CHECK(world.Beat().dead.empty());
  CHECK(world.Beat().dead == std::vector<NodeRef>{{2, 1}});
  CHECK(world.Beat().dead.empty());
}

TEST_CASE(
    "of very many nodes that are found dead, some are reported with each read, the newest first") {
  World world;
  for (uint32_t number = 2; number < 2502; ++number) {
    world.nodes.Add(number);
    world.nodes.row(number).dead = true;
  }
  const std::vector<NodeRef> first = world.membership.Tick().dead;
  REQUIRE(first.size() == 1000);
  CHECK(first.front() == NodeRef{2501, 1});
  CHECK(first.back() == NodeRef{1502, 1});
  // Those whose rows have gone meanwhile are not.
  for (uint32_t number = 2; number < 1002; ++number) world.nodes.Remove(number);
  CHECK(world.Beat().dead.size() == 500);
  CHECK(world.Beat().dead.empty());
}

TEST_CASE("a death that somebody else declared is told once for each incarnation") {
  World world;
  world.nodes.Add(2);
  world.nodes.row(2).dead = true;
  CHECK(world.membership.Tick().dead == std::vector<NodeRef>{{2, 1}});
  CHECK(world.Beat().dead.empty());
  world.nodes.row(2) = {{2, 2}, "other", 0, false};
  CHECK(world.Beat().dead.empty());
  world.nodes.row(2).dead = true;
  CHECK(world.Beat().dead == std::vector<NodeRef>{{2, 2}});
}

TEST_CASE("a death whose take-over failed is told again") {
  World world;
  world.nodes.Add(2);
  world.nodes.row(2).dead = true;
  CHECK(world.membership.Tick().dead.size() == 1);
  world.membership.TellAgain({{2, 1}});
  CHECK(world.Beat().dead == std::vector<NodeRef>{{2, 1}});
  CHECK(world.Beat().dead.empty());
}

TEST_CASE("a node that leaves the table and comes back is observed anew") {
  World world;
  world.nodes.Add(2);
  world.membership.Tick();
  world.Beat();
  world.Beat();
  world.nodes.Remove(2);
  world.Beat();
  world.nodes.Add(2);
  for (int i = 0; i < 3; ++i) CHECK(world.Beat().dead.empty());
  CHECK(world.Beat().dead.size() == 1);
}

// ---- the thread ----

// Collects what a MembershipThread tells; waits for it with a bound.
struct Told {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<NodeRef> dead;
  absl::Status fatal;
  std::vector<bool> vouched;
  std::vector<absl::Status> failures;

  MembershipThread::Callbacks Callbacks() {
    return {.on_dead = [this](std::vector<NodeRef> nodes) { Set([&] { dead = nodes; }); },
            .on_fatal = [this](absl::Status why) { Set([&] { fatal = why; }); },
            .on_vouch_change = [this](bool on) { Set([&] { vouched.push_back(on); }); },
            .on_heartbeat_failed =
                [this](const absl::Status& why) { Set([&] { failures.push_back(why); }); },
            .vouch_until = nullptr};
  }
  template <typename F>
  void Set(F change) {
    std::lock_guard lock(mutex);
    change();
    changed.notify_all();
  }
  template <typename F>
  bool Wait(F condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, seconds(20), condition);
  }
};

TEST_CASE("the thread tells of deaths, of vouching that ends, and ends at a fatal error") {
  ClockByHand unused;
  ScriptedNodes nodes(&unused);
  nodes.Add(2);
  nodes.row(2).dead = true;
  std::atomic<bool> progressed = true;
  Membership membership(&nodes, {1, 1}, &SystemClock(), {.node_ttl = milliseconds(60)},
                        [&](SteadyTime) { return progressed.load(); });
  Told told;
  MembershipThread thread(&membership, &SystemClock(), told.Callbacks());
  REQUIRE(told.Wait([&] { return !told.dead.empty(); }));
  REQUIRE(told.Wait([&] { return !told.vouched.empty() && told.vouched[0]; }));
  progressed = false;
  REQUIRE(told.Wait([&] { return told.vouched.size() >= 2 && !told.vouched.back(); }));
  progressed = true;
  REQUIRE(told.Wait([&] { return told.vouched.size() >= 3 && told.vouched.back(); }));
  // Once for each time that it goes wrong, and not for each beat.
  const std::lock_guard lock(told.mutex);
  REQUIRE(told.failures.size() == 1);
  CHECK(absl::IsUnavailable(told.failures[0]));
}

TEST_CASE("the thread tries a heartbeat that has failed again long before the next one is due") {
  ClockByHand unused;
  ScriptedNodes nodes(&unused);
  nodes.heartbeat_status = absl::UnavailableError("cut off");
  Told told;
  bool tried_again = false;
  // The next one is due after 24 s. (What lanes have done is asked from the second heartbeat on.)
  Membership membership(&nodes, {1, 1}, &SystemClock(), {.node_ttl = seconds(72)}, [&](SteadyTime) {
    told.Set([&] { tried_again = true; });
    return true;
  });
  MembershipThread thread(&membership, &SystemClock(), told.Callbacks());
  CHECK(told.Wait([&] { return tried_again; }));
}

TEST_CASE("the thread tells that vouching ends for another reason than heartbeats") {
  ClockByHand unused;
  ScriptedNodes nodes(&unused);
  Membership membership(&nodes, {1, 1}, &SystemClock(), {.node_ttl = milliseconds(60)},
                        [](SteadyTime) { return true; });
  Told told;
  MembershipThread::Callbacks callbacks = told.Callbacks();
  std::atomic<bool> lanes_are_fresh = true;
  callbacks.vouch_until = [&] {
    return lanes_are_fresh ? membership.vouch_until() : SteadyTime::min();
  };
  MembershipThread thread(&membership, &SystemClock(), std::move(callbacks));
  REQUIRE(told.Wait([&] { return !told.vouched.empty() && told.vouched[0]; }));
  lanes_are_fresh = false;
  REQUIRE(told.Wait([&] { return told.vouched.size() >= 2 && !told.vouched.back(); }));
  lanes_are_fresh = true;
  REQUIRE(told.Wait([&] { return told.vouched.size() >= 3 && told.vouched.back(); }));
  const std::lock_guard lock(told.mutex);
  CHECK(told.failures.empty());
}

TEST_CASE("the thread ends at a fatal error, and says first that nothing is vouched for") {
  ClockByHand unused;
  ScriptedNodes nodes(&unused);
  nodes.row(1).ref.incarnation = 7;
  Membership membership(&nodes, {1, 1}, &SystemClock(), {.node_ttl = seconds(60)},
                        [](SteadyTime) { return true; });
  Told told;
  MembershipThread thread(&membership, &SystemClock(), told.Callbacks());
  REQUIRE(told.Wait([&] { return absl::IsFailedPrecondition(told.fatal); }));
  CHECK((told.vouched.empty() || !told.vouched.back()));
}

}  // namespace
}  // namespace semaphored
