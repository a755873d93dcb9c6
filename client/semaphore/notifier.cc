#include "client/semaphore/notifier.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

namespace semaphore {

struct Notifier::Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<absl::AnyInvocable<void()>> callbacks;
  bool stopped = false;
  std::atomic<std::thread::id> thread_id;
};

Notifier::Notifier() : queue_(std::make_shared<Queue>()) {}

Notifier::~Notifier() { Stop(); }

void Notifier::Post(absl::AnyInvocable<void()> callback) {
  std::lock_guard<std::mutex> lock(queue_->mutex);
  if (queue_->stopped) return;
  queue_->callbacks.push_back(std::move(callback));
  if (!thread_.joinable()) thread_ = std::thread([queue = queue_] { Run(queue); });
  queue_->changed.notify_one();
}

bool Notifier::IsCurrentThread() const {
  return queue_->thread_id.load() == std::this_thread::get_id();
}

void Notifier::Stop() {
  std::thread thread;
  {
    std::lock_guard<std::mutex> lock(queue_->mutex);
    queue_->stopped = true;
    queue_->changed.notify_one();
    thread = std::move(thread_);
  }
  if (!thread.joinable()) return;
  if (IsCurrentThread()) {
    thread.detach();
  } else {
    thread.join();
  }
}

void Notifier::Run(const std::shared_ptr<Queue>& queue) {
  queue->thread_id.store(std::this_thread::get_id());
  std::unique_lock<std::mutex> lock(queue->mutex);
  while (true) {
    queue->changed.wait(lock, [&] { return queue->stopped || !queue->callbacks.empty(); });
    if (queue->callbacks.empty()) return;
    absl::AnyInvocable<void()> callback = std::move(queue->callbacks.front());
    queue->callbacks.pop_front();
    lock.unlock();
    callback();
    callback = nullptr;  // what it captured may call us when it goes
    lock.lock();
  }
}

}  // namespace semaphore
