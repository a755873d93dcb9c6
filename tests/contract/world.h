// What a case works with: an engine, a clock that only the case moves, and the daemons that stand
// on the engine, driven by hand. Every grant that passes is checked for slots and for rising
// tokens.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "absl/status/statusor.h"
#include "adapters/adapter.h"
#include "adapters/ledger/ledger.h"
#include "adapters/open.h"
#include "adapters/steady_clock.h"
#include "tests/contract/contract.h"
#include "tests/contract/print.h"

namespace semaphored::contract {

// What an acquire asks for; the defaults ask for one permit at once, of what exists.
struct Ask {
  uint32_t permits = 1;
  uint32_t limit = 0;
  bool adopt_limit = false;
  bool must_exist = false;
  bool wait = false;
  int32_t priority = 0;
  int64_t ttl_ms = 30'000;
  std::string holder = "holder";
  Id session = {};  // Empty: detached.
  std::string client = {};
  uint64_t sequence = 0;
  bool only_if_repeated = false;
  Id one_shot = {};
  std::string owner = {};
};

// An Event that outlives its Step.
struct SeenEvent {
  Event::Kind kind = Event::Kind::kGranted;
  EndCause cause = EndCause::kNone;
  Id claim;
  std::string semaphore;
  LeasePtr lease;
  TicketPtr ticket = nullptr;
  PayloadPtr payload = nullptr;
};

// Watches promise 3 over all daemons of a world: per slot of a name, each new grant has a higher
// token. A daemon may hear late of a grant that others have told before.
class TokenWatch {
 public:
  void See(const Guarantees& guarantees, const std::string& semaphore, const Lease& lease);

 private:
  struct OfSlot {
    uint64_t highest = 0;
    std::map<Id, uint64_t> of_claims;
  };
  std::map<std::pair<std::string, uint32_t>, OfSlot> slots_;
};

class Daemon;

class World {
 public:
  explicit World(const EngineUnderTest& engine);
  ~World();

  // Taken by each daemon that is opened after; clocks and `self` are the world's to set.
  ledger::LedgerOptions& options() { return options_; }

  // The daemon "a", opened when it is first asked for.
  Daemon& daemon();
  // Another daemon on the same engine, as this node. For engines that are not exclusive.
  Daemon& OpenAnother(const std::string& node_id);
  // Another lane of this daemon. REQUIRES: lanes_max > 1.
  Daemon& OpenLane(const Daemon& daemon);
  // Ends all daemons, as a kill would for all that the engine can see, and opens one: the same node
  // in a new life, or another node. REQUIRES: can_restart().
  Daemon& Restart(const std::string& node_id = "a");
  // For the start of a case about restarts. False: this engine cannot, and it was checked that it
  // says so.
  bool CanRestart();
  // The same for a case in which no lease has to stand, only semaphores.
  bool KeepsSemaphores() { return fixture_->can_restart() || CanRestart(); }
  // A limit can be 0. False: this engine keeps nothing but limits, and it was checked that it says
  // that it cannot, and does nothing.
  bool CanBeZero();
  // Neither ends nor opens anything but what is said.
  void CloseAll();
  absl::StatusOr<std::unique_ptr<Daemon>> TryOpen(const std::string& node_id);

  const Guarantees& guarantees();
  // See Fixture::AddToCounter.
  bool AddToCounter(const std::string& node_id, int by) {
    return fixture_->AddToCounter(node_id, by);
  }

  // What is watched in all daemons.
  WatchedNames& watched() { return *watched_; }

  // Both clocks go on by this.
  void Advance(int64_t ms) { steady_ms_ += ms, wall_ms_ += ms; }
  // Somebody sets the wall clock.
  void SetWallClock(int64_t unix_ms) { wall_ms_ = unix_ms; }
  int64_t now_unix_ms() const { return wall_ms_; }
  SteadyTime now() const { return start_ + std::chrono::milliseconds(steady_ms_); }

  // Never the same twice in a world.
  Id NewId() { return Id{0x5eed, ++ids_}; }
  AcquireCommand MakeAcquire(const std::string& semaphore, Ask ask);
  Command MakeRelease(const std::string& semaphore, const Id& claim);
  TokenWatch& tokens() { return tokens_; }

 private:
  std::unique_ptr<Fixture> fixture_;
  const std::shared_ptr<WatchedNames> watched_ = WatchedNames::Make();
  ledger::LedgerOptions options_;
  const SteadyTime start_ = SteadyClock::now();
  int64_t steady_ms_ = 0;
  int64_t wall_ms_ = 1'700'000'000'000;
  uint64_t ids_ = 0;
  TokenWatch tokens_;
  std::vector<std::unique_ptr<Daemon>> daemons_;
};

// One daemon: its engine, its node and one lane. A Step that fails, fails the case.
class Daemon {
 public:
  Daemon(World* world, std::shared_ptr<Engine> engine, NodeRef self, std::unique_ptr<Adapter> lane)
      : world_(world), engine_(std::move(engine)), self_(self), lane_(std::move(lane)) {}

  Adapter& lane() { return *lane_; }
  const Guarantees& guarantees() const { return lane_->guarantees(); }
  Engine& engine() { return *engine_; }
  NodeRef self() const { return self_; }
  // Of the same engine and node; nullptr: the engine refuses one more.
  std::unique_ptr<Daemon> NewLane(const ledger::LedgerOptions& options) const;

  // Steps with these commands; outcomes that were unknown are waited for.
  std::vector<Outcome> DoAll(std::vector<Command> commands);
  // For a command that is to fail: the error of its Step, or of what settled it.
  absl::Status ErrorOf(Command command);
  Outcome Do(Command command);
  // Takes what has happened, without waiting.
  void Poll();
  // Polls until `there`, which then is true; fails the case after 10 s.
  void PollUntil(const std::function<bool()>& there);

  // What was seen since the last call of the same name.
  std::vector<SeenEvent> TakeEvents() { return std::exchange(events_, {}); }
  std::vector<SemaphoreChange> TakeChanges() { return std::exchange(changes_, {}); }
  std::vector<DelayedTicket> TakeDelayed() { return std::exchange(delayed_, {}); }
  const std::vector<SeenEvent>& events() const { return events_; }

  // Short forms of commands.
  Outcome Acquire(const std::string& semaphore, Ask ask);
  Outcome Release(const std::string& semaphore, Id claim, Slots slots = {},
                  Requester requester = {});
  Outcome Verify(const std::string& semaphore, Id claim);
  Outcome VerifySlot(const std::string& semaphore, uint32_t slot, uint64_t token);
  Outcome End(const std::string& semaphore, Id claim, EndCause cause, uint32_t epoch = 0);
  Outcome EndWait(const std::string& semaphore, Id claim, EndCause cause);
  template <typename Act>
  Outcome Administer(const std::string& semaphore, Act act) {
    return Do(AdminCommand{{}, semaphore, 0, std::move(act)});
  }
  Outcome Resize(const std::string& semaphore, uint32_t limit,
                 ShrinkPolicy policy = ShrinkPolicy::kWait);
  Outcome OpenSession(Id session, const std::string& client = "client", int64_t ttl_ms = 30'000);

  // The same, where only one outcome will do: anything else fails the case.
  void Create(const std::string& semaphore, uint32_t limit, Settings settings = {});
  LeasePtr Grant(const std::string& semaphore, Ask ask = {});
  Id Queue(const std::string& semaphore, Ask ask = {});  // `wait` is set. The waiting claim.
  void GiveBack(const std::string& semaphore, const Id& claim);
  // There is room, or will be in a moment where the engine makes it later than the Step.
  LeasePtr GrantSoon(const std::string& semaphore, Ask ask = {});
  // So much is held; in a moment, where the engine counts later than the Step.
  void CheckHeld(const std::string& semaphore, uint32_t held);
  SemaphoreInfo Describe(const std::string& semaphore, uint32_t rows_max = 1000);
  bool Exists(const std::string& semaphore);

 private:
  struct Running;
  absl::StatusOr<StepResult> StepPatiently(absl::Span<const Submission> batch, SteadyTime deadline);
  void Collect(StepResult result, Running* running);
  void See(Running* running);
  void LetArrive();
  // Somebody waits here for whom there is room.
  bool IsOwed();

  World* world_;
  std::shared_ptr<Engine> engine_;  // Of all its lanes.
  NodeRef self_;
  std::unique_ptr<Adapter> lane_;
  uint64_t numbers_ = 0;
  // Claims that were told to wait, and nothing else yet, with their semaphores.
  std::map<Id, std::string> waiting_;
  std::vector<SeenEvent> events_;
  std::vector<SemaphoreChange> changes_;
  std::vector<DelayedTicket> delayed_;
};

// False: one daemon at a time owns this engine, which guarantee_cases.cc checks.
bool IsShared(World& world);
// False: of others a daemon knows only how much they hold, which guarantee_cases.cc checks.
bool SharesClaims(World& world);
// The daemons that a request is sent to: one and the same, then two if the engine shares claims.
void OnEachPair(World& world, const std::function<void(Daemon&, Daemon&)>& check);
// The same, and two lanes of one daemon if the engine has them. The two send requests for other semaphores.
void OnEachPairAndLanes(World& world, const std::function<void(Daemon&, Daemon&)>& check);
// Two rows for each commit, and one commit for each Step after an act's own.
void TakeSmallSteps(World& world);
// True if there is such an event.
bool Saw(const std::vector<SeenEvent>& events, Event::Kind kind, const Id& claim,
         EndCause cause = EndCause::kNone);
// Promise 3 of two leases of one slot; without fencing neither has a token.
bool Overtakes(const Guarantees& guarantees, const Lease& after, const Lease& before);
// The engine cannot do that, and says so under its name.
void CheckUnsupported(World& world, const Outcome& outcome);
// The claims of the events of this kind, in order.
std::vector<Id> ClaimsIn(const std::vector<SeenEvent>& events, Event::Kind kind);
// The waiters of a describe, in order.
std::vector<Id> WaitersIn(const SemaphoreInfo& info);

// What is answered after a restart about a claim that has ended: the cause where the adapter still
// knows it (with a history, on an exclusive engine), otherwise that it is unknown; never another
// one.
bool IsCause(const Guarantees& guarantees, EndCause told, EndCause cause);

}  // namespace semaphored::contract
