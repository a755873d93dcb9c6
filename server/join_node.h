// Takes the daemon's node id among those on its engine.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "adapters/open.h"
#include "server/base/clock.h"
#include "server/base/service_manager.h"
#include "server/base/signals.h"
#include "server/config/config.h"
#include "server/lanes/node_lock.h"

namespace semaphored {

// `address`: at which this daemon listens. `lock` is held while the daemon may write to the engine.
// Blocks, and logs what it waits for. Errors: those of JoinWithCare; CANCELLED: a signal came.
absl::StatusOr<NodeRef> JoinNode(const ConfigSources& sources, const Config& config,
                                 const std::string& address, const Clock& clock, Engine* engine,
                                 NodeLock* lock, Signals* signals, ServiceManager* manager);

// Of this daemon; in no folder where the engine's own lock keeps all other daemons out.
NodeLock OpenNodeLock(const ConfigSources& sources, const Config& config, const Engine& engine);

}  // namespace semaphored
