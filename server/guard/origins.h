// What is known of the addresses from which clients come.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "server/base/clock.h"
#include "server/guard/client_frames.h"
#include "server/guard/origin.h"

namespace semaphored::guard {

// Used by one thread.
class Origins {
 public:
  // By then an allowance is full again, whatever was taken of it.
  static constexpr Milliseconds kKept{60'000};
  // More are kept only while they have connections, or until the next sweep.
  static constexpr size_t kMost = 10'000;
  // A sweep looks at all of them, so there is at most one in this time.
  static constexpr Milliseconds kBetweenSweeps{1'000};

  explicit Origins(const FrameBounds& bounds) : bounds_(bounds) {}

  // As Address::origin; kept for a while after its last use.
  std::shared_ptr<Origin> Of(const std::string& address, SteadyTime now);
  size_t size() const { return known_.size(); }

 private:
  struct Known {
    std::shared_ptr<Origin> origin;
    SteadyTime used;
  };
  void Sweep(SteadyTime now);

  const FrameBounds bounds_;
  absl::flat_hash_map<std::string, Known> known_;
  SteadyTime swept_at_{};
};

}  // namespace semaphored::guard
