// What a grant costs with a long queue behind it: for each length, all clients stand for one
// permit; whoever gets it gives it back at once and queues again at the end, so that the queue
// keeps its length.
#include "tests/bench/modes.h"
#include "tests/bench/process_stats.h"
#include "tests/bench/session_cycles.h"

namespace semaphored::bench {
namespace {

void RunLength(const Options& options, uint32_t length, Report* report) {
  Options mine = options;
  mine.clients = length + 1;
  Meter meter(mine);
  Report found;
  CyclesPlan plan;
  plan.server = options.server;
  plan.run = RunName();
  plan.streams = options.streams;
  plan.ttl_ms = options.ttl_ms;
  plan.gate = true;
  plan.semaphores.assign(mine.clients, plan.run + "/one");
  auto loop = std::make_unique<Loop>();
  SessionCycles cycles(plan, loop.get(), &meter, &found);
  ProcessStats before;
  ProcessStats after;
  cycles.on_measure_begin = [&] { before = ReadProcessStats(options.daemon_pid); };
  cycles.on_measure_end = [&] { after = ReadProcessStats(options.daemon_pid); };
  cycles.Run(/*drain=*/false);
  loop.reset();
  Report measured;
  meter.Fill(/*one_permit=*/true, &measured);
  const std::string prefix = "queue_" + std::to_string(length);
  double grants = 0;
  for (const auto& [name, value] : measured.figures) {
    if (name == "hand_offs_per_s") grants = value * options.duration_s;
  }
  report->Figure(prefix + "_grants_per_s", grants / options.duration_s);
  if (options.daemon_pid != 0 && grants > 0) {
    report->Figure(prefix + "_daemon_us_per_grant", (after.cpu_s - before.cpu_s) * 1e6 / grants);
    report->Figure(prefix + "_resident_mib",
                   static_cast<double>(after.resident_bytes) / (1024.0 * 1024.0));
  }
  for (const auto& [name, histogram] : measured.latencies) {
    if (name == "hand_off") report->Latency(prefix, histogram);
  }
  if (grants == 0) report->Error("nothing was granted at queue length " + std::to_string(length));
  for (uint64_t i = 0; i < found.errors; ++i) report->Error(found.first_error);
}

}  // namespace

Report RunWaiters(const Options& options) {
  Report report;
  report.title = "waiters";
  for (const uint32_t length : options.lengths) RunLength(options, length, &report);
  return report;
}

}  // namespace semaphored::bench
