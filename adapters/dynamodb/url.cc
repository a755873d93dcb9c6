#include "adapters/dynamodb/url.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "adapters/common/url_options.h"

namespace semaphored::dynamodb {
namespace {

constexpr size_t kRegionBytesMax = 40;
constexpr size_t kTableBytesMin = 3;  // DynamoDB's own bounds.
constexpr size_t kTableBytesMax = 255;
constexpr size_t kOptionBytesShown = 40;
constexpr int64_t kLanesMax = 64;
constexpr int64_t kHistoryMax_h = 87'600;  // Ten years.

absl::Status Bad(absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("dynamodb store: ", why,
                   "; right is dynamodb://eu-west-1/table, or "
                   "dynamodb://local/table?endpoint=http://HOST:PORT"));
}

absl::Status ReadNumber(absl::string_view name, absl::string_view text, int64_t least, int64_t most,
                        int64_t* result) {
  if (absl::SimpleAtoi(text, result) && *result >= least && *result <= most)
    return absl::OkStatus();
  return Bad(absl::StrCat(name, "=", text.substr(0, kOptionBytesShown),
                          ": it must be a number from ", least, " to ", most));
}

bool IsPlain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool IsMadeOf(absl::string_view text, absl::string_view others) {
  return std::all_of(text.begin(), text.end(),
                     [&](char c) { return IsPlain(c) || absl::StrContains(others, c); });
}

// It becomes a part of what is signed, so there is nothing in it but a place.
absl::Status ReadEndpoint(absl::string_view value, Url* url) {
  absl::string_view rest = absl::StripSuffix(value, "/");
  const absl::string_view whole = rest;
  if (!absl::ConsumePrefix(&rest, "http://") && !absl::ConsumePrefix(&rest, "https://"))
    return Bad("endpoint must begin with http:// or https://");
  if (absl::StrContains(rest, '@'))
    return Bad("endpoint names no user and password; see the documentation for credentials");
  if (rest.empty() || !IsMadeOf(rest, ".-:[]_"))
    return Bad("endpoint must be http://HOST:PORT or https://HOST:PORT, without a path");
  url->endpoint = std::string(whole);
  return absl::OkStatus();
}

// The HTTP library tells of such a file late, and not which it is.
absl::Status ReadFileName(const std::string& path, std::string* result) {
  std::ifstream file(path);
  if (!file || file.peek() == std::ifstream::traits_type::eof())
    return Bad(absl::StrCat("ca_file=", path, ": it cannot be read; it must be a PEM file"));
  *result = path;
  return absl::OkStatus();
}

absl::Status ReadOption(absl::string_view name, const std::string& value, Url* url) {
  int64_t number = 0;
  absl::Status status;
  if (name == "endpoint") return ReadEndpoint(value, url);
  if (name == "ca_file") return ReadFileName(value, &url->ca_file);
  if (name == "profile") {
    url->profile = value;
  } else if (name == "lanes") {
    status = ReadNumber(name, value, 1, kLanesMax, &number);
    url->lanes = static_cast<int>(number);
  } else if (name == "timeout_ms") {
    status = ReadNumber(name, value, 100, 60'000, &number);
    url->timeout = std::chrono::milliseconds(number);
  } else if (name == "poll_min_ms") {
    status = ReadNumber(name, value, 5, 60'000, &number);
    url->poll_min = std::chrono::milliseconds(number);
  } else if (name == "poll_max_ms") {
    status = ReadNumber(name, value, 5, 60'000, &number);
    url->poll_max = std::chrono::milliseconds(number);
  } else if (name == "history_h") {
    status = ReadNumber(name, value, 0, kHistoryMax_h, &number);
    url->history = std::chrono::hours(number);
  } else {
    // Its value is not shown: it may be a key.
    return Bad(absl::StrCat("the option '", name.substr(0, kOptionBytesShown),
                            "' is not known; there are endpoint, ca_file, profile, lanes, "
                            "timeout_ms, poll_min_ms, poll_max_ms and history_h"));
  }
  return status;
}

absl::Status ReadPlace(absl::string_view region, absl::string_view table, Url* url) {
  // Also with a '/' in the password.
  if (absl::StrContains(region, '@') || absl::StrContains(table, '@'))
    return Bad("it names no user and password; see the documentation for credentials");
  if (region.empty() || region.size() > kRegionBytesMax || !IsMadeOf(region, "-"))
    return Bad("it names no region");
  url->region = std::string(region);
  const std::optional<std::string> name = Unescape(absl::StripSuffix(table, "/"));
  if (name && name->empty()) return absl::OkStatus();
  if (!name || name->size() < kTableBytesMin || name->size() > kTableBytesMax ||
      !IsMadeOf(*name, "_.-"))
    return Bad(absl::StrCat("the table's name must be ", kTableBytesMin, " to ", kTableBytesMax,
                            " letters, digits and _ . -"));
  url->table = *name;
  return absl::OkStatus();
}

}  // namespace

std::string Url::base() const {
  if (!endpoint.empty()) return endpoint;
  // The regions of China are a partition of their own.
  const bool china = absl::StartsWith(region, "cn-");
  return absl::StrCat("https://dynamodb.", region, ".amazonaws.com", china ? ".cn" : "");
}

absl::StatusOr<Url> ReadUrl(const std::string& text) {
  absl::string_view rest = text;
  if (!absl::ConsumePrefix(&rest, "dynamodb://")) return Bad("it does not begin with dynamodb://");
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(rest, absl::MaxSplits('?', 1));
  const std::pair<absl::string_view, absl::string_view> place =
      absl::StrSplit(parts.first, absl::MaxSplits('/', 1));
  Url url;
  if (absl::Status status = ReadPlace(place.first, place.second, &url); !status.ok()) return status;
  for (absl::string_view option : absl::StrSplit(parts.second, '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(option, absl::MaxSplits('=', 1));
    std::optional<std::string> value = Unescape(pair.second);
    if (!value)
      return Bad("a percent sign must be followed by two hexadecimal digits (%25 for itself)");
    // A text without a name is not shown: it may be a key.
    if (pair.first.size() == option.size()) return Bad("after the '?' stand options, name=value");
    if (absl::Status status = ReadOption(pair.first, *value, &url); !status.ok()) return status;
  }
  if (url.poll_min > url.poll_max) return Bad("poll_min_ms must not be above poll_max_ms");
  return url;
}

}  // namespace semaphored::dynamodb
