// What a worker's stream has to say and could not send yet: everything that is ready goes into one
// message, as long as that stays far below the 4 MiB that gRPC clients take by default.
#pragma once

#include <cstddef>
#include <deque>

#include "proto/semaphore/v1/semaphore.pb.h"

namespace semaphored {

class WorkOutbox {
 public:
  // The message to write the next thing into, which is about `bytes` long. Good until the next
  // call.
  semaphore::v1::WorkResponse* Next(size_t bytes) {
    if (messages_.empty() || messages_.back().entries >= kEntriesPerMessage ||
        messages_.back().bytes + bytes > kBytesPerMessage) {
      messages_.emplace_back();
    }
    Pending& tail = messages_.back();
    ++tail.entries;
    tail.bytes += bytes;
    ++entries_;
    bytes_ += bytes;
    return &tail.message;
  }

  size_t entries() const { return entries_; }
  // What they take in memory, about.
  size_t bytes() const { return bytes_; }
  bool empty() const { return messages_.empty(); }
  const semaphore::v1::WorkResponse& front() const { return messages_.front().message; }
  void PopFront() {
    entries_ -= messages_.front().entries;
    bytes_ -= messages_.front().bytes;
    messages_.pop_front();
  }
  void Clear() {
    messages_.clear();
    entries_ = 0;
    bytes_ = 0;
  }

 private:
  static constexpr size_t kEntriesPerMessage = 1'000;
  static constexpr size_t kBytesPerMessage = 1 << 20;
  struct Pending {
    semaphore::v1::WorkResponse message;
    size_t entries = 0;
    size_t bytes = 0;
  };
  std::deque<Pending> messages_;
  size_t entries_ = 0;
  size_t bytes_ = 0;
};

}  // namespace semaphored
