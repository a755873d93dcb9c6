#include "server/core/logging.h"

#include <string>

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

namespace semaphored {
namespace {

TEST_CASE("logging: passwords in URLs are masked") {
  CHECK(MaskSecrets("amqp://joe:secret@host/x") == "amqp://joe:***@host/x");
  CHECK(MaskSecrets("a://u:p@h b://u:q@h") == "a://u:***@h b://u:***@h");
  CHECK(MaskSecrets("amqp://joe:a:b@c@host") == "amqp://joe:***@host");
  CHECK(MaskSecrets("amqp://joe:a/b@host") == "amqp://joe:***@host");
  CHECK(MaskSecrets("(\"amqp://:x@h\")") == "(\"amqp://:***@h\")");
  CHECK(MaskSecrets("amqp://joe:a\"b'c@host") == "amqp://joe:***@host");
  CHECK(MaskSecrets("pg://h/d?user=u&password=p&x=1") == "pg://h/d?user=u&password=***&x=1");
  CHECK(MaskSecrets("x?sslkey=a?Secret_Token=b") == "x?sslkey=***");
}

TEST_CASE("logging: what is no password stays") {
  for (const char* text :
       {"", "sqlite:///var/lib/x.db", "http://host:80/path", "http://joe@host", "a@b:c", "://",
        "why? because key = value", "127.0.0.1:7420", "?", "x?a=1&b=2"}) {
    CHECK(MaskSecrets(text) == text);
  }
}

TEST_CASE("logging: a line of JSON is valid whatever the message holds") {
  const std::string message = "say \"hi\"\n\\ \x01 \xff\xfe \xe2\x82\xac amqp://u:p@h";
  const std::string line = JsonLogLine("2026-01-31T12:00:00.123Z", "info", message);
  CHECK(line.find('\n') == std::string::npos);
  const nlohmann::json parsed = nlohmann::json::parse(line);
  CHECK(parsed["level"] == "info");
  CHECK(parsed["time"] == "2026-01-31T12:00:00.123Z");
  CHECK(parsed["message"].get<std::string>().find("amqp://u:***@h") != std::string::npos);
  CHECK(parsed["message"].get<std::string>().find("say \"hi\"\n") == 0);
}

TEST_CASE("logging: unknown levels, formats and files are refused") {
  CHECK(absl::IsInvalidArgument(InitLogging({.level = "loud"})));
  CHECK(absl::IsInvalidArgument(InitLogging({.format = "xml"})));
  CHECK(absl::IsPermissionDenied(InitLogging({.file = "/proc/none/semaphored.log"})));
}

}  // namespace
}  // namespace semaphored
