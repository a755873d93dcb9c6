#include "adapters/consul/url.h"

#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "adapters/common/url_options.h"
#include "adapters/names.h"

namespace semaphored::consul {
namespace {

constexpr size_t kPrefixBytesMax = 200;
constexpr int64_t kSessionTtlMin_s = 10;  // Consul's own bounds.
constexpr int64_t kSessionTtlMax_s = 86'400;
constexpr int64_t kCheckTtlMin_s = 3;
constexpr int64_t kCheckTtlMax_s = 3600;

absl::Status Bad(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "consul store: ", why, "; right is consul://127.0.0.1:8500/prefix?dc=dc1&token_file=FILE"));
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

absl::Status ReadOptions(absl::string_view text, Url* url) {
  UrlOptions options(Bad);
  options.Text("dc", &url->datacenter);
  options.Add("token_file",
              [url](const std::string& path) { return ReadToken(path, &url->token); });
  options.YesOrNo("tls", &url->tls);
  options.PemFile("ca_file", &url->ca_file);
  options.PemFile("cert_file", &url->cert_file);
  options.PemFile("key_file", &url->key_file);
  options.Number("timeout_ms", 100, 60'000, &url->timeout);
  options.Number("session_ttl_s", kSessionTtlMin_s, kSessionTtlMax_s, &url->session_ttl);
  options.Choice<bool>("sessions", {"lasting", false}, {"daemon", true}, &url->ends_with_daemon);
  options.Number("check_ttl_s", kCheckTtlMin_s, kCheckTtlMax_s, &url->check_ttl);
  return options.ReadAll(text);
}

absl::Status ReadPlace(absl::string_view authority, Url* url) {
  if (absl::StrContains(authority, '@'))
    return Bad("Consul knows no user and password; a token is named by token_file");
  std::optional<HostAndPort> place = SplitAuthority(authority);
  if (!place) return Bad("the host is not understood");
  if (place->host.empty()) return Bad("it names no host");
  url->host = std::move(place->host);
  if (place->port.empty() || ReadPort(place->port, &url->port)) return absl::OkStatus();
  return Bad(absl::StrCat("port=", place->port, ": it must be a number from 1 to 65535"));
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
  const UrlParts parts = SplitUrl(text);
  if (parts.scheme != "consul") return Bad("it does not begin with consul://");
  Url url;
  if (absl::Status status = ReadPlace(parts.authority, &url); !status.ok()) return status;
  std::optional<std::string> prefix = Unescape(absl::StripSuffix(parts.path, "/"));
  if (!prefix || !IsPrefix(*prefix))
    return Bad(absl::StrCat("the prefix must be at most ", kPrefixBytesMax,
                            " letters, digits and . _ - / : @ +, "
                            "without an empty, '.' or '..' segment"));
  if (!prefix->empty()) url.prefix = *std::move(prefix);
  if (absl::Status status = ReadOptions(parts.options, &url); !status.ok()) return status;
  if (absl::Status status = CheckTls(url); !status.ok()) return status;
  return url;
}

}  // namespace semaphored::consul
