#include "server/config/config_checks.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

namespace semaphored {
namespace {

bool IsPort(std::string_view text) {
  int port = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port >= 0 && port <= 65'535;
}

bool IsLoopback(const std::string& host) {
  if (host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool IsNumericHost(const std::string& host) {
  in6_addr either{};
  return inet_pton(AF_INET, host.c_str(), &either) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &either) == 1;
}

absl::Status NotAnAddress() {
  return absl::InvalidArgumentError("HOST:PORT, [HOST]:PORT or unix:PATH, such as 127.0.0.1:7420");
}

// http://HOST… or https://HOST…, to which a path can be added.
bool IsHttpBase(const std::string& text) {
  std::string_view rest = text;
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!rest.starts_with(scheme)) continue;
    rest.remove_prefix(scheme.size());
    const bool printable =
        std::all_of(rest.begin(), rest.end(), [](char c) { return c > ' ' && c < 0x7f; });
    return printable && !rest.empty() && rest.front() != '/' && rest.front() != ':' &&
           rest.find_first_of("?#@") == rest.npos;
  }
  return false;
}

}  // namespace

absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text) {
  constexpr std::string_view kUnix = "unix:";
  if (text.starts_with(kUnix)) {
    const std::string_view path = text.substr(kUnix.size());
    if (path.empty()) return NotAnAddress();
    return ListenAddress{"", std::string(path), true};
  }
  const size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0 || !IsPort(text.substr(colon + 1))) return NotAnAddress();
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find_first_of(":[]") != host.npos) {
    return NotAnAddress();
  }
  if (host.empty()) return NotAnAddress();
  ListenAddress address{std::string(host), std::string(text.substr(colon + 1)), false};
  address.loopback = IsLoopback(address.host);
  return address;
}

namespace {

constexpr char kHttpDefault[] = "127.0.0.1:7422";

bool IsHttpAddress(const std::string& listen) {
  if (listen.empty()) return true;
  const absl::StatusOr<ListenAddress> address = ParseListenAddress(listen);
  // A name would have to be looked up, and could be another address tomorrow.
  return address.ok() && (address->host == "localhost" || IsNumericHost(address->host));
}

// Other machines can reach it. `listen` may be what is no address, as "auto" is.
bool IsRemote(const std::string& listen) {
  const absl::StatusOr<ListenAddress> address = ParseListenAddress(listen);
  return address.ok() && !address->loopback;
}

// What a `Host` can be without its port.
bool IsHostName(const std::string& host) {
  if (host.starts_with('[') && host.ends_with(']'))
    return IsNumericHost(host.substr(1, host.size() - 2));
  return host.find_first_not_of(
             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._") == host.npos;
}

// The name in what may be a URL, or have a port; if there is none: an example.
std::string HostNameIn(std::string_view text) {
  const size_t scheme = text.find("://");
  if (scheme != text.npos) text.remove_prefix(scheme + 3);
  std::string host(text.substr(0, text.find_first_of(":/")));
  return !host.empty() && IsHostName(host) ? host : "sem.example.org";
}

void AddMistakesOfHosts(const std::string& hosts, std::vector<std::string>* mistakes) {
  for (const absl::string_view each : absl::StrSplit(hosts, ',')) {
    const std::string host(absl::StripAsciiWhitespace(each));
    if (IsHostName(host)) continue;
    mistakes->push_back(
        fmt::format("http_hosts: \"{}\" must be a name without scheme, port and path, such as {}",
                    host, HostNameIn(host)));
  }
}

void AddMistakesOfHttp(const Config& config, std::vector<std::string>* mistakes) {
  AddMistakesOfHosts(config.http_hosts, mistakes);
  if (config.http_tls == "on" && config.tls_cert_file.empty())
    mistakes->emplace_back("http_tls cannot be on without tls_cert_file and tls_key_file");
  const std::string& listen = config.http_listen;
  if (listen == "auto" || listen == "off" || listen.empty()) return;
  if (!IsHttpAddress(listen)) {
    mistakes->push_back(
        fmt::format("http_listen: \"{}\" must be auto, off, or HOST:PORT or [HOST]:PORT with an "
                    "address in numbers, such as 127.0.0.1:7422",
                    listen));
  } else if (IsRemote(listen) && !IsHttpByTls(config) && !config.allow_insecure_remote) {
    mistakes->push_back(fmt::format(
        "http_listen: other machines can reach {}, and HTTP is not encrypted: tokens can be read "
        "on their way. Set tls_cert_file and tls_key_file (and http_tls not to off), listen at "
        "127.0.0.1 or [::1], with a proxy for TLS before it, or say with --allow-insecure-remote "
        "that the network around the daemon keeps others out",
        listen));
  }
}

void AddMistakesOfTls(const Config& config, const ListenAddress& address,
                      std::vector<std::string>* mistakes) {
  if (config.tls_cert_file.empty() != config.tls_key_file.empty())
    mistakes->emplace_back("tls_cert_file and tls_key_file must be set together");
  if (!config.tls_client_ca_file.empty() && config.tls_cert_file.empty()) {
    mistakes->emplace_back(
        "tls_client_ca_file needs tls_cert_file and tls_key_file: without TLS no client shows a "
        "certificate");
  }
  if (config.frame_guard == "off" && !config.tls_cert_file.empty())
    mistakes->emplace_back("frame_guard cannot be off with tls_cert_file: TLS ends in the guard");
  if (!address.loopback && !config.allow_insecure_remote && config.tls_cert_file.empty()) {
    mistakes->push_back(
        fmt::format("listen: other machines can reach {}, and connections are neither encrypted "
                    "nor authenticated: any client that "
                    "reaches the port can take and revoke every permit. Set tls_cert_file and "
                    "tls_key_file, listen at 127.0.0.1, [::1] or unix:PATH, or say with "
                    "--allow-insecure-remote that the network around the daemon keeps others out",
                    config.listen));
  }
}

}  // namespace

void AddMistakes(const Config& config, std::vector<std::string>* mistakes) {
  if (config.ttl_min_ms > config.ttl_max_ms)
    mistakes->emplace_back("ttl_min is longer than ttl_max");
  if (config.ttl_default_ms < config.ttl_min_ms || config.ttl_default_ms > config.ttl_max_ms)
    mistakes->emplace_back("ttl_default is not between ttl_min and ttl_max");
  if (config.limits.payload_bytes_max > config.message_bytes_max / 2)
    mistakes->emplace_back("payload_bytes_max is more than half of message_bytes_max");
  AddMistakesOfHttp(config, mistakes);
  if (!IsHttpAddress(config.metrics_listen)) {
    mistakes->push_back(
        fmt::format("metrics_listen: \"{}\" must be HOST:PORT or [HOST]:PORT with an address in "
                    "numbers, such as 127.0.0.1:7421",
                    config.metrics_listen));
  }
  if (!config.otlp_endpoint.empty() && !IsHttpBase(config.otlp_endpoint)) {
    mistakes->push_back(
        fmt::format("otlp_endpoint: \"{}\" must be http://HOST:PORT or https://HOST:PORT, with "
                    "neither user nor "
                    "'?', such as http://127.0.0.1:4318",
                    config.otlp_endpoint));
  }
  const absl::StatusOr<ListenAddress> address = ParseListenAddress(config.listen);
  if (!address.ok()) {
    mistakes->push_back(fmt::format("listen: \"{}\" must be {}", config.listen,
                                    std::string(address.status().message())));
  }
  AddMistakesOfTls(config, address.value_or(ListenAddress{"", "", true}), mistakes);
}

absl::Status CheckConfig(const Config& config) {
  std::vector<std::string> mistakes;
  AddMistakes(config, &mistakes);
  if (mistakes.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("{}", fmt::join(mistakes, "\n")));
}

bool IsGuarded(const Config& config) {
  if (config.frame_guard != "auto") return config.frame_guard == "on";
  return !config.tls_cert_file.empty() || !config.access_file.empty() ||
         !ParseListenAddress(config.listen)->loopback;
}

bool IsHttpByTls(const Config& config) {
  if (config.http_tls != "auto") return config.http_tls == "on";
  return !config.tls_cert_file.empty() && IsRemote(config.http_listen) &&
         !config.allow_insecure_remote;
}

bool NeedsCertificates(const Config& config) {
  return !config.tls_client_ca_file.empty() && config.tls_client_certificates == "require";
}

HttpAddress HttpAddressOf(const Config& config) {
  if (config.http_listen == "off") return {};
  if (config.http_listen != "auto") return {config.http_listen};
  // These keep out programs of this machine that HTTP would let in.
  if (config.listen.starts_with("unix:")) return {};
  if (NeedsCertificates(config) && !IsHttpByTls(config)) return {};
  return {kHttpDefault, /*may_fail=*/true};
}

bool IsOpenToAll(const Config& config) {
  const bool changes_by_http =
      config.http_writes == "on" && IsRemote(config.http_listen) && IsHttpByTls(config);
  return (IsRemote(config.listen) || changes_by_http) && !config.tls_cert_file.empty() &&
         config.access_file.empty() && config.tls_client_ca_file.empty();
}

}  // namespace semaphored
