#include "adapters/rabbitmq/url.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "adapters/common/url_options.h"

namespace semaphored::rabbitmq {
namespace {

// A queue has a name of at most 255 bytes.
constexpr size_t kPrefixBytesMax = 60;
constexpr int kPort = 5672;
constexpr int kTlsPort = 5671;
constexpr int64_t kConsumerTimeoutMax_ms = int64_t{30} * 24 * 3'600'000;

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
  if (!plain) return Bad(kNotUnescaped);
  return *std::move(plain);
}

absl::Status ReadOptions(absl::string_view text, Url* url) {
  UrlOptions options(Bad);
  options.Choice<Url::Layout>("layout", {"tokens", Url::Layout::kTokens},
                              {"slots", Url::Layout::kSlots}, &url->layout);
  options.Add("prefix", [url](const std::string& value) {
    url->prefix = value;
    if (value.size() <= kPrefixBytesMax) return absl::OkStatus();
    return Bad(absl::StrCat("prefix has more than ", kPrefixBytesMax, " bytes"));
  });
  options.Number("heartbeat_s", 1, 60, &url->heartbeat);
  options.Number("timeout_ms", 100, 60'000, &url->timeout);
  options.Number("consumer_timeout_ms", 0, kConsumerTimeoutMax_ms, &url->consumer_timeout);
  options.PasswordFile("password_file", &url->password);
  options.Text("ca_file", &url->ca_file);
  options.Text("certificate_file", &url->certificate_file);
  options.Text("key_file", &url->key_file);
  options.YesOrNo("verify_host", &url->verify_host);
  return options.ReadAll(text);
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
  const std::optional<HostAndPort> place = SplitAuthority(authority);
  if (!place) return NotEscaped();
  // An IPv6 address stands in brackets.
  url->host = std::string(absl::StripSuffix(absl::StripPrefix(place->host, "["), "]"));
  if (url->host.empty()) return Bad("it names no host");
  if (!place->port.empty() && !ReadPort(place->port, &url->port)) return NotEscaped();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Url> ReadUrl(const std::string& text) {
  Url url;
  const UrlParts parts = SplitUrl(text);
  url.tls = parts.scheme == "amqps";
  if (!url.tls && parts.scheme != "amqp") return Bad("it begins with amqp:// or amqps://");
  // A special character of a password that was not escaped splits it; no message shows its parts.
  if (std::count(parts.authority.begin(), parts.authority.end(), '@') > 1 ||
      absl::StrContains(parts.path, '@') || absl::StrContains(parts.path, '/') ||
      absl::StrContains(parts.options, '@'))
    return NotEscaped();
  if (absl::Status status = ReadAuthority(parts.authority, &url); !status.ok()) return status;
  if (!parts.path.empty()) {
    absl::StatusOr<std::string> vhost = Plain(parts.path);
    if (!vhost.ok()) return vhost.status();
    url.vhost = *std::move(vhost);
  }
  if (absl::Status status = ReadOptions(parts.options, &url); !status.ok()) return status;
  if (url.certificate_file.empty() != url.key_file.empty())
    return Bad("certificate_file and key_file belong together");
  if (absl::Status status = CheckConsumerTimeout(url); !status.ok()) return status;
  return url;
}

}  // namespace semaphored::rabbitmq
