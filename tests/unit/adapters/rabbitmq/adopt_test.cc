// A queue of the recipe that programs have made becomes a semaphore, with as many permits as it has messages.
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "adapters/rabbitmq/token_broker.h"
#include "catch2/catch_test_macros.hpp"
#include "catch2/generators/catch_generators.hpp"
#include "tests/unit/adapters/rabbitmq/daemon.h"
#include "tests/unit/adapters/rabbitmq/fixture.h"

namespace semaphored::rabbitmq {
namespace {

// The queue of the recipe under the name of a semaphore, and a program that uses it.
struct Recipe {
  const std::string queue;
  std::unique_ptr<Connection> connection = Connect();
  Channel channel = connection->OpenChannel().value();

  Recipe(const Name& name, bool quorum, uint32_t messages, const std::string& body = "resource")
      : queue(name.queue()) {
    REQUIRE(connection->Declare(channel, queue, {.quorum = quorum}).ok());
    REQUIRE(connection->SelectConfirms(channel).ok());
    for (uint32_t i = 0; i < messages; ++i)
      REQUIRE(connection->PublishAll(channel, {{queue, body}}).ok());
    REQUIRE(ReadyBecome(name.text, messages));
  }
  // Takes one message, as a consumer of the recipe does.
  void Hold() {
    REQUIRE(connection->Consume(channel, queue, "recipe", 1, 0).ok());
    const auto until = SteadyClock::now() + std::chrono::seconds(30);
    std::vector<BrokerEvent> events;
    while (events.empty() && SteadyClock::now() < until)
      events = connection->WaitOn(channel, until).value();
    REQUIRE(events.size() == 1);
  }
};

Outcome LookAtRecipe(Daemon& daemon, const Name& name) {
  return daemon.Administer(name.text, AdminAdopt{});
}
Outcome AdoptRecipe(Daemon& daemon, const Name& name, uint32_t limit) {
  return daemon.Administer(name.text, AdminAdopt{limit});
}

uint32_t GrantedOf(Daemon& daemon, const Name& name) {
  uint32_t count = 0;
  while (count < 10 && daemon.Acquire(name.text).kind == OutcomeKind::kGranted) ++count;
  return count;
}

TEST_CASE("rabbitmq adopt: a queue's messages are counted, and become permits", "[rabbitmq]") {
  const bool quorum = GENERATE(false, true);
  const Name name;
  Recipe recipe(name, quorum, 3);
  Daemon daemon;
  const Outcome looked = LookAtRecipe(daemon, name);
  CHECK(looked.kind == OutcomeKind::kDone);
  CHECK(looked.affected() == 3);
  CHECK_FALSE(looked.changed);
  CHECK(absl::StrContains(looked.message, name.queue()));
  CHECK(ReadyBecome(name.text, 3));
  const Outcome adopted = AdoptRecipe(daemon, name, 3);
  REQUIRE(adopted.kind == OutcomeKind::kDone);
  CHECK(adopted.changed);
  CHECK(adopted.affected() == 3);
  CHECK(adopted.report->info->row.limit == 3);
  CHECK(GrantedOf(daemon, name) == 3);
  const Outcome again = AdoptRecipe(daemon, name, 3);
  CHECK(again.kind == OutcomeKind::kDone);
  CHECK_FALSE(again.changed);
  Daemon other;
  CHECK(other.Acquire(name.text).kind == OutcomeKind::kFull);
}

TEST_CASE("rabbitmq adopt: of two in one batch the first has adopted it", "[rabbitmq]") {
  const Name name;
  Recipe recipe(name, /*quorum=*/false, 3);
  Daemon daemon;
  const Command adopt = AdminCommand{{}, name.text, 0, AdminAdopt{3}};
  const auto outcomes = daemon.DoAll({adopt, adopt});
  for (const auto& outcome : outcomes) REQUIRE(outcome->kind == OutcomeKind::kDone);
  CHECK(outcomes[0]->changed);
  CHECK_FALSE(outcomes[1]->changed);
}

TEST_CASE("rabbitmq adopt: is refused while programs of the recipe are there", "[rabbitmq]") {
  const bool quorum = GENERATE(false, true);
  const Name name;
  Recipe recipe(name, quorum, 3);
  recipe.Hold();
  Daemon daemon;
  const Outcome looked = LookAtRecipe(daemon, name);
  CHECK(looked.kind == OutcomeKind::kInUse);
  CHECK(absl::StrContains(looked.message, "programs consume"));
  CHECK(AdoptRecipe(daemon, name, 2).kind == OutcomeKind::kInUse);
  CHECK(AdoptRecipe(daemon, name, 3).kind == OutcomeKind::kInUse);
  CHECK(ReadyBecome(name.text, 2));
  recipe.connection->Close();
  REQUIRE(ReadyBecome(name.text, 3));
  CHECK(daemon.Until([&] { return AdoptRecipe(daemon, name, 3).kind == OutcomeKind::kDone; }));
  CHECK(GrantedOf(daemon, name) == 3);
}

TEST_CASE("rabbitmq adopt: what came between the look and the act keeps its permit", "[rabbitmq]") {
  const bool quorum = GENERATE(false, true);
  const Name name;
  Recipe recipe(name, quorum, 3);
  recipe.Hold();
  const auto connection = Connect();
  TokenBroker broker(connection.get());
  SemaphoreRow row;
  row.name = name.text;
  for (const uint32_t limit : {2U, 3U}) {
    row.limit = limit;
    const absl::Status refused = Persist([&] { return broker.Adopt(row); });
    CHECK(absl::IsFailedPrecondition(refused));
    CHECK(absl::StrContains(refused.message(), "other programs"));
  }
  CHECK(ReadyBecome(name.text, 2));
}

TEST_CASE("rabbitmq adopt: another number of messages than was looked at is refused",
          "[rabbitmq]") {
  const Name name;
  Recipe recipe(name, /*quorum=*/false, 3);
  Daemon daemon;
  const Outcome refused = AdoptRecipe(daemon, name, 2);
  CHECK(refused.kind == OutcomeKind::kInUse);
  CHECK(absl::StrContains(refused.message, "3 permits"));
  CHECK(ReadyBecome(name.text, 3));
  const auto connection = Connect();
  TokenBroker broker(connection.get());
  SemaphoreRow row;
  row.name = name.text;
  for (const uint32_t limit : {2U, 4U}) {
    row.limit = limit;
    CHECK(absl::IsFailedPrecondition(Persist([&] { return broker.Adopt(row); })));
  }
  CHECK(ReadyBecome(name.text, 3));
}

TEST_CASE("rabbitmq adopt: an empty queue, and permits of semaphored's own, are refused",
          "[rabbitmq]") {
  Daemon daemon;
  const Name empty;
  Recipe without(empty, /*quorum=*/false, 0);
  CHECK(LookAtRecipe(daemon, empty).kind == OutcomeKind::kUnusable);
  const Name own;
  Recipe tokens(own, /*quorum=*/true, 2, TokenText({1, 7}));
  const Outcome refused = AdoptRecipe(daemon, own, 2);
  CHECK(refused.kind == OutcomeKind::kUnsupported);
  CHECK(absl::StrContains(refused.message, "semaphored's own"));
  CHECK(ReadyBecome(own.text, 2));
}

TEST_CASE("rabbitmq adopt: an acquire on the recipe's queue says what to do", "[rabbitmq]") {
  const Name name;
  Recipe recipe(name, /*quorum=*/false, 2);
  Daemon daemon;
  const Outcome refused = daemon.Acquire(name.text, /*wait=*/false, /*limit=*/2);
  CHECK(refused.kind == OutcomeKind::kUnsupported);
  CHECK(absl::StrContains(refused.message, "semctl adopt"));
  // What that has left behind blocks no later act.
  CHECK(AdoptRecipe(daemon, name, 2).kind == OutcomeKind::kDone);
  CHECK(GrantedOf(daemon, name) == 2);
}

}  // namespace
}  // namespace semaphored::rabbitmq
