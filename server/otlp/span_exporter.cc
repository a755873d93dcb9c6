#include "server/otlp/span_exporter.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace semaphored::otlp {
namespace {

constexpr Milliseconds kBatchTime(1'000);  // A batch that is not full waits for so long.
constexpr Milliseconds kFirstPause(250);
constexpr int kTries = 4;
constexpr std::chrono::seconds kBetweenLines(60);

// Those at which OTLP lets a client send the same once more.
bool IsWorthAnother(const HttpAnswer& answer) {
  return answer.http_status == 0 || answer.http_status == 429 || answer.http_status == 502 ||
         answer.http_status == 503 || answer.http_status == 504;
}

HttpOptions OptionsOf() {
  HttpOptions options;
  options.answer_bytes_max = 1 << 16;
  options.connect_timeout = Milliseconds(1'000);
  return options;
}

std::string AddressOf(std::string endpoint) {
  constexpr std::string_view kPath = "/v1/traces";
  while (endpoint.ends_with('/')) endpoint.pop_back();
  return endpoint.ends_with(kPath) ? endpoint : endpoint.append(kPath);
}

}  // namespace

SpanExporter::SpanExporter(const std::string& endpoint, Resource resource)
    : address_(AddressOf(endpoint)), resource_(std::move(resource)), client_(OptionsOf()) {
  thread_ = std::thread([this] { Run(); });
}

SpanExporter::~SpanExporter() { Stop(); }

void SpanExporter::Push(Span span) {
  bool full = false;
  {
    const std::scoped_lock lock(mutex_);
    if (stopping_ || waiting_.size() >= kSpansMax) {
      ++dropped_;
      return;
    }
    waiting_.push_back(std::move(span));
    full = waiting_.size() == kBatch;
  }
  if (full) changed_.notify_one();
}

void SpanExporter::Stop() {
  {
    const std::scoped_lock lock(mutex_);
    if (!thread_.joinable()) return;
    stopping_ = true;
    stop_by_ = SystemClock().Now() + kRequestTime;
  }
  changed_.notify_one();
  thread_.join();
}

void SpanExporter::Run() {
  while (true) {
    const std::vector<Span> batch = NextBatch();
    if (batch.empty()) return;
    Send(batch);
  }
}

std::vector<Span> SpanExporter::NextBatch() {
  std::unique_lock lock(mutex_);
  do {
    changed_.wait_for(lock, kBatchTime, [this] { return stopping_ || waiting_.size() >= kBatch; });
  } while (waiting_.empty() && !stopping_);
  const size_t count = std::min(waiting_.size(), kBatch);
  const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<Span> batch(std::make_move_iterator(waiting_.begin()), std::make_move_iterator(end));
  waiting_.erase(waiting_.begin(), end);
  return batch;
}

void SpanExporter::Send(const std::vector<Span>& spans) {
  // Before the request is put together: at a stop many batches may wait.
  if (TimeLeft() <= Milliseconds(0)) return Drop(spans.size(), "the daemon stops");
  const std::string body = TraceRequest(resource_, spans);
  Milliseconds pause = kFirstPause;
  for (int attempt = 1; attempt <= kTries; ++attempt) {
    if (Try(body, spans.size())) return;
    if (attempt < kTries && !Pause(pause)) break;
    pause *= 2;
  }
  Drop(spans.size(), "they were not taken");
}

bool SpanExporter::Try(const std::string& body, size_t spans) {
  HttpRequest request;
  request.method = "POST";
  request.address = address_;
  request.headers = {"Content-Type: application/json"};
  request.body = &body;
  request.timeout = std::max(std::min(kRequestTime, TimeLeft()), Milliseconds(1));
  const HttpAnswer answer = client_.Send(request);
  if (answer.http_status >= 200 && answer.http_status < 300) {
    const uint64_t rejected = std::min<uint64_t>(RejectedSpans(answer.body), spans);
    sent_ += spans - rejected;
    if (rejected > 0) Drop(rejected, "the collector did not take all");
    return true;
  }
  if (IsWorthAnother(answer)) return false;
  Drop(spans, "the collector answered " + std::to_string(answer.http_status));
  return true;
}

void SpanExporter::Drop(size_t spans, const std::string& why) {
  dropped_ += spans;
  const SteadyTime now = SystemClock().Now();
  if (logged_at_ != SteadyTime{} && now - logged_at_ < kBetweenLines) return;
  logged_at_ = now;
  spdlog::warn("otlp_endpoint: spans were dropped: {} ({} so far)", why, dropped_.load());
}

bool SpanExporter::Pause(Milliseconds time) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, time, [this] { return stopping_; });
}

Milliseconds SpanExporter::TimeLeft() const {
  const std::scoped_lock lock(mutex_);
  if (!stopping_) return kRequestTime;
  return std::chrono::duration_cast<Milliseconds>(stop_by_ - SystemClock().Now());
}

}  // namespace semaphored::otlp
