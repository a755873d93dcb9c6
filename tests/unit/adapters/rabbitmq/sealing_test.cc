// A program that may publish to the daemons' exchange, and has not their secret, revokes nothing.
#include "adapters/rabbitmq/sealing.h"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "adapters/common/seal.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/rabbitmq/daemon.h"

namespace semaphored::rabbitmq {
namespace {

using nlohmann::json;

constexpr char kChanges[] = "semaphored.changes";

// Publishes to the exchange, and hears what others publish about one semaphore.
class Intruder {
 public:
  explicit Intruder(std::string name) : name_(std::move(name)), connection_(Connect()) {
    channel_ = connection_->OpenChannel().value();
    queue_ = connection_->Subscribe(channel_, kChanges).value();
    publishing_ = connection_->OpenChannel().value();
    REQUIRE(connection_->SelectConfirms(publishing_).ok());
  }

  void Publish(const std::string& text) {
    const auto confirms = connection_->PublishAll(publishing_, {{"", text, false, kChanges}});
    REQUIRE(confirms.value().front() == Connection::Confirm::kStored);
  }
  // A sealed message about the semaphore. Waits for one.
  std::string Capture() {
    const auto until = SteadyClock::now() + std::chrono::seconds(30);
    while (SteadyClock::now() < until) {
      const auto got = connection_->Get(channel_, queue_).value();
      if (!got) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        continue;
      }
      // Its own are among them.
      const bool own = got->body.find("intruder") != std::string::npos;
      if (got->body.starts_with('{') && !own && got->body.find(name_) != std::string::npos)
        return got->body;
    }
    FAIL("no message came");
    return "";
  }

 private:
  const std::string name_;
  const std::unique_ptr<Connection> connection_;
  Channel channel_ = 0;
  Channel publishing_ = 0;
  std::string queue_;
};

// What revokes all leases of the semaphore, as a daemon writes it.
json RevokeAll(const std::string& name) {
  return {{"take_back", name},
          {"claim", Id{}.Hex()},
          {"holder", ""},
          {"reason", static_cast<int>(Recall::Reason::kAdministrator)},
          {"grace_ms", 0},
          {"leases_max", 1000},
          {"slots_of_sender", json::array()}};
}

std::string Sealed(json message, const std::string& secret, uint64_t epoch) {
  message["sender"] = "intruder";
  message["number"] = 1;
  message["epoch"] = epoch;
  const std::string text = message.dump();
  return json{{"sealed", text}, {"seal", SealOf(text, secret)}}.dump();
}

// Until what was published has certainly come.
void LetCome(Daemon& daemon) {
  const auto until = SteadyClock::now() + std::chrono::seconds(1);
  while (SteadyClock::now() < until) daemon.Poll(std::chrono::milliseconds(50));
}

TEST_CASE("rabbitmq: a forged message revokes nothing", "[rabbitmq]") {
  const Name name;
  Daemon a;
  Daemon b;
  a.Create(name.text, 4);
  const LeasePtr lease = b.Grant(name.text);
  Intruder intruder(name.text);
  json bare = RevokeAll(name.text);
  bare["sender"] = "intruder";
  constexpr uint64_t kEpoch = 1'000'000;
  intruder.Publish(bare.dump());
  intruder.Publish(Sealed(RevokeAll(name.text), "", kEpoch));
  intruder.Publish(Sealed(RevokeAll(name.text), "guessed", kEpoch));
  intruder.Publish(json{{"sealed", bare.dump()}, {"seal", ""}}.dump());
  intruder.Publish(json{{"sealed", bare.dump()}, {"seal", 7}}.dump());
  intruder.Publish("{\"sealed\":");
  intruder.Publish("{}");
  LetCome(b);
  CHECK(b.Holds(name.text, lease->id));
  // One that a daemon has sealed, and that was changed.
  AdminRevoke of_holder;
  of_holder.holder = "another";
  a.Administer(name.text, of_holder);
  json changed = json::parse(intruder.Capture());
  json inner = json::parse(changed.at("sealed").get<std::string>());
  inner["holder"] = "";
  inner["number"] = 99;
  changed["sealed"] = inner.dump();
  intruder.Publish(changed.dump());
  LetCome(b);
  CHECK(b.Holds(name.text, lease->id));
  // And a daemon's own still does.
  AdminRevoke all;
  a.Administer(name.text, all);
  CHECK(b.Ended(lease->id, &a));
}

TEST_CASE("rabbitmq: a sealed message that is published again revokes nothing", "[rabbitmq]") {
  const Name name;
  Daemon a;
  Daemon b;
  a.Create(name.text, 4);
  const LeasePtr first = b.Grant(name.text);
  Intruder intruder(name.text);
  a.Administer(name.text, AdminRevoke{});
  const std::string message = intruder.Capture();
  REQUIRE(b.Ended(first->id, &a));
  const LeasePtr second = b.Grant(name.text);
  // It has not heard the message, and has begun since.
  Daemon c;
  const LeasePtr third = c.Grant(name.text);
  intruder.Publish(message);
  LetCome(b);
  LetCome(c);
  CHECK(b.Holds(name.text, second->id));
  CHECK(c.Holds(name.text, third->id));
  a.Administer(name.text, AdminRevoke{});
  CHECK(b.Ended(second->id, &a));
  CHECK(c.Ended(third->id, &a));
}

TEST_CASE("rabbitmq: daemons go on when the secret was removed", "[rabbitmq]") {
  const auto connection = Connect();
  const std::string queue = "unit-secret-" + NewName();
  Sealing a(connection.get(), queue);
  Sealing b(connection.get(), queue);
  SteadyTime now = SteadyClock::now();
  REQUIRE(a.BeginIfDue(now).ok());
  REQUIRE(b.BeginIfDue(now).ok());
  const json message = {{"what", 1}};
  CHECK(b.Open(a.Seal(message).value(), now)->at("what") == 1);
  CHECK_FALSE(a.Open(a.Seal(message).value(), now).has_value());
  const Channel channel = connection->OpenChannel().value();
  REQUIRE(connection->Delete(channel, queue).ok());
  // It makes another. The other daemon reads it as soon as it may again.
  now += std::chrono::minutes(1);
  CHECK(b.Open(a.Seal(message).value(), now)->at("what") == 1);
  CHECK(a.Open(b.Seal(message).value(), now)->at("what") == 1);
  CHECK(connection->Delete(channel, queue).ok());
}

TEST_CASE("rabbitmq: a secret that another program has changed ends no daemon", "[rabbitmq]") {
  const auto connection = Connect();
  const std::string queue = "unit-secret-" + NewName();
  Sealing sealing(connection.get(), queue);
  REQUIRE(sealing.BeginIfDue(SteadyClock::now()).ok());
  const Channel channel = connection->OpenChannel().value();
  REQUIRE(connection->SelectConfirms(channel).ok());
  const json changed = {{"version", 1'000'000}, {"secret", 7}};
  REQUIRE(connection->PublishAll(channel, {{queue, changed.dump()}}).ok());
  CHECK(absl::IsDataLoss(sealing.Seal({{"what", 1}}).status()));
  Sealing newcomer(connection.get(), queue);
  CHECK(absl::IsDataLoss(newcomer.BeginIfDue(SteadyClock::now())));
  CHECK(connection->Delete(channel, queue).ok());
}

}  // namespace
}  // namespace semaphored::rabbitmq
