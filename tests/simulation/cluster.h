// The daemons of one simulation: three nodes, each with one process, or for a while with none or
// with two. A store that is one daemon's own has one node, and never two processes: the second one
// finds the file locked.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/simulation/daemon.h"

namespace semaphored::simulation {

inline constexpr int kNodes = 3;

class Cluster {
 public:
  Cluster(World* world, EngineHandle engine, Faults* faults, const Cell& cell, Mutant mutant,
          BranchCounter* branches);

  int nodes() const { return cell_.exclusive ? 1 : kNodes; }
  bool exclusive() const { return cell_.exclusive; }
  const ledger::Limits& limits() const { return limits_; }
  // Workers keep their sessions to the end: with as few sessions another client would never have one. They
  // offer themselves at each semaphore: with fewer waiters their offers where there is no ticket would keep
  // them from where there is one.
  static constexpr uint32_t kWorkersMax = 3;
  void MakeRoomForWorkers();
  int64_t client_retention_ms() const { return client_retention_ms_; }

  // One more process of the node; of one that lives already, too, if the engine is shared.
  void StartNode(int node);
  // A process of the node that a connection would reach; nullptr: it is refused.
  std::shared_ptr<Daemon> Reach(int node);
  const std::vector<std::shared_ptr<Daemon>>& daemons() const { return daemons_; }
  int64_t node_ttl_ms() const { return node_ttl_ms_; }
  // Starts a process on each node that has none.
  void Heal();
  bool HasLiving(int node) const;

 private:
  void Forget();

  World* world_;
  EngineHandle engine_;
  Faults* faults_;
  const Cell cell_;
  BranchCounter* branches_;
  ledger::Limits limits_;
  int64_t client_retention_ms_ = 3'600'000;
  uint32_t clients_max_ = 200'000;
  Mutant mutant_;
  int64_t node_ttl_ms_;
  int64_t sweep_interval_ms_;
  int started_ = 0;
  std::vector<std::shared_ptr<Daemon>> daemons_;  // Those alive, and some that are not.
};

}  // namespace semaphored::simulation
