#include "adapters/rabbitmq/url.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "adapters/common/url_options.h"

namespace semaphored::rabbitmq {
namespace {

// A queue has a name of at most 255 bytes.
constexpr size_t kPrefixBytesMax = 60;
constexpr int kPort = 5672;
constexpr int kTlsPort = 5671;
constexpr int kPortMax = 65'535;

absl::Status Bad(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("rabbitmq store: ", why));
}

absl::Status NotEscaped() {
  return Bad(
      "what stands before the host, or an option, is not understood: special characters of a "
      "password are written as % and two hexadecimal digits (@ is %40, ? is %3F, & is %26, / is "
      "%2F); right is amqp://user:password@host:5672/vhost?layout=tokens");
}

// Without the text, which may be a part of a password.
absl::StatusOr<std::string> Plain(absl::string_view text) {
  std::optional<std::string> plain = Unescape(text);
  if (!plain)
    return Bad("a percent sign must be followed by two hexadecimal digits (%25 for itself)");
  return *std::move(plain);
}

absl::Status ReadNumber(absl::string_view name, absl::string_view text, int64_t least, int64_t most,
                        int64_t* result) {
  if (absl::SimpleAtoi(text, result) && *result >= least && *result <= most)
    return absl::OkStatus();
  return Bad(absl::StrCat(name, "=", text, ": it must be a number from ", least, " to ", most));
}

absl::Status ReadPassword(const std::string& path, std::string* password) {
  std::ifstream file(path);
  if (!file || !std::getline(file, *password) || password->empty())
    return Bad(absl::StrCat("password_file=", path, ": no password can be read from it"));
  return absl::OkStatus();
}

absl::Status ReadOption(absl::string_view name, const std::string& value, Url* url) {
  if (name == "layout") {
    url->layout = value == "slots" ? Url::Layout::kSlots : Url::Layout::kTokens;
    if (value == "tokens" || value == "slots") return absl::OkStatus();
    return Bad(absl::StrCat("layout=", value, ": it must be tokens or slots"));
  }
  int64_t number = 0;
  if (name == "heartbeat_s") {
    absl::Status status = ReadNumber(name, value, 1, 60, &number);
    url->heartbeat = std::chrono::seconds(number);
    return status;
  }
  if (name == "timeout_ms") {
    absl::Status status = ReadNumber(name, value, 100, 60'000, &number);
    url->timeout = std::chrono::milliseconds(number);
    return status;
  }
  if (name == "consumer_timeout_ms") {
    if (value == "0") {
      url->consumer_timeout = std::chrono::milliseconds(0);
      return absl::OkStatus();
    }
    absl::Status status = ReadNumber(name, value, 1000, int64_t{30} * 24 * 3'600'000, &number);
    url->consumer_timeout = std::chrono::milliseconds(number);
    return status;
  }
  if (name == "password_file") return ReadPassword(value, &url->password);
  if (name == "prefix") {
    if (value.size() > kPrefixBytesMax)
      return Bad(absl::StrCat("prefix has more than ", kPrefixBytesMax, " bytes"));
    url->prefix = value;
    return absl::OkStatus();
  }
  std::string* const file = name == "ca_file"            ? &url->ca_file
                            : name == "certificate_file" ? &url->certificate_file
                            : name == "key_file"         ? &url->key_file
                                                         : nullptr;
  if (file != nullptr) {
    *file = value;
    return absl::OkStatus();
  }
  if (name == "verify_host") {
    url->verify_host = value == "yes";
    if (value == "yes" || value == "no") return absl::OkStatus();
    return Bad("verify_host must be yes or no");
  }
  return Bad(absl::StrCat("unknown option '", name,
                          "'; there are layout, prefix, heartbeat_s, timeout_ms, "
                          "consumer_timeout_ms, password_file, ca_file, "
                          "certificate_file, key_file and verify_host"));
}

// A lease is recalled early enough that all is over that its holder counts on.
absl::Status CheckConsumerTimeout(const Url& url) {
  const auto least = VouchMax(url) * 5 / 2;
  if (url.consumer_timeout.count() == 0 || url.consumer_timeout >= least) return absl::OkStatus();
  return Bad(absl::StrCat("consumer_timeout_ms must be at least ", least.count(),
                          " with heartbeat_s=", url.heartbeat.count()));
}

// user:password@host:port
absl::Status ReadAuthority(absl::string_view authority, Url* url) {
  if (const size_t at = authority.find('@'); at != absl::string_view::npos) {
    const std::pair<absl::string_view, absl::string_view> credentials =
        absl::StrSplit(authority.substr(0, at), absl::MaxSplits(':', 1));
    absl::StatusOr<std::string> user = Plain(credentials.first);
    absl::StatusOr<std::string> password = Plain(credentials.second);
    if (!user.ok()) return user.status();
    if (!password.ok()) return password.status();
    url->user = *std::move(user);
    url->password = *std::move(password);
    authority.remove_prefix(at + 1);
  }
  url->port = url->tls ? kTlsPort : kPort;
  // An IPv6 address stands in brackets.
  absl::string_view port;
  if (absl::StartsWith(authority, "[")) {
    const size_t end = authority.find(']');
    if (end == absl::string_view::npos) return NotEscaped();
    url->host = std::string(authority.substr(1, end - 1));
    port = authority.substr(end + 1);
  } else {
    const size_t colon = authority.find(':');
    url->host = std::string(authority.substr(0, colon));
    port = colon == absl::string_view::npos ? "" : authority.substr(colon);
  }
  if (url->host.empty()) return Bad("it names no host");
  if (port.empty()) return absl::OkStatus();
  int64_t number = 0;
  if (port.front() != ':' || !absl::SimpleAtoi(port.substr(1), &number) || number < 1 ||
      number > kPortMax)
    return NotEscaped();
  url->port = static_cast<int>(number);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Url> ReadUrl(const std::string& text) {
  Url url;
  const std::pair<absl::string_view, absl::string_view> scheme =
      absl::StrSplit(text, absl::MaxSplits("://", 1));
  url.tls = scheme.first == "amqps";
  if (!url.tls && scheme.first != "amqp") return Bad("it begins with amqp:// or amqps://");
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(scheme.second, absl::MaxSplits('?', 1));
  const std::pair<absl::string_view, absl::string_view> place =
      absl::StrSplit(parts.first, absl::MaxSplits('/', 1));
  // A special character of a password that was not escaped splits it; no message shows its parts.
  if (std::count(place.first.begin(), place.first.end(), '@') > 1 ||
      absl::StrContains(place.second, '@') || absl::StrContains(place.second, '/') ||
      absl::StrContains(parts.second, '@'))
    return NotEscaped();
  if (absl::Status status = ReadAuthority(place.first, &url); !status.ok()) return status;
  if (!place.second.empty()) {
    absl::StatusOr<std::string> vhost = Plain(place.second);
    if (!vhost.ok()) return vhost.status();
    url.vhost = *std::move(vhost);
  }
  for (const absl::string_view option : absl::StrSplit(parts.second, '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(option, absl::MaxSplits('=', 1));
    const bool is_name = std::all_of(pair.first.begin(), pair.first.end(), [](unsigned char c) {
      return std::islower(c) != 0 || c == '_';
    });
    if (!is_name || !absl::StrContains(option, '=')) return NotEscaped();
    absl::StatusOr<std::string> value = Plain(pair.second);
    if (!value.ok()) return value.status();
    if (absl::Status status = ReadOption(pair.first, *value, &url); !status.ok()) return status;
  }
  if (url.certificate_file.empty() != url.key_file.empty())
    return Bad("certificate_file and key_file belong together");
  if (absl::Status status = CheckConsumerTimeout(url); !status.ok()) return status;
  return url;
}

}  // namespace semaphored::rabbitmq
