// The streams that watch semaphores. Single-threaded (the reactor's).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "adapters/watched_names.h"
#include "server/sessions/sessions.h"

namespace semaphored {

class Watches {
 public:
  // `names`: what the lanes ask.
  explicit Watches(std::shared_ptr<WatchedNames> names) : names_(std::move(names)) {}

  // Exactly `name` if it is not empty, else all that begin with `prefix`. The watch's id, which no other
  // watch has, even one with the same listener. Until Remove, the listener must stay.
  uint64_t Add(std::string prefix, std::string name, WatchListener* listener);
  // Without effect if there is none.
  void Remove(uint64_t id) { watches_.erase(id); }
  // Null: there is no such watch, or no longer.
  WatchListener* Find(uint64_t id) const;
  // What lists the next slice of a watch's snapshot. `name`: the one that it watches, if it watches one.
  struct Snapshot {
    ListCommand next;
    std::string name;
  };
  // Null as for Find.
  Snapshot* FindSnapshot(uint64_t id);
  // Tells the watches that match, the oldest first. A listener may add and remove watches meanwhile.
  void Tell(const SemaphoreChange& change) const;
  // Removes all; their listeners, the oldest watch's first.
  std::vector<WatchListener*> TakeAll();

 private:
  struct Entry {
    WatchedNames::Watch watch;
    WatchListener* listener = nullptr;
    Snapshot snapshot;
  };

  std::shared_ptr<WatchedNames> names_;
  absl::flat_hash_map<uint64_t, Entry> watches_;
};

}  // namespace semaphored
