// The tickets of long queues as they were read last, so that only what has changed since is read
// again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "adapters/types.h"

namespace semaphored::postgres {

class TicketCache {
 public:
  // Shorter queues are read as a whole each time. So many looks without use, and one is forgotten.
  explicit TicketCache(size_t tickets_min = 64, uint64_t idle_max = 12)
      : tickets_min_(tickets_min), idle_max_(idle_max) {}

  // The semaphore's revision at which its tickets are known; 0: they are not.
  uint64_t Known(const std::string& semaphore) const;

  // What was read at `revision`: the tickets that have changed since Known(), and the places of all
  // that there are; without places, `changed` is all. Returns all. nullopt: it does not fit what is
  // known, which is forgotten: all is to be read.
  std::optional<std::vector<TicketPtr>> Update(const std::string& semaphore, uint64_t revision,
                                               std::vector<TicketPtr> changed,
                                               const std::optional<std::vector<int64_t>>& places);

  void Forget(const std::string& semaphore) { semaphores_.erase(semaphore); }
  void Clear() { semaphores_.clear(); }
  // To be called now and then.
  void Age();

 private:
  struct Queue {
    uint64_t revision = 0;
    uint64_t used_at = 0;
    absl::flat_hash_map<uint64_t, TicketPtr> tickets;  // By their places.
  };

  const size_t tickets_min_;
  const uint64_t idle_max_;
  uint64_t age_ = 0;
  absl::flat_hash_map<std::string, Queue> semaphores_;
};

}  // namespace semaphored::postgres
