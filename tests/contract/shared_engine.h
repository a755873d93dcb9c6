// The simulation's engine under the contract: several daemons may stand on it, as on the engines of
// a cluster.
#pragma once

#include <memory>

#include "tests/contract/contract.h"

namespace semaphored::contract {

// `lossy`: its answers are often lost, and races too, and its leases answer; what is told must be
// the same.
std::unique_ptr<Fixture> MakeSharedFixture(bool lossy);
// No daemon receives a change notice: each finds what others do by looking again.
std::unique_ptr<Fixture> MakeSilentFixture();

}  // namespace semaphored::contract
