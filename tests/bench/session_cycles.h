// Acquire and Release over Session streams, N cycles outstanding.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/bench/session_stream.h"

namespace semaphored::bench {

struct CyclesPlan {
  // Name of the semaphore of each client.
  std::vector<std::string> semaphores;
  uint32_t limit = 1;
  uint32_t streams = 1;
  std::string server;
  std::string run;
  int64_t ttl_ms = 30000;
  // The first grant is not given back before all other clients have been told that they are queued;
  // only then does the warm-up begin.
  bool gate = false;
};

// Runs on the thread of the loop, which must be destroyed before this.
class SessionCycles {
 public:
  SessionCycles(const CyclesPlan& plan, Loop* loop, Meter* meter, Report* report);
  ~SessionCycles();

  // Runs until the meter says that the time is over, then until every cycle has ended (`drain`) or
  // leaves those that wait to the closing of the session. Returns after the streams have ended.
  void Run(bool drain);

  // Called once, when the measuring is about to begin and when it is over. May be empty.
  std::function<void()> on_measure_begin, on_measure_end;

 private:
  class Stream;
  struct Client {
    const std::string* semaphore;
    std::string lease_id;
    TimePoint sent;
  };

  void SendAcquire(uint32_t client, TimePoint now, bool report_queued);
  void SendRelease(uint32_t client, TimePoint now);
  void OnGranted(uint32_t client, const std::string& lease_id, TimePoint now);
  void OnQueued();
  void OnReleased(uint32_t client, uint32_t released, TimePoint now);
  void OpenGate();
  void Tick();
  // Runs until `done` or, after the meter's end, kPatience; pings meanwhile.
  template <typename Done>
  bool RunUntil(TimePoint deadline, Done done);

  CyclesPlan plan_;
  Loop* loop_;
  Meter* meter_;
  Report* report_;
  std::vector<Client> clients_;
  std::vector<std::unique_ptr<Stream>> streams_;
  uint32_t running_ = 0;
  uint32_t queued_ = 0;
  int64_t gate_keeper_ = -1;
  bool gated_ = false;
  bool measuring_ = false;
};

}  // namespace semaphored::bench
