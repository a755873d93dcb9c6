// What the tests of the RabbitMQ adapters have in common: the broker that the test command has
// started, and names that no other test uses.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "adapters/rabbitmq/connection.h"
#include "adapters/steady_clock.h"

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

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}
// Again for up to 30 s, while it is UNAVAILABLE: tests beside this one use the same registry, and one
// whose connection broke keeps its lock until the broker has given the connection up.
template <typename Act>
auto Persist(Act act) {
  const auto until = SteadyClock::now() + std::chrono::seconds(30);
  for (;;) {
    auto result = act();
    if (!absl::IsUnavailable(StatusOf(result)) || SteadyClock::now() >= until) return result;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace semaphored::rabbitmq
