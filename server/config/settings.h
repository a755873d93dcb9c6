// The table of all settings, from which everything about them is made: flags, file, environment,
// help, print. Internal to the configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "server/config/config.h"

namespace semaphored {

struct Setting {
  enum class Kind { kText, kSwitch, kChoice, kCount, kDuration };
  using Field = std::variant<std::string*, bool*, uint32_t*, uint64_t*, int64_t*>;

  const char* group;
  const char* key;  // As in the file: lower case, with underscores.
  Kind kind;
  Field (*field)(Config& config);
  int64_t min;  // kCount; kDuration in milliseconds; kText: bytes.
  int64_t max;
  const char* choices;  // kChoice: "text, json". Else nullptr.
  const char* text;     // What it does, one sentence or two.
  // SIGHUP puts a changed value in force; else that takes a restart (reload.h).
  bool reloadable = false;
};

// In the order in which they are shown; those of a group stand together.
const std::vector<Setting>& AllSettings();

// nullptr: there is none of this key.
const Setting* FindSetting(std::string_view key);

// The key that is most like `key`, if one is at all (few letters differ); else empty.
std::string NearestKey(std::string_view key);

// INVALID_ARGUMENT: the message says what would be right, without naming key or value.
absl::Status SetValue(const Setting& setting, std::string_view value, Config* config);

// The value as it is written in the file, quotes included for what is text: 4096, true, "30s".
std::string TomlValue(const Setting& setting, const Config& config);

// "30s", "500ms"; a bare number is milliseconds. nullopt: it is no duration, or too long to count.
std::optional<int64_t> ParseDurationMs(std::string_view text);

// "a duration such as 30s, from 1s to 24h".
std::string WhatIsRight(const Setting& setting);

// "node_ttl" becomes "--node-ttl" and "SEMAPHORED_NODE_TTL".
std::string FlagName(const Setting& setting);
std::string EnvironmentName(const Setting& setting);

}  // namespace semaphored
