// The entries that a stream has not sent yet. All that are ready are sent in one message, as long as that is far below the
// 4 MiB that gRPC clients accept by default.
#pragma once

#include <google/protobuf/arena.h>

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

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

// Messages that are not in use, shared by all streams of a reactor.
template <typename Message>
class MessagePool {
 public:
  std::unique_ptr<ArenaMessage<Message>> Take() {
    if (free_.empty()) return std::make_unique<ArenaMessage<Message>>();
    std::unique_ptr<ArenaMessage<Message>> message = std::move(free_.back());
    free_.pop_back();
    return message;
  }
  void Give(std::unique_ptr<ArenaMessage<Message>> message) {
    if (free_.size() >= kFreeMax) return;
    message->Renew();
    free_.push_back(std::move(message));
  }

 private:
  static constexpr size_t kFreeMax = 64;

  std::vector<std::unique_ptr<ArenaMessage<Message>>> free_;
};

inline constexpr size_t kSlotRangeBytes = 48;  // Of a range of slots.

template <typename Message>
class Outbox {
 public:
  // The pool outlives it.
  explicit Outbox(MessagePool<Message>* pool) : pool_(pool) {}
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;
  ~Outbox() { Clear(); }

  // The message to write the next entry into, such as a result or an event; `bytes`: what the entry has beside its fixed
  // fields, such as slots, an error or a payload. The pointer is good until the next call.
  Message* Next(size_t bytes = 0) {
    if (messages_.empty() || messages_.back().entries >= kEntriesPerMessage ||
        messages_.back().bytes + bytes > kBytesPerMessage) {
      return Own(1, bytes);
    }
    Count(&messages_.back(), 1, bytes);
    return messages_.back().message->get();
  }
  // A message of its own for so many entries.
  Message* Own(size_t entries, size_t bytes = 0) {
    messages_.push_back({pool_->Take(), 0, 0});
    Count(&messages_.back(), entries, bytes);
    return messages_.back().message->get();
  }

  // All messages together.
  size_t entries() const { return entries_; }
  // What they take in memory, about.
  size_t bytes() const { return entries_ * kEntryBytes + bytes_; }
  bool empty() const { return messages_.empty(); }
  const Message& front() { return *messages_.front().message->get(); }
  void PopFront() {
    entries_ -= messages_.front().entries;
    bytes_ -= messages_.front().bytes;
    pool_->Give(std::move(messages_.front().message));
    messages_.pop_front();
  }
  void Clear() {
    while (!messages_.empty()) PopFront();
  }

 private:
  // Together they keep a message below 4 MiB.
  static constexpr size_t kEntriesPerMessage = 1'000;
  static constexpr size_t kBytesPerMessage = 2'000'000;
  static constexpr size_t kEntryBytes = 256;  // The fixed fields of an entry.

  struct Pending {
    std::unique_ptr<ArenaMessage<Message>> message;
    size_t entries = 0;
    size_t bytes = 0;
  };

  void Count(Pending* pending, size_t entries, size_t bytes) {
    pending->entries += entries;
    pending->bytes += bytes;
    entries_ += entries;
    bytes_ += bytes;
  }

  MessagePool<Message>* pool_;
  std::deque<Pending> messages_;
  size_t entries_ = 0;
  size_t bytes_ = 0;  // Beside the fixed fields.
};

}  // namespace semaphored
