// What a daemon has of one semaphore's tokens, on the broker of the tests.
#include "adapters/rabbitmq/used_tokens.h"

#include <memory>
#include <string>

#include "adapters/common/upkeep.h"
#include "adapters/rabbitmq/token_broker.h"
#include "adapters/rabbitmq/used_semaphores.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/rabbitmq/daemon.h"
#include "tests/unit/adapters/rabbitmq/fixture.h"

namespace semaphored::rabbitmq {
namespace {

// A queue with two tokens, which goes with the test.
struct TestTokens {
  std::unique_ptr<Connection> connection = Connect();
  std::unique_ptr<Connection> other = Connect();
  std::string queue = NewName();
  UsedTokens tokens{connection.get(), queue};

  TestTokens() {
    const Channel channel = other->OpenChannel().value();
    REQUIRE(other->Declare(channel, queue, {.quorum = true}).ok());
    REQUIRE(other->SelectConfirms(channel).ok());
    REQUIRE(other->PublishAll(channel, {{queue, "a"}, {queue, "b"}}).ok());
    REQUIRE(tokens.Open().ok());
  }
  ~TestTokens() { other->Delete(other->OpenChannel().value(), queue).IgnoreError(); }

  bool HasReady(uint32_t ready) { return ComesToHave(*other, queue, ready); }
  // Takes what comes within the time that the broker needs, until there are so many.
  void Await(size_t count) {
    const auto until = SteadyClock::now() + std::chrono::seconds(10);
    while (tokens.here() < count && SteadyClock::now() < until) {
      auto events = connection->Wait(until);
      REQUIRE(events.ok());
      for (BrokerEvent& event : *events) tokens.AddSpare(std::move(event.delivery));
    }
    REQUIRE(tokens.here() == count);
  }
};

SemaphoreRow RowOf(uint32_t limit) {
  SemaphoreRow row;
  row.limit = limit;
  return row;
}

TEST_CASE("rabbitmq tokens in hand: consumers come with waiters, and what is not wanted goes back",
          "[rabbitmq]") {
  TestTokens test;
  UsedTokens& tokens = test.tokens;
  REQUIRE(tokens.Tend(RowOf(2)).ok());
  CHECK((tokens.is_idle() && tokens.NextDrop() == SteadyTime::max()));
  tokens.AddWaiting(0);
  REQUIRE(tokens.Tend(RowOf(2)).ok());
  CHECK(tokens.has_consumers());
  test.Await(2);
  const Id claim{1, 1};
  tokens.Hold(claim, *tokens.TakeSpare(), 1);
  tokens.RemoveWaiting(0);
  REQUIRE(tokens.Tend(RowOf(2)).ok());
  CHECK(tokens.NextDrop() < SteadyTime::max());
  REQUIRE(tokens.DropUnwanted().ok());
  CHECK((tokens.is_idle() && tokens.held().contains(claim)));
  CHECK(test.HasReady(1));
  REQUIRE(tokens.GiveBack(claim).ok());
  REQUIRE(tokens.GiveBack(claim).ok());  // It has nothing any more.
  CHECK(test.HasReady(2));
}

TEST_CASE("rabbitmq tokens in hand: no consumer of a semaphore that is paused", "[rabbitmq]") {
  TestTokens test;
  test.tokens.AddWaiting(5);
  REQUIRE(test.tokens.Tend(RowOf(2)).ok());
  test.Await(2);
  SemaphoreRow paused = RowOf(2);
  paused.paused = true;
  REQUIRE(test.tokens.Tend(paused).ok());
  CHECK_FALSE(test.tokens.has_consumers());
  CHECK(test.HasReady(2));
}

TEST_CASE("rabbitmq tokens in hand: with the channel all goes back, and the claims are named",
          "[rabbitmq]") {
  TestTokens test;
  const Id claim{1, 2};
  test.tokens.Hold(claim, *test.connection->Get(test.tokens.channel(), test.queue).value(), 1);
  test.tokens.KeepStranger(*test.connection->Get(test.tokens.channel(), test.queue).value());
  CHECK(test.tokens.has_strangers());
  CHECK(test.tokens.Lose() == std::vector<Id>{claim});
  CHECK_FALSE(test.tokens.has_strangers());
  CHECK(test.HasReady(2));
  CHECK(test.tokens.Lose().empty());
}

// A prune takes the events of its channel, and ends with the first that is no delivery.
TEST_CASE("rabbitmq: what went with a channel is lost, whichever act has heard of its end",
          "[rabbitmq]") {
  const Name name;
  const auto holding = Connect();
  const auto administering = Connect();
  TokenBroker broker(administering.get());
  SemaphoreRow row = RowOf(2);
  row.name = name.text;
  bool begun = false;
  REQUIRE(Persist([&] { return broker.Create(row, /*act=*/0, &begun); }).ok());
  Upkeep upkeep;
  UsedSemaphores all(holding.get(), administering.get(), &broker, &upkeep);
  UsedTokens& tokens = all.Read(name.text).value()->tokens();
  const Id claim{1, 4};
  tokens.Hold(claim, *holding->Get(tokens.channel(), name.queue()).value(), 1);
  CHECK(all.LoseClosed().empty());
  REQUIRE(absl::IsNotFound(holding->DeclarePassively(tokens.channel(), NewName()).status()));
  REQUIRE(holding->WaitOn(tokens.channel(), SteadyTime::min()).value().size() == 1);
  CHECK(all.LoseClosed() == std::vector{name.text});
  const std::vector<LostPermit> lost = all.TakeLost();
  REQUIRE(lost.size() == 1);
  CHECK((lost[0].semaphore == name.text && lost[0].claim == claim));
  // Likewise where another channel is opened before.
  UsedSemaphore* used = all.Find(name.text);
  const Channel second = all.Open(used).value();
  tokens.Hold(claim, *holding->Get(second, name.queue()).value(), 1);
  REQUIRE(absl::IsNotFound(holding->DeclarePassively(second, NewName()).status()));
  CHECK(all.Open(used).value() != second);
  CHECK(tokens.held().empty());
  CHECK(all.TakeLost().size() == 1);
}

}  // namespace
}  // namespace semaphored::rabbitmq
