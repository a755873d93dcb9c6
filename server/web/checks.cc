#include "server/web/checks.h"

#include <arpa/inet.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace semaphored::web {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

Refusal OtherSite(std::string message, std::string advice) {
  return {absl::StatusCode::kPermissionDenied, Reason::kPermissionDenied, std::move(message), "",
          std::move(advice)};
}

// What of the client's may stand in a message.
std::string Shown(std::string_view text) {
  std::string shown(text.substr(0, 100));
  std::ranges::replace_if(
      shown, [](char each) { return each < ' ' || each > '~'; }, '?');
  return shown;
}

std::string_view Trimmed(std::string_view text) {
  while (text.starts_with(' ') || text.starts_with('\t')) text.remove_prefix(1);
  while (text.ends_with(' ') || text.ends_with('\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::string HostOf(std::string_view authority) {
  const size_t close = authority.starts_with('[') ? authority.find(']') : 0;
  if (close == authority.npos) return "";
  const size_t colon = authority.find(':', close);
  const std::string host = absl::AsciiStrToLower(View(authority.substr(0, colon)));
  const bool plain = std::ranges::all_of(host, [](char each) {
    return absl::ascii_isalnum(static_cast<unsigned char>(each)) ||
           std::string_view("-._[]:").find(each) != std::string_view::npos;
  });
  const std::string_view port = colon == authority.npos ? "" : authority.substr(colon + 1);
  const bool digits = port.find_first_not_of("0123456789") == port.npos;
  return plain && digits ? host : "";
}

bool IsOwnHost(std::string_view host) {
  if (host == "localhost") return true;
  std::string number(host);
  in6_addr any{};
  if (inet_pton(AF_INET, number.c_str(), &any) == 1) return true;
  if (!number.starts_with('[') || !number.ends_with(']')) return false;
  number = number.substr(1, number.size() - 2);
  return inet_pton(AF_INET6, number.c_str(), &any) == 1;
}

std::optional<Refusal> CheckSite(const http::Request& request,
                                 const std::vector<std::string>& hosts, bool by_tls,
                                 bool opens_page) {
  const std::string_view authority = request.Header("host").value_or("");
  const std::string host = HostOf(authority);
  if (!IsOwnHost(host) && std::ranges::find(hosts, host) == hosts.end()) {
    return OtherSite(absl::StrCat("Host: '", Shown(authority),
                                  "' is no name of this daemon: http_hosts has it not"),
                     "use an address in numbers or localhost, or set http_hosts");
  }
  if (request.Count("origin") > 0) {
    const std::string_view origin = request.Header("origin").value_or("");
    const size_t scheme = origin.find("://");
    // Without TLS, a proxy may have it.
    const bool right_scheme = scheme != origin.npos && (!by_tls || origin.starts_with("https:"));
    const bool same = right_scheme && absl::AsciiStrToLower(View(origin.substr(scheme + 3))) ==
                                          absl::AsciiStrToLower(View(authority));
    if (!same)
      return OtherSite(absl::StrCat("Origin: '", Shown(origin), "' is another site"),
                       "other sites may not use this daemon through a browser");
  }
  const std::string_view site = request.Header("sec-fetch-site").value_or("");
  const bool from_here =
      request.Count("sec-fetch-site") == 0 || site == "same-origin" || site == "none";
  const bool link = opens_page && request.Header("sec-fetch-mode").value_or("") == "navigate";
  if (!from_here && !link)
    return OtherSite("Sec-Fetch-Site: a page of another site has caused this request",
                     "other sites may not use this daemon through a browser");
  return std::nullopt;
}

bool IsFromBrowser(const http::Request& request) {
  return request.Count("origin") > 0 || request.Count("sec-fetch-site") > 0;
}

std::string MediaTypeOf(const http::Request& request) {
  const std::string_view all = request.Header("content-type").value_or("");
  return absl::AsciiStrToLower(View(Trimmed(all.substr(0, all.find(';')))));
}

std::optional<std::string> CookieOf(const http::Request& request, std::string_view name) {
  for (const auto& [key, value] : request.headers) {
    if (key != "cookie") continue;
    std::string_view rest = value;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find(';'), rest.size());
      const std::string_view pair = Trimmed(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
      const size_t equals = pair.find('=');
      if (equals != pair.npos && pair.substr(0, equals) == name)
        return std::string(pair.substr(equals + 1));
    }
  }
  return std::nullopt;
}

}  // namespace semaphored::web
