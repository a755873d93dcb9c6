// Which names of semaphores are watched, and by which watches. A daemon has one: Sessions says what is
// watched, and the lanes ask it before they put together what has changed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"

namespace semaphored {

// Thread-safe; no call blocks for longer than another one takes. What a call costs depends on the watches
// that match, not on the others.
class WatchedNames : public std::enable_shared_from_this<WatchedNames> {
 public:
  // A watch, as long as it lives. Movable; keeps the WatchedNames alive.
  class Watch {
   public:
    Watch() = default;
    Watch(Watch&& other) noexcept
        : names_(std::move(other.names_)), id_(std::exchange(other.id_, 0)) {}
    Watch& operator=(Watch&& other) noexcept;
    ~Watch();
    // Unique among all watches of the WatchedNames, and higher than those of earlier ones. 0: none.
    uint64_t id() const { return id_; }

   private:
    friend class WatchedNames;
    Watch(std::shared_ptr<WatchedNames> names, uint64_t id) : names_(std::move(names)), id_(id) {}

    std::shared_ptr<WatchedNames> names_;
    uint64_t id_ = 0;
  };

  static std::shared_ptr<WatchedNames> Make();

  // Exactly `name` if it is not empty, else all names that begin with `prefix`.
  Watch Add(std::string prefix, std::string name);
  // True: a watch matches the name.
  bool Matches(std::string_view name) const;
  // The ids of the watches that match, in rising order.
  std::vector<uint64_t> MatchesOf(std::string_view name) const;

 private:
  using Index = absl::flat_hash_map<std::string, absl::btree_set<uint64_t>>;
  struct Entry {
    bool whole = false;  // `text` is a name, else a prefix.
    std::string text;
  };

  void Remove(uint64_t id);
  // Calls `found` with the watches of the name, and with those of each prefix of it; until it returns true.
  template <typename Found>
  void Look(std::string_view name, Found found) const;

  mutable std::shared_mutex mutex_;
  uint64_t last_id_ = 0;                          // This and the rest: guarded by mutex_.
  absl::flat_hash_map<uint64_t, Entry> entries_;  // By id.
  Index by_name_;
  Index by_prefix_;
  absl::btree_map<size_t, size_t> prefixes_by_size_;  // How many prefixes have this size.
  std::atomic<size_t> count_ = 0;                     // Of entries_, for a look without the mutex.
};

}  // namespace semaphored
