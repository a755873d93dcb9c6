// What RabbitMQ gives without a daemon: the recipe of a semaphore of tokens. Each client has a
// connection of its own and consumes with a prefetch of one from the one queue that has all tokens;
// what it is handed it gives back at once. Nobody asks for a token, so that a cycle is one reject
// and one delivery.
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "tests/bench/loop.h"
#include "tests/bench/meter.h"
#include "tests/bench/modes.h"
#include "tests/bench/rabbitmq_connection.h"

namespace semaphored::bench {
namespace {

struct Consumer {
  RabbitConnection connection;
  TimePoint rejected;  // min(): it has not had a token yet.
};

// Of all threads.
struct Shared {
  Meter meter;
  // Of the one token, for the hand-offs; since the clock's epoch.
  std::atomic<Clock::rep> last_rejected = 0;
  std::atomic<bool> broken = false;
};

// The consumers of one thread.
class Driver {
 public:
  Driver(std::span<const std::unique_ptr<Consumer>> consumers, Shared* shared)
      : consumers_(consumers), shared_(shared), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    for (uint32_t i = 0; i < consumers_.size(); ++i) {
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.u32 = i;
      epoll_ctl(epoll_, EPOLL_CTL_ADD, consumers_[i]->connection.descriptor(), &event);
    }
  }
  ~Driver() { close(epoll_); }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  void Run() {
    constexpr int kLookMs = 20;
    std::vector<epoll_event> events(consumers_.size());
    while (!shared_->broken && !shared_->meter.Over(Clock::now())) {
      const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), kLookMs);
      for (int i = 0; i < count; ++i) {
        Consumer& consumer = *consumers_[events[i].data.u32];
        const bool alive = consumer.connection.Receive(
            [&](uint64_t delivery_tag) { return OnDelivery(&consumer, delivery_tag); });
        if (!alive) shared_->broken = true;
      }
    }
  }

  const Histogram& cycle() const { return cycle_; }
  const Histogram& hand_off() const { return hand_off_; }

 private:
  bool OnDelivery(Consumer* consumer, uint64_t delivery_tag) {
    const TimePoint now = Clock::now();
    const Clock::rep last_rejected = shared_->last_rejected.load(std::memory_order_relaxed);
    if (shared_->meter.Measures(now) && consumer->rejected != TimePoint()) {
      cycle_.Record(NanosBetween(consumer->rejected, now));
      hand_off_.Record(NanosBetween(TimePoint(Clock::duration(last_rejected)), now));
    }
    consumer->rejected = now;
    shared_->last_rejected.store(now.time_since_epoch().count(), std::memory_order_relaxed);
    return consumer->connection.Reject(delivery_tag);
  }

  const std::span<const std::unique_ptr<Consumer>> consumers_;
  Shared* const shared_;
  const int epoll_;
  Histogram cycle_, hand_off_;
};

class RabbitRawRun {
 public:
  RabbitRawRun(const Options& options, uint32_t tokens, Report* report)
      : options_(options), tokens_(tokens), report_(report), queue_(RunName()) {}

  void Run() {
    if (!Did(control_.Open(options_.server)) ||
        !Did(control_.DeclareQueue(queue_, options_.queue_type)))
      return;
    // First the consumers, then the tokens: else the first would have them all.
    if (OpenConsumers() && Did(control_.Publish(queue_, tokens_, options_.queue_type == "quorum")))
      Measure();
    consumers_.clear();
    Did(control_.DeleteQueue(queue_));
  }

 private:
  bool Did(const std::string& error) {
    if (!error.empty()) report_->Error(error);
    return error.empty();
  }

  bool OpenConsumers() {
    for (uint32_t i = 0; i < options_.clients; ++i) {
      consumers_.push_back(std::make_unique<Consumer>());
      RabbitConnection& connection = consumers_.back()->connection;
      if (!Did(connection.Open(options_.server)) || !Did(connection.Consume(queue_))) return false;
    }
    return true;
  }

  void Measure() {
    Shared shared{.meter = Meter(options_)};
    std::vector<std::unique_ptr<Driver>> drivers;
    const size_t threads = std::min<size_t>(options_.threads, consumers_.size());
    const std::span<const std::unique_ptr<Consumer>> all(consumers_);
    for (size_t i = 0; i < threads; ++i) {
      const size_t from = all.size() * i / threads;
      const size_t to = all.size() * (i + 1) / threads;
      drivers.push_back(std::make_unique<Driver>(all.subspan(from, to - from), &shared));
    }
    {
      std::vector<std::jthread> running;
      for (const auto& driver : drivers) running.emplace_back([&driver] { driver->Run(); });
    }
    if (shared.broken) report_->Error("connection lost");
    Fill(drivers);
  }

  void Fill(const std::vector<std::unique_ptr<Driver>>& drivers) {
    Histogram cycle, hand_off;
    for (const auto& driver : drivers) {
      cycle.Add(driver->cycle());
      hand_off.Add(driver->hand_off());
    }
    if (cycle.count() == 0) report_->Error("no token came");
    const double per_s = static_cast<double>(cycle.count()) / options_.duration_s;
    report_->Figure("clients", options_.clients);
    report_->Figure("tokens", tokens_);
    report_->Figure("threads", options_.threads);
    report_->Figure("duration_s", options_.duration_s);
    report_->Figure("cycles_per_s", per_s);
    if (tokens_ == 1) {
      report_->Figure("hand_offs_per_s", per_s);
      report_->Latency("hand_off", hand_off);
    }
    report_->Latency("cycle", cycle);
  }

  const Options options_;
  const uint32_t tokens_;
  Report* const report_;
  const std::string queue_;
  RabbitConnection control_;
  std::vector<std::unique_ptr<Consumer>> consumers_;
};

}  // namespace

Report RunRabbitRaw(const Options& options) {
  Report report;
  report.title = "rabbitmq-raw " + options.queue_type;
  RabbitRawRun(options, options.tokens == 0 ? options.clients : options.tokens, &report).Run();
  return report;
}

Report RunRabbitRawHandOff(const Options& options) {
  Report report;
  report.title = "rabbitmq-raw-hand-off " + options.queue_type;
  RabbitRawRun(options, 1, &report).Run();
  return report;
}

}  // namespace semaphored::bench
