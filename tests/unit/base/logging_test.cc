#include "server/base/logging.h"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "server/base/library_lines.h"

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
  CHECK(MaskSecrets("x?a&b=1&token=c d=e") == "x?a&b=1&token=*** d=e");
  CHECK(MaskSecrets("a://h?x b://u:p@h#c://v:q@h") == "a://h?x b://u:***@h#c://v:***@h");
}

TEST_CASE("logging: what is no password stays") {
  for (const char* text :
       {"", "sqlite:///var/lib/x.db", "http://host:80/path", "http://joe@host", "a@b:c", "://",
        "why? because key = value", "127.0.0.1:7420", "?", "x?a=1&b=2"}) {
    CHECK(MaskSecrets(text) == text);
  }
}

TEST_CASE("logging: a text that is made to be slow to mask is masked in one pass") {
  // One that looks on to the text's end at each place would look at some 10^13 characters.
  constexpr size_t kTimes = 1'000'000;
  for (const std::string_view part : {"://", "?&", "?pass", "&a=", "://@", "://a:b@"}) {
    CAPTURE(part);
    std::string text;
    for (size_t i = 0; i < kTimes; ++i) text.append(part);
    text.append("=");
    CHECK(MaskSecrets(text).size() <= text.size() + 3);
  }
}

TEST_CASE("logging: of what a library says at one place the log gets little, and no secret") {
  LibraryLines lines;
  SteadyTime now{};
  const auto next = [&](int line, std::string_view message) {
    return lines.Next("parser.cc", line, message, now).value_or("none");
  };
  CHECK(next(1, "bad te of amqp://joe:secret@host") == "bad te of amqp://joe:***@host");
  for (int i = 0; i < 1'000; ++i) CHECK(next(1, "bad te") == "none");
  CHECK(next(2, "another") == "another");
  now += RareLine::kBetween;
  CHECK(next(1, "bad te") == "bad te (and 1000 others since the last such line)");
  // What is cut off was masked before.
  const std::string head = "amqp://joe:";
  const std::string secret(2 * LibraryLines::kBytesMax, 's');
  CHECK(next(3, head + secret + "@host") == head + "***@host");
  const std::string longest(LibraryLines::kBytesMax, 'x');
  CHECK(next(4, longest) == longest);
  CHECK(next(5, longest + "y") == longest + "…");
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
