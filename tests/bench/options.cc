#include "tests/bench/options.h"

#include <CLI/CLI.hpp>

namespace semaphored::bench {
namespace {

constexpr const char* kModes =
    "unary      N outstanding Acquire and Release calls\n"
    "session    N outstanding cycles over Session streams\n"
    "tickets    N tickets on their way: enqueued, carried out on --streams Work streams, done\n"
    "hold       N Hold streams opened, granted, released\n"
    "contended  N clients for one semaphore of limit 1 (--via unary|session)\n"
    "leases     opens --leases leases, keeps them alive for --duration, verifies each\n"
    "waiters    cost of a grant at each of the queue --lengths\n"
    "etcd       the same cycles with etcd's lock API (--contended: all on one lock)\n"
    "redis      the same cycles with a Lua script on a sorted set\n"
    "hand-off   one permit round N sessions at --server A,B in turn\n"
    "postgres-recipe    the same cycles with the recipe's rows, a connection for each client\n"
    "postgres-advisory  the same cycles with advisory locks, which keep nothing on disk\n"
    "postgres-bare      the daemon's statements without a daemon, --batch operations a commit\n"
    "postgres-commit    one UPDATE after the other\n"
    "consul-recipe      the same cycles with the recipe's sessions and record, a connection for "
    "each\n"
    "                   client (--contended: all for one permit)\n"
    "dynamodb-raw       conditional transactions of as many items, a connection for each client\n"
    "rabbitmq-raw           the same cycles with the tokens of one queue, a connection for each\n"
    "rabbitmq-raw-hand-off  one token round N consumers";

}  // namespace

bool ParseOptions(int argc, char** argv, Options* options, int* exit_code) {
  CLI::App app{"A closed-loop load generator for semaphored and its peers.\nModes:\n" +
               std::string(kModes)};
  // A default in a script can be overruled behind it.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  std::string output = "text";
  app.add_option("mode", options->mode, "What to run")
      ->required()
      ->check(CLI::IsMember(
          {"unary", "session", "tickets", "hold", "contended", "leases", "waiters", "etcd", "redis",
           "hand-off", "postgres-recipe", "postgres-advisory", "postgres-bare", "postgres-commit",
           "consul-recipe", "dynamodb-raw", "rabbitmq-raw", "rabbitmq-raw-hand-off"}));
  app.add_option(
      "--server", options->server,
      "HOST:PORT of the daemon or the peer; for postgres-*, dynamodb-*, rabbitmq-*: its URL");
  app.add_option("--clients", options->clients, "Cycles outstanding")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--semaphores", options->semaphores,
                 "Semaphores shared by the clients; 0: one for each client");
  app.add_option("--limit", options->limit, "Limit of each semaphore")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--streams", options->streams, "Streams or connections that carry the clients")
      ->check(CLI::Range(1, 10000));
  app.add_option("--duration", options->duration_s, "Seconds measured")
      ->check(CLI::Range(0.1, 86400.0));
  app.add_option("--warmup", options->warmup_s, "Seconds run before, not measured")
      ->check(CLI::Range(0.0, 3600.0));
  app.add_option("--via", options->via, "For contended and leases")
      ->check(CLI::IsMember({"unary", "session"}));
  app.add_flag("--contended", options->contended, "For etcd and consul-recipe: all clients on one");
  app.add_flag("--by-prefix", options->by_prefix,
               "For tickets: each worker works for all semaphores, by prefix");
  app.add_option("--leases", options->leases, "For leases")->check(CLI::Range(1, 10000000));
  app.add_option("--lanes", options->lanes, "For postgres-bare: connections")
      ->check(CLI::Range(1, 64));
  app.add_option("--batch", options->batch, "For postgres-bare: operations in a commit")
      ->check(CLI::Range(2, 10000));
  app.add_option("--hold-ms", options->hold_ms, "For hand-off: how long each holds the permit")
      ->check(CLI::Range(0.0, 10000.0));
  app.add_flag("--laps", options->laps,
               "For hand-off: nobody comes back before all have had their turn");
  app.add_option("--queue-type", options->queue_type, "For rabbitmq-*")
      ->check(CLI::IsMember({"quorum", "classic"}));
  app.add_option("--tokens", options->tokens, "For rabbitmq-raw; 0: one for each client")
      ->check(CLI::Range(0, 1000000));
  app.add_option("--threads", options->threads,
                 "For rabbitmq-*: threads that drive the connections")
      ->check(CLI::Range(1, 10000));
  app.add_option("--lengths", options->lengths, "For waiters")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  app.add_option("--ttl-ms", options->ttl_ms, "TTL of leases and sessions")
      ->check(CLI::Range(1000, 86400000));
  app.add_option("--daemon-pid", options->daemon_pid,
                 "Report this process's memory, CPU and writes");
  app.add_option("-o,--output", output, "text or json")->check(CLI::IsMember({"text", "json"}));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    *exit_code = app.exit(error);
    return false;
  }
  options->json = output == "json";
  return true;
}

}  // namespace semaphored::bench
