#include "server/observe/exporter.h"

#include <prometheus/text_serializer.h>
#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/signals.h"
#include "server/http/gzip.h"
#include "server/http/server.h"
#include "server/observe/families.h"

namespace semaphored {
namespace {

constexpr char kContentType[] = "text/plain; version=0.0.4; charset=utf-8";
// Clients that connect, ask and leave while one look at the daemon is taken are forgotten beyond it.
constexpr size_t kWaitingMax = 10'000;

struct Waiting {
  bool takes_gzip = false;
  http::Reply reply;
};

// One text for all who have waited for it.
class Page {
 public:
  explicit Page(std::string text) : plain_(std::make_shared<std::string>(std::move(text))) {}

  http::Response Answer(bool gzip) {
    http::Response response;
    response.content_type = kContentType;
    if (gzip && packed_ == nullptr) packed_ = std::make_shared<std::string>(http::Gzip(*plain_));
    response.gzip = gzip && !packed_->empty();
    response.body = response.gzip ? packed_ : plain_;
    return response;
  }

 private:
  std::shared_ptr<const std::string> plain_;
  std::shared_ptr<const std::string> packed_;  // Null: not asked for yet.
};

class HttpExporter final : public Exporter {
 public:
  HttpExporter(const Clock& clock, std::function<std::optional<DaemonFigures>()> gather,
               std::function<http::ServerFigures()> web)
      : clock_(clock),
        start_unix_ms_(clock.NowUnixMs()),
        gather_(std::move(gather)),
        web_(std::move(web)) {}

  absl::Status Start(const std::string& listen) {
    http::ServerOptions options;
    options.listen = listen;
    options.clock = &clock_;
    auto server = http::Server::Start(
        options, {{"/metrics", [this](const http::Request& request, http::Reply reply) {
                     Ask({request.takes_gzip, std::move(reply)});
                   }}});
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  ~HttpExporter() override {
    if (server_ == nullptr) return;
    server_->Stop();
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    asked_.notify_one();
    thread_.join();
  }
  HttpExporter(const HttpExporter&) = delete;
  HttpExporter& operator=(const HttpExporter&) = delete;

  const std::string& address() const override { return server_->address(); }

 private:
  void Ask(Waiting waiting) {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= kWaitingMax) waiting_.pop_front();
    waiting_.push_back(std::move(waiting));
    asked_.notify_one();
  }

  // A look at the daemon is for those who had asked before it began: what has happened before a
  // scrape is in its answer.
  void Run() {
    BlockSignals();
    std::unique_lock lock(mutex_);
    for (;;) {
      asked_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      std::deque<Waiting> waiting = std::exchange(waiting_, {});
      lock.unlock();
      Page page(Text());
      for (Waiting& each : waiting) each.reply(page.Answer(each.takes_gzip));
      lock.lock();
    }
  }

  std::string Text() {
    const SteadyTime begun = clock_.Now();
    const std::optional<DaemonFigures> figures = gather_();
    if (!figures) return "";
    const auto families = MakeFamilies(
        *figures, ReadProcessFigures(),
        {server_->figures(), web_ ? web_() : http::ServerFigures(), scrape_us_}, start_unix_ms_);
    std::string text = prometheus::TextSerializer().Serialize(families);
    const auto took = std::chrono::duration_cast<std::chrono::microseconds>(clock_.Now() - begun);
    scrape_us_.Observe(kStepBounds, static_cast<uint64_t>(std::max<int64_t>(took.count(), 0)));
    return text;
  }

  const Clock& clock_;
  const int64_t start_unix_ms_;
  const std::function<std::optional<DaemonFigures>()> gather_;
  const std::function<http::ServerFigures()> web_;
  Histogram<uint64_t> scrape_us_;  // The thread's.

  std::mutex mutex_;
  std::condition_variable asked_;
  std::deque<Waiting> waiting_;  // Guarded by mutex_.
  bool stopping_ = false;        // Guarded by mutex_.
  std::unique_ptr<http::Server> server_;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Exporter>> StartExporter(
    const std::string& listen, const Clock& clock,
    std::function<std::optional<DaemonFigures>()> gather,
    std::function<http::ServerFigures()> web) {
  std::string address = listen;
  constexpr char kLocalhost[] = "localhost:";
  if (address.starts_with(kLocalhost)) address.replace(0, sizeof kLocalhost - 2, "127.0.0.1");
  auto exporter = std::make_unique<HttpExporter>(clock, std::move(gather), std::move(web));
  if (const absl::Status status = exporter->Start(address); !status.ok())
    return absl::UnavailableError(absl::StrCat("metrics_listen: ", status.message()));
  return exporter;
}

}  // namespace semaphored
