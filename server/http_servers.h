// The daemon's two HTTP servers: metrics, and the API with its page.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "server/base/clock.h"
#include "server/config/config.h"
#include "server/observe/exporter.h"
#include "server/rpc/gatherer.h"
#include "server/rpc/security.h"
#include "server/rpc/server.h"
#include "server/web/web.h"

namespace semaphored {

// Used by one thread. The clock and the security outlive it, and it the server's Stop().
class HttpServers {
 public:
  // Binds the addresses that the configuration names; from then on both answer, the metrics with nothing yet, and the API
  // with UNAVAILABLE. UNAVAILABLE: an address cannot be listened on.
  absl::Status Start(const Config& config, const Clock& clock, Security* security,
                     const std::string& inside_key);
  // What the metrics show from now on, until StopMetrics().
  void Show(const Gatherer* gatherer) { gatherer_ = gatherer; }
  // After server->Listen().
  void Open(Server* server) {
    if (web_ != nullptr) web_->Open(server->ChannelWithin());
  }
  // The part of the configuration that may change.
  void Reload(const Config& config) {
    if (web_ != nullptr) web_->SetWrites(web::WritesOf(config.http_writes));
  }
  // Null: nothing yet, or no more.
  const Gatherer* gatherer() const { return gatherer_; }
  // Null: there is no HTTP.
  web::Web* web() { return web_.get(); }
  // While the reactor still answers it.
  void StopMetrics() { exporter_ = nullptr; }
  // After Server::Stop(), and StopMetrics().
  void StopWeb() { web_ = nullptr; }

 private:
  absl::Status StartMetrics(const Config& config, const Clock& clock);
  absl::Status StartWeb(const Config& config, const Clock& clock, Security* security,
                        const std::string& inside_key);

  std::atomic<const Gatherer*> gatherer_ = nullptr;  // Null: there is nothing to gather yet.
  std::unique_ptr<web::Web> web_;                    // Null: there is no HTTP.
  std::atomic<const web::Web*> shown_web_ = nullptr;
  std::unique_ptr<Exporter> exporter_;  // Null: metrics are off. It reads the others.
};

}  // namespace semaphored
