// Inside the client: a thread on which callbacks of the client's user run, in order, without any
// lock held.
#ifndef SEMAPHORED_CLIENT_SEMAPHORE_NOTIFIER_H_
#define SEMAPHORED_CLIENT_SEMAPHORE_NOTIFIER_H_

#include <memory>
#include <thread>

#include "absl/functional/any_invocable.h"

namespace semaphore {

// All functions may be called by any thread, also in a callback.
class Notifier {
 public:
  Notifier();
  // Stop().
  ~Notifier();
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

  // Runs `callback` later on the thread, which starts with the first one. Its queue is as long as
  // the operations that are answered, which have a limit of their own. Dropped after Stop().
  void Post(absl::AnyInvocable<void()> callback);

  bool IsCurrentThread() const;

  // What was posted before still runs; waits for it, unless called on the thread itself.
  void Stop();

 private:
  struct Queue;  // shared with the thread, which may outlive us
  static void Run(const std::shared_ptr<Queue>& queue);

  const std::shared_ptr<Queue> queue_;
  std::thread thread_;  // guarded by the queue's mutex
};

}  // namespace semaphore

#endif  // SEMAPHORED_CLIENT_SEMAPHORE_NOTIFIER_H_
