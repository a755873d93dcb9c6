#include "server/config/reload.h"

#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

namespace semaphored {
namespace {

using Catch::Matchers::ContainsSubstring;

ConfigSources File(const std::string& text) {
  ConfigSources sources;
  sources.arguments = {"--config=f", "--node-id=n"};
  sources.read_file = [text](const std::string&) { return text; };
  return sources;
}

Config Running(const std::string& text) {
  const absl::StatusOr<ParsedConfig> parsed = ParseConfig(File(text));
  REQUIRE(parsed.ok());
  return parsed->config;
}

TEST_CASE("reload: what is reloadable changes, of the rest it is only told") {
  std::vector<SettingChange> changes;
  const auto next = ReadAgain(File("streams_max = 7\nlog_level = \"debug\"\nsessions_max = 3"),
                              Running("streams_max = 5"), &changes);
  REQUIRE(next.ok());
  CHECK(next->streams_max == 7);
  CHECK(next->log_level == "debug");
  CHECK(next->limits.sessions_max == Config().limits.sessions_max);
  REQUIRE(changes.size() == 3);
  CHECK(changes[0].key == "sessions_max");
  CHECK_FALSE(changes[0].reloadable);
  CHECK(changes[1].key == "streams_max");
  CHECK(changes[1].from == "5");
  CHECK(changes[1].to == "7");
  CHECK(changes[1].reloadable);
  CHECK(changes[2].to == "\"debug\"");
}

TEST_CASE("reload: a line that is gone means the default again") {
  const auto next = ReadAgain(File(""), Running("ttl_min = \"2s\""), nullptr);
  REQUIRE(next.ok());
  CHECK(next->ttl_min_ms == Config().ttl_min_ms);
}

TEST_CASE("reload: what is wrong changes nothing, and says what would be right") {
  std::vector<SettingChange> changes;
  const auto next =
      ReadAgain(File("log_level = \"debug\"\nstreams_max = 0"), Running(""), &changes);
  REQUIRE_FALSE(next.ok());
  CHECK_THAT(std::string(next.status().message()), ContainsSubstring("streams_max (f, line 2)"));
  CHECK(changes.empty());
}

TEST_CASE("reload: no secret is told") {
  std::vector<SettingChange> changes;
  REQUIRE(
      ReadAgain(File("store = \"amqp://u:new@h\""), Running("store = \"amqp://u:old@h\""), &changes)
          .ok());
  REQUIRE(changes.size() == 1);
  CHECK(changes[0].from == "\"amqp://u:***@h\"");
  CHECK(changes[0].to == "(another secret)");
}

}  // namespace
}  // namespace semaphored
