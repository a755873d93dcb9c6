// Virtual time: what happens when. One thread; nothing sleeps. Times are microseconds since the
// start.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "server/base/clock.h"
#include "tests/simulation/random.h"

namespace semaphored::simulation {

inline constexpr int64_t kMillisecond = 1000;
inline constexpr int64_t kSecond = 1000 * kMillisecond;

// Thrown by a check that found a broken promise. It leaves the simulation at once, also through the
// code under test, which may then be in any state: the world is thrown away with it.
struct Violation {
  std::string what;
};

class World {
 public:
  // `tracing`: keeps the last events as text.
  World(uint64_t seed, bool tracing) : random_(seed), tracing_(tracing) {}

  int64_t now() const { return now_us_; }
  Random& random() { return random_; }

  // Runs `event` at `time_us`, or now if that has passed. Events of one time run in the order of
  // these calls.
  void At(int64_t time_us, std::function<void()> event);
  void After(int64_t delay_us, std::function<void()> event) {
    At(now_us_ + delay_us, std::move(event));
  }

  // Runs all events up to `time_us`, and leaves the clock there. May be called from within an
  // event: then this event is one that takes time, and the others happen meanwhile.
  void RunUntil(int64_t time_us);
  // How many RunUntil are under way inside each other.
  int depth() const { return depth_; }
  uint64_t events_run() const { return events_run_; }

  // Called after each event.
  void set_after_event(std::function<void()> hook) { after_event_ = std::move(hook); }

  bool tracing() const { return tracing_; }
  void Trace(std::string line);
  // The last events, oldest first, one a line.
  std::string trace() const;
  // Depends on all that was traced or done: two runs of a seed have the same one.
  uint64_t digest() const { return digest_; }
  void Digest(uint64_t number) { digest_ = (digest_ ^ number) * 0x100000001b3ull; }

 private:
  Random random_;
  bool tracing_;
  int64_t now_us_ = 0;
  uint64_t next_ = 0;
  int depth_ = 0;
  uint64_t events_run_ = 0;
  uint64_t digest_ = 0xcbf29ce484222325ull;
  std::map<std::pair<int64_t, uint64_t>, std::function<void()>> events_;
  std::function<void()> after_event_;
  std::deque<std::string> trace_;
};

// The steady clock of one process or client: it starts anywhere and runs a little fast or slow.
class DriftingClock : public Clock {
 public:
  DriftingClock(const World* world, int64_t start_us, double speed)
      : world_(world), start_us_(start_us), speed_(speed) {}

  SteadyTime Now() const override { return SteadyTime(std::chrono::microseconds(NowUs())); }
  int64_t NowUnixMs() const override { return 1'700'000'000'000 + world_->now() / kMillisecond; }

  int64_t NowUs() const {
    return start_us_ + static_cast<int64_t>(static_cast<double>(world_->now()) * speed_);
  }
  // The world's time at which this clock shows `time`, or a little after.
  int64_t WorldTimeOf(SteadyTime time) const;

 private:
  const World* world_;
  int64_t start_us_;
  double speed_;
};

}  // namespace semaphored::simulation
