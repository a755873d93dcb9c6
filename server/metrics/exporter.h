// Shows the daemon's figures to Prometheus: an HTTP server with threads of its own, which answers
// GET /metrics and nothing else. It has neither encryption nor authentication.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/core/metrics.h"

namespace semaphored {

class Exporter {
 public:
  // Waits for answers that are under way.
  virtual ~Exporter() = default;
  // HOST:PORT as it is, with the port that was chosen.
  virtual const std::string& address() const = 0;
};

// listen: HOST:PORT or [HOST]:PORT, HOST being a number or localhost; port 0 is any free one.
// `gather` is called on the server's threads, for each scrape, until the exporter goes; nullopt: the
// page has no metric yet.
// UNAVAILABLE: the address cannot be listened on.
absl::StatusOr<std::unique_ptr<Exporter>> StartExporter(
    const std::string& listen, int64_t start_unix_ms,
    std::function<std::optional<DaemonFigures>()> gather);

}  // namespace semaphored
