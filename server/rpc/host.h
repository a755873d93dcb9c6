// The rest of the daemon as Sessions needs it: the clock, the lanes, and the time until which the daemon may vouch.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "adapters/adapter.h"
#include "adapters/common/upkeep.h"
#include "adapters/ledger/limit_use.h"
#include "server/lanes/lane.h"
#include "server/rpc/reactor.h"
#include "server/sessions/sessions.h"

namespace semaphored {

// On the reactor's thread, but for what says otherwise.
class Host final : public SessionsHost {
 public:
  struct Options {
    Guarantees guarantees;
    std::shared_ptr<const Upkeep> upkeep = nullptr;  // The engine's. Null: there is none.
    // Any thread's: asked on the reactor's.
    std::function<SteadyTime()> vouch_until;
    // For how long a lane's knowledge is good enough to vouch: node TTL less the margin.
    Milliseconds lane_vouch{9000};
    // Membership::NameOf. Empty: nodes are shown by their numbers.
    std::function<std::string(const NodeRef&)> node_name;
    // The engine has declared this node dead, or another process has taken its place. On the
    // reactor's thread.
    std::function<void(absl::Status)> on_fatal;
    LaneOptions lane;  // `lanes`: as many as are added. AddLane fills in the number.
  };

  // The reactor outlives it. It hands its jobs on at the end of each of the reactor's turns.
  Host(Reactor* reactor, Options options);
  ~Host() override;

  // Before the reactor runs. At most guarantees.lanes_max.
  // `use`: where the adapter shows how much of its limits is in use; null: nowhere.
  void AddLane(std::unique_ptr<Adapter> adapter,
               std::shared_ptr<const ledger::LimitUse> use = nullptr);
  void SetSessions(Sessions* sessions) { sessions_ = sessions; }

  // Carries out what was submitted and ends the lanes' threads; blocks. After Reactor::Run() has
  // returned, so no client receives what the last batches bring.
  void StopLanes();

  // Jobs that were submitted and have no result yet.
  size_t jobs_under_way() const { return jobs_under_way_; }

  // The time of the last good Step of the lane that is furthest behind. Any thread.
  SteadyTime progress_at() const;
  // The time at which the lane that is furthest behind came back from the engine, whatever came of
  // it. Any thread.
  SteadyTime turned_at() const;

  // The node id of the node, as people gave it.
  std::string NodeName(const NodeRef& node) const;

  // Any thread, once the lanes have been added.
  EngineFigures engine_figures() const;
  // Of the engine's upkeep. Any thread.
  UpkeepFigures upkeep_figures() const;
  // Of the lane that has most of each in use. Any thread, once the lanes have been added.
  ledger::LimitUse::Figures LimitOf(ledger::StandingLimit limit) const;

  const Clock& clock() const override { return reactor_->clock(); }
  size_t lane_count() const override { return lanes_.size(); }
  const Guarantees& guarantees() const override { return options_.guarantees; }
  void Submit(size_t lane, Job job) override;
  SteadyTime vouch_until() const override;
  Id NewId() override;
  std::shared_ptr<WatchedNames> watched() override { return watched_; }

 private:
  void HandOn();
  void OnResults(size_t lane, LaneResults results);

  Reactor* reactor_;
  Options options_;
  Sessions* sessions_ = nullptr;
  const std::shared_ptr<WatchedNames> watched_ = WatchedNames::Make();
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<std::shared_ptr<const ledger::LimitUse>> uses_;
  std::vector<std::vector<Job>> collected_;  // By lane: what this turn submitted.
  size_t jobs_under_way_ = 0;
  // Of the lanes' results, in the reactor.
  ShortWait short_wait_;
  SteadyTime handed_on_at_{};
  std::vector<Id> random_ids_;
};

}  // namespace semaphored
