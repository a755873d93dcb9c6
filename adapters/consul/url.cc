#include "adapters/consul/url.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "adapters/common/url_options.h"
#include "adapters/names.h"

namespace semaphored::consul {
namespace {

constexpr int kPortMax = 65'535;
constexpr size_t kPrefixBytesMax = 200;
constexpr size_t kOptionBytesShown = 40;
constexpr int64_t kSessionTtlMin_s = 10;  // Consul's own bounds.
constexpr int64_t kSessionTtlMax_s = 86'400;
constexpr int64_t kCheckTtlMin_s = 3;
constexpr int64_t kCheckTtlMax_s = 3600;

absl::Status Bad(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "consul store: ", why, "; right is consul://127.0.0.1:8500/prefix?dc=dc1&token_file=FILE"));
}

absl::Status ReadNumber(absl::string_view name, absl::string_view text, int64_t least, int64_t most,
                        int64_t* result) {
  if (absl::SimpleAtoi(text, result) && *result >= least && *result <= most)
    return absl::OkStatus();
  return Bad(absl::StrCat(name, "=", text, ": it must be a number from ", least, " to ", most));
}

// Spaces around it, and the end of a line from another system, are not a part of it.
absl::Status ReadToken(const std::string& path, std::string* token) {
  std::ifstream file(path);
  std::string line;
  if (file) std::getline(file, line);
  *token = std::string(absl::StripAsciiWhitespace(line));
  if (token->empty())
    return Bad(absl::StrCat("token_file=", path, ": no token can be read from it"));
  return absl::OkStatus();
}

// The HTTP library tells of such a file late, and not which it is.
absl::Status ReadFileName(absl::string_view name, const std::string& path, std::string* result) {
  std::ifstream file(path);
  if (!file || file.peek() == std::ifstream::traits_type::eof())
    return Bad(absl::StrCat(name, "=", path, ": it cannot be read; it must be a PEM file"));
  *result = path;
  return absl::OkStatus();
}

absl::Status ReadOption(absl::string_view name, const std::string& value, Url* url) {
  int64_t number = 0;
  if (name == "dc") {
    url->datacenter = value;
  } else if (name == "token_file") {
    return ReadToken(value, &url->token);
  } else if (name == "tls") {
    if (value != "yes" && value != "no") return Bad("tls must be yes or no");
    url->tls = value == "yes";
  } else if (name == "ca_file") {
    return ReadFileName(name, value, &url->ca_file);
  } else if (name == "cert_file") {
    return ReadFileName(name, value, &url->cert_file);
  } else if (name == "key_file") {
    return ReadFileName(name, value, &url->key_file);
  } else if (name == "timeout_ms") {
    absl::Status status = ReadNumber(name, value, 100, 60'000, &number);
    url->timeout = std::chrono::milliseconds(number);
    return status;
  } else if (name == "session_ttl_s") {
    absl::Status status = ReadNumber(name, value, kSessionTtlMin_s, kSessionTtlMax_s, &number);
    url->session_ttl = std::chrono::seconds(number);
    return status;
  } else if (name == "sessions") {
    if (value != "lasting" && value != "daemon") return Bad("sessions must be lasting or daemon");
    url->ends_with_daemon = value == "daemon";
  } else if (name == "check_ttl_s") {
    absl::Status status = ReadNumber(name, value, kCheckTtlMin_s, kCheckTtlMax_s, &number);
    url->check_ttl = std::chrono::seconds(number);
    return status;
  } else {
    // Its value is not shown: it may be a token.
    return Bad(absl::StrCat("the option '", name.substr(0, kOptionBytesShown),
                            "' is not known; there are dc, token_file, tls, ca_file, cert_file, "
                            "key_file, timeout_ms, session_ttl_s, sessions and check_ttl_s"));
  }
  return absl::OkStatus();
}

absl::Status ReadPlace(absl::string_view authority, Url* url) {
  if (absl::StrContains(authority, '@'))
    return Bad("Consul knows no user and password; a token is named by token_file");
  absl::string_view port;
  if (absl::StartsWith(authority, "[")) {
    const size_t end = authority.find(']');
    if (end == absl::string_view::npos) return Bad("the host is not understood");
    url->host = std::string(authority.substr(0, end + 1));
    port = authority.substr(end + 1);
    if (!port.empty() && !absl::ConsumePrefix(&port, ":")) return Bad("the host is not understood");
  } else {
    const size_t colon = std::min(authority.find(':'), authority.size());
    url->host = std::string(authority.substr(0, colon));
    port = authority.substr(std::min(colon + 1, authority.size()));
  }
  if (url->host.empty()) return Bad("it names no host");
  if (port.empty()) return absl::OkStatus();
  int64_t number = 0;
  absl::Status status = ReadNumber("port", port, 1, kPortMax, &number);
  url->port = static_cast<int>(number);
  return status;
}

// A URL that names a certificate must use TLS: without it the certificate protects nothing.
absl::Status CheckTls(const Url& url) {
  if (!url.tls && !(url.ca_file + url.cert_file + url.key_file).empty())
    return Bad("ca_file, cert_file and key_file need tls=yes");
  if (!url.key_file.empty() && url.cert_file.empty()) return Bad("key_file needs cert_file");
  return absl::OkStatus();
}

bool IsPrefix(absl::string_view prefix) {
  // A name that may begin with '.'.
  return prefix.empty() ||
         (prefix.size() <= kPrefixBytesMax && IsSemaphoreName(absl::StrCat("x/", prefix)));
}

}  // namespace

absl::StatusOr<Url> ReadUrl(const std::string& text) {
  absl::string_view rest = text;
  if (!absl::ConsumePrefix(&rest, "consul://")) return Bad("it does not begin with consul://");
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(rest, absl::MaxSplits('?', 1));
  const std::pair<absl::string_view, absl::string_view> place =
      absl::StrSplit(parts.first, absl::MaxSplits('/', 1));
  Url url;
  if (absl::Status status = ReadPlace(place.first, &url); !status.ok()) return status;
  std::optional<std::string> prefix = Unescape(absl::StripSuffix(place.second, "/"));
  if (!prefix || !IsPrefix(*prefix))
    return Bad(absl::StrCat("the prefix must be at most ", kPrefixBytesMax,
                            " letters, digits and . _ - / : @ +, "
                            "without an empty, '.' or '..' segment"));
  if (!prefix->empty()) url.prefix = *std::move(prefix);
  for (absl::string_view option : absl::StrSplit(parts.second, '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(option, absl::MaxSplits('=', 1));
    std::optional<std::string> value = Unescape(pair.second);
    if (!value)
      return Bad("a percent sign must be followed by two hexadecimal digits (%25 for itself)");
    // A text without a name is not shown: it may be a token.
    if (pair.first.size() == option.size()) return Bad("after the '?' stand options, name=value");
    if (absl::Status status = ReadOption(pair.first, *value, &url); !status.ok()) return status;
  }
  if (absl::Status status = CheckTls(url); !status.ok()) return status;
  return url;
}

}  // namespace semaphored::consul
