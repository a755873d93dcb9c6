// The daemon by HTTP: its page, its API as JSON, and its streams as server-sent events (docs/http.md).
//
//   Web::Start(…) when addresses are bound … Open(…) when the API is served … Stop()
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/base/clock.h"
#include "server/http/server.h"
#include "server/web/page_feed.h"
#include "server/web/routes.h"

namespace semaphored::web {

// Each waiting call and each stream has a connection.
inline constexpr size_t kConnectionsMax = 1'024;

struct WebOptions {
  std::string listen;  // As http::ServerOptions::listen; "localhost:PORT", too.
  std::string hosts;   // Site::hosts, with commas between them.
  Writes writes = Writes::kToken;
  const guard::Tls* tls = nullptr;  // As http::ServerOptions::tls.
  Milliseconds handshake_timeout{10'000};
  bool needs_token = false;
  size_t body_bytes_max = 4 << 20;
  Milliseconds unread_max{15'000};  // A client that does not read is cut off after it.
  std::function<std::shared_ptr<const AccessPolicy>()> policy;
  AuditLog* audit = nullptr;  // Site::audit. It outlives the Web.
};

// "off", "token" or "on".
Writes WritesOf(std::string_view text);

class Web {
 public:
  // Listens; until Open(), calls are answered with UNAVAILABLE. The clock outlives it.
  // UNAVAILABLE: the address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<Web>> Start(WebOptions options, const Clock* clock,
                                                    std::string inside_key);
  // Stop().
  ~Web();
  Web(const Web&) = delete;
  Web& operator=(const Web&) = delete;

  // Calls go by this channel from now on.
  void Open(std::shared_ptr<grpc::Channel> channel);
  // What the page shows, from now on; null: nothing more.
  void SetFeed(std::shared_ptr<page::Feed> feed) { feed_.Set(std::move(feed)); }
  void SetWrites(Writes writes) { site_.writes = writes; }
  // No more calls of the API begin from when this returns. In Server::Stop().
  void Close() { gateway_.Close(); }
  // Ends what is under way, and lets its last words leave. After Server::Stop().
  void Stop();

  // "https://127.0.0.1:7422/".
  std::string url() const;
  http::ServerFigures figures() const { return server_->figures(); }

 private:
  Web(WebOptions options, const Clock* clock, std::string inside_key);
  std::vector<Route> AllRoutes();

  Site site_;
  FeedSlot feed_;
  Gateway gateway_;
  std::unique_ptr<http::Server> server_;
};

}  // namespace semaphored::web
