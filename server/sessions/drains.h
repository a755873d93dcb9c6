// The administrative calls that wait until a semaphore holds few enough permits, or is gone.
// Single-threaded (the reactor's).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "adapters/watched_names.h"
#include "server/sessions/sessions.h"

namespace semaphored {

class Drains {
 public:
  struct Drain {
    std::string semaphore;
    // It is done when the semaphore holds at most this, or is gone; …
    uint32_t held_max = 0;
    bool until_destroyed = false;  // … only when it is gone.
    SteadyTime until;
    Reply<AdminAnswer> reply;
    uint32_t affected = 0;
    // Of the semaphore. It began before the command whose effect is waited for, so that no change is
    // missed.
    WatchedNames::Watch watch;

    bool IsDoneAt(uint32_t held) const { return !until_destroyed && held <= held_max; }
  };

  void Add(const Id& id, Drain drain);
  bool Contains(const Id& id) const { return drains_.contains(id); }
  // Removes it. Nothing: there is none, or no longer.
  std::optional<Drain> Take(const Id& id);
  // Removes those for which the change is what they wait for.
  std::vector<Drain> TakeDone(const SemaphoreChange& change);
  std::vector<Drain> TakeAll();

 private:
  absl::flat_hash_map<Id, Drain> drains_;
  absl::flat_hash_map<std::string, absl::btree_set<Id>> by_semaphore_;
};

}  // namespace semaphored
