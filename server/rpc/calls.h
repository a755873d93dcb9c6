// The calls that the daemon accepts: one acceptor for each method.
#pragma once

#include <memory>

#include "server/rpc/acceptor.h"

namespace semaphored {

std::unique_ptr<AnyAcceptor> AcceptAcquire(Environment* environment);
std::unique_ptr<AnyAcceptor> AcceptRenew(Environment* environment);
std::unique_ptr<AnyAcceptor> AcceptRelease(Environment* environment);
std::unique_ptr<AnyAcceptor> AcceptVerify(Environment* environment);
std::unique_ptr<AnyAcceptor> AcceptAdminister(Environment* environment);
std::unique_ptr<AnyAcceptor> AcceptHold(Environment* environment);
std::unique_ptr<AnyAcceptor> AcceptSession(Environment* environment);
std::unique_ptr<AnyAcceptor> AcceptWatch(Environment* environment);
std::unique_ptr<AnyAcceptor> AcceptEnqueue(Environment* environment);
std::unique_ptr<AnyAcceptor> AcceptWork(Environment* environment);
std::unique_ptr<AnyAcceptor> AcceptDescribeDaemon(Environment* environment);

}  // namespace semaphored
