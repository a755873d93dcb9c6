// The rules over Consul, one lane of a daemon: what they grant beside foreign clients, and where
// the record is not one that can be shared.
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "adapters/consul/engine.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/consul/fixture.h"

namespace semaphored::consul {
namespace {

using std::chrono::milliseconds;

constexpr char kOfTheGist[] = R"({"limit": 1, "holders": ["x"]})";

// The lane of a node, on a prefix of its own or that of another lane, with a semaphore "s".
class OneLane {
 public:
  explicit OneLane(uint32_t limit) : OneLane(limit, std::make_shared<TestPrefix>(), "a") {}
  OneLane(const OneLane& other, const std::string& node_id)
      : OneLane(other.limit_, other.shared_, node_id) {}

  const TestPrefix& prefix() const { return *shared_; }
  std::vector<Outcome> RunAll(const std::vector<Command>& commands) {
    std::vector<Submission> batch;
    for (const Command& command : commands) batch.push_back({++number_, command});
    absl::StatusOr<StepResult> result = lane_->Step(batch, In(milliseconds(5000)));
    REQUIRE(result.ok());
    return std::move(result->outcomes);
  }
  Outcome Run(const Command& command) { return std::move(RunAll({command}).front()); }

  Outcome Ask(uint64_t id, bool wait = false, Requester requester = {}) {
    AcquireCommand acquire;
    acquire.requester = std::move(requester);
    acquire.semaphore = "s";
    acquire.claim = acquire.session = MakeId(id);
    acquire.limit = limit_;
    acquire.ttl_ms = 10'000;
    acquire.wait = wait;
    return Run(acquire);
  }

  OutcomeKind Release(uint64_t id, Requester requester = {}) {
    ReleaseCommand release;
    release.requester = std::move(requester);
    release.semaphore = "s";
    release.claim = MakeId(id);
    return Run(release).kind;
  }

  OutcomeKind Verify(uint64_t id) { return Run(VerifyCommand{"s", MakeId(id), 0, 0}).kind; }
  template <typename Act>
  Outcome Administer(Act act) {
    return Run(AdminCommand{{}, "s", 0, std::move(act)});
  }
  Outcome Prune() { return Administer(AdminPrune{}); }

  void Listen(milliseconds patience) { REQUIRE(lane_->Step({}, In(patience)).ok()); }

  LockRecord Record() {
    return ReadLockRecord(prefix().Value(prefix().keys().Lock("s")), kSemaphoreFlags).value();
  }
  void Overwrite() { prefix().Put(prefix().keys().Lock("s"), kOfTheGist, 0); }

 private:
  OneLane(uint32_t limit, std::shared_ptr<TestPrefix> prefix, const std::string& node_id)
      : limit_(limit), shared_(std::move(prefix)) {
    options_.self = engine_->nodes().Join(node_id).value();
    options_.now = [] { return SteadyClock::now(); };
    options_.now_unix_ms = [] { return 1; };
    // What is noticed is not noticed by chance.
    options_.sweep_interval = std::chrono::hours(1);
    lane_ = engine_->OpenLane(options_).value();
  }

  static SteadyTime In(milliseconds time) { return SteadyClock::now() + time; }

  const uint32_t limit_;
  const std::shared_ptr<TestPrefix> shared_;
  const std::unique_ptr<Engine> engine_ = OpenEngine(shared_->UrlText()).value();
  ledger::LedgerOptions options_;
  std::unique_ptr<Adapter> lane_;
  uint64_t number_ = 0;
};

bool Says(const Outcome& outcome, const std::string& part) {
  return outcome.message.find(part) != std::string::npos;
}

TEST_CASE("consul: a place is left to who has contended for longer", "[consul]") {
  OneLane lane(1);
  REQUIRE(lane.Ask(1).kind == OutcomeKind::kGranted);
  ForeignClient foreign(&lane.prefix(), "s", 1);
  // It is noticed when somebody looks.
  lane.Prune();
  REQUIRE(lane.Ask(2, true).kind == OutcomeKind::kQueued);
  REQUIRE(lane.Release(1) == OutcomeKind::kReleased);
  CHECK(lane.Ask(3).kind == OutcomeKind::kFull);
  CHECK(lane.Record().holders.empty());
  CHECK(lane.Verify(2) == OutcomeKind::kStillWaiting);
  REQUIRE(foreign.TryAcquire());
  foreign.Release();
  for (int i = 0; i < 100 && lane.Verify(2) != OutcomeKind::kHeld; ++i)
    lane.Listen(milliseconds(100));
  CHECK(lane.Verify(2) == OutcomeKind::kHeld);
}

TEST_CASE("consul: what a list has seen is no reason to grant", "[consul]") {
  OneLane lane(2);
  REQUIRE(lane.Ask(1).kind == OutcomeKind::kGranted);
  ForeignClient foreign(&lane.prefix(), "s", 2);
  REQUIRE(foreign.TryAcquire());
  // The list sees the foreign holder; who decides has not heard of it yet.
  const Outcome listed = lane.Run(ListCommand{});
  REQUIRE(listed.report->infos.size() == 1);
  CHECK(listed.report->infos[0].held == 2);
  CHECK(lane.Ask(2).kind == OutcomeKind::kFull);
  CHECK(lane.Record().holders.size() == 2);
}

TEST_CASE("consul: what a list has seen is told to whoever asks next", "[consul]") {
  OneLane lane(2);
  REQUIRE(lane.Ask(1).kind == OutcomeKind::kGranted);
  lane.Overwrite();
  lane.Run(ListCommand{});
  const Outcome described = lane.Administer(AdminDescribe{10});
  REQUIRE(described.report->info->held == 2);
  REQUIRE(described.report->info->leases.size() == 2);
  CHECK(described.report->info->leases[1]->holder.find("holders as a list") != std::string::npos);
}

TEST_CASE("consul: a record of another recipe, and no semaphore of ours", "[consul]") {
  OneLane lane(1);
  lane.Overwrite();
  const auto is_refused = [](const Outcome& outcome) {
    return outcome.kind == OutcomeKind::kUnusable && Says(outcome, "holders as a list");
  };
  CHECK(is_refused(lane.Ask(1)));
  CHECK(is_refused(lane.Administer(AdminCreate{1, {}})));
  CHECK(is_refused(lane.Administer(AdminDescribe{})));
  CHECK(is_refused(lane.Administer(AdminDestroy{})));

  SECTION("is put away once nobody uses it") {
    const Outcome pruned = lane.Prune();
    CHECK(pruned.kind == OutcomeKind::kDone);
    CHECK(pruned.affected() == 1);
    CHECK(lane.Prune().kind == OutcomeKind::kNoSuchSemaphore);
    CHECK(lane.Ask(1).kind == OutcomeKind::kGranted);
  }
  SECTION("is left while somebody does") {
    ForeignClient foreign(&lane.prefix(), "s", 1);
    const Outcome pruned = lane.Prune();
    CHECK(pruned.kind == OutcomeKind::kInUse);
    CHECK(Says(pruned, "foreign clients are there (1)"));
    CHECK(lane.prefix().Value(lane.prefix().keys().Lock("s")) == kOfTheGist);
  }
}

TEST_CASE("consul: a record of another recipe is adopted once its clients have gone", "[consul]") {
  OneLane lane(1);
  const std::string lock = lane.prefix().keys().Lock("s");
  lane.Overwrite();
  SECTION("with its limit") {
    const Outcome looked = lane.Administer(AdminAdopt{});
    CHECK(looked.kind == OutcomeKind::kDone);
    CHECK(looked.affected() == 1);
    CHECK(Says(looked, kOfTheGist));
    CHECK(lane.Administer(AdminAdopt{2}).kind == OutcomeKind::kInUse);
    CHECK(lane.prefix().Value(lock) == kOfTheGist);
    const Outcome adopted = lane.Administer(AdminAdopt{1});
    REQUIRE(adopted.kind == OutcomeKind::kDone);
    CHECK(adopted.changed);
    CHECK(adopted.report->info->row.limit == 1);
    CHECK(lane.Record() == LockRecord{1, {}});
    CHECK(lane.Ask(1).kind == OutcomeKind::kGranted);
    CHECK(lane.Ask(2).kind == OutcomeKind::kFull);
    CHECK_FALSE(lane.Administer(AdminAdopt{1}).changed);
  }
  SECTION("by the first of two in one batch") {
    const Command adopt = AdminCommand{{}, "s", 0, AdminAdopt{1}};
    const std::vector<Outcome> outcomes = lane.RunAll({adopt, adopt});
    for (const Outcome& outcome : outcomes) REQUIRE(outcome.kind == OutcomeKind::kDone);
    CHECK(outcomes[0].changed);
    CHECK_FALSE(outcomes[1].changed);
  }
  SECTION("and not while one is there") {
    ForeignClient foreign(&lane.prefix(), "s", 1);
    for (const uint32_t limit : {0, 1}) {
      const Outcome refused = lane.Administer(AdminAdopt{limit});
      CHECK(refused.kind == OutcomeKind::kInUse);
      CHECK(Says(refused, "clients of the recipe are there (1)"));
    }
    CHECK(lane.prefix().Value(lock) == kOfTheGist);
    foreign.Die();
    CHECK(lane.Administer(AdminAdopt{1}).kind == OutcomeKind::kDone);
  }
  SECTION("and nothing else is") {
    lane.prefix().Put(lock, "garbled", 0);
    CHECK(lane.Administer(AdminAdopt{1}).kind == OutcomeKind::kUnusable);
    CHECK(lane.prefix().Value(lock) == "garbled");
  }
}

TEST_CASE("consul: with a record of another recipe no more is granted, however", "[consul]") {
  OneLane lane(1);
  REQUIRE(lane.Ask(1).kind == OutcomeKind::kGranted);
  REQUIRE(lane.Ask(2, true).kind == OutcomeKind::kQueued);
  REQUIRE(lane.Ask(3, true).kind == OutcomeKind::kQueued);
  lane.Overwrite();
  CHECK(lane.Ask(4, true).kind == OutcomeKind::kUnusable);
  AdminResize resize;
  resize.amount = 3;
  resize.limit_max = 1000;
  const Outcome resized = lane.Administer(resize);
  CHECK(resized.kind == OutcomeKind::kUnusable);
  CHECK(Says(resized, "holders as a list"));
  // What is ours passes among ours: no more are inside for it.
  REQUIRE(lane.Release(1) == OutcomeKind::kReleased);
  CHECK(lane.Verify(2) == OutcomeKind::kHeld);
  CHECK(lane.Verify(3) == OutcomeKind::kStillWaiting);
  REQUIRE(lane.Prune().kind == OutcomeKind::kDone);
  CHECK(lane.Record().holders.size() == 1);
  CHECK(lane.Verify(3) == OutcomeKind::kStillWaiting);
  REQUIRE(lane.Release(2) == OutcomeKind::kReleased);
  CHECK(lane.Verify(3) == OutcomeKind::kHeld);
}

TEST_CASE("consul: a lock that is held is not written over", "[consul]") {
  OneLane lane(1);
  const std::string lock = lane.prefix().keys().Lock("s");
  REQUIRE(lane.Ask(1).kind == OutcomeKind::kGranted);
  REQUIRE(lane.Release(1) == OutcomeKind::kReleased);
  lane.prefix().Delete(lock);
  // Any session will do for a lock: its own place in the folder is another key.
  ForeignClient holder(&lane.prefix(), "elsewhere", 1);
  lane.prefix().Lock(lock, holder.session(), kLockFlags);
  CHECK(lane.Prune().kind == OutcomeKind::kInUse);
  CHECK(lane.prefix().Tree(lock).at(0).flags == kLockFlags);
  holder.Die();
  CHECK(lane.Prune().kind == OutcomeKind::kDone);
  CHECK(lane.Record().holders.empty());
}

TEST_CASE("consul: a permit goes to and fro between clients of both daemons", "[consul]") {
  OneLane first(1);
  OneLane second(first, "b");
  const auto as = [](const char* client, uint64_t sequence) { return Requester{client, sequence}; };
  REQUIRE(first.Ask(1, false, as("x", 1)).kind == OutcomeKind::kGranted);
  REQUIRE(second.Ask(2, true, as("y", 1)).kind == OutcomeKind::kQueued);
  REQUIRE(first.Release(1, as("x", 2)) == OutcomeKind::kReleased);
  REQUIRE(second.Verify(2) == OutcomeKind::kHeld);
  REQUIRE(first.Ask(3, true, as("x", 3)).kind == OutcomeKind::kQueued);
  REQUIRE(second.Release(2, as("y", 2)) == OutcomeKind::kReleased);
  CHECK(first.Verify(3) == OutcomeKind::kHeld);
  // Neither has lost what it was told before.
  CHECK(second.Release(2, as("y", 2)) == OutcomeKind::kReleased);
  CHECK(first.Release(1, as("x", 2)) == OutcomeKind::kReleased);
}

}  // namespace
}  // namespace semaphored::consul
