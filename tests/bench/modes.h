// The modes of the load generator. Each runs to its end on the calling thread and reports; whatever
// goes wrong is an error in the report.
#pragma once

#include "tests/bench/options.h"
#include "tests/bench/report.h"

namespace semaphored::bench {

Report RunUnary(const Options& options);
Report RunSession(const Options& options);
Report RunTickets(const Options& options);
Report RunHold(const Options& options);
Report RunLeases(const Options& options);
Report RunWaiters(const Options& options);
Report RunEtcd(const Options& options);
Report RunRedis(const Options& options);
Report RunHandOff(const Options& options);
Report RunPostgresRecipe(const Options& options);
Report RunPostgresAdvisory(const Options& options);
Report RunPostgresBare(const Options& options);
Report RunPostgresCommit(const Options& options);
Report RunConsulRecipe(const Options& options);
Report RunDynamoRaw(const Options& options);
Report RunRabbitRaw(const Options& options);
Report RunRabbitRawHandOff(const Options& options);

}  // namespace semaphored::bench
