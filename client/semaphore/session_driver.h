// Inside the client: runs a SessionMachine on real streams, a clock and threads.
#ifndef SEMAPHORED_CLIENT_SEMAPHORE_SESSION_DRIVER_H_
#define SEMAPHORED_CLIENT_SEMAPHORE_SESSION_DRIVER_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "client/semaphore/client.h"
#include "client/semaphore/clock.h"
#include "client/semaphore/notifier.h"
#include "client/semaphore/session_machine.h"
#include "client/semaphore/session_stream.h"
#include "client/semaphore/transport.h"

namespace semaphore {

// All functions may be called by any thread.
//
// Locks: `mutex_` guards the machine and the stream. Nothing is called with it held but the
// machine: what is to be done outside is taken along by Flush and done after it was let go. What the
// application gave with requests and leases is destroyed on the thread of results.
class SessionDriver : public StreamListener, public std::enable_shared_from_this<SessionDriver> {
 public:
  // Starts the thread of timers. `options` were checked.
  static std::shared_ptr<SessionDriver> Start(const ClientOptions& options,
                                              std::shared_ptr<Transport> transport);

  // As SessionMachine's. `done` runs on any thread, maybe before the function returns, and must not
  // block.
  std::uint64_t Acquire(AcquireCall call);
  void Cancel(std::uint64_t operation);
  void CancelAllAcquires();
  void Release(const std::shared_ptr<LeaseState>& lease, ReleaseDone done);

  // Ends the session cleanly and the threads; waits for it up to `release_timeout`, but not if
  // called in a callback.
  void Close();

  Notifier& results() { return results_; }
  Clock& clock() { return clock_; }

 private:
  SessionDriver(const ClientOptions& options, std::shared_ptr<Transport> transport);

  void OnStreamMessage(SessionStream* stream, const v1::SessionResponse& message) override;
  void OnStreamWritten(SessionStream* stream) override;
  void OnStreamEnd(std::shared_ptr<SessionStream> stream, const absl::Status& status) override;

  void Acknowledge(const LeaseKeeper::Recalled& recalled);
  void RunTimers();
  // Carries out what the machine wants, and lets `lock` go.
  void Flush(std::unique_lock<std::mutex>& lock);
  bool OnOwnThread() const;

  const ClientOptions options_;
  const std::shared_ptr<Transport> transport_;
  Clock& clock_;
  Notifier results_;
  Notifier losses_;
  StreamLoop loop_;

  std::mutex mutex_;
  std::condition_variable changed_;
  SessionMachine machine_;
  std::shared_ptr<SessionStream> stream_;
  bool writing_ = false;
  std::size_t streams_alive_ = 0;                      // started, their end not yet reported
  std::vector<std::shared_ptr<SessionStream>> ended_;  // for the thread of timers to let go
  TimePoint waiting_until_{};
  std::thread timers_;
};

}  // namespace semaphore

#endif  // SEMAPHORED_CLIENT_SEMAPHORE_SESSION_DRIVER_H_
