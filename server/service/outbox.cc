#include "server/service/outbox.h"

#include <utility>

namespace semaphored {
namespace {

// Together they keep a message far below the 4 MiB that gRPC clients take by default.
constexpr size_t kEntriesPerMessage = 1'000;
constexpr size_t kBytesPerMessage = 2'000'000;
constexpr size_t kFreeMax = 64;

}  // namespace

std::unique_ptr<ResponseMessage> ResponsePool::Take() {
  if (free_.empty()) return std::make_unique<ResponseMessage>();
  std::unique_ptr<ResponseMessage> message = std::move(free_.back());
  free_.pop_back();
  return message;
}

void ResponsePool::Give(std::unique_ptr<ResponseMessage> message) {
  if (free_.size() >= kFreeMax) return;
  message->Renew();
  free_.push_back(std::move(message));
}

Outbox::Pending& Outbox::Tail(size_t bytes) {
  if (messages_.empty() || messages_.back().entries >= kEntriesPerMessage ||
      messages_.back().bytes + bytes > kBytesPerMessage) {
    messages_.push_back({pool_->Take(), 0, 0});
  }
  Pending& tail = messages_.back();
  ++tail.entries;
  tail.bytes += bytes;
  ++entries_;
  bytes_ += bytes;
  return tail;
}

semaphore::v1::SessionResult* Outbox::AddResult(size_t bytes) {
  return Tail(bytes).message->get()->add_results();
}

semaphore::v1::SessionEvent* Outbox::AddEvent() { return Tail(0).message->get()->add_events(); }

semaphore::v1::SessionOpened* Outbox::AddOpened(size_t leases) {
  messages_.push_back({pool_->Take(), 0, 0});
  Pending& tail = messages_.back();
  tail.entries = 1 + leases;
  entries_ += tail.entries;
  return tail.message->get()->mutable_opened();
}

semaphore::v1::SessionPong* Outbox::AddPong() {
  // A message has one pong; a later one says more than an earlier one, and replaces it.
  return Tail(0).message->get()->mutable_pong();
}

void Outbox::PopFront() {
  entries_ -= messages_.front().entries;
  bytes_ -= messages_.front().bytes;
  pool_->Give(std::move(messages_.front().message));
  messages_.pop_front();
}

void Outbox::Clear() {
  while (!messages_.empty()) PopFront();
}

}  // namespace semaphored
