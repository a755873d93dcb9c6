#include "server/metrics/exporter.h"

#include <netdb.h>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <future>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/metrics/families.h"

namespace semaphored {
namespace {

class Figures final : public prometheus::Collectable {
 public:
  Figures(int64_t start_unix_ms, std::function<std::optional<DaemonFigures>()> gather)
      : start_unix_ms_(start_unix_ms), gather_(std::move(gather)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    const std::optional<DaemonFigures> figures = gather_();
    if (!figures) return {};
    return MakeFamilies(*figures, ReadProcessFigures(), start_unix_ms_);
  }

 private:
  int64_t start_unix_ms_;
  std::function<std::optional<DaemonFigures>()> gather_;
};

// Connects, and hangs up at once. Does not block.
void Knock(std::string host, const std::string& port) {
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return;
  const int file = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (file >= 0) {
    static_cast<void>(connect(file, found->ai_addr, found->ai_addrlen));
    close(file);
  }
  freeaddrinfo(found);
}

class HttpExporter final : public Exporter {
 public:
  // Throws what prometheus::Exposer throws.
  HttpExporter(const std::string& host, const std::string& port, std::shared_ptr<Figures> figures)
      : host_(host),
        port_(port),
        figures_(std::move(figures)),
        // Two threads: one client that takes its time keeps no other waiting, and is cut off.
        exposer_(std::make_unique<prometheus::Exposer>(
            std::vector<std::string>{"listening_ports", absl::StrCat(host, ":", port),
                                     "num_threads", "2", "request_timeout_ms", "5000"})) {
    exposer_->RegisterCollectable(figures_);
    const std::vector<int> ports = exposer_->GetListeningPorts();
    if (!ports.empty()) port_ = std::to_string(ports.front());
    address_ = absl::StrCat(host_, ":", port_);
  }

  // The server looks only every two seconds whether it is to end, and when somebody connects: the
  // daemon's own end is not to wait for that.
  ~HttpExporter() override {
    const auto ended = std::async(std::launch::async, [this] { exposer_ = nullptr; });
    while (ended.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready)
      Knock(host_, port_);
  }
  HttpExporter(const HttpExporter&) = delete;
  HttpExporter& operator=(const HttpExporter&) = delete;

  const std::string& address() const override { return address_; }

 private:
  std::string host_;
  std::string port_;
  std::string address_;
  std::shared_ptr<Figures> figures_;
  std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Exporter>> StartExporter(
    const std::string& listen, int64_t start_unix_ms,
    std::function<std::optional<DaemonFigures>()> gather) {
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
