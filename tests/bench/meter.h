// When a run measures, and what it counts. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>

#include "tests/bench/histogram.h"
#include "tests/bench/options.h"
#include "tests/bench/report.h"

namespace semaphored::bench {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

inline int64_t NanosBetween(TimePoint from, TimePoint to) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count();
}

inline Clock::duration Seconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// Counts cycles that end inside the measured window: after the warm-up, for the duration.
class Meter {
 public:
  explicit Meter(const Options& options) : options_(options) { Begin(Clock::now()); }

  // Starts the warm-up (anew).
  void Begin(TimePoint now) {
    from_ = now + Seconds(options_.warmup_s);
    until_ = from_ + Seconds(options_.duration_s);
  }

  bool Measures(TimePoint now) const { return now >= from_ && now < until_; }
  // No new cycle begins once this is true.
  bool Over(TimePoint now) const { return now >= until_; }
  TimePoint from() const { return from_; }
  TimePoint until() const { return until_; }

  void Acquired(TimePoint sent, TimePoint now) {
    if (handing_over_ && Measures(now)) hand_off_.Record(NanosBetween(release_sent_, now));
    handing_over_ = false;
    if (Measures(now)) wait_.Record(NanosBetween(sent, now));
  }

  void ReleaseSent(TimePoint now) {
    release_sent_ = now;
    handing_over_ = true;
  }

  void CycleDone(TimePoint acquire_sent, TimePoint now) {
    if (Measures(now)) cycle_.Record(NanosBetween(acquire_sent, now));
  }

  // `one_permit`: all clients stood for one permit, so that each grant is a hand-off from the
  // release that was sent before it.
  void Fill(bool one_permit, Report* report) const {
    const double seconds = options_.duration_s;
    report->Figure("clients", options_.clients);
    report->Figure("duration_s", seconds);
    report->Figure("cycles_per_s", static_cast<double>(cycle_.count()) / seconds);
    if (one_permit) {
      report->Figure("hand_offs_per_s", static_cast<double>(wait_.count()) / seconds);
      report->Latency("hand_off", hand_off_);
      report->Latency("wait", wait_);
    } else {
      report->Latency("acquire", wait_);
    }
    report->Latency("cycle", cycle_);
  }

 private:
  Options options_;
  TimePoint from_;
  TimePoint until_;
  TimePoint release_sent_;
  bool handing_over_ = false;
  Histogram wait_;
  Histogram hand_off_;
  Histogram cycle_;
};

}  // namespace semaphored::bench
