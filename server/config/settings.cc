#include "server/config/settings.h"

#include <absl/strings/ascii.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace semaphored {
namespace {

using Kind = Setting::Kind;

struct Unit {
  std::string_view name;
  int64_t in_ms;
};
// The largest first, for printing.
constexpr std::array<Unit, 5> kUnits = {
    {{"d", 86'400'000}, {"h", 3'600'000}, {"m", 60'000}, {"s", 1000}, {"ms", 1}}};

std::string DurationText(int64_t ms) {
  if (ms == 0) return "0s";
  for (const Unit& unit : kUnits) {
    // "24h" reads better than "1d".
    if (ms % unit.in_ms == 0 && (unit.name != "d" || ms / unit.in_ms > 1)) {
      return fmt::format("{}{}", ms / unit.in_ms, unit.name);
    }
  }
  return fmt::format("{}ms", ms);
}

// Digits and then `rest`. nullopt: no digits, or too many.
std::optional<int64_t> LeadingNumber(std::string_view text, std::string_view* rest) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || text.starts_with('-')) return std::nullopt;
  *rest = text.substr(end - text.data());
  return number;
}

std::optional<int64_t> ParseCount(std::string_view text) {
  std::string_view rest;
  const std::optional<int64_t> number = LeadingNumber(text, &rest);
  return rest.empty() ? number : std::nullopt;
}

std::optional<bool> ParseSwitch(std::string_view text) {
  if (text == "true" || text == "1" || text == "yes" || text == "on") return true;
  if (text == "false" || text == "0" || text == "no" || text == "off") return false;
  return std::nullopt;
}

bool IsChoice(std::string_view choices, std::string_view value) {
  while (!choices.empty()) {
    const size_t end = std::min(choices.find(", "), choices.size());
    if (choices.substr(0, end) == value) return true;
    choices.remove_prefix(std::min(end + 2, choices.size()));
  }
  return false;
}

bool IsText(const Setting& setting, std::string_view value) {
  const auto length = static_cast<int64_t>(value.size());
  return length >= setting.min && length <= setting.max &&
         std::all_of(value.begin(), value.end(), [](char c) { return absl::ascii_isprint(c); });
}

void SetNumber(const Setting::Field& field, int64_t number) {
  if (auto* as_u32 = std::get_if<uint32_t*>(&field)) **as_u32 = static_cast<uint32_t>(number);
  if (auto* as_u64 = std::get_if<uint64_t*>(&field)) **as_u64 = static_cast<uint64_t>(number);
  if (auto* as_i64 = std::get_if<int64_t*>(&field)) **as_i64 = number;
}

int64_t GetNumber(const Setting::Field& field) {
  if (auto* as_u32 = std::get_if<uint32_t*>(&field)) return **as_u32;
  if (auto* as_u64 = std::get_if<uint64_t*>(&field)) return static_cast<int64_t>(**as_u64);
  return *std::get<int64_t*>(field);
}

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted.push_back('\\');
    quoted.push_back(c);
  }
  return quoted + '"';
}

// The least number of letters to put in, take out or exchange.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t exchanged = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, exchanged});
    }
  }
  return row[b.size()];
}

}  // namespace

std::optional<int64_t> ParseDurationMs(std::string_view text) {
  std::string_view unit_name;
  const std::optional<int64_t> number = LeadingNumber(text, &unit_name);
  if (!number) return std::nullopt;
  if (unit_name.empty()) return number;
  for (const Unit& unit : kUnits) {
    if (unit.name != unit_name) continue;
    if (*number > INT64_MAX / unit.in_ms) return std::nullopt;
    return *number * unit.in_ms;
  }
  return std::nullopt;
}

const Setting* FindSetting(std::string_view key) {
  for (const Setting& setting : AllSettings()) {
    if (setting.key == key) return &setting;
  }
  return nullptr;
}

std::string NearestKey(std::string_view key) {
  // Longer than any key and any slip: nothing is like it, and the distance would cost its square.
  if (key.size() > 64) return "";
  std::string nearest;
  size_t least = std::max<size_t>(2, key.size() / 3) + 1;
  for (const Setting& setting : AllSettings()) {
    const size_t distance = Distance(key, setting.key);
    if (distance < least) {
      least = distance;
      nearest = setting.key;
    }
  }
  return nearest;
}

absl::Status SetValue(const Setting& setting, std::string_view value, Config* config) {
  const Setting::Field field = setting.field(*config);
  switch (setting.kind) {
    case Kind::kText:
    case Kind::kChoice:
      if (setting.kind == Kind::kText ? !IsText(setting, value) : !IsChoice(setting.choices, value))
        break;
      *std::get<std::string*>(field) = std::string(value);
      return absl::OkStatus();
    case Kind::kSwitch:
      if (const std::optional<bool> parsed = ParseSwitch(value)) {
        *std::get<bool*>(field) = *parsed;
        return absl::OkStatus();
      }
      break;
    case Kind::kCount:
    case Kind::kDuration:
      const auto number = setting.kind == Kind::kCount ? ParseCount(value) : ParseDurationMs(value);
      if (!number && setting.kind == Kind::kDuration)
        return absl::InvalidArgumentError("written like 5s or 500ms, and " + WhatIsRight(setting));
      if (!number || *number < setting.min || *number > setting.max) break;
      SetNumber(field, *number);
      return absl::OkStatus();
  }
  return absl::InvalidArgumentError(WhatIsRight(setting));
}

std::string TomlValue(const Setting& setting, const Config& config) {
  // The table speaks of members of a Config that may be changed; this one is a copy.
  Config copy = config;
  const Setting::Field field = setting.field(copy);
  switch (setting.kind) {
    case Kind::kText:
    case Kind::kChoice:
      return Quoted(*std::get<std::string*>(field));
    case Kind::kSwitch:
      return *std::get<bool*>(field) ? "true" : "false";
    case Kind::kCount:
      return fmt::format("{}", GetNumber(field));
    case Kind::kDuration:
      return Quoted(DurationText(GetNumber(field)));
  }
  return "";
}

std::string WhatIsRight(const Setting& setting) {
  switch (setting.kind) {
    case Kind::kText:
      return setting.min > 0 ? fmt::format("{} to {} characters", setting.min, setting.max)
                             : fmt::format("at most {} characters", setting.max);
    case Kind::kChoice:
      return fmt::format("one of {}", setting.choices);
    case Kind::kSwitch:
      return "true or false";
    case Kind::kCount:
      return fmt::format("{} to {}", setting.min, setting.max);
    case Kind::kDuration:
      return fmt::format("{} to {}", DurationText(setting.min), DurationText(setting.max));
  }
  return "";
}

std::string FlagName(const Setting& setting) {
  std::string name = std::string("--") + setting.key;
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string EnvironmentName(const Setting& setting) {
  std::string name = std::string("SEMAPHORED_") + setting.key;
  absl::AsciiStrToUpper(&name);
  return name;
}

}  // namespace semaphored
