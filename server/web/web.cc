#include "server/web/web.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/web/connect.h"
#include "server/web/page_routes.h"
#include "server/web/session_routes.h"
#include "server/web/stream_routes.h"
#include "server/web/unary_routes.h"

namespace semaphored::web {
namespace {

// For answers to leave when the daemon stops.
constexpr Milliseconds kLastWords{500};

std::vector<std::string> HostsOf(const std::string& text) {
  std::vector<std::string> hosts;
  for (const absl::string_view each : absl::StrSplit(text, ',')) {
    const absl::string_view host = absl::StripAsciiWhitespace(each);
    if (!host.empty()) hosts.push_back(absl::AsciiStrToLower(host));
  }
  return hosts;
}

}  // namespace

Writes WritesOf(std::string_view text) {
  if (text == "on") return Writes::kOn;
  return text == "token" ? Writes::kToken : Writes::kOff;
}

Web::Web(WebOptions options, const Clock* clock, std::string inside_key)
    : gateway_(clock, std::move(inside_key)) {
  site_.gateway = &gateway_;
  site_.clock = clock;
  site_.policy = std::move(options.policy);
  site_.audit = options.audit;
  site_.hosts = HostsOf(options.hosts);
  site_.by_tls = options.tls != nullptr;
  // Cookies know no ports. By the name's beginning, browsers take none that was not set by TLS at this very host.
  site_.cookie_name = absl::StrCat(site_.by_tls ? "__Host-" : "", "semaphored_",
                                   options.listen.substr(options.listen.rfind(':') + 1));
  site_.needs_token = options.needs_token;
  site_.body_bytes_max = options.body_bytes_max;
  site_.writes = options.writes;
}

Web::~Web() { Stop(); }

std::vector<Route> Web::AllRoutes() {
  std::vector<Route> all;
  for (auto& some : {UnaryRoutes(&site_), StreamRoutes(&site_), SessionRoutes(&site_), PageRoutes(),
                     PageFeedRoutes(&site_, &feed_)})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

absl::StatusOr<std::unique_ptr<Web>> Web::Start(WebOptions options, const Clock* clock,
                                                std::string inside_key) {
  http::ServerOptions serving;
  serving.listen = options.listen;
  constexpr std::string_view kLocalhost = "localhost:";
  if (serving.listen.starts_with(kLocalhost))
    serving.listen.replace(0, kLocalhost.size() - 1, "127.0.0.1");
  serving.clock = clock;
  serving.tls = options.tls;
  serving.handshake_timeout = options.handshake_timeout;
  serving.connections_max = kConnectionsMax;
  serving.stall_timeout = options.unread_max;
  serving.unacknowledged_max = options.unread_max;
  serving.keeps_busy = true;
  serving.headers = {{"X-Content-Type-Options", "nosniff"},
                     {"Referrer-Policy", "no-referrer"},
                     {"Cross-Origin-Resource-Policy", "same-origin"}};
  std::unique_ptr<Web> web(new Web(std::move(options), clock, std::move(inside_key)));
  const std::vector<Route> routes = web->AllRoutes();
  serving.check = MakeCheck(&web->site_, routes);
  serving.refusal = [most = web->site_.body_bytes_max](http::Status status) {
    return EarlyRefusal(status, most);
  };
  auto server = http::Server::Start(serving, MakeResources(&web->site_, routes));
  if (!server.ok())
    return absl::UnavailableError(absl::StrCat("http_listen: ", server.status().message()));
  web->server_ = *std::move(server);
  return web;
}

std::string Web::url() const {
  return absl::StrCat(site_.by_tls ? "https" : "http", "://", server_->address(), "/");
}

void Web::Open(std::shared_ptr<grpc::Channel> channel) { gateway_.Open(std::move(channel)); }

void Web::Stop() {
  gateway_.Stop();
  if (server_ != nullptr) server_->Stop(kLastWords);
}

}  // namespace semaphored::web
