#include "server/service/outbox.h"

#include <utility>

namespace semaphored {
namespace {

// Together they keep a message far below the 4 MiB that gRPC clients take by default.
constexpr size_t kEntriesPerMessage = 1'000;
constexpr size_t kSlotsPerMessage = 100'000;
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

Outbox::Pending& Outbox::Tail(size_t slots) {
  if (messages_.empty() || messages_.back().entries >= kEntriesPerMessage ||
      messages_.back().slots + slots > kSlotsPerMessage) {
    messages_.push_back({pool_->Take(), 0, 0});
  }
  Pending& tail = messages_.back();
  ++tail.entries;
  tail.slots += slots;
  ++entries_;
  slots_ += slots;
  return tail;
}

semaphore::v1::SessionResult* Outbox::AddResult(size_t slots) {
  return Tail(slots).message->get()->add_results();
}

semaphore::v1::SessionEvent* Outbox::AddEvent() { return Tail(0).message->get()->add_events(); }

semaphore::v1::SessionOpened* Outbox::AddOpened() {
  return Tail(0).message->get()->mutable_opened();
}

semaphore::v1::Pong* Outbox::AddPong() {
  // A message has one pong; a later one says more than an earlier one, and replaces it.
  return Tail(0).message->get()->mutable_pong();
}

void Outbox::PopFront() {
  entries_ -= messages_.front().entries;
  slots_ -= messages_.front().slots;
  pool_->Give(std::move(messages_.front().message));
  messages_.pop_front();
}

void Outbox::Clear() {
  while (!messages_.empty()) PopFront();
}

}  // namespace semaphored
