// What goes wrong, when: daemons killed, started again, paused, doubled, cut off; the engine gone;
// clients paused, cut off and crashing. How much of each is chosen anew for each seed.
#pragma once

#include <memory>
#include <vector>

#include "tests/simulation/actor.h"
#include "tests/simulation/cluster.h"

namespace semaphored::simulation {

class Chaos {
 public:
  Chaos(World* world, Faults* faults, Network* network, Cluster* cluster,
        std::vector<std::shared_ptr<Actor>> actors)
      : world_(world),
        faults_(faults),
        network_(network),
        cluster_(cluster),
        actors_(std::move(actors)) {}

  void Start();
  // Ends all faults, and begins no more.
  void Heal();

 private:
  void Strike();
  void StrikeDaemon(uint64_t choice);
  void StrikeEngine();
  void StrikeClient();
  // Something between a moment and much longer than any TTL.
  int64_t SomeTimeUs();

  World* world_;
  Faults* faults_;
  Network* network_;
  Cluster* cluster_;
  std::vector<std::shared_ptr<Actor>> actors_;
  bool healed_ = false;
  int64_t mean_interval_ms_ = 2000;
};

}  // namespace semaphored::simulation
