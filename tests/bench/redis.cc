// The peer Redis: the well-known semaphore on a sorted set, taken by a Lua script and given back by
// ZREM. Who does not get it has to ask again, since Redis has no queue for it.
#include <sys/epoll.h>
#include <unistd.h>

#include <deque>
#include <memory>

#include "tests/bench/loop.h"
#include "tests/bench/modes.h"
#include "tests/bench/redis_connection.h"

namespace semaphored::bench {
namespace {

// Takes a place if one is free, after putting out those whose time has passed.
constexpr const char* kAcquireScript =
    "redis.call('zremrangebyscore', KEYS[1], '-inf', ARGV[1]) "
    "if redis.call('zcard', KEYS[1]) < tonumber(ARGV[2]) then "
    "redis.call('zadd', KEYS[1], ARGV[3], ARGV[4]) return 1 end return 0";

constexpr std::chrono::milliseconds kRetryAfter{10};

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch())
      .count();
}

class RedisRun {
 public:
  RedisRun(const Options& options, Report* report)
      : options_(options),
        report_(report),
        meter_(options),
        limit_(std::to_string(options.limit)) {}
  ~RedisRun() {
    if (epoll_ >= 0) close(epoll_);
  }

  void Run() {
    if (!Open()) return;
    meter_.Begin(Clock::now());
    for (uint32_t i = 0; i < options_.clients; ++i) Acquire(i, /*again=*/false);
    running_ = options_.clients;
    const TimePoint give_up = meter_.until() + kPatience;
    while (running_ > 0 && report_->errors == 0) {
      const TimePoint now = Clock::now();
      if (now >= give_up) report_->Error("commands were never answered");
      while (!retries_.empty() && retries_.front().due <= now) {
        Acquire(retries_.front().client, /*again=*/true);
        retries_.pop_front();
      }
      for (auto& connection : connections_) {
        if (!connection->Flush()) report_->Error("connection lost");
      }
      Wait();
    }
    meter_.Fill(options_.semaphores == 1 && options_.limit == 1, report_);
  }

 private:
  struct Client {
    std::string key;
    std::string member;
    TimePoint sent;
    bool holding = false;
  };
  struct Retry {
    TimePoint due;
    uint32_t client;
  };

  bool Open() {
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    for (uint32_t i = 0; i < options_.streams; ++i) {
      connections_.push_back(std::make_unique<RedisConnection>());
      const std::string error = connections_.back()->Open(options_.server);
      if (!error.empty()) {
        report_->Error(error);
        return false;
      }
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.u32 = i;
      epoll_ctl(epoll_, EPOLL_CTL_ADD, connections_.back()->descriptor(), &event);
    }
    script_ = connections_[0]->Ask({"SCRIPT", "LOAD", kAcquireScript});
    if (script_.size() != 40) {
      report_->Error("loading the script: " + script_);
      return false;
    }
    const std::string run = RunName();
    for (uint32_t i = 0; i < options_.clients; ++i) {
      const uint32_t semaphore = options_.semaphores == 0 ? i : i % options_.semaphores;
      clients_.push_back(
          {run + "/" + std::to_string(semaphore), "client-" + std::to_string(i), {}});
    }
    return true;
  }

  RedisConnection& ConnectionOf(uint32_t client) {
    return *connections_[client % connections_.size()];
  }

  void Acquire(uint32_t number, bool again) {
    Client& client = clients_[number];
    if (!again) client.sent = Clock::now();
    const int64_t now_ms = NowMs();
    const std::string now = std::to_string(now_ms);
    const std::string expires = std::to_string(now_ms + options_.ttl_ms);
    ConnectionOf(number).Add(
        number, {"EVALSHA", script_, "1", client.key, now, limit_, expires, client.member});
  }

  void OnReply(uint32_t number, int64_t reply, std::string_view error) {
    Client& client = clients_[number];
    const TimePoint now = Clock::now();
    if (!error.empty()) {
      report_->Error(std::string(error));
    } else if (client.holding) {
      client.holding = false;
      if (reply != 1) report_->Error("a release gave back nothing");
      meter_.CycleDone(client.sent, now);
      if (meter_.Over(now)) {
        --running_;
      } else {
        Acquire(number, /*again=*/false);
      }
    } else if (reply == 1) {
      client.holding = true;
      meter_.Acquired(client.sent, now);
      meter_.ReleaseSent(now);
      ConnectionOf(number).Add(number, {"ZREM", client.key, client.member});
    } else {
      retries_.push_back({now + kRetryAfter, number});
    }
  }

  void Wait() {
    epoll_event events[1024];
    const int count = epoll_wait(epoll_, events, 1024, retries_.empty() ? 20 : 1);
    for (int i = 0; i < count; ++i) {
      RedisConnection& connection = *connections_[events[i].data.u32];
      const bool alive =
          connection.Receive([this](uint32_t client, int64_t reply, std::string_view error) {
            OnReply(client, reply, error);
          });
      if (!alive) report_->Error("connection lost");
    }
  }

  Options options_;
  Report* report_;
  Meter meter_;
  std::string limit_;
  std::string script_;
  int epoll_ = -1;
  std::vector<std::unique_ptr<RedisConnection>> connections_;
  std::vector<Client> clients_;
  std::deque<Retry> retries_;
  uint32_t running_ = 0;
};

}  // namespace

Report RunRedis(const Options& options) {
  Report report;
  report.title = options.semaphores == 1 ? "contended redis" : "redis";
  RedisRun(options, &report).Run();
  return report;
}

}  // namespace semaphored::bench
