// The health check by which Consul knows that a daemon lives, where permits end with it
// (`sessions=daemon`). The agent itself keeps the check, and fails it when the daemon has not
// passed it for check_ttl_s.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "adapters/adapter.h"
#include "adapters/common/upkeep.h"
#include "adapters/consul/client.h"

namespace semaphored::consul {

// How long after a success of Pulse::Check what hangs on the check may be counted on: it then has
// half of its time, of which a part is kept back.
std::chrono::milliseconds VouchMax(const Url& url);
// How often a lane that does nothing looks at it at least.
std::chrono::milliseconds PulseLookedAt(const Url& url);

class Pulse {
 public:
  Pulse(const Url& url, NodeRef self, std::shared_ptr<Upkeep> upkeep = std::make_shared<Upkeep>());
  // Takes the check away: it fails no more, but what hangs on it ends at once.
  ~Pulse();
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

  static std::string CheckOf(const Url& url, NodeRef node);

  // Makes the check; a thread of its own passes it from now on. Blocks for one request.
  absl::Status Start();

  // Any thread. UNAVAILABLE: the check was last passed so long ago that only half of its time is
  // left: nothing that hangs on it may be given, or counted on, any more.
  absl::Status Check() const;

 private:
  absl::Status Register();
  absl::Status DropFailed();
  void Run();
  absl::Status Pass();

  const Url url_;
  const std::string check_;
  const std::shared_ptr<Upkeep> upkeep_;
  Client client_;  // Start's, and then the thread's.
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  bool ending_ = false;
  SteadyTime passed_at_{};  // When the last pass that succeeded was sent.
  std::thread thread_;
};

}  // namespace semaphored::consul
