// The connection to a real broker: what each call says, what a broken channel takes with it, and
// what comes unasked.
#include "adapters/rabbitmq/connection.h"

#include <atomic>
#include <thread>

#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "catch2/generators/catch_generators.hpp"
#include "catch2/matchers/catch_matchers_string.hpp"
#include "tests/unit/adapters/rabbitmq/fixture.h"

namespace semaphored::rabbitmq {
namespace {

using std::chrono::milliseconds;
using Confirm = Connection::Confirm;

constexpr QueueOptions kQuorum{.quorum = true};

// A queue that goes away with the test.
struct Queue {
  Connection& connection;
  std::string name = NewName();
  explicit Queue(Connection& to, const QueueOptions& options = kQuorum) : connection(to) {
    const Channel channel = to.OpenChannel().value();
    REQUIRE(to.Declare(channel, name, options).ok());
    REQUIRE(to.CloseChannel(channel).ok());
  }
  ~Queue() {
    auto other = Connect();
    (void)other->Delete(other->OpenChannel().value(), name);
  }
  void Put(const std::vector<std::string>& bodies) const {
    const Channel channel = connection.OpenChannel().value();
    REQUIRE(connection.SelectConfirms(channel).ok());
    std::vector<Connection::Publish> messages;
    for (const std::string& body : bodies) messages.push_back({name, body});
    const auto confirms = connection.PublishAll(channel, messages).value();
    REQUIRE(confirms == std::vector(bodies.size(), Confirm::kStored));
    REQUIRE(connection.CloseChannel(channel).ok());
  }
};

// Waits for one event.
BrokerEvent Next(Connection& connection) {
  const auto deadline = SteadyClock::now() + std::chrono::seconds(10);
  for (;;) {
    std::vector<BrokerEvent> events = connection.Wait(deadline).value();
    if (!events.empty()) {
      REQUIRE(events.size() == 1);
      return std::move(events[0]);
    }
    REQUIRE(SteadyClock::now() < deadline);
  }
}

TEST_CASE(
    "rabbitmq connection: what is sent on a channel that the broker has closed costs no other",
    "[rabbitmq]") {
  const auto connection = Connect();
  const Channel kept = connection->OpenChannel().value();
  const Channel closed = connection->OpenChannel().value();
  REQUIRE(absl::IsNotFound(connection->DeclarePassively(closed, NewName()).status()));
  CHECK(absl::IsUnavailable(connection->Reject(closed, 1)));
  CHECK(absl::IsUnavailable(connection->Acknowledge(closed, 1)));
  CHECK(absl::IsUnavailable(connection->Sync(closed)));
  CHECK(connection->Sync(kept).ok());
}

TEST_CASE("rabbitmq url: what it says") {
  const Url plain = ReadUrl("amqp://host").value();
  CHECK(plain.host == "host");
  CHECK(plain.port == 5672);
  CHECK(plain.vhost == "/");
  CHECK(plain.layout == Url::Layout::kTokens);
  const Url full =
      ReadUrl("amqps://u%40:p%2F@[::1]:99/v%2Fw?layout=slots&heartbeat_s=9&timeout_ms=700").value();
  CHECK(full.tls);
  CHECK(full.user == "u@");
  CHECK(full.password == "p/");
  CHECK(full.host == "::1");
  CHECK(full.port == 99);
  CHECK(full.vhost == "v/w");
  CHECK(full.layout == Url::Layout::kSlots);
  CHECK(full.heartbeat == std::chrono::seconds(9));
  CHECK(full.timeout == milliseconds(700));
  CHECK(ReadUrl("amqps://host").value().port == 5671);
}

TEST_CASE("rabbitmq url: what is wrong is said, without the password") {
  struct Wrong {
    std::string url;
    std::string says;
  };
  const auto wrong = GENERATE(
      Wrong{"amqp:/host", "amqp://"}, Wrong{"amqp://", "no host"},
      Wrong{"amqp://u:secret@host:x/", "hexadecimal"}, Wrong{"amqp://u:sec@ret@host/", "%40"},
      Wrong{"amqp://u:sec/ret@host/", "%2F"}, Wrong{"amqp://u:sec?ret@host/", "%3F"},
      Wrong{"amqp://u:secret@host/?layout=x", "tokens or slots"},
      Wrong{"amqp://u:secret@host/?timeout_ms=1", "100"},
      Wrong{"amqp://u:secret@host/?heartbeat_s=0", "1"},
      Wrong{"amqp://u:secret@host/?other=1", "'other' is not known"},
      Wrong{"amqp://u:secret@host/?password_file=/nowhere", "/nowhere"},
      Wrong{"amqps://u:secret@host/?key_file=a", "together"},
      Wrong{"amqp://u:secr%et@host/", "hexadecimal"}, Wrong{"amqp://host:70000", "hexadecimal"});
  INFO(wrong.url);
  const absl::Status status = ReadUrl(wrong.url).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()), Catch::Matchers::ContainsSubstring(wrong.says));
  CHECK_THAT(std::string(status.message()), !Catch::Matchers::ContainsSubstring("ret"));
}

TEST_CASE("rabbitmq: a message is published, taken, given back and counted", "[rabbitmq]") {
  const auto connection = Connect();
  CHECK_FALSE(connection->server_version().empty());
  const Queue queue(*connection);
  queue.Put({"one"});
  const Channel channel = connection->OpenChannel().value();
  for (int64_t count = 0; count < 3; ++count) {
    const std::optional<Delivery> got = connection->Get(channel, queue.name).value();
    REQUIRE(got);
    CHECK(got->body == "one");
    CHECK(got->returned_count == count);
    CHECK_FALSE(connection->Get(channel, queue.name).value());
    REQUIRE(connection->Reject(channel, got->delivery_tag).ok());
    REQUIRE(connection->Sync(channel).ok());
  }
  const std::optional<Delivery> last = connection->Get(channel, queue.name).value();
  REQUIRE(last);
  REQUIRE(connection->Acknowledge(channel, last->delivery_tag).ok());
  REQUIRE(connection->CloseChannel(channel).ok());
  const Channel other = connection->OpenChannel().value();
  CHECK_FALSE(connection->Get(other, queue.name).value());
}

TEST_CASE("rabbitmq: consumers are served by priority, and get no more than their prefetch",
          "[rabbitmq]") {
  const auto connection = Connect();
  const Queue queue(*connection);
  const Channel channel = connection->OpenChannel().value();
  REQUIRE(connection->Consume(channel, queue.name, "low", 1, 0).ok());
  REQUIRE(connection->Consume(channel, queue.name, "high", 1, 5).ok());
  queue.Put({"a"});
  const BrokerEvent first = Next(*connection);
  CHECK(first.kind == BrokerEvent::Kind::kDelivery);
  CHECK(first.delivery.consumer_tag == "high");
  queue.Put({"b", "c"});
  CHECK(Next(*connection).delivery.consumer_tag == "low");
  // Both have what they may.
  CHECK(connection->Wait(SteadyClock::now() + milliseconds(50)).value().empty());
  // A consumer that is open gets again what is given back.
  REQUIRE(connection->Reject(channel, first.delivery.delivery_tag).ok());
  CHECK(Next(*connection).delivery.consumer_tag == "high");
  // What a cancelled consumer has stays with it.
  REQUIRE(connection->Cancel(channel, "high").ok());
  REQUIRE(connection->Cancel(channel, "low").ok());
  CHECK(ComesToHave(*connection, queue.name, 1));
}

TEST_CASE("rabbitmq: a publish is confirmed, or said to have found no queue", "[rabbitmq]") {
  const auto connection = Connect();
  const Queue queue(*connection);
  const Channel channel = connection->OpenChannel().value();
  REQUIRE(connection->SelectConfirms(channel).ok());
  for (int round = 0; round < 2; ++round) {
    const std::vector<Confirm> confirms =
        connection->PublishAll(channel, {{queue.name, "a"}, {"nowhere", "b"}, {queue.name, "c"}})
            .value();
    CHECK(confirms == std::vector{Confirm::kStored, Confirm::kNoQueue, Confirm::kStored});
  }
}

TEST_CASE("rabbitmq: an error closes its channel and no other", "[rabbitmq]") {
  const auto connection = Connect();
  const Queue queue(*connection);
  queue.Put({"held"});
  const Channel holding = connection->OpenChannel().value();
  REQUIRE(connection->Get(holding, queue.name).value());
  const Channel failing = connection->OpenChannel().value();
  SECTION("a queue that is not there") {
    const auto status = connection->DeclarePassively(failing, "nowhere").status();
    CHECK(absl::IsNotFound(status));
    CHECK_THAT(std::string(status.message()), Catch::Matchers::ContainsSubstring("nowhere"));
  }
  SECTION("a queue of another kind") {
    CHECK(absl::IsFailedPrecondition(
        connection->Declare(failing, queue.name, QueueOptions()).status()));
  }
  SECTION("a queue that another connection has for itself") {
    const auto other = Connect();
    const std::string name = NewName();
    REQUIRE(
        other->Declare(other->OpenChannel().value(), name, {.durable = false, .exclusive = true})
            .ok());
    CHECK(absl::IsAlreadyExists(
        connection->Declare(failing, name, {.durable = false, .exclusive = true}).status()));
  }
  CHECK_FALSE(connection->is_open(failing));
  const std::vector<BrokerEvent> events = connection->Wait(SteadyClock::now()).value();
  REQUIRE(events.size() == 1);
  CHECK(events[0].kind == BrokerEvent::Kind::kChannelClosed);
  CHECK(events[0].channel == failing);
  // What is held elsewhere still is.
  REQUIRE(connection->Sync(holding).ok());
  const Channel looking = connection->OpenChannel().value();
  CHECK(connection->DeclarePassively(looking, queue.name).value().ready == 0);
}

TEST_CASE("rabbitmq: a queue that goes cancels its consumers", "[rabbitmq]") {
  const auto connection = Connect();
  const Queue queue(*connection);
  const Channel channel = connection->OpenChannel().value();
  REQUIRE(connection->Consume(channel, queue.name, "mine", 1, 0).ok());
  const auto other = Connect();
  CHECK(other->Delete(other->OpenChannel().value(), queue.name).value() == 0);
  const BrokerEvent event = Next(*connection);
  CHECK(event.kind == BrokerEvent::Kind::kConsumerCancelled);
  CHECK(event.consumer_tag == "mine");
}

TEST_CASE("rabbitmq: a connection that ends gives everything back", "[rabbitmq]") {
  const auto watching = Connect();
  auto holding = Connect();
  const Queue queue(*watching);
  queue.Put({"held"});
  const uint64_t life = holding->life();
  REQUIRE(holding->Get(holding->OpenChannel().value(), queue.name).value());
  const Channel channel = watching->OpenChannel().value();
  REQUIRE(watching->Consume(channel, queue.name, "next", 1, 0).ok());
  holding->Close();
  const BrokerEvent event = Next(*watching);
  CHECK(event.delivery.body == "held");
  CHECK(event.delivery.redelivered);
  CHECK(event.delivery.returned_count == 1);
  REQUIRE(holding->Open().ok());
  CHECK(holding->life() == life + 1);
}

TEST_CASE("rabbitmq: who is not let in is told why, without the password", "[rabbitmq]") {
  Url url = ReadUrl(TestUrl()).value();
  SECTION("a wrong password") { url.password = "not-this-one"; }
  SECTION("a virtual host that is not there") { url.vhost = "nowhere"; }
  Connection connection(url, "unit test");
  const absl::Status status = connection.Open();
  CHECK(absl::IsPermissionDenied(status));
  CHECK_THAT(std::string(status.message()), !Catch::Matchers::ContainsSubstring("not-this-one"));
  CHECK_FALSE(connection.is_open());
}

TEST_CASE("rabbitmq: nobody there") {
  Url url;
  url.host = "127.0.0.1";
  url.port = 1;
  Connection connection(url, "unit test");
  CHECK(absl::IsUnavailable(connection.Open()));
  CHECK(absl::IsUnavailable(connection.OpenChannel().status()));
  CHECK(absl::IsUnavailable(connection.Wait(SteadyClock::now()).status()));
}

TEST_CASE("rabbitmq: a wait ends when it is woken, this one or the next", "[rabbitmq]") {
  const auto connection = Connect();
  const auto deadline = SteadyClock::now() + std::chrono::seconds(20);
  connection->Wake();
  CHECK(connection->Wait(deadline).value().empty());
  std::thread waking([&] { connection->Wake(); });
  CHECK(connection->Wait(deadline).value().empty());
  waking.join();
  CHECK(SteadyClock::now() < deadline);
}

TEST_CASE("rabbitmq: a connection stays while it only waits", "[rabbitmq]") {
  // Longer than two heartbeats, after which the broker would end it.
  const auto connection = Connect("?heartbeat_s=1");
  CHECK(connection->Wait(SteadyClock::now() + milliseconds(3500)).value().empty());
  const Channel channel = connection->OpenChannel().value();
  CHECK(connection->Sync(channel).ok());
}

}  // namespace
}  // namespace semaphored::rabbitmq
