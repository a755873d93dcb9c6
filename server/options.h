// What each part of the daemon takes from the configuration.
#pragma once

#include <cstdint>

#include "adapters/ledger/options.h"
#include "adapters/open.h"
#include "server/base/clock.h"
#include "server/config/config.h"
#include "server/lanes/membership.h"
#include "server/rpc/security.h"
#include "server/rpc/server.h"
#include "server/sessions/sessions.h"
#include "server/web/web.h"

namespace semaphored {

ServerOptions ServerOptionsOf(const Config& config);
// The clock outlives the ledger.
ledger::LedgerOptions LedgerOptionsOf(const Config& config, NodeRef self, const Clock& clock);
uint32_t LanesOf(const Config& config, const Engine& engine);
// For how long what a lane has read is good enough to vouch.
Milliseconds LaneVouchOf(const Config& config, const Engine& engine);
SessionsOptions SessionsOptionsOf(const Config& config, const Engine& engine);
SecurityOptions SecurityOptionsOf(const Config& config);
// The security outlives what takes them.
web::WebOptions WebOptionsOf(const Config& config, Security* security);
MembershipOptions MembershipOptionsOf(const Config& config, const Engine& engine);

}  // namespace semaphored
