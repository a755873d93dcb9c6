// What a session's stream has to say and could not send yet: everything that is ready goes into one
// message.
#pragma once

#include <google/protobuf/arena.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "proto/semaphore/v1/semaphore.pb.h"

namespace semaphored {

// A message on an arena that begins in a block of its own: one of ordinary size allocates nothing
// but long strings.
template <typename Message>
class ArenaMessage {
 public:
  ArenaMessage() : arena_(block_.data(), block_.size()) { Renew(); }
  ArenaMessage(const ArenaMessage&) = delete;
  ArenaMessage& operator=(const ArenaMessage&) = delete;

  Message* get() { return message_; }
  // An empty message; what was in it before is gone.
  void Renew() {
    arena_.Reset();
    message_ = google::protobuf::Arena::CreateMessage<Message>(&arena_);
  }

 private:
  alignas(8) std::array<char, 32 * 1024> block_;
  google::protobuf::Arena arena_;
  Message* message_ = nullptr;
};

using ResponseMessage = ArenaMessage<semaphore::v1::SessionResponse>;

// Messages that are not in use, shared by all streams of a reactor.
class ResponsePool {
 public:
  std::unique_ptr<ResponseMessage> Take();
  void Give(std::unique_ptr<ResponseMessage> message);

 private:
  std::vector<std::unique_ptr<ResponseMessage>> free_;
};

class Outbox {
 public:
  // The pool outlives it.
  explicit Outbox(ResponsePool* pool) : pool_(pool) {}
  ~Outbox() { Clear(); }

  static constexpr size_t kRangeBytes = 48;  // Of a range of slots.

  // Where to write the next thing; `bytes`: what it will have beside its fixed fields, such as slots or an
  // error. The pointer is good until the next call.
  semaphore::v1::SessionResult* AddResult(size_t bytes);
  semaphore::v1::SessionEvent* AddEvent();
  // In a message of its own, which will have so many leases.
  semaphore::v1::SessionOpened* AddOpened(size_t leases);
  semaphore::v1::SessionPong* AddPong();

  // Results, events and others, all messages together.
  size_t entries() const { return entries_; }
  // What they take in memory, about.
  size_t bytes() const { return entries_ * kEntryBytes + bytes_; }
  bool empty() const { return messages_.empty(); }
  const semaphore::v1::SessionResponse& front() { return *messages_.front().message->get(); }
  void PopFront();
  void Clear();

 private:
  struct Pending {
    std::unique_ptr<ResponseMessage> message;
    size_t entries = 0;
    size_t bytes = 0;
  };
  static constexpr size_t kEntryBytes = 256;

  // The last message, if it has room.
  Pending& Tail(size_t bytes);

  ResponsePool* pool_;
  std::deque<Pending> messages_;
  size_t entries_ = 0;
  size_t bytes_ = 0;  // Beside the fixed fields.
};

}  // namespace semaphored
