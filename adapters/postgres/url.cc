#include "adapters/postgres/url.h"

#include <libpq-fe.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "adapters/common/url_options.h"

namespace semaphored::postgres {
namespace {

constexpr uint32_t kLanesMax = 64;
constexpr size_t kSchemaBytesMax = 40;  // Channel names are made of it, of at most 63 bytes.

absl::Status Bad(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("postgres store: ", why));
}

bool IsSchemaName(absl::string_view name) {
  const auto good = [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; };
  return !name.empty() && name.size() <= kSchemaBytesMax && good(name.front()) &&
         !absl::StartsWith(name, "pg_") && std::all_of(name.begin(), name.end(), [&](char c) {
           return good(c) || (c >= '0' && c <= '9');
         });
}

bool IsOptionName(absl::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(),
                                      [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
}

absl::Status ReadSchema(const std::string& value, Url* url) {
  url->schema = value;
  if (IsSchemaName(value)) return absl::OkStatus();
  return Bad(absl::StrCat("schema=", value, ": it must be made of a-z, 0-9 and _, at most ",
                          kSchemaBytesMax, " of them, and begin with neither a digit nor pg_"));
}

// All other options are libpq's.
void AddOptions(Url* url, std::string* password, UrlOptions* options) {
  options->Add("schema", [url](const std::string& value) { return ReadSchema(value, url); });
  options->Number("lanes", 1, kLanesMax, &url->lanes);
  options->Number("history_rows", 0, 1'000'000'000, &url->history_rows);
  options->Number("history_age_ms", 1000, INT64_MAX / 2, &url->history_age_ms);
  options->Number("timeout_ms", 100, 60'000, &url->timeout);
  options->YesOrNo("manage_schema", &url->manage_schema);
  options->PasswordFile("password_file", password);
}

}  // namespace

absl::StatusOr<Url> ReadUrl(const std::string& text) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('?', 1));
  // A special character of a password that was not escaped splits it; no message shows its parts.
  const absl::string_view place =
      parts.first.substr(std::min(parts.first.find("//") + 2, parts.first.size()));
  const absl::string_view authority = place.substr(0, place.find('/'));
  const auto not_escaped =
      Bad("what stands before the host, or an option, is not understood: special characters of a "
          "password "
          "are written as % and two hexadecimal digits (@ is %40, ? is %3F, & is %26, / is %2F)");
  if (std::count(authority.begin(), authority.end(), '@') > 1 ||
      absl::StrContains(place.substr(authority.size()), '@') ||
      absl::StrContains(parts.second, '@'))
    return not_escaped;
  Url url;
  std::string password;
  UrlOptions options(Bad);
  AddOptions(&url, &password, &options);
  std::vector<std::string> rest;
  const auto given = [&](absl::string_view name) {
    return std::any_of(rest.begin(), rest.end(), [&](const std::string& option) {
      return absl::StartsWith(option, absl::StrCat(name, "="));
    });
  };
  for (absl::string_view option : absl::StrSplit(parts.second, '&', absl::SkipEmpty())) {
    const absl::string_view name = option.substr(0, option.find('='));
    if (!IsOptionName(name) || name == option) return not_escaped;
    if (!options.Knows(name)) {
      rest.emplace_back(option);
    } else if (absl::Status status = options.ReadOne(option); !status.ok()) {
      return status;
    }
  }
  if (!password.empty()) rest.push_back(absl::StrCat("password=", Escape(password)));
  const int64_t timeout_ms = url.timeout.count();
  // A server that takes no writes is passed over; one that has gone is noticed.
  const std::pair<absl::string_view, std::string> defaults[] = {
      {"connect_timeout", "2"},           {"target_session_attrs", "read-write"},
      {"application_name", "semaphored"}, {"tcp_user_timeout", absl::StrCat(timeout_ms)},
      {"keepalives_idle", "5"},           {"keepalives_interval", "2"},
      {"keepalives_count", "3"},
  };
  for (const auto& [name, value] : defaults) {
    if (!given(name)) rest.push_back(absl::StrCat(name, "=", value));
  }
  url.connection = std::string(parts.first);
  if (!absl::StrContains(
          absl::StripPrefix(absl::StripPrefix(parts.first, "postgres://"), "postgresql://"), '/'))
    url.connection += '/';
  for (size_t i = 0; i < rest.size(); ++i)
    absl::StrAppend(&url.connection, i == 0 ? "?" : "&", rest[i]);

  char* error = nullptr;
  const std::unique_ptr<PQconninfoOption, decltype(&PQconninfoFree)> parsed(
      PQconninfoParse(url.connection.c_str(), &error), PQconninfoFree);
  const std::unique_ptr<char, decltype(&PQfreemem)> message(error, PQfreemem);
  if (parsed == nullptr) {
    // libpq may repeat the whole URL, password and all: only what it says of an option is shown.
    std::string why = message ? message.get() : "";
    while (!why.empty() && why.back() == '\n') why.pop_back();
    if (!absl::StrContains(why, "URI query parameter"))
      why = "right is postgres://user:password@host:port/database?schema=semaphored";
    return Bad(absl::StrCat(why,
                            "; options beside those of libpq are schema, lanes, history_rows, "
                            "history_age_ms, timeout_ms, password_file, manage_schema"));
  }
  return url;
}

}  // namespace semaphored::postgres
