// What a semaphore may be left with, and how it is mended: never by granting too many.
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/rabbitmq/daemon.h"
#include "tests/unit/adapters/rabbitmq/fixture.h"

namespace semaphored::rabbitmq {
namespace {

// A client of the broker that is none of ours.
struct Stranger {
  std::unique_ptr<Connection> connection = Connect();
  Channel channel = connection->OpenChannel().value();

  Delivery Take(const Name& name) {
    for (int i = 0; i < 100; ++i) {
      if (auto got = connection->Get(channel, name.queue()).value()) return *got;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    FAIL("no token is free");
    return {};
  }
  void Acknowledge(const Delivery& delivery) {
    REQUIRE(connection->Acknowledge(channel, delivery.delivery_tag).ok());
    REQUIRE(connection->Sync(channel).ok());
  }
  void Publish(const Name& name, const std::string& body) {
    REQUIRE(connection->SelectConfirms(channel).ok());
    REQUIRE(connection->PublishAll(channel, {{name.queue(), body}}).ok());
  }
};

Outcome Prune(Daemon& daemon, const Name& name) {
  return daemon.Administer(name.text, AdminPrune{});
}

SemaphoreInfo InfoOf(Daemon& daemon, const Name& name) {
  return *daemon.Administer(name.text, AdminDescribe{}).report->info;
}

// Takes all there are; how many.
uint32_t TakeAll(Daemon& daemon, const Name& name, uint32_t limit) {
  uint32_t count = 0;
  while (count < limit && daemon.Grant(name.text)) ++count;
  CHECK(daemon.Acquire(name.text).kind == OutcomeKind::kFull);
  return count;
}

TEST_CASE("rabbitmq prune: where nothing is left behind nothing is changed", "[rabbitmq]") {
  const Name name;
  Daemon daemon;
  daemon.Create(name.text, 3);
  const LeasePtr held = daemon.Grant(name.text);
  const Outcome outcome = Prune(daemon, name);
  CHECK(outcome.kind == OutcomeKind::kDone);
  CHECK_FALSE(outcome.changed);
  daemon.Release(name.text, held->id);
  CHECK(TakeAll(daemon, name, 3) == 3);
}

TEST_CASE("rabbitmq prune: a token that a stranger acknowledged is made anew, with a higher base",
          "[rabbitmq]") {
  const Name name;
  Daemon daemon;
  daemon.Create(name.text, 1);
  const LeasePtr before = daemon.Grant(name.text);
  daemon.Release(name.text, before->id);
  Stranger stranger;
  stranger.Acknowledge(stranger.Take(name));
  CHECK(daemon.Acquire(name.text).kind == OutcomeKind::kFull);
  const Outcome outcome = Prune(daemon, name);
  CHECK(outcome.kind == OutcomeKind::kDone);
  CHECK(outcome.affected() == 1);
  const LeasePtr after = daemon.Grant(name.text);
  CHECK(after->slots == before->slots);
  CHECK(after->token > before->token);
}

TEST_CASE("rabbitmq prune: what somebody else may have is not made a second time", "[rabbitmq]") {
  const Name name;
  Daemon daemon;
  daemon.Create(name.text, 3);
  const LeasePtr held = daemon.Grant(name.text);
  Stranger stranger;
  const Delivery taken = stranger.Take(name);
  const Outcome refused = Prune(daemon, name);
  CHECK(refused.kind == OutcomeKind::kInUse);
  CHECK(refused.message.find("1 permits") != std::string::npos);
  // One that is free, ours, and his: that is all.
  CHECK(daemon.Grant(name.text));
  CHECK(daemon.Acquire(name.text).kind == OutcomeKind::kFull);
  REQUIRE(stranger.connection->Reject(stranger.channel, taken.delivery_tag).ok());
  CHECK(daemon.Grant(name.text));
  CHECK(Prune(daemon, name).kind == OutcomeKind::kDone);
}

TEST_CASE("rabbitmq prune: the permits of another daemon are somebody's", "[rabbitmq]") {
  const Name name;
  Daemon a;
  Daemon b;
  a.Create(name.text, 2);
  const LeasePtr held = b.Grant(name.text);
  CHECK(Prune(a, name).kind == OutcomeKind::kInUse);
  b.Release(name.text, held->id);
  CHECK(ReadyBecome(name.text, 2));
  CHECK(a.Until([&] { return Prune(a, name).kind == OutcomeKind::kDone; }));
}

TEST_CASE("rabbitmq prune: a second token of a slot goes, and never raises the limit",
          "[rabbitmq]") {
  const Name name;
  Daemon daemon;
  daemon.Create(name.text, 2);
  Stranger stranger;
  const Delivery one = stranger.Take(name);
  stranger.Publish(name, one.body);
  REQUIRE(stranger.connection->Reject(stranger.channel, one.delivery_tag).ok());
  stranger.Publish(name, R"({"slot":9,"base":1})");
  REQUIRE(ReadyBecome(name.text, 4));
  const Outcome outcome = Prune(daemon, name);
  CHECK(outcome.kind == OutcomeKind::kDone);
  CHECK(outcome.affected() == 2);
  CHECK(InfoOf(daemon, name).row.limit == 2);
  CHECK(TakeAll(daemon, name, 2) == 2);
}

TEST_CASE("rabbitmq prune: extra messages of the recipe become permits", "[rabbitmq]") {
  const Name name;
  Daemon daemon;
  daemon.Create(name.text, 2);
  const LeasePtr before = daemon.Grant(name.text);
  Stranger stranger;
  stranger.Publish(name, "resource");
  stranger.Publish(name, "resource");
  REQUIRE(ReadyBecome(name.text, 3));
  const Outcome outcome = Prune(daemon, name);
  CHECK(outcome.kind == OutcomeKind::kDone);
  CHECK(outcome.affected() == 2);
  CHECK(InfoOf(daemon, name).row.limit == 4);
  CHECK(TakeAll(daemon, name, 3) == 3);
  daemon.Release(name.text, before->id);
  CHECK(daemon.Grant(name.text)->token > before->token);
  CHECK_FALSE(Prune(daemon, name).changed);
}

// The prune collects the extra message, and then cannot write, since another connection has the mutexes of the
// registry for longer than the prune waits.
TEST_CASE("rabbitmq prune: an extra message stays in the queue if the limit cannot be raised",
          "[rabbitmq]") {
  static int count = 0;
  const std::string prefix = absl::StrCat("prune-", getpid(), "-", ++count, "-");
  const Name name;
  const std::string queue = prefix + name.queue();
  Stranger stranger;
  Daemon daemon(std::chrono::milliseconds(100), TestUrl("?prefix=" + prefix));
  daemon.Create(name.text, 1);
  REQUIRE(stranger.connection->SelectConfirms(stranger.channel).ok());
  REQUIRE(stranger.connection->PublishAll(stranger.channel, {{queue, "resource"}}).ok());
  REQUIRE(ComesToHave(*stranger.connection, queue, 2));
  {
    std::vector<std::unique_ptr<Mutex>> registry;
    for (int part = 0; part < 32; ++part)
      registry.push_back(Mutex::Try(stranger.connection.get(),
                                    absl::StrCat(prefix, "semaphored.registry.", part, ".lock"))
                             .value());
    const auto refused = daemon.DoAll({AdminCommand{{}, name.text, 0, AdminPrune{}}});
    CHECK(absl::IsUnavailable(refused.front().status()));
    CHECK(InfoOf(daemon, name).row.limit == 1);
    CHECK(ComesToHave(*stranger.connection, queue, 2));
  }
  CHECK(Prune(daemon, name).kind == OutcomeKind::kDone);
  CHECK(InfoOf(daemon, name).row.limit == 2);
  CHECK(TakeAll(daemon, name, 2) == 2);
  TokenBroker(stranger.connection.get(), prefix).RemoveRegistry().IgnoreError();
  for (const std::string& left : {queue, queue + ".settings", prefix + "semaphored.secret"})
    stranger.connection->Delete(stranger.channel, left).IgnoreError();
}

TEST_CASE(
    "rabbitmq prune: an extra message that a request meets waits for a prune, and blocks nothing",
    "[rabbitmq]") {
  const Name name;
  Daemon a;
  Daemon b;
  a.Create(name.text, 1);
  Stranger stranger;
  const Delivery token = stranger.Take(name);
  // At the head of the queue.
  stranger.Publish(name, "resource");
  REQUIRE(stranger.connection->Reject(stranger.channel, token.delivery_tag).ok());
  stranger.Publish(name, "resource");
  REQUIRE(ReadyBecome(name.text, 3));
  CHECK(TakeAll(a, name, 1) == 1);
  CHECK(b.Acquire(name.text).kind == OutcomeKind::kFull);
  CHECK(InfoOf(a, name).row.limit == 1);
  // Each has met some. The prune of one has those of the other, too, once that one has heard of it.
  CHECK(a.Until([&] {
    b.Poll();
    Prune(a, name);
    return InfoOf(a, name).row.limit == 3;
  }));
  CHECK(TakeAll(a, name, 2) == 2);
}

TEST_CASE("rabbitmq prune: hundreds of extra messages hold no command up for long", "[rabbitmq]") {
  const Name name;
  // No sweep comes in between, which gives back what a semaphore that is not in use has.
  Daemon daemon(std::chrono::minutes(1));
  daemon.Create(name.text, 1);
  Stranger stranger;
  const Delivery token = stranger.Take(name);
  for (int i = 0; i < 250; ++i) stranger.Publish(name, "resource");
  REQUIRE(stranger.connection->Reject(stranger.channel, token.delivery_tag).ok());
  REQUIRE(ReadyBecome(name.text, 251));
  // Each command meets some; a few later one meets the token. None before it says that it is full.
  Outcome outcome = daemon.Acquire(name.text);
  for (int i = 0; i < 20 && outcome.kind != OutcomeKind::kGranted; ++i) {
    CHECK(absl::StrContains(outcome.message, "extra messages"));
    outcome = daemon.Acquire(name.text);
  }
  CHECK(outcome.kind == OutcomeKind::kGranted);
  REQUIRE(Prune(daemon, name).kind == OutcomeKind::kDone);
  CHECK(InfoOf(daemon, name).row.limit == 251);
}

TEST_CASE("rabbitmq prune: extra messages beside a limit that was lowered", "[rabbitmq]") {
  const Name name;
  Daemon daemon;
  daemon.Create(name.text, 3);
  Stranger stranger;
  const Delivery one = stranger.Take(name);
  const Delivery two = stranger.Take(name);
  stranger.Publish(name, "resource");
  daemon.Resize(name.text, 1);
  REQUIRE(stranger.connection->Reject(stranger.channel, one.delivery_tag).ok());
  REQUIRE(stranger.connection->Reject(stranger.channel, two.delivery_tag).ok());
  // What is too much goes, and the extra message stays.
  CHECK(daemon.Until([&] { return InfoOf(daemon, name).held == 0; }));
  CHECK(daemon.Until([&] {
    Prune(daemon, name);
    return InfoOf(daemon, name).row.limit == 2;
  }));
  CHECK(TakeAll(daemon, name, 2) == 2);
}

TEST_CASE("rabbitmq prune: a queue that was deleted is made anew, and what was held of it ends",
          "[rabbitmq]") {
  const Name name;
  Daemon a;
  Daemon b;
  a.Create(name.text, 2);
  const LeasePtr held = b.Grant(name.text);
  Stranger stranger;
  REQUIRE(stranger.connection->Delete(stranger.channel, name.queue()).ok());
  const Outcome outcome = Prune(a, name);
  CHECK(outcome.kind == OutcomeKind::kDone);
  CHECK(outcome.affected() == 2);
  // The other is told of the change, and looks.
  CHECK(b.Ended(held->id, &a));
  CHECK(TakeAll(a, name, 2) == 2);
}

// The confirm of a publishing was lost: the slot is doubtful, and its token is not there.
TEST_CASE("rabbitmq prune: a doubtful slot is not filled before it is certain", "[rabbitmq]") {
  const Name name;
  {
    Stranger stranger;
    TokenBroker broker(stranger.connection.get());
    SemaphoreRow row;
    row.name = name.text;
    row.limit = 2;
    bool begun = false;
    REQUIRE(Persist([&] { return broker.Create(row, 1, &begun); }).ok());
    auto document = Document::Open(stranger.connection.get(), name.queue() + ".settings", false,
                                   [](const auto& x, const auto&) { return x; });
    nlohmann::json content = (*document)->content();
    content["doubtful"] = {{2, 2}};
    REQUIRE((*document)->Write(content).ok());
    const Delivery first = stranger.Take(name);
    const Delivery second = stranger.Take(name);
    const bool first_is_two = ReadToken(first.body)->slot == 2;
    stranger.Acknowledge(first_is_two ? first : second);
  }
  REQUIRE(ReadyBecome(name.text, 1));
  Daemon daemon;
  Daemon other;
  const LeasePtr held = other.Grant(name.text);
  CHECK(held->slots == Slots{1});
  // Growing does not publish it a second time.
  daemon.Resize(name.text, 3);
  REQUIRE(ReadyBecome(name.text, 1));
  CHECK(Prune(daemon, name).kind == OutcomeKind::kInUse);
  other.Release(name.text, held->id);
  REQUIRE(ReadyBecome(name.text, 2));
  CHECK(daemon.Until([&] { return Prune(daemon, name).kind == OutcomeKind::kDone; }));
  CHECK(TakeAll(daemon, name, 3) == 3);
}

}  // namespace
}  // namespace semaphored::rabbitmq
