// Brings what callbacks of other threads have to say to a thread that polls.
#ifndef SEMAPHORED_CLIENT_SEMCTL_MAILBOX_H_
#define SEMAPHORED_CLIENT_SEMCTL_MAILBOX_H_

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace semaphore::semctl {

class Mailbox {
 public:
  Mailbox() : descriptor_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Mailbox() { close(descriptor_); }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // To be polled for input.
  int descriptor() const { return descriptor_; }

  // Any thread.
  void Post(std::function<void()> letter) {
    std::lock_guard<std::mutex> lock(mutex_);
    letters_.push_back(std::move(letter));
    const std::uint64_t one = 1;
    static_cast<void>(!write(descriptor_, &one, sizeof(one)));
  }

  // Runs what was posted, in order, on the calling thread.
  void Deliver() {
    std::vector<std::function<void()>> letters;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      letters.swap(letters_);
      std::uint64_t count = 0;
      static_cast<void>(!read(descriptor_, &count, sizeof(count)));
    }
    for (const std::function<void()>& letter : letters) letter();
  }

 private:
  const int descriptor_;
  std::mutex mutex_;
  std::vector<std::function<void()>> letters_;
};

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_MAILBOX_H_
