// Sends spans to a collector of OpenTelemetry, by OTLP over HTTP in JSON, on a thread of its own.
//
// A collector that is slow, away or refuses costs nothing but spans: at most kSpansMax wait, and what
// comes beyond is dropped and counted. A batch that was not taken is sent again a few times, where
// OTLP says that this helps, and then dropped.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "adapters/common/http.h"
#include "server/base/clock.h"
#include "server/base/spans.h"
#include "server/figures/metrics.h"
#include "server/otlp/trace_json.h"

namespace semaphored::otlp {

class SpanExporter final : public SpanSink {
 public:
  static constexpr size_t kSpansMax = 8'192;  // That wait, all together.
  static constexpr size_t kBatch = 512;
  // For one request; also the most that a stop waits for one that is under way.
  static constexpr Milliseconds kRequestTime{2'000};

  // `endpoint`: http://HOST:PORT or https://HOST:PORT, to which /v1/traces is added, unless it is there.
  SpanExporter(const std::string& endpoint, Resource resource);
  // Stop().
  ~SpanExporter() override;

  void Push(Span span) override;

  // Sends what waits, and ends the thread; within kRequestTime twice. What is left is dropped.
  void Stop();

  // Any thread.
  SpanFigures figures() const { return {sent_, dropped_}; }

 private:
  void Run();
  // Empty: it is time to end.
  std::vector<Span> NextBatch();
  void Send(const std::vector<Span>& spans);
  // True: it is over, one way or the other. False: send it again.
  bool Try(const std::string& body, size_t spans);
  void Drop(size_t spans, const std::string& why);
  // False: the exporter stops.
  bool Pause(Milliseconds time);
  Milliseconds TimeLeft() const;

  const std::string address_;
  const Resource resource_;
  HttpClient client_;
  std::atomic<uint64_t> sent_ = 0;
  std::atomic<uint64_t> dropped_ = 0;
  SteadyTime logged_at_{};  // The thread's.

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Its front goes without moving the rest, which Push() would wait for.
  std::deque<Span> waiting_;
  bool stopping_ = false;
  SteadyTime stop_by_{};
  std::thread thread_;
};

}  // namespace semaphored::otlp
