// The table: made, found again, and not mistaken for somebody else's.
#include "adapters/dynamodb/table.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "adapters/dynamodb/engine.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/dynamodb/fixture.h"
#include "tests/unit/loopback_http.h"

namespace semaphored::dynamodb {
namespace {

// A name in the DynamoDB of the tests that has no table, and has none in the end.
class TestTable {
 public:
  TestTable() {
    const char* const file = std::getenv("SEMAPHORED_TEST_DYNAMODB_URL_FILE");
    INFO(
        "SEMAPHORED_TEST_DYNAMODB_URL_FILE names the file with the URL of a DynamoDB; ctest sets "
        "it");
    REQUIRE(file != nullptr);
    std::ifstream stream(file);
    std::string text;
    REQUIRE(std::getline(stream, text));
    static int count = 0;
    url = ReadUrl(text).value();
    url.table = absl::StrCat("unit-table-", getpid(), "-", ++count);
    client = std::make_unique<Client>(url, TestCredentials());
  }
  ~TestTable() { Ask("DeleteTable"); }
  TestTable(const TestTable&) = delete;
  TestTable& operator=(const TestTable&) = delete;

  Reply Ask(const std::string& operation) {
    return client->Repeat({operation, json::object({{"TableName", url.table}})}, kNever);
  }

  Url url;
  std::unique_ptr<Client> client;
};

TableMaking Quickly(std::vector<std::string>* lines = nullptr) {
  TableMaking making;
  making.look_interval = std::chrono::milliseconds(1);
  if (lines != nullptr)
    making.progress = [lines](const std::string& line) { lines->push_back(line); };
  return making;
}

bool Says(const absl::Status& status, const std::string& text) {
  INFO(status.message());
  return absl::StrContains(status.message(), text);
}

TEST_CASE("dynamodb table: made, and found again", "[dynamodb]") {
  TestTable table;
  absl::Status status = CheckTable(table.client.get(), table.url, kNever);
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(Says(status, "semaphored schema --create"));
  CHECK(Says(status, R"("KeyType":"RANGE")"));
  std::vector<std::string> lines;
  absl::StatusOr<std::string> made = MakeTable(table.client.get(), table.url, Quickly(&lines));
  REQUIRE(made.ok());
  CHECK(absl::StrContains(*made, " is made"));
  CHECK_FALSE(lines.empty());
  CHECK(CheckTable(table.client.get(), table.url, kNever).ok());
  const json expiry = table.Ask("DescribeTimeToLive").body["TimeToLiveDescription"];
  CHECK(expiry["TimeToLiveStatus"] == "ENABLED");
  CHECK(expiry["AttributeName"] == kExpiresAt);
  made = MakeTable(table.client.get(), table.url, Quickly());
  REQUIRE(made.ok());
  CHECK(absl::StrContains(*made, "was there already"));
}

TEST_CASE("dynamodb table: by its definition alone", "[dynamodb]") {
  TestTable table;
  const json definition = json::parse(TableDefinition(table.url.table));
  REQUIRE(table.client->Repeat({"CreateTable", definition}, kNever).answered());
  CHECK(CheckTable(table.client.get(), table.url, kNever).ok());
  const json described = table.Ask("DescribeTable").body["Table"];
  CHECK(described["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST");
  // What the definition cannot say is done when it is asked for.
  CHECK(MakeTable(table.client.get(), table.url, Quickly()).ok());
  CHECK(table.Ask("DescribeTimeToLive").body["TimeToLiveDescription"]["TimeToLiveStatus"] ==
        "ENABLED");
}

TEST_CASE("dynamodb table: somebody else's is left as it is", "[dynamodb]") {
  TestTable table;
  json definition = json::parse(TableDefinition(table.url.table));
  SECTION("other keys") {
    definition["KeySchema"] =
        json::array({json::object({{"AttributeName", "id"}, {"KeyType", "HASH"}})});
    definition["AttributeDefinitions"] =
        json::array({json::object({{"AttributeName", "id"}, {"AttributeType", "S"}})});
  }
  SECTION("keys of another kind") { definition["AttributeDefinitions"][1]["AttributeType"] = "N"; }
  SECTION("keys the other way round") {
    definition["KeySchema"][0]["AttributeName"] = kSortKey;
    definition["KeySchema"][1]["AttributeName"] = kPartitionKey;
  }
  REQUIRE(table.client->Repeat({"CreateTable", definition}, kNever).answered());
  const absl::Status status = CheckTable(table.client.get(), table.url, kNever);
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(Says(status, "has other keys"));
  CHECK(absl::IsFailedPrecondition(MakeTable(table.client.get(), table.url, Quickly()).status()));
  CHECK(table.Ask("DescribeTimeToLive").body["TimeToLiveDescription"]["TimeToLiveStatus"] ==
        "DISABLED");
}

// ---- What DynamoDB Local does not do ----

using Answer = LoopbackHttp::Answer;

Answer Say(const json& body, int status = 200) { return {status, body.dump(), {}, false}; }

Answer Refuse(const std::string& name) {
  return Say(json::object({{"__type", "com.amazonaws.dynamodb.v20120810#" + name}}), 400);
}

// A table as the definition has it.
json Table(const std::string& state) {
  json table = json::parse(TableDefinition("semaphored"));
  table["TableStatus"] = state;
  return table;
}

Url UrlTo(const LoopbackHttp& server) {
  Url url;
  url.region = "eu-west-1";
  url.endpoint = server.address();
  return url;
}

std::string OperationOf(const LoopbackHttp::Request& request) {
  return request.header("x-amz-target").substr(sizeof "DynamoDB_20120810." - 1);
}

TEST_CASE("dynamodb table: what goes on is told while it is made") {
  // One description after the other; the last from then on.
  std::vector<Answer> described = {Refuse("ResourceNotFoundException"),
                                   Refuse("ResourceNotFoundException"),
                                   Say(json::object({{"Table", Table("CREATING")}})),
                                   Say(json::object({{"Table", Table("CREATING")}})),
                                   Say(json::object({{"Table", Table("ACTIVE")}}))};
  std::vector<std::string> operations;
  Answer created = Say(json::object());
  SECTION("by us alone") {}
  SECTION("by somebody else at the same time") { created = Refuse("ResourceInUseException"); }
  LoopbackHttp server([&](const LoopbackHttp::Request& request, int) {
    operations.push_back(OperationOf(request));
    if (operations.back() == "DescribeTable") {
      const Answer answer = described.front();
      if (described.size() > 1) described.erase(described.begin());
      return answer;
    }
    if (operations.back() == "CreateTable") return created;
    return Say(json::object());
  });
  std::vector<std::string> lines;
  Client client(UrlTo(server), TestCredentials());
  const absl::StatusOr<std::string> made = MakeTable(&client, UrlTo(server), Quickly(&lines));
  REQUIRE(made.ok());
  REQUIRE(lines.size() == 3);
  CHECK(absl::StrContains(lines[0], "making"));
  CHECK(absl::StrContains(lines[1], "not seen yet"));
  CHECK(absl::StrContains(lines[2], "CREATING"));
  CHECK(std::count(operations.begin(), operations.end(), "UpdateTimeToLive") == 1);
}

TEST_CASE("dynamodb table: that is not ready") {
  LoopbackHttp server([&](const LoopbackHttp::Request&, int) {
    return Say(json::object({{"Table", Table("CREATING")}}));
  });
  Client client(UrlTo(server), TestCredentials());
  CHECK(absl::IsUnavailable(CheckTable(&client, UrlTo(server), kNever)));
  TableMaking making = Quickly();
  making.patience = std::chrono::milliseconds(300);
  const absl::Status status = MakeTable(&client, UrlTo(server), making).status();
  CHECK(absl::IsUnavailable(status));
  CHECK(Says(status, "still CREATING"));
}

TEST_CASE("dynamodb table: one that is copied to other regions is refused") {
  json table = Table("ACTIVE");
  table["Replicas"] = json::array({json::object({{"RegionName", "us-east-1"}})});
  LoopbackHttp server([&](const LoopbackHttp::Request&, int) {
    return Say(json::object({{"Table", table}}));
  });
  Client client(UrlTo(server), TestCredentials());
  const absl::Status status = CheckTable(&client, UrlTo(server), kNever);
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(Says(status, "global table"));
}

TEST_CASE("dynamodb table: expiry that somebody else sets at the same time") {
  bool is_set = false;
  bool others = true;
  SECTION("is as good as ours") {}
  SECTION("is the only reason for which it may be refused") { others = false; }
  LoopbackHttp server([&](const LoopbackHttp::Request& request, int) {
    const std::string operation = OperationOf(request);
    if (operation == "DescribeTable") return Say(json::object({{"Table", Table("ACTIVE")}}));
    if (operation == "UpdateTimeToLive") {
      is_set = others;
      return Refuse("ValidationException");
    }
    const json description = {{"TimeToLiveStatus", is_set ? "ENABLING" : "DISABLED"},
                              {"AttributeName", "expires_at_s"}};
    return Say(json::object({{"TimeToLiveDescription", description}}));
  });
  Client client(UrlTo(server), TestCredentials());
  const absl::Status status = MakeTable(&client, UrlTo(server), Quickly()).status();
  CHECK(status.ok() == others);
  CHECK((others || Says(status, "ValidationException")));
}

TEST_CASE("dynamodb table: expiry by another attribute is somebody else's") {
  LoopbackHttp server([&](const LoopbackHttp::Request& request, int) {
    if (OperationOf(request) == "DescribeTable")
      return Say(json::object({{"Table", Table("ACTIVE")}}));
    return Say(json::parse(
        R"({"TimeToLiveDescription":{"TimeToLiveStatus":"ENABLED","AttributeName":"ttl"}})"));
  });
  Client client(UrlTo(server), TestCredentials());
  const absl::Status status = MakeTable(&client, UrlTo(server), Quickly()).status();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(Says(status, "'ttl'"));
}

TEST_CASE("dynamodb table: what may not be done is told as the engine tells it") {
  LoopbackHttp server(
      [&](const LoopbackHttp::Request&, int) { return Refuse("AccessDeniedException"); });
  Client client(UrlTo(server), TestCredentials());
  CHECK(absl::IsPermissionDenied(CheckTable(&client, UrlTo(server), kNever)));
  CHECK(absl::IsPermissionDenied(MakeTable(&client, UrlTo(server), Quickly()).status()));
}

// The first search takes as long as a request may.
class LateKeys : public CredentialSource {
 public:
  explicit LateKeys(std::chrono::milliseconds time) : time_(time) {}
  absl::StatusOr<Credentials> Get() override {
    if (!std::exchange(found_, true)) std::this_thread::sleep_for(time_);
    return Credentials{"id", "secret", ""};
  }

 private:
  const std::chrono::milliseconds time_;
  bool found_ = false;
};

TEST_CASE("dynamodb table: a store is opened with credentials that take as long as a request may") {
  LoopbackHttp server([](const LoopbackHttp::Request& request, int) {
    if (OperationOf(request) == "DescribeTable")
      return Say(json::object({{"Table", Table("ACTIVE")}}));
    return Say(json::parse(R"({"Item":{"version":{"N":"1"}}})"));
  });
  Url url = UrlTo(server);
  // Long enough for a request on a busy machine.
  url.timeout = std::chrono::seconds(2);
  CHECK(OpenTable(url, std::make_shared<LateKeys>(url.timeout)).status().ok());
  CHECK(server.requests().size() == 2);
}

}  // namespace
}  // namespace semaphored::dynamodb
