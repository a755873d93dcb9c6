// Many leases kept alive for a while: what the modes of `leases` share.
#pragma once

#include <algorithm>
#include <string>

#include "tests/bench/meter.h"
#include "tests/bench/process_stats.h"

namespace semaphored::bench {

struct LeasesPlan {
  explicit LeasesPlan(const Options& options, std::string run_name)
      : run(std::move(run_name)),
        leases(options.leases),
        semaphores(std::min(options.semaphores == 0 ? 100 : options.semaphores, options.leases)),
        limit((leases + semaphores - 1) / semaphores) {}

  std::string SemaphoreOf(uint32_t lease) const {
    return run + "/" + std::to_string(lease % semaphores);
  }

  std::string run;
  uint32_t leases;
  uint32_t semaphores;
  uint32_t limit;
};

// Puts what the daemon's process did into a report. Does nothing when its pid is not known.
class DaemonWatch {
 public:
  explicit DaemonWatch(const Options& options)
      : options_(options), start_(ReadProcessStats(options.daemon_pid)) {}

  void Opened(TimePoint begun, Report* report) {
    opened_ = ReadProcessStats(options_.daemon_pid);
    report->Figure("leases", options_.leases);
    report->Figure("opened_per_s",
                   options_.leases * 1e9 / static_cast<double>(NanosBetween(begun, Clock::now())));
    if (options_.daemon_pid == 0) return;
    const double grown =
        static_cast<double>(opened_.resident_bytes) - static_cast<double>(start_.resident_bytes);
    report->Figure("resident_bytes_per_lease", grown / options_.leases);
  }

  void Held(Report* report) const {
    if (options_.daemon_pid == 0) return;
    const ProcessStats held = ReadProcessStats(options_.daemon_pid);
    report->Figure("held_cpu_percent", (held.cpu_s - opened_.cpu_s) * 100.0 / options_.duration_s);
    report->Figure("held_disk_bytes_per_s",
                   static_cast<double>(held.disk_written_bytes - opened_.disk_written_bytes) /
                       options_.duration_s);
  }

 private:
  Options options_;
  ProcessStats start_;
  ProcessStats opened_;
};

Report RunSessionLeases(const Options& options);
Report RunDetachedLeases(const Options& options);

}  // namespace semaphored::bench
