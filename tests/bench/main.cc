// semaphored_bench: a closed-loop load generator. Exit code 0 only if there was no error.
#include <cstdio>

#include "tests/bench/modes.h"

namespace semaphored::bench {
namespace {

Report Run(Options options) {
  if (options.mode == "contended") {
    options.semaphores = 1;
    options.limit = 1;
    return options.via == "unary" ? RunUnary(options) : RunSession(options);
  }
  if (options.mode == "unary") return RunUnary(options);
  if (options.mode == "session") return RunSession(options);
  if (options.mode == "tickets") return RunTickets(options);
  if (options.mode == "hold") return RunHold(options);
  if (options.mode == "leases") return RunLeases(options);
  if (options.mode == "waiters") return RunWaiters(options);
  if (options.mode == "etcd") return RunEtcd(options);
  if (options.mode == "redis") return RunRedis(options);
  if (options.mode == "hand-off") return RunHandOff(options);
  if (options.mode == "postgres-recipe") return RunPostgresRecipe(options);
  if (options.mode == "postgres-advisory") return RunPostgresAdvisory(options);
  if (options.mode == "postgres-bare") return RunPostgresBare(options);
  if (options.mode == "consul-recipe") return RunConsulRecipe(options);
  if (options.mode == "dynamodb-raw") return RunDynamoRaw(options);
  if (options.mode == "rabbitmq-raw") return RunRabbitRaw(options);
  if (options.mode == "rabbitmq-raw-hand-off") return RunRabbitRawHandOff(options);
  return RunPostgresCommit(options);
}

}  // namespace
}  // namespace semaphored::bench

int main(int argc, char** argv) {
  using namespace semaphored::bench;
  Options options;
  int exit_code = 0;
  if (!ParseOptions(argc, argv, &options, &exit_code)) return exit_code;
  const Report report = Run(options);
  std::printf("%s\n", (options.json ? ToJson(report) : ToText(report)).c_str());
  return report.errors == 0 ? 0 : 1;
}
