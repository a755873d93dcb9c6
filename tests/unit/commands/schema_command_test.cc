// `semaphored schema`: what is printed, made, and said.
#include "server/commands/schema_command.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "catch2/catch_test_macros.hpp"

namespace semaphored {
namespace {

struct Ran {
  int code = 0;
  std::string out, error;
};

Ran Run(const std::vector<std::string>& arguments, std::optional<std::string> store = {}) {
  Ran ran;
  SchemaCommand command;
  command.arguments = arguments;
  command.store = std::move(store);
  command.out = [&ran](const std::string& text) { ran.out += text; };
  command.error = [&ran](const std::string& text) { ran.error += text; };
  ran.code = RunSchema(command);
  return ran;
}

TEST_CASE("schema command: printed for the engine's own tools") {
  CHECK(absl::StrContains(Run({"--print"}).out, "CREATE TABLE"));
  CHECK(absl::StrContains(Run({"--print", "--store=postgres:///?schema=permits"}).out, "permits"));
  const Ran dynamodb = Run({"--print", "--store", "dynamodb://eu-west-1/locks"});
  CHECK(dynamodb.code == 0);
  const nlohmann::json table = nlohmann::json::parse(dynamodb.out);
  CHECK(table["TableName"] == "locks");
  CHECK(table["BillingMode"] == "PAY_PER_REQUEST");
  CHECK(table["KeySchema"].size() == 2);
}

TEST_CASE("schema command: an engine for which nothing has to be made") {
  for (const char* store : {"sqlite::memory:", "consul://127.0.0.1:1/x", "amqp://127.0.0.1:1/"}) {
    const Ran ran = Run({"--create", "--store", store});
    CHECK(ran.code == 0);
    CHECK(absl::StrContains(ran.out, "nothing has to be made"));
    CHECK(ran.error.empty());
  }
}

TEST_CASE("schema command: wrong arguments") {
  CHECK(Run({}).code == 2);
  CHECK(Run({"--print", "--create"}).code == 2);
  CHECK(Run({"--create"}).code == 2);
  CHECK(Run({"--print", "--store"}).code == 2);
  CHECK(Run({"--make"}).code == 2);
  CHECK(Run({"--create", "--store", "dynamodb://eu-west-1/x"}).code == 2);
  CHECK(Run({"--create", "--store", "mystery://x"}).code == 2);
  const Ran help = Run({"--help"});
  CHECK(help.code == 0);
  CHECK(absl::StrContains(help.out, "Usage"));
  const Ran secret = Run({"--stor=postgres://user:hunter2@host/db"});
  CHECK(secret.code == 2);
  CHECK_FALSE(absl::StrContains(secret.error, "hunter2"));
}

TEST_CASE("schema command: what cannot be made") {
  // Nobody listens on port 1.
  const Ran ran =
      Run({"--create"}, "dynamodb://local/absent?endpoint=http://127.0.0.1:1&timeout_ms=100");
  CHECK(ran.code == 3);
  CHECK(absl::StrContains(ran.error, "semaphored schema: dynamodb: "));
  CHECK(ran.out.empty());
}

TEST_CASE("schema command: the table of DynamoDB", "[dynamodb]") {
  const char* const file = std::getenv("SEMAPHORED_TEST_DYNAMODB_URL_FILE");
  REQUIRE(file != nullptr);
  std::ifstream stream(file);
  std::string url;
  REQUIRE(std::getline(stream, url));
  const size_t table = url.find("semaphored-test");
  REQUIRE(table != std::string::npos);
  url.replace(table, sizeof "semaphored-test" - 1, absl::StrCat("schema-command-", getpid()));
  Ran ran = Run({"--create"}, url);
  INFO(ran.error);
  CHECK(ran.code == 0);
  CHECK(absl::StrContains(ran.out, "is made"));
  CHECK(absl::StrContains(ran.error, "making"));
  ran = Run({"--create", "--store", url});
  CHECK(ran.code == 0);
  CHECK(absl::StrContains(ran.out, "was there already"));
}

}  // namespace
}  // namespace semaphored
