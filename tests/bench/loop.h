// The event loop of the generator: one completion queue, one thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

#include "tests/bench/meter.h"

namespace semaphored::bench {

// A pending operation of the completion queue. It must live until it was proceeded.
class Tag {
 public:
  virtual ~Tag() = default;
  virtual void Proceed(bool ok) = 0;
};

// Time after which an operation that nobody answers counts as an error.
inline constexpr std::chrono::seconds kPatience{30};

class Loop {
 public:
  grpc::CompletionQueue* queue() { return &queue_; }

  // Runs events until `done()` is true (asked after each event and at least every 20 ms) or until
  // `deadline`. Returns whether it was done. Calls `tick()` at least every 20 ms.
  template <typename Done, typename Tick>
  bool RunUntil(TimePoint deadline, Done done, Tick tick) {
    constexpr std::chrono::milliseconds kTick{20};
    TimePoint next_tick = Clock::now();
    while (!done()) {
      const TimePoint now = Clock::now();
      if (now >= deadline) return false;
      if (now >= next_tick) {
        tick();
        next_tick = now + kTick;
      }
      RunOne(kTick);
    }
    return true;
  }
  template <typename Done>
  bool RunUntil(TimePoint deadline, Done done) {
    return RunUntil(deadline, done, [] {});
  }

  ~Loop() {
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

 private:
  void RunOne(std::chrono::milliseconds at_most) {
    void* tag = nullptr;
    bool ok = false;
    const auto deadline = std::chrono::system_clock::now() + at_most;
    if (queue_.AsyncNext(&tag, &ok, deadline) == grpc::CompletionQueue::GOT_EVENT) {
      static_cast<Tag*>(tag)->Proceed(ok);
    }
  }

  grpc::CompletionQueue queue_;
};

// A connection of its own: channels of equal arguments would share one.
inline std::shared_ptr<grpc::Channel> Connect(const std::string& server, int number) {
  grpc::ChannelArguments arguments;
  arguments.SetInt("semaphored.bench.connection", number);
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(server, grpc::InsecureChannelCredentials(), arguments);
}

inline std::string Describe(const grpc::Status& status) {
  return "code " + std::to_string(status.error_code()) + ": " + status.error_message();
}

// Names of one run are not those of the run before, so that a store that is used again is no
// matter.
inline std::string RunName() {
  return "bench/" + std::to_string(Clock::now().time_since_epoch().count());
}

}  // namespace semaphored::bench
