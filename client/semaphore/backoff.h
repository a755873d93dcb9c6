// How long to wait before the next attempt to reach a daemon.
#ifndef SEMAPHORED_CLIENT_SEMAPHORE_BACKOFF_H_
#define SEMAPHORED_CLIENT_SEMAPHORE_BACKOFF_H_

#include <chrono>
#include <random>

namespace semaphore {

// Doubles from `first` to `most`. Each delay is drawn from the upper half, so that the clients of a
// daemon which came back do not all arrive at once. Used by one thread at a time.
class Backoff {
 public:
  Backoff(std::chrono::milliseconds first, std::chrono::milliseconds most);

  std::chrono::nanoseconds Next();

  // After a success: begin again with `first`.
  void Reset() { current_ = first_; }

  // A new upper bound, for delays from now on. Not below `first`.
  void set_most(std::chrono::milliseconds most);

 private:
  const std::chrono::milliseconds first_;
  std::chrono::milliseconds most_;
  std::chrono::milliseconds current_;
  std::mt19937_64 random_;
};

}  // namespace semaphore

#endif  // SEMAPHORED_CLIENT_SEMAPHORE_BACKOFF_H_
