// The daemon's figures in Prometheus' terms: which metrics there are, what they are called, and
// what their labels are. docs/metrics.md says what each means; a test compares the two.
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

#include "server/figures/metrics.h"
#include "server/http/server.h"
#include "server/observe/process_figures.h"

namespace semaphored {

// The semaphore's label where many are counted together; no name can look like this.
inline constexpr char kRestLabel[] = "(rest)";

// What the exporter knows of itself, and of the other HTTP server.
struct ScrapeFigures {
  http::ServerFigures server;
  http::ServerFigures web;  // Of http_listen; zeros: there is none.
  Histogram<uint64_t>
      took_us;  // Of scrapes, or of several at once that shared a look; kStepBounds.
};

// A function of its arguments alone. start_unix_ms: when the process began. Each family has at
// least one metric, but for those about what `figures` does not know: of an incomplete look, of an
// engine that has not been listed.
std::vector<prometheus::MetricFamily> MakeFamilies(const DaemonFigures& figures,
                                                   const ProcessFigures& process,
                                                   const ScrapeFigures& scrapes,
                                                   int64_t start_unix_ms);

}  // namespace semaphored
