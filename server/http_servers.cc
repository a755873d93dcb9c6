#include "server/http_servers.h"

#include <spdlog/spdlog.h>

#include <optional>
#include <utility>

#include "server/config/config_checks.h"
#include "server/options.h"

namespace semaphored {

absl::Status HttpServers::Start(const Config& config, const Clock& clock, Security* security,
                                const std::string& inside_key) {
  if (absl::Status status = StartMetrics(config, clock); !status.ok()) return status;
  return StartWeb(config, clock, security, inside_key);
}

absl::Status HttpServers::StartMetrics(const Config& config, const Clock& clock) {
  if (config.metrics_listen.empty()) return absl::OkStatus();
  auto exporter = StartExporter(
      config.metrics_listen, clock,
      [this]() -> std::optional<DaemonFigures> {
        const Gatherer* const ready = gatherer_;
        if (ready == nullptr) return std::nullopt;
        return ready->Gather();
      },
      [this] {
        const web::Web* const ready = shown_web_;
        return ready == nullptr ? http::ServerFigures() : ready->figures();
      });
  if (!exporter.ok()) return exporter.status();
  exporter_ = *std::move(exporter);
  spdlog::info("metrics at http://{}/metrics", exporter_->address());
  return absl::OkStatus();
}

absl::Status HttpServers::StartWeb(const Config& config, const Clock& clock, Security* security,
                                   const std::string& inside_key) {
  const HttpAddress http = HttpAddressOf(config);
  if (http.listen.empty()) return absl::OkStatus();
  auto web = web::Web::Start(WebOptionsOf(config, security), &clock, inside_key);
  if (!web.ok() && http.may_fail) {
    const auto why = web.status().message();
    spdlog::warn("there is no HTTP: {}", std::string(why.data(), why.size()));
    return absl::OkStatus();
  }
  if (!web.ok()) return web.status();
  web_ = *std::move(web);
  shown_web_ = web_.get();
  spdlog::info("http at {}", web_->url());
  return absl::OkStatus();
}

}  // namespace semaphored
