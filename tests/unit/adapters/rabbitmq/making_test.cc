// Semaphores whose making was broken off, which are not there yet; and what is left of a former one of the same name.
#include <memory>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "adapters/rabbitmq/document.h"
#include "adapters/rabbitmq/token_broker.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/rabbitmq/daemon.h"

namespace semaphored::rabbitmq {
namespace {

// A semaphore of three permits, of which a daemon that died left this: not all is known to have arrived.
struct HalfMade {
  Name name;
  std::unique_ptr<Connection> connection = Connect();
  TokenBroker broker{connection.get()};
  StoredSemaphore stored;

  HalfMade() {
    SemaphoreRow row;
    row.name = name.text;
    row.limit = 3;
    bool begun = false;
    stored = Persist([&] { return broker.Create(row, 41, &begun); }).value();
    // (Before a daemon has subscribed there is no exchange for the notice, which costs the connection.)
    REQUIRE(connection->Open().ok());
    Set("making", true);
  }
  void Set(const char* field, const nlohmann::json& value) {
    const auto first = [](const nlohmann::json& a, const nlohmann::json&) { return a; };
    const auto document = Persist([&] {
      return Document::Open(connection.get(), name.queue() + ".settings", /*make=*/false, first);
    });
    nlohmann::json content = document.value()->content();
    content[field] = value;
    REQUIRE((*document)->Write(content).ok());
  }
};

// And a token of it that comes late.
TEST_CASE("rabbitmq making: a semaphore whose making was broken off is made again", "[rabbitmq]") {
  Daemon daemon;
  HalfMade half;
  const Name& name = half.name;
  Connection& connection = *half.connection;
  const Channel channel = connection.OpenChannel().value();
  const Delivery old = connection.Get(channel, name.queue()).value().value();
  REQUIRE(connection.Acknowledge(channel, old.delivery_tag).ok());
  CHECK_FALSE(half.broker.Read(name.text).value().has_value());
  CHECK_FALSE(half.broker.FindAct(name.text, 41).value().has_value());
  CHECK(daemon.Acquire(name.text).kind == OutcomeKind::kNoSuchSemaphore);
  REQUIRE(
      connection.CloseChannel(channel).ok());  // It had taken a message, and counts as a consumer.
  daemon.Create(name.text, 2);
  const Channel late = connection.OpenChannel().value();
  REQUIRE(connection.SelectConfirms(late).ok());
  REQUIRE(connection.PublishAll(late, {{name.queue(), old.body}}).ok());
  REQUIRE(ReadyBecome(name.text, 3));
  const LeasePtr one = daemon.Grant(name.text);
  const LeasePtr two = daemon.Grant(name.text);
  CHECK(one->slots != two->slots);
  Daemon other;
  CHECK(other.Acquire(name.text).kind == OutcomeKind::kFull);
  daemon.Release(name.text, one->id);
  daemon.Release(name.text, two->id);
  CHECK(ReadyBecome(name.text, 2));
}

// A program of the recipe may hold a permit of it by then.
TEST_CASE("rabbitmq making: a queue that other programs consume from is not taken from them",
          "[rabbitmq]") {
  Daemon daemon;
  HalfMade half;
  const Channel channel = half.connection->OpenChannel().value();
  REQUIRE(half.connection->Get(channel, half.name.queue()).value().has_value());
  AdminCreate create;
  create.limit = 3;
  const AdminCommand again{{}, half.name.text, 0, create};
  const auto refused = daemon.DoAll({again});
  CHECK(absl::IsDataLoss(refused.front().status()));
  REQUIRE(half.connection->CloseChannel(channel).ok());
  CHECK(daemon.Until([&] {
    const auto made = daemon.DoAll({again});
    return made.front().ok() && made.front()->kind == OutcomeKind::kDone;
  }));
  CHECK(ReadyBecome(half.name.text, 3));
}

// An administrator has purged the registry: generations begin at 1 again.
TEST_CASE("rabbitmq making: what is published later is no older than the queue", "[rabbitmq]") {
  Daemon daemon;
  HalfMade half;
  half.Set("making", false);
  half.Set("incarnation", uint64_t{1} << 30);
  SemaphoreRow row = half.broker.Read(half.name.text).value()->row;
  row.limit = 5;
  bool begun = false;
  const StoredSemaphore raised =
      Persist([&] { return half.broker.Update(row, 42, &begun); }).value();
  REQUIRE(half.connection->Open().ok());
  const Channel channel = half.connection->OpenChannel().value();
  int good = 0;
  while (const auto got = half.connection->Get(channel, half.name.queue()).value())
    good += IsVoid(*ReadToken(got->body), raised) ? 0 : 1;
  CHECK(good == 2);
}

TEST_CASE("rabbitmq making: slots of a former queue are not struck off the next one",
          "[rabbitmq]") {
  Daemon daemon;
  HalfMade half;
  half.Set("making", false);
  const std::string& name = half.name.text;
  CHECK(absl::IsAborted(half.broker.Strike(name, half.stored.incarnation + 1, {1, 2}).status()));
  CHECK(absl::IsAborted(half.broker.Seen(name, half.stored.incarnation + 1, {1}).status()));
  CHECK(half.broker.Read(name).value()->slots == std::set<uint32_t>{1, 2, 3});
}

}  // namespace
}  // namespace semaphored::rabbitmq
