#include "adapters/dynamodb/url.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "adapters/common/url_options.h"

namespace semaphored::dynamodb {
namespace {

constexpr size_t kRegionBytesMax = 40;
constexpr size_t kTableBytesMin = 3;  // DynamoDB's own bounds.
constexpr size_t kTableBytesMax = 255;
constexpr int64_t kLanesMax = 64;
constexpr int64_t kHistoryMax_h = 87'600;  // Ten years.

absl::Status Bad(absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("dynamodb store: ", why,
                   "; right is dynamodb://eu-west-1/table, or "
                   "dynamodb://local/table?endpoint=http://HOST:PORT"));
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

absl::Status ReadOptions(absl::string_view text, Url* url) {
  UrlOptions options(Bad);
  options.Add("endpoint", [url](const std::string& value) { return ReadEndpoint(value, url); });
  options.PemFile("ca_file", &url->ca_file);
  options.Text("profile", &url->profile);
  options.Number("lanes", 1, kLanesMax, &url->lanes);
  options.Number("timeout_ms", 100, 60'000, &url->timeout);
  options.Number("poll_min_ms", 5, 60'000, &url->poll_min);
  options.Number("poll_max_ms", 5, 60'000, &url->poll_max);
  options.Number("history_h", 0, kHistoryMax_h, &url->history);
  return options.ReadAll(text);
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
  const UrlParts parts = SplitUrl(text);
  if (parts.scheme != "dynamodb") return Bad("it does not begin with dynamodb://");
  Url url;
  if (absl::Status status = ReadPlace(parts.authority, parts.path, &url); !status.ok())
    return status;
  if (absl::Status status = ReadOptions(parts.options, &url); !status.ok()) return status;
  if (url.poll_min > url.poll_max) return Bad("poll_min_ms must not be above poll_max_ms");
  return url;
}

}  // namespace semaphored::dynamodb
