#include "tests/bench/postgres_clients.h"

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace semaphored::bench {
namespace {

// What the clients share. They work in turn on the meter and the report.
struct Shared {
  std::mutex mutex;
  Meter meter;
  Report* report;
  std::atomic<bool> broken = false;
};

void RunClient(PostgresClient* client, Shared* shared) {
  while (!shared->broken && !shared->meter.Over(Clock::now())) {
    const TimePoint sent = Clock::now();
    std::string error = client->Acquire();
    const TimePoint acquired = Clock::now();
    if (error.empty()) error = client->Release();
    const TimePoint done = Clock::now();
    const std::lock_guard lock(shared->mutex);
    if (!error.empty()) {
      shared->report->Error(error);
      shared->broken = true;
      return;
    }
    shared->meter.Acquired(sent, acquired);
    shared->meter.CycleDone(sent, done);
  }
}

}  // namespace

void RunPostgresClients(const Options& options,
                        const std::function<std::unique_ptr<PostgresClient>(uint32_t)>& make,
                        Report* report) {
  std::vector<std::unique_ptr<PostgresClient>> clients;
  for (uint32_t i = 0; i < options.clients; ++i) {
    clients.push_back(make(i));
    if (const std::string error = clients.back()->Open(); !error.empty()) {
      report->Error(error);
      return;
    }
  }
  Shared shared{.mutex = {}, .meter = Meter(options), .report = report};
  shared.meter.Begin(Clock::now());
  {
    std::vector<std::jthread> threads;
    for (const auto& client : clients) threads.emplace_back(RunClient, client.get(), &shared);
  }
  shared.meter.Fill(/*one_permit=*/false, report);
}

}  // namespace semaphored::bench
