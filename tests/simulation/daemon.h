// One simulated daemon: the real lane, sessions and membership over a MemoryStore, its three
// threads played by events.
//   reactor     everything of Sessions; one event at a time
//   lanes       a LaneCore and a MemoryStore each; a call to the engine takes time, in which the
//               reactor and the other lanes go on. Results of one lane arrive in order; those of
//               several lanes in any.
//   membership  Membership::Tick, likewise
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "adapters/ledger/rules/rules.h"
#include "server/lanes/lane.h"
#include "server/lanes/membership.h"
#include "server/sessions/sessions.h"
#include "tests/simulation/cell.h"
#include "tests/simulation/faults.h"
#include "tests/simulation/memory_engine.h"
#include "tests/simulation/memory_store.h"
#include "tests/simulation/mutants.h"
#include "tests/simulation/ordered_adapter.h"
#include "tests/simulation/world.h"

namespace semaphored::simulation {

struct DaemonOptions {
  int node = 0;  // Its place in the cluster; the node id is "node-<n>".
  std::string name;
  int64_t clock_start_us = 0;
  double clock_speed = 1;
  int64_t node_ttl_ms = 3000;
  int64_t sweep_interval_ms = 2000;
  uint64_t request_window = 64;
  int64_t client_retention_ms = 3'600'000;
  uint32_t clients_max = 200'000;
  Cell cell;
  ledger::Limits limits;
  BranchCounter* branches = nullptr;  // May be null.
  Mutant mutant = Mutant::kNone;
};

class Daemon : public SessionsHost, public std::enable_shared_from_this<Daemon> {
 public:
  Daemon(World* world, EngineHandle engine, Faults* faults, DaemonOptions options);
  ~Daemon() override;

  // Joins, takes over what its earlier life left, then serves. Tries again while the engine is
  // away.
  void Start();
  // kill -9. What it had sent to the engine may still land.
  void Kill();
  void PauseUntil(int64_t time_us);

  bool alive() const { return !link_->dead; }
  bool serving() const { return alive() && serving_; }
  bool paused() const { return link_->paused(); }
  int64_t paused_until_us() const { return link_->paused_until_us; }
  int node() const { return options_.node; }
  const std::string& name() const { return options_.name; }
  EngineLink& link() { return *link_; }
  Sessions& sessions() { return *sessions_; }
  const DriftingClock& own_clock() const { return clock_; }

  // Runs `work` on the reactor, now or when it wakes; never, once it is dead.
  void Post(std::function<void()> work);
  // A client receives that the semaphore is damaged: throws if it is not, nor was a moment ago.
  void CheckDamaged(const std::string& semaphore) const;
  // Called when it dies.
  void AddDeathListener(std::function<void()> listener) {
    on_death_.push_back(std::move(listener));
  }

  // ---- SessionsHost ----
  const Clock& clock() const override { return clock_; }
  size_t lane_count() const override { return lanes_.size(); }
  const Guarantees& guarantees() const override { return lanes_.front()->core->guarantees(); }
  void Submit(size_t lane, Job job) override;
  std::shared_ptr<WatchedNames> watched() override { return watched_; }
  SteadyTime vouch_until() const override;
  Id NewId() override { return world_->random().NewId(); }

 private:
  // What server/lanes' Lane is to a daemon.
  struct SimulatedLane {
    std::unique_ptr<LaneCore> core;
    std::vector<Job> jobs;
    bool busy = false;
    int64_t at_us = 0;         // World time of its next event; 0: none.
    int64_t delivered_us = 0;  // World time at which its last results arrive.
    SteadyTime told{};         // LaneCore::fresh_at of what Sessions has heard all of.
    int untold = 0;            // Results on their way.
  };

  const std::shared_ptr<WatchedNames> watched_ = WatchedNames::Make();

  bool TryStart();
  bool AddLanes(const NodeRef& self);
  // Until it succeeds; then calls `done`, which may be empty.
  void TakeOver(std::vector<NodeRef> dead, std::function<void()> done);
  void LaneAfter(size_t number, int64_t delay_us);
  void RunLane(size_t number);
  // Hands the results to Sessions, now or later.
  void Deliver(size_t number, LaneResults results);
  int64_t IdleUs() const;
  SteadyTime progress_at() const;
  void RunMembership();
  void AfterReactor();
  void LookAtVouching();
  void Exit(const absl::Status& why);

  World* world_;
  EngineHandle engine_;
  Faults* faults_;
  DaemonOptions options_;
  DriftingClock clock_;
  std::shared_ptr<EngineLink> link_;
  std::unique_ptr<NodeStore> nodes_;
  std::unique_ptr<Membership> membership_;
  std::vector<std::unique_ptr<SimulatedLane>> lanes_;
  std::unique_ptr<Sessions> sessions_;
  bool serving_ = false;
  std::vector<std::function<void()>> on_death_;
  bool vouched_ = false;
  int64_t timer_at_us_ = 0;  // World time of the reactor's next timer event; 0: none.
};

}  // namespace semaphored::simulation
