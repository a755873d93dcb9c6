// The URL of a DynamoDB store.
#include "adapters/dynamodb/url.h"

#include <string>

#include <catch2/generators/catch_generators.hpp>

#include "catch2/catch_test_macros.hpp"

namespace semaphored::dynamodb {
namespace {

TEST_CASE("dynamodb url: all that it may say") {
  const absl::StatusOr<Url> url = ReadUrl(
      "dynamodb://eu-west-1/team.locks-1_a?endpoint=https%3A%2F%2Fdynamo.example:8443/&lanes=7"
      "&profile=ci&timeout_ms=700&poll_min_ms=5&poll_max_ms=300&history_h=0&ca_file=/etc/passwd");
  REQUIRE(url.ok());
  CHECK(url->region == "eu-west-1");
  CHECK(url->table == "team.locks-1_a");
  CHECK(url->endpoint == "https://dynamo.example:8443");
  CHECK(url->base() == "https://dynamo.example:8443");
  CHECK(url->lanes == 7);
  CHECK(url->profile == "ci");
  CHECK(url->timeout.count() == 700);
  CHECK(url->poll_min.count() == 5);
  CHECK(url->poll_max.count() == 300);
  CHECK(url->history.count() == 0);
  CHECK(url->ca_file == "/etc/passwd");
}

TEST_CASE("dynamodb url: what it need not say") {
  for (const char* text : {"dynamodb://eu-west-1", "dynamodb://eu-west-1/"}) {
    const absl::StatusOr<Url> url = ReadUrl(text);
    REQUIRE(url.ok());
    CHECK(url->table == "semaphored");
    CHECK(url->base() == "https://dynamodb.eu-west-1.amazonaws.com");
    CHECK(url->profile.empty());
    CHECK(url->history.count() == 24 * 7);
  }
  CHECK(ReadUrl("dynamodb://cn-north-1").value().base() ==
        "https://dynamodb.cn-north-1.amazonaws.com.cn");
}

TEST_CASE("dynamodb url: what is refused") {
  const std::string text = GENERATE(
      "dynamo://eu-west-1", "dynamodb://", "dynamodb:///table", "dynamodb://eu_west/table",
      "dynamodb://eu-west-1/ab", "dynamodb://eu-west-1/a/b", "dynamodb://eu-west-1/a%20b",
      "dynamodb://eu-west-1/%zz", "dynamodb://eu-west-1/table?lanes=0",
      "dynamodb://eu-west-1/table?lanes=65", "dynamodb://eu-west-1/table?lanes=x",
      "dynamodb://eu-west-1/table?endpoint=127.0.0.1:8000",
      "dynamodb://eu-west-1/table?endpoint=http://127.0.0.1:8000/path",
      "dynamodb://eu-west-1/table?endpoint=http://",
      "dynamodb://eu-west-1/table?endpoint=ftp://127.0.0.1",
      "dynamodb://eu-west-1/table?timeout_ms=99", "dynamodb://eu-west-1/table?history_h=-1",
      "dynamodb://eu-west-1/table?poll_min_ms=50&poll_max_ms=20",
      "dynamodb://eu-west-1/table?ca_file=/nowhere/ca.pem",
      "dynamodb://eu-west-1/table?profile=%2");
  INFO(text);
  const absl::StatusOr<Url> url = ReadUrl(text);
  CHECK(absl::IsInvalidArgument(url.status()));
  CHECK(url.status().message().find("dynamodb store: ") == 0);
}

TEST_CASE("dynamodb url: what may be a key is not shown") {
  const std::string text = GENERATE(
      "dynamodb://AKIASECRET:hunter2@eu-west-1/table",
      "dynamodb://AKIASECRET:hunter2/with/signs@eu-west-1/table",
      "dynamodb://eu-west-1/table?secret_access_key=hunter2", "dynamodb://eu-west-1/table?hunter2",
      "dynamodb://eu-west-1/table?endpoint=http://AKIASECRET:hunter2@127.0.0.1:8000");
  INFO(text);
  const absl::StatusOr<Url> url = ReadUrl(text);
  CHECK(absl::IsInvalidArgument(url.status()));
  CHECK(url.status().message().find("hunter2") == std::string::npos);
  CHECK(url.status().message().find("AKIASECRET") == std::string::npos);
}

}  // namespace
}  // namespace semaphored::dynamodb
