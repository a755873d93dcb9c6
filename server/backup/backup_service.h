// The daemon's side of `semaphored backup`: a thread that listens beside the store's file and makes
// one copy at a time. What a client of it does, or leaves undone, delays no lane.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "adapters/common/descriptor.h"
#include "server/base/clock.h"

namespace semaphored {

class BackUpService {
 public:
  // As Engine::BackUp.
  using Progress = std::function<bool(int64_t done_bytes, int64_t all_bytes)>;
  using Make =
      std::function<absl::StatusOr<Descriptor>(int64_t bytes_per_second, Progress progress)>;

  // Listens for the store in `store_file`, which this process has locked. A socket that cannot be
  // made is logged: then there are no back-ups. `make` is called on a thread of the service's own.
  BackUpService(const std::string& store_file, Make make);
  // Gives up the back-up that is under way, and removes the socket. Blocks for one of its steps.
  ~BackUpService();
  BackUpService(const BackUpService&) = delete;
  BackUpService& operator=(const BackUpService&) = delete;

 private:
  void Run();
  void Serve(const Descriptor& channel);
  // What each step of a back-up asks. False: give it up.
  bool Continue(int channel, int64_t done_bytes, int64_t all_bytes);
  void RefuseOthers();

  const std::string path_;
  const Make make_;
  Descriptor listener_;
  Descriptor wake_;
  std::atomic<bool> stopping_ = false;
  SteadyTime reported_at_{};
  std::thread thread_;
};

}  // namespace semaphored
