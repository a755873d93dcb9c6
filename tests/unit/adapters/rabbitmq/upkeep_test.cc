// What fails without a caller that receives the error is counted.
#include "adapters/common/upkeep.h"

#include <chrono>

#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/rabbitmq/daemon.h"
#include "tests/unit/relay.h"

namespace semaphored::rabbitmq {
namespace {

TEST_CASE("rabbitmq upkeep: waiters for whom nothing is asked of the broker are counted",
          "[rabbitmq]") {
  const Name name;
  Daemon other;
  other.Create(name.text, 1);
  const LeasePtr held = other.Grant(name.text);
  Relay relay(TestPort());
  Daemon daemon(std::chrono::milliseconds(100), TestUrlThrough(relay.port(), "?timeout_ms=800"));
  const auto errors = [&] {
    return daemon.upkeep().figures().errors[static_cast<size_t>(UpkeepWork::kPermits)];
  };
  // It knows the semaphore, and asks the broker for nothing more but the consumer.
  CHECK(daemon.Acquire(name.text).kind == OutcomeKind::kFull);
  CHECK(errors() == 0);
  relay.DelayAnswers(AMQP_BASIC_CONSUME_OK_METHOD);
  const Id waiter = daemon.Queue(name.text);
  CHECK(daemon.Until([&] { return errors() > 0; }));
  relay.DeliverAnswers();
  other.Release(name.text, held->id);
  CHECK(daemon.Granted(waiter)->id == waiter);
}

}  // namespace
}  // namespace semaphored::rabbitmq
