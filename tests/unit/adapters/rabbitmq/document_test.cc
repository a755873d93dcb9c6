// Documents in a broker: one that reads is never shown an old one alone, and two who did not know
// of each other are both heard.
#include "adapters/rabbitmq/document.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "catch2/generators/catch_generators.hpp"
#include "tests/unit/adapters/rabbitmq/fixture.h"
#include "tests/unit/relay.h"

namespace semaphored::rabbitmq {
namespace {

using nlohmann::json;

json FirstOf(const json& a, const json& b) { return a.dump() < b.dump() ? a : b; }

// A queue for a document, gone with the test.
struct DocumentQueue {
  std::string text = NewName();
  ~DocumentQueue() {
    const auto connection = Connect();
    connection->Delete(connection->OpenChannel().value(), text).IgnoreError();
  }
};

json Content(uint64_t number) { return json{{"number", number}}; }

TEST_CASE("rabbitmq document: made once, then replaced, with rising versions", "[rabbitmq]") {
  const DocumentQueue queue;
  const auto connection = Connect();
  CHECK(absl::IsNotFound(
      Document::Open(connection.get(), queue.text, /*make=*/false, FirstOf).status()));
  for (uint64_t i = 1; i <= 3; ++i) {
    auto document = Document::Open(connection.get(), queue.text, /*make=*/true, FirstOf);
    REQUIRE(document.ok());
    CHECK((*document)->empty() == (i == 1));
    if (i > 1) CHECK((*document)->content()["number"] == i - 1);
    REQUIRE((*document)->Write(Content(i)).ok());
    CHECK((*document)->version() == i);
  }
  CHECK(ComesToHave(*Connect(), queue.text, 1));
}

// From RabbitMQ 4.0 on a queue drops what comes back for the 21st time, unless it is made otherwise.
TEST_CASE("rabbitmq document: it is there however often it is read", "[rabbitmq]") {
  const DocumentQueue queue;
  const auto connection = Connect();
  {
    auto document = Document::Open(connection.get(), queue.text, /*make=*/true, FirstOf);
    REQUIRE((*document)->Write(Content(7)).ok());
  }
  for (int i = 0; i < 50; ++i) {
    const auto document = Document::Open(connection.get(), queue.text, /*make=*/false, FirstOf);
    REQUIRE(document.ok());
    REQUIRE_FALSE((*document)->empty());
    REQUIRE((*document)->content()["number"] == 7);
  }
}

// A reader may have died with it, and the broker be slow to take it back: the semaphore still stands.
TEST_CASE("rabbitmq document: what another connection has is not taken for an empty document",
          "[rabbitmq]") {
  const DocumentQueue queue;
  const auto connection = Connect();
  {
    auto document = Document::Open(connection.get(), queue.text, /*make=*/true, FirstOf);
    REQUIRE((*document)->Write(Content(7)).ok());
  }
  REQUIRE(ComesToHave(*Connect(), queue.text, 1));
  auto other = Connect();
  const Channel channel = other->OpenChannel().value();
  REQUIRE(other->Get(channel, queue.text).value().has_value());
  for (const bool make : {false, true}) {
    const auto document = Document::Open(connection.get(), queue.text, make, FirstOf);
    CHECK(absl::IsUnavailable(document.status()));
  }
  other.reset();
  REQUIRE(ComesToHave(*Connect(), queue.text, 1));
  const auto document = Document::Open(connection.get(), queue.text, /*make=*/false, FirstOf);
  REQUIRE(document.ok());
  CHECK((*document)->content()["number"] == 7);
}

TEST_CASE("rabbitmq document: whoever reads while others read and write meets no older one",
          "[rabbitmq]") {
  const DocumentQueue queue;
  const auto connection = Connect();
  {
    auto document = Document::Open(connection.get(), queue.text, /*make=*/true, FirstOf);
    REQUIRE((*document)->Write(Content(0)).ok());
  }
  std::atomic<bool> done{false};
  std::atomic<uint64_t> written{0};
  std::atomic<int> reads{0};
  std::atomic<int> failures{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      const auto own = Connect();
      while (!done) {
        const uint64_t at_least = written;
        auto read = Document::Open(own.get(), queue.text, /*make=*/false, FirstOf);
        // Others have it all the time.
        if (absl::IsUnavailable(read.status())) continue;
        if (!read.ok() || (*read)->empty() || (*read)->content()["number"] < at_least) ++failures;
        ++reads;
      }
    });
  }
  for (uint64_t i = 1; i <= 40; ++i) {
    auto document = Document::Open(connection.get(), queue.text, /*make=*/false, FirstOf);
    while (absl::IsUnavailable(document.status()))
      document = Document::Open(connection.get(), queue.text, /*make=*/false, FirstOf);
    if (!document.ok() || !(*document)->Write(Content(i)).ok()) ++failures;
    document->reset();
    written = i;
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  CHECK(failures == 0);
  CHECK(reads > 0);
}

TEST_CASE("rabbitmq document: of what a crash left, the newest counts, and the rest goes",
          "[rabbitmq]") {
  const DocumentQueue queue;
  const auto connection = Connect();
  {
    auto document = Document::Open(connection.get(), queue.text, /*make=*/true, FirstOf);
    REQUIRE((*document)->Write(Content(1)).ok());
  }
  const auto other = Connect();
  const Channel channel = other->OpenChannel().value();
  REQUIRE(other->SelectConfirms(channel).ok());
  REQUIRE(other->PublishAll(channel, {{queue.text, R"({"number":2,"version":2})"}}).ok());
  auto document = Document::Open(connection.get(), queue.text, /*make=*/false, FirstOf);
  REQUIRE(document.ok());
  CHECK((*document)->content()["number"] == 2);
  REQUIRE((*document)->Write(Content(3)).ok());
  document->reset();
  CHECK(ComesToHave(*other, queue.text, 1));
}

TEST_CASE("rabbitmq document: two of one version are merged", "[rabbitmq]") {
  const DocumentQueue queue;
  const auto connection = Connect();
  {
    auto document = Document::Open(connection.get(), queue.text, /*make=*/true, FirstOf);
    REQUIRE((*document)->Write(Content(1)).ok());
  }
  const auto other = Connect();
  const Channel channel = other->OpenChannel().value();
  REQUIRE(other->SelectConfirms(channel).ok());
  REQUIRE(other->PublishAll(channel, {{queue.text, R"({"number":7,"version":1})"}}).ok());
  const auto sum = [](const json& a, const json& b) {
    return Content(a["number"].get<uint64_t>() + b["number"].get<uint64_t>());
  };
  auto document = Document::Open(connection.get(), queue.text, /*make=*/false, sum);
  REQUIRE(document.ok());
  CHECK((*document)->content()["number"] == 8);
  CHECK((*document)->version() == 2);
}

TEST_CASE("rabbitmq document: what is none of ours is DATA_LOSS, and stays", "[rabbitmq]") {
  const DocumentQueue queue;
  const auto connection = Connect();
  const Channel channel = connection->OpenChannel().value();
  REQUIRE(connection->Declare(channel, queue.text, {.quorum = true}).ok());
  REQUIRE(connection->SelectConfirms(channel).ok());
  REQUIRE(connection->PublishAll(channel, {{queue.text, "somebody's"}}).ok());
  CHECK(absl::IsDataLoss(
      Document::Open(connection.get(), queue.text, /*make=*/false, FirstOf).status()));
  CHECK(ComesToHave(*connection, queue.text, 1));
}

TEST_CASE("rabbitmq document: its mutex is one connection's, and free when it is given back",
          "[rabbitmq]") {
  const std::string queue = NewName();
  const auto first = Connect();
  const auto second = Connect();
  auto held = Mutex::Try(first.get(), queue);
  REQUIRE(held.ok());
  CHECK(absl::IsUnavailable(Mutex::Try(second.get(), queue).status()));
  held->reset();
  auto again = Mutex::Try(second.get(), queue);
  REQUIRE(again.ok());
  CHECK((*again)->held());
  second->Close();
  CHECK_FALSE((*again)->held());
  CHECK(Mutex::Lock(first.get(), queue).ok());
}

TEST_CASE("rabbitmq document: a mutex of which the broker's answer is late is deleted",
          "[rabbitmq]") {
  const std::string queue = NewName();
  Relay relay(TestPort());
  Connection connection(ReadUrl(TestUrlThrough(relay.port(), "?timeout_ms=2000")).value(),
                        "unit test");
  connection.KeepLate();
  REQUIRE(connection.Open().ok());
  const bool is_declared = GENERATE(true, false);
  if (is_declared) {
    relay.DelayAnswers(AMQP_QUEUE_DECLARE_OK_METHOD);
    CHECK(absl::IsDeadlineExceeded(Mutex::Try(&connection, queue).status()));
  } else {
    auto held = Mutex::Try(&connection, queue);
    REQUIRE(held.ok());
    relay.DelayAnswers(AMQP_QUEUE_DELETE_OK_METHOD);
  }
  REQUIRE(connection.is_open());
  // It cannot be this connection's again before: the delete may be still to come.
  CHECK(absl::IsDeadlineExceeded(Mutex::Try(&connection, queue).status()));
  const auto other = Connect();
  CHECK(Mutex::Lock(other.get(), queue).ok());
  relay.DeliverAnswers();
  const auto until = SteadyClock::now() + std::chrono::seconds(10);
  auto again = Mutex::Try(&connection, queue);
  while (absl::IsDeadlineExceeded(again.status()) && SteadyClock::now() < until)
    again = Mutex::Try(&connection, queue);
  CHECK(again.ok());
}

}  // namespace
}  // namespace semaphored::rabbitmq
