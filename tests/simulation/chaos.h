// What goes wrong, when: daemons killed, started again, paused, doubled, cut off; the engine gone;
// clients paused, cut off and crashing; records damaged and mended; grants withheld. Each seed chooses how much of each.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/simulation/actor.h"
#include "tests/simulation/cluster.h"

namespace semaphored::simulation {

class Chaos {
 public:
  Chaos(World* world, Faults* faults, Network* network, Cluster* cluster, MemoryEngine* engine,
        int semaphores, std::vector<std::shared_ptr<Actor>> actors)
      : world_(world),
        faults_(faults),
        network_(network),
        cluster_(cluster),
        engine_(engine),
        semaphores_(semaphores),
        actors_(std::move(actors)) {}

  void Start();
  // Ends all faults, and begins no more.
  void Heal();

 private:
  void Strike();
  void MissUntil(int node, int64_t time_us);
  void StrikeDaemon(uint64_t choice);
  void StrikeEngine();
  void StrikeClient();
  // A semaphore's record is damaged for a while: it cannot be read, or not be written.
  void Damage();
  void Mend(const std::string& name);
  // The engine has failed over, and may have lost what was granted last.
  void Withhold();
  // Something between a moment and much longer than any TTL.
  int64_t SomeTimeUs();

  World* world_;
  Faults* faults_;
  Network* network_;
  Cluster* cluster_;
  MemoryEngine* engine_;
  const int semaphores_;
  std::vector<std::shared_ptr<Actor>> actors_;
  bool healed_ = false;
  int64_t mean_interval_ms_ = 2000;
};

}  // namespace semaphored::simulation
