// What is in the broker: names of queues, permits, and documents byte by byte with their formats.
#include "tests/unit/adapters/golden.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "adapters/open.h"
#include "adapters/rabbitmq/document.h"
#include "adapters/rabbitmq/sealing.h"
#include "adapters/rabbitmq/slot_broker.h"
#include "adapters/rabbitmq/token_broker.h"
#include "adapters/rabbitmq/token_format.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/rabbitmq/fixture.h"

namespace semaphored::rabbitmq {
namespace {

using golden::CheckStored;

constexpr char kSettingsText[] =
    R"({"act":41,"backfill":true,"created_at_unix_ms":1700000000000,"destroying":false,)"
    R"("doubtful":[],"format":1,"incarnation":1,"limit":3,"longest_hold_ms":1000,)"
    R"("owner":"team-a","paused":true,"recall_grace_ms":2000,"slots":[[1,3]],)"
    R"("version":16777218,"waiters_max":50})";
constexpr char kRegistryText[] = R"({"format":1,"generation":2,"names":["golden/db"],"version":2})";

// Queues under a prefix of their own, which go with the test.
class TestQueues {
 public:
  TestQueues() : prefix_(absl::StrCat("golden-", getpid(), "-", ++count_, "-")) {}
  ~TestQueues() {
    const Channel channel = connection_->OpenChannel().value();
    for (const char* queue : {"golden/db.semaphore", "golden/db.semaphore.settings",
                              "semaphored.registry.10", "semaphored.secret"})
      connection_->Delete(channel, prefix_ + queue).IgnoreError();
  }
  TestQueues(const TestQueues&) = delete;
  TestQueues& operator=(const TestQueues&) = delete;

  const std::string& prefix() const { return prefix_; }
  Connection* connection() const { return connection_.get(); }

  // The newest document; older ones may stand beside it until the next daemon takes the document.
  std::string Text(const std::string& queue) const {
    const std::unique_ptr<Connection> reader = Connect();
    const Channel channel = reader->OpenChannel().value();
    std::string newest;
    uint64_t version = 0;
    for (auto got = reader->Get(channel, prefix_ + queue).value(); got;
         got = reader->Get(channel, prefix_ + queue).value()) {
      const uint64_t of_this = nlohmann::json::parse(got->body).value("version", uint64_t{1});
      if (of_this > version) newest = got->body;
      version = std::max(version, of_this);
    }
    return newest;
  }
  void Put(const std::string& queue, const std::string& text) const {
    const Channel channel = connection_->OpenChannel().value();
    connection_->Delete(channel, prefix_ + queue).IgnoreError();
    REQUIRE(connection_->Declare(channel, prefix_ + queue, {.quorum = true}).ok());
    REQUIRE(connection_->SelectConfirms(channel).ok());
    REQUIRE(connection_->PublishAll(channel, {{prefix_ + queue, text}}).ok());
    REQUIRE(connection_->CloseChannel(channel).ok());
  }

 private:
  static inline int count_ = 0;
  const std::string prefix_;
  const std::unique_ptr<Connection> connection_ = Connect();
};

SemaphoreRow GoldenRow() {
  SemaphoreRow row = golden::FullRow();
  row.name = "golden/db";
  return row;
}

TEST_CASE("rabbitmq golden: permits and names of queues") {
  constexpr char kToken[] = R"({"base":4294967296,"slot":3})";
  CheckStored(TokenText({3, uint64_t{1} << 32}), kToken);
  CHECK(ReadToken(kToken)->base == uint64_t{1} << 32);
  CHECK(ReadToken(kToken)->slot == 3);
  const TokenBroker broker(nullptr, "p-");
  CheckStored(broker.TokenQueue("team/db"), "p-team/db.semaphore");
  CheckStored(broker.TokenQueue(std::string(166, 'n')),
              "p-" + std::string(100, 'n') +
                  "~a0b2ddd12fe50165cb9bf1a416f3cba746d651ce2c07d5af70d985c6b4ed374d.semaphore");
  CheckStored(broker.Changes(), "p-semaphored.changes");
  CheckStored(broker.Secret(), "p-semaphored.secret");
  CheckStored(SlotQueue("team", 3), "team-A-3");
  CheckStored(HolderQueue("team", 3), "team-B-3");
}

// Without the version and the format, which every document has.
constexpr char kMakingText[] =
    R"({"act":41,"backfill":true,"created_at_unix_ms":1700000000000,"destroying":false,)"
    R"("doubtful":[[3,3]],"incarnation":1,"limit":3,"longest_hold_ms":1000,"making":true,)"
    R"("owner":"team-a","paused":true,"recall_grace_ms":2000,"slots":[[1,1],[3,3]],)"
    R"("waiters_max":50})";

TEST_CASE("rabbitmq golden: settings of a semaphore that is being made") {
  StoredSemaphore stored;
  stored.row = golden::FullRow();
  stored.incarnation = 1;
  stored.act = 41;
  stored.slots = {1, 3};
  stored.doubtful = {3};
  stored.making = true;
  CheckStored(SettingsOf(stored).dump(), kMakingText);
  nlohmann::json content = nlohmann::json::parse(kMakingText);
  content["version"] = 6;
  const StoredSemaphore read = ReadSettings("team/db", content).value();
  CheckStored(SettingsOf(read).dump(), kMakingText);
  CHECK(read.row.revision == 6);
  CHECK(absl::IsDataLoss(ReadSettings("team/db", nlohmann::json::parse(kMakingText)).status()));
}

TEST_CASE("rabbitmq golden: settings and a part of the registry", "[rabbitmq]") {
  const TestQueues queues;
  TokenBroker broker(queues.connection(), queues.prefix());
  // A store subscribes to the changes before it creates anything.
  const Channel channel = queues.connection()->OpenChannel().value();
  REQUIRE(queues.connection()->Subscribe(channel, broker.Changes()).ok());
  bool begun = false;
  REQUIRE(Persist([&] { return broker.Create(GoldenRow(), 41, &begun); }).ok());
  CheckStored(queues.Text("golden/db.semaphore.settings"), kSettingsText);
  CheckStored(queues.Text("semaphored.registry.10"), kRegistryText);
}

TEST_CASE("rabbitmq golden: documents that stand are read", "[rabbitmq]") {
  const TestQueues queues;
  TokenBroker broker(queues.connection(), queues.prefix());
  // The second was written before documents had a format.
  for (const std::string& text :
       {std::string(kSettingsText), absl::StrReplaceAll(kSettingsText, {{"\"format\":1,", ""}})}) {
    queues.Put("golden/db.semaphore.settings", text);
    const StoredSemaphore read = Persist([&] { return broker.Read("golden/db"); }).value().value();
    SemaphoreRow row = GoldenRow();
    row.revision = 16'777'218;
    // These are not kept here.
    row.next_order = read.row.next_order;
    row.settings.permits_per_holder = 0;
    row.made_on_use = false;
    row.intentions.clear();
    CHECK(read.row == row);
    CHECK(read.slots == std::set<uint32_t>{1, 2, 3});
    CHECK((read.act == 41 && read.incarnation == 1 && read.doubtful.empty()));
  }
  queues.Put("semaphored.registry.10", kRegistryText);
  CHECK(Persist([&] { return broker.Names("", "", 10); }).value() ==
        std::vector<std::string>{"golden/db"});
}

TEST_CASE("rabbitmq golden: a newer daemon's documents are refused, and stay", "[rabbitmq]") {
  const TestQueues queues;
  TokenBroker broker(queues.connection(), queues.prefix());
  const std::string newer = absl::StrReplaceAll(kSettingsText, {{"\"format\":1", "\"format\":2"}});
  queues.Put("golden/db.semaphore.settings", newer);
  bool begun = false;
  for (const absl::Status& status :
       {Persist([&] { return broker.Read("golden/db"); }).status(),
        Persist([&] { return broker.Create(GoldenRow(), 41, &begun); }).status(),
        Persist([&] { return broker.Update(GoldenRow(), 41, &begun); }).status(),
        Persist([&] { return broker.Destroy("golden/db", 1, &begun); })}) {
    CHECK(absl::IsUnimplemented(status));
    CHECK(std::string(status.message()).find("has version 2, made by a newer semaphored") !=
          std::string::npos);
  }
  CHECK_FALSE(begun);
  CheckStored(queues.Text("golden/db.semaphore.settings"), newer);
}

TEST_CASE("rabbitmq golden: a registry of other types is damage, and no exception", "[rabbitmq]") {
  const TestQueues queues;
  TokenBroker broker(queues.connection(), queues.prefix());
  for (const char* text :
       {R"({"format":1,"generation":"2","names":[],"version":2})",
        R"({"format":1,"generation":-2,"names":[],"version":2})",
        R"({"format":1,"generation":2,"names":"golden/db","version":2})",
        R"({"format":1,"generation":2,"names":[7],"version":2})", R"({"format":1,"version":2})"}) {
    CAPTURE(text);
    queues.Put("semaphored.registry.10", text);
    bool begun = false;
    const absl::Status listed = Persist([&] { return broker.Names("", "", 10); }).status();
    CHECK(absl::IsDataLoss(listed));
    CHECK(std::string(listed.message()).find("semaphored.registry.10") != std::string::npos);
    CHECK(
        absl::IsDataLoss(Persist([&] { return broker.Create(GoldenRow(), 41, &begun); }).status()));
    CHECK(absl::IsDataLoss(Persist([&] { return broker.Destroy("golden/db", 1, &begun); })));
    CHECK_FALSE(begun);
  }
}

TEST_CASE("rabbitmq golden: a newer daemon's registry is refused, and the semaphore stays",
          "[rabbitmq]") {
  const TestQueues queues;
  TokenBroker broker(queues.connection(), queues.prefix());
  // A store subscribes to the changes before it creates anything.
  const Channel channel = queues.connection()->OpenChannel().value();
  REQUIRE(queues.connection()->Subscribe(channel, broker.Changes()).ok());
  bool begun = false;
  REQUIRE(Persist([&] { return broker.Create(GoldenRow(), 41, &begun); }).ok());
  const std::string newer = absl::StrReplaceAll(kRegistryText, {{"\"format\":1", "\"format\":2"}});
  queues.Put("semaphored.registry.10", newer);
  begun = false;
  for (const absl::Status& status :
       {Persist([&] { return broker.Destroy("golden/db", 1, &begun); }),
        Persist([&] { return broker.Destroy("golden/db", 0, &begun); }),
        Persist([&] { return broker.Names("", "", 10); }).status()}) {
    CHECK(absl::IsUnimplemented(status));
    CHECK(std::string(status.message()).find("semaphored.registry.10 has version 2") !=
          std::string::npos);
  }
  CHECK_FALSE(begun);
  CHECK(Persist([&] { return broker.Read("golden/db"); }).value());
  CHECK(ComesToHave(*queues.connection(), queues.prefix() + "golden/db.semaphore", 3));
  CheckStored(queues.Text("semaphored.registry.10"), newer);
}

constexpr char kSecretText[] =
    R"({"format":1,"secret":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",)"
    R"("version":1})";
constexpr char kSealedText[] =
    R"({"seal":"f516857ee7399035c5a5417ce6bf717e2f8bc2cbc8cd7dba51126de0abf9e6d2",)"
    R"("sealed":"{\"epoch\":2,\"number\":1,\"sender\":\"a\",\"what\":1}"})";

TEST_CASE("rabbitmq golden: the secret, and a message that is sealed with it", "[rabbitmq]") {
  const TestQueues queues;
  queues.Put("semaphored.secret", kSecretText);
  Sealing sealing(queues.connection(), queues.prefix() + "semaphored.secret");
  const SteadyTime now = SteadyClock::now();
  REQUIRE(sealing.BeginIfDue(now).ok());
  CheckStored(queues.Text("semaphored.secret"),
              absl::StrReplaceAll(kSecretText, {{"\"version\":1", "\"version\":2"}}));
  const auto read = sealing.Open(kSealedText, now);
  REQUIRE(read);
  CHECK(read->at("what") == 1);
  const auto outer = nlohmann::json::parse(sealing.Seal({{"what", 1}}).value());
  const auto inner = nlohmann::json::parse(outer.at("sealed").get<std::string>());
  CHECK((outer.size() == 2 && outer.at("seal").get<std::string>().size() == 64));
  CHECK((inner.size() == 4 && inner.at("epoch") == 2 && inner.at("number") == 1));
  CHECK((inner.at("what") == 1 && inner.at("sender").get<std::string>().size() == 64));
}

TEST_CASE("rabbitmq golden: a daemon does not start on a newer daemon's broker", "[rabbitmq]") {
  const TestQueues queues;
  const std::string newer = absl::StrReplaceAll(kSecretText, {{"\"format\":1", "\"format\":2"}});
  queues.Put("semaphored.secret", newer);
  const auto engine = OpenEngine(TestUrl("?prefix=" + queues.prefix())).value();
  ledger::LedgerOptions options;
  options.self = engine->nodes().Join("golden").value();
  CHECK(absl::IsUnimplemented(engine->OpenLane(options).status()));
  CheckStored(queues.Text("semaphored.secret"), newer);
}

}  // namespace
}  // namespace semaphored::rabbitmq
