// What the tests of the RabbitMQ adapters have in common: the broker that the test command has
// started, and names that no other test uses.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "adapters/rabbitmq/connection.h"

namespace semaphored::rabbitmq {

// Of the broker of the tests; `options` begin with '?'.
std::string TestUrl(const std::string& options = "");
uint16_t TestPort();
// The same broker, through another port.
std::string TestUrlThrough(uint16_t port, const std::string& options);
// Open. Must succeed.
std::unique_ptr<Connection> Connect(const std::string& options = "");
std::string NewName();
// Whether the queue comes to have `ready` messages within five seconds. A quorum queue does what
// it is asked a little later: what was just rejected or acknowledged is not counted at once.
bool ComesToHave(Connection& connection, const std::string& queue, uint32_t ready);

}  // namespace semaphored::rabbitmq
