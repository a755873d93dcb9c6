// The daemons of one simulation: three nodes, each with one process, or for a while with none or
// with two.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/simulation/daemon.h"

namespace semaphored::simulation {

inline constexpr int kNodes = 3;

class Cluster {
 public:
  Cluster(World* world, EngineHandle engine, Faults* faults, Mutant mutant);

  // One more process of the node; of one that lives already, too.
  void StartNode(int node);
  // A process of the node that a connection would reach; nullptr: it is refused.
  std::shared_ptr<Daemon> Reach(int node);
  const std::vector<std::shared_ptr<Daemon>>& daemons() const { return daemons_; }
  int64_t node_ttl_ms() const { return node_ttl_ms_; }
  // Starts a process on each node that has none.
  void Heal();

 private:
  void Forget();

  World* world_;
  EngineHandle engine_;
  Faults* faults_;
  Mutant mutant_;
  int64_t node_ttl_ms_;
  int64_t sweep_interval_ms_;
  int started_ = 0;
  std::vector<std::shared_ptr<Daemon>> daemons_;  // Those alive, and some that are not.
};

}  // namespace semaphored::simulation
