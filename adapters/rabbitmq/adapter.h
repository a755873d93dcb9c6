// The adapter for RabbitMQ: the ledger's rules decide among the claims of this daemon, and the broker
// decides which daemon has a permit. Claims, sessions and requests are kept in memory, for as long as
// the daemon lives; an act is one commit, as no intentions are written.
#pragma once

#include <memory>

#include "adapters/adapter.h"
#include "adapters/ledger/options.h"
#include "adapters/rabbitmq/permit_store.h"

namespace semaphored::rabbitmq {

std::unique_ptr<Adapter> MakeAdapter(std::unique_ptr<PermitStore> store,
                                     ledger::LedgerOptions options);

}  // namespace semaphored::rabbitmq
