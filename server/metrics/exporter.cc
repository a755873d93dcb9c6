#include "server/metrics/exporter.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

#include <exception>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/metrics/families.h"

namespace semaphored {
namespace {

class Figures final : public prometheus::Collectable {
 public:
  Figures(int64_t start_unix_ms, std::function<DaemonFigures()> gather)
      : start_unix_ms_(start_unix_ms), gather_(std::move(gather)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    return MakeFamilies(gather_(), ReadProcessFigures(), start_unix_ms_);
  }

 private:
  int64_t start_unix_ms_;
  std::function<DaemonFigures()> gather_;
};

class HttpExporter final : public Exporter {
 public:
  // Throws what prometheus::Exposer throws.
  HttpExporter(const std::string& host, const std::string& port, std::shared_ptr<Figures> figures)
      : figures_(std::move(figures)),
        // Two threads: one client that takes its time keeps no other waiting, and is cut off.
        exposer_(std::vector<std::string>{"listening_ports", absl::StrCat(host, ":", port),
                                          "num_threads", "2", "request_timeout_ms", "5000"}) {
    exposer_.RegisterCollectable(figures_);
    const std::vector<int> ports = exposer_.GetListeningPorts();
    address_ = absl::StrCat(host, ":", ports.empty() ? port : std::to_string(ports.front()));
  }

  const std::string& address() const override { return address_; }

 private:
  std::shared_ptr<Figures> figures_;
  prometheus::Exposer exposer_;
  std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Exporter>> StartExporter(const std::string& listen,
                                                        int64_t start_unix_ms,
                                                        std::function<DaemonFigures()> gather) {
  const size_t colon = listen.rfind(':');
  if (colon == listen.npos) return absl::UnavailableError("cannot listen on " + listen);
  std::string host = listen.substr(0, colon);
  if (host == "localhost") host = "127.0.0.1";
  auto figures = std::make_shared<Figures>(start_unix_ms, std::move(gather));
  try {
    return std::make_unique<HttpExporter>(host, listen.substr(colon + 1), std::move(figures));
  } catch (const std::exception&) {
    // What it says is of its insides.
    return absl::UnavailableError(
        "metrics_listen: cannot listen on " + listen +
        ": the address is in use, or not this machine's, or not permitted");
  }
}

}  // namespace semaphored
