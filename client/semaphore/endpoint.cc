#include "client/semaphore/endpoint.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace semaphore {
namespace {

constexpr std::size_t kEndpointsMax = 64;

// What is wrong with it; empty if nothing is.
std::string WrongWith(absl::string_view endpoint) {
  for (const absl::string_view scheme : {"unix:", "unix-abstract:"}) {
    if (absl::StartsWith(endpoint, scheme))
      return endpoint.size() > scheme.size() ? "" : "has no path";
  }
  absl::string_view address = endpoint;
  if (!absl::ConsumePrefix(&address, "dns:///") && !absl::ConsumePrefix(&address, "dns:") &&
      !absl::ConsumePrefix(&address, "ipv4:")) {
    absl::ConsumePrefix(&address, "ipv6:");
  }
  const std::size_t scheme = address.find("://");
  if (scheme != absl::string_view::npos)
    return absl::StrCat("begins with ", address.substr(0, scheme + 3), ", which is left out");
  if (address.find_first_of(" \t/") != absl::string_view::npos) return "has a blank or a slash";
  const std::size_t colon = address.rfind(':');
  const bool bracketed = absl::StartsWith(address, "[");
  if (colon == absl::string_view::npos || (bracketed && absl::EndsWith(address, "]")))
    return "has no port";
  const absl::string_view host = address.substr(0, colon);
  if (host.empty()) return "has no host";
  if (bracketed != absl::EndsWith(host, "]") ||
      (!bracketed && host.find(':') != absl::string_view::npos)) {
    return "has an IPv6 address that is not in [ ]";
  }
  const absl::string_view port = address.substr(colon + 1);
  if (port.empty()) return "has no port";
  int number = 0;
  const bool is_number = port.find_first_not_of("0123456789") == absl::string_view::npos;
  if (!is_number || !absl::SimpleAtoi(port, &number) || number < 1 || number > 65'535)
    return absl::StrCat("has the port ", port, ", which is not one of 1 to 65535");
  return "";
}

}  // namespace

absl::Status CheckEndpoints(const std::vector<std::string>& endpoints) {
  constexpr char kRight[] = "HOST:PORT, [HOST]:PORT or unix:PATH, such as 127.0.0.1:7420";
  if (endpoints.empty() || endpoints.size() > kEndpointsMax)
    return absl::InvalidArgumentError(absl::StrCat("give 1 to ", kEndpointsMax, ", each ", kRight));
  for (const std::string& endpoint : endpoints) {
    const std::string wrong = endpoint.empty() ? "is empty" : WrongWith(endpoint);
    if (!wrong.empty())
      return absl::InvalidArgumentError(
          absl::StrCat("'", endpoint, "' ", wrong, "; give ", kRight));
  }
  return absl::OkStatus();
}

}  // namespace semaphore
