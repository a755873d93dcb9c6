// What the command line of the load generator says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace semaphored::bench {

struct Options {
  std::string mode;
  // For hand-off: the daemons, with commas between them. For postgres-*, rabbitmq-*: the URL of
  // the server.
  std::string server = "127.0.0.1:7420";
  // Cycles outstanding at any time.
  uint32_t clients = 64;
  // Semaphores that the clients share; 0: each client has its own.
  uint32_t semaphores = 0;
  uint32_t limit = 1;
  // Streams (session, leases) or connections (unary, redis) that carry the clients.
  uint32_t streams = 1;
  double duration_s = 5;
  double warmup_s = 1;
  // "session" or "unary", for contended and leases.
  std::string via = "session";
  // For the peers: all clients on one lock.
  bool contended = false;
  uint32_t leases = 100000;
  // For postgres-bare: connections, and operations in each of their commits.
  uint32_t lanes = 4;
  uint32_t batch = 64;
  // For hand-off: how long each holds the permit.
  double hold_ms = 0;
  bool laps = false;
  std::vector<uint32_t> lengths = {100, 1000, 10000, 100000};
  int64_t ttl_ms = 30000;
  // The daemon's process, to report its memory, CPU and writes; 0: unknown.
  int daemon_pid = 0;
  // For rabbitmq-*: the kind of the queue, tokens in it (0: one for each client), and threads that
  // drive the connections.
  std::string queue_type = "quorum";
  uint32_t tokens = 0;
  uint32_t threads = 1;
  bool json = false;
  // For tickets: the workers work for the prefix of all semaphores; else each for its own, by name.
  bool by_prefix = false;
};

// Reads the command line. Returns false when the program has to end at once with `*exit_code`
// (help was asked for, or the line is wrong; either was printed).
bool ParseOptions(int argc, char** argv, Options* options, int* exit_code);

}  // namespace semaphored::bench
