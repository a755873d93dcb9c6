// N clients of Postgres without a daemon: each is a thread with a connection of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tests/bench/meter.h"
#include "tests/bench/postgres_connection.h"

namespace semaphored::bench {

// One client. Each call returns what went wrong; empty: nothing. Used by one thread.
class PostgresClient {
 public:
  virtual ~PostgresClient() = default;
  // Once, one client after the other, before anybody acquires.
  virtual std::string Open() = 0;
  virtual std::string Acquire() = 0;
  virtual std::string Release() = 0;
};

// Runs `options.clients` of them in closed loops, and fills the report with cycles and latencies.
void RunPostgresClients(const Options& options,
                        const std::function<std::unique_ptr<PostgresClient>(uint32_t)>& make,
                        Report* report);

}  // namespace semaphored::bench
