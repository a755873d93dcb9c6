// How many permits of each semaphore were held, and how many requests waited, over the last hour: what the page draws.
//
// A sample is written only when it differs from the last one. Memory has a bound: kSemaphoresMax semaphores of
// kSamplesMax samples of 16 bytes (2,000 x 362 x 16 B = 11.6 MB), and the last sample of every listed semaphore. At the
// bound a semaphore that has changed takes the entry of the one that has not changed for the longest time, if that is
// ten minutes or more; else its past is not recorded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace semaphored::page {

// Used by one thread.
class History {
 public:
  static constexpr int64_t kTickMs = 10'000;
  static constexpr uint32_t kTicks = 360;  // An hour.
  static constexpr size_t kSamplesMax = kTicks + 2;
  static constexpr size_t kSemaphoresMax = 2'000;
  static constexpr uint32_t kIdleTicks = 60;

  // How it stood from `tick` on, until the next one.
  struct Sample {
    uint32_t tick = 0;
    uint32_t held = 0;
    uint32_t waiting = 0;
    uint32_t limit = 0;
    bool SameAs(const Sample& other) const {
      return held == other.held && waiting == other.waiting && limit == other.limit;
    }
  };

  explicit History(size_t semaphores_max = kSemaphoresMax) : semaphores_max_(semaphores_max) {}

  // A list of all semaphores: one Begin, Add for each of them, one End. `tick` never falls.
  void Begin(uint32_t tick);
  void Add(const std::string& name, Sample now);
  // Those that were not added are forgotten.
  void End();

  // Of the last hour, the oldest first, with the last one before it: what stood at its beginning. Empty: there is no
  // such semaphore.
  std::vector<Sample> Of(const std::string& name) const;
  size_t recorded() const { return recorded_.size(); }

 private:
  struct Last {
    Sample sample;
    uint32_t list = 0;  // The last one that had it.
  };
  // Null: there is no room.
  std::deque<Sample>* Record(const std::string& name);

  const size_t semaphores_max_;
  uint32_t tick_ = 0;
  uint32_t list_ = 0;
  absl::flat_hash_map<std::string, Last> last_;                    // Of each semaphore.
  absl::flat_hash_map<std::string, std::deque<Sample>> recorded_;  // Of those that have changed.
};

}  // namespace semaphored::page
