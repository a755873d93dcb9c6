// Shows the daemon's figures to Prometheus: an HTTP server that answers GET /metrics and nothing
// else, with a thread for its connections and one that gathers. It has neither encryption nor
// authentication.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/base/clock.h"
#include "server/figures/metrics.h"
#include "server/http/server.h"

namespace semaphored {

class Exporter {
 public:
  // Ends all connections. Waits for a `gather` that is under way, and for nothing else.
  virtual ~Exporter() = default;
  // HOST:PORT as it is, with the port that was chosen.
  virtual const std::string& address() const = 0;
};

// listen: HOST:PORT or [HOST]:PORT, HOST being a number or localhost; port 0 is any free one.
// `gather` is called on one thread, until the exporter goes, and may block: what is asked for
// meanwhile waits, and shares the next answer. nullopt: the page has no metric yet. The clock
// outlives the exporter.
// `web`: the other HTTP server's figures; it must not block. Empty: there is none.
// UNAVAILABLE: the address cannot be listened on.
absl::StatusOr<std::unique_ptr<Exporter>> StartExporter(
    const std::string& listen, const Clock& clock,
    std::function<std::optional<DaemonFigures>()> gather,
    std::function<http::ServerFigures()> web = nullptr);

}  // namespace semaphored
