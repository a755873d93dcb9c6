#include "adapters/rabbitmq/used_tokens.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "adapters/steady_clock.h"

namespace semaphored::rabbitmq {
namespace {

constexpr uint32_t kPrefetchMax = 2000;
// A consumer that has no waiters any more is kept for so long, in case the next comes at once.
constexpr std::chrono::milliseconds kKeptUnwanted{5};

}  // namespace

absl::StatusOr<Channel> UsedTokens::Open() {
  if (channel_ != 0 && is_open()) return channel_;
  absl::StatusOr<Channel> channel = connection_->OpenChannel();
  if (channel.ok()) channel_ = *channel;
  return channel;
}

std::vector<Id> UsedTokens::Lose() {
  std::vector<Id> lost;
  for (const auto& [claim, held] : std::exchange(held_, {})) lost.push_back(claim);
  spare_.clear();
  strangers_.clear();
  consumers_.clear();
  doubtful_tags_.clear();
  unwanted_since_ = {};
  if (is_open()) connection_->CloseChannel(channel_).IgnoreError();
  channel_ = 0;
  return lost;
}

// ---- permits ----

void UsedTokens::Hold(const Id& claim, const Delivery& delivery, uint32_t slot) {
  held_[claim] = {delivery.delivery_tag, delivery.consumer_tag, slot};
}

absl::Status UsedTokens::GiveBack(const Id& claim) {
  const auto found = held_.find(claim);
  if (found == held_.end()) return absl::OkStatus();
  const Held held = std::move(found->second);
  held_.erase(found);
  GetsRoom(held.consumer_tag);
  given_back_at_ = SteadyClock::now();
  return connection_->Reject(channel_, held.delivery_tag);
}

void UsedTokens::GetsRoom(const std::string& consumer_tag) {
  for (auto& [priority, consumer] : consumers_) {
    if (consumer.tag == consumer_tag && consumer.outstanding > 0) --consumer.outstanding;
  }
}

absl::Status UsedTokens::Discard(const Delivery& delivery) {
  GetsRoom(delivery.consumer_tag);
  return connection_->Acknowledge(channel_, delivery.delivery_tag);
}

std::optional<Delivery> UsedTokens::TakeSpare() {
  if (spare_.empty()) return std::nullopt;
  Delivery delivery = std::move(spare_.front());
  spare_.pop_front();
  return delivery;
}

void UsedTokens::AddSpare(Delivery delivery) {
  for (auto& [priority, consumer] : consumers_) {
    if (consumer.tag == delivery.consumer_tag) ++consumer.outstanding;
  }
  spare_.push_back(std::move(delivery));
}

void UsedTokens::KeepStranger(Delivery delivery) {
  delivery.body.clear();  // Only that it is there counts.
  strangers_.push_back(std::move(delivery));
}

absl::Status UsedTokens::GiveBackStrangers() {
  absl::Status result;
  for (const Delivery& delivery : TakeStrangers())
    result.Update(connection_->Reject(channel_, delivery.delivery_tag));
  return result;
}

// ---- claims that wait ----

void UsedTokens::RemoveWaiting(int32_t priority) {
  if (--waiting_[priority] == 0) waiting_.erase(priority);
}

absl::Status UsedTokens::CancelOne(Consumers::iterator* at) {
  // Answered late, it is known as doubtful, and no more as one that stands.
  const std::string tag = std::move((*at)->second.tag);
  *at = consumers_.erase(*at);
  return Cancel(tag);
}

absl::Status UsedTokens::Tend(const SemaphoreRow& row) {
  if (row.paused || row.destroying) return CancelAll();
  bool unwanted = false;
  // What we have ourselves, the broker cannot send.
  const size_t limit = row.limit;
  const auto most = static_cast<uint32_t>(limit - std::min(limit, here()));
  for (auto at = consumers_.begin(); at != consumers_.end();) {
    const auto waiting = waiting_.find(at->first);
    const uint32_t wanted = waiting == waiting_.end() ? 0 : waiting->second;
    const uint32_t room =
        at->second.prefetch - std::min(at->second.prefetch, at->second.outstanding);
    unwanted = unwanted || wanted == 0;
    if (wanted == 0 || room >= std::min(wanted, most)) {
      ++at;
    } else if (absl::Status status = CancelOne(&at); !status.ok()) {
      return status;
    }
  }
  if (!unwanted) unwanted_since_ = {};
  if (unwanted && unwanted_since_ == SteadyTime{}) unwanted_since_ = SteadyClock::now();
  for (const auto& [priority, count] : waiting_) {
    if (consumers_.contains(priority)) continue;
    Consumer consumer;
    consumer.tag = absl::StrCat("waiters-", ++tags_);
    // Twice as many as wait, so that not each new waiter needs a new consumer.
    consumer.prefetch = std::min<uint32_t>({2 * count, std::max(row.limit, 1u), kPrefetchMax});
    if (absl::Status status = Begin(consumer.tag, consumer.prefetch, priority); !status.ok())
      return status;
    consumers_.emplace(priority, std::move(consumer));
  }
  return absl::OkStatus();
}

SteadyTime UsedTokens::NextDrop() const {
  if (!spare_.empty() && waiting_.empty() && consumers_.empty()) return SteadyTime::min();
  return unwanted_since_ == SteadyTime{} ? SteadyTime::max() : unwanted_since_ + kKeptUnwanted;
}

// An open consumer would get again what is given back.
absl::Status UsedTokens::DropUnwanted() {
  if (waiting_.empty()) return CancelAll();
  unwanted_since_ = {};
  for (auto at = consumers_.begin(); at != consumers_.end();) {
    if (waiting_.contains(at->first)) {
      ++at;
    } else if (absl::Status status = CancelOne(&at); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status UsedTokens::CancelAll() {
  std::vector<std::string> tags;
  for (const auto& [priority, consumer] : std::exchange(consumers_, {}))
    tags.push_back(consumer.tag);
  if (absl::Status status = CancelTags(tags); !status.ok()) return status;
  unwanted_since_ = {};
  if (!spare_.empty()) given_back_at_ = SteadyClock::now();
  for (const Delivery& delivery : std::exchange(spare_, {})) {
    if (absl::Status status = connection_->Reject(channel_, delivery.delivery_tag); !status.ok())
      return status;
  }
  return absl::OkStatus();
}

// ---- consumers ----

// A queue that does not answer in time may do so later, and the consumer then stands, or stood.
absl::Status UsedTokens::Begin(const std::string& tag, size_t prefetch, int32_t priority) {
  absl::Status status =
      connection_->Consume(channel_, queue_, tag, static_cast<uint16_t>(prefetch), priority);
  if (absl::IsDeadlineExceeded(status)) doubtful_tags_.push_back(tag);
  return status;
}

absl::Status UsedTokens::Cancel(const std::string& tag) {
  absl::Status status = connection_->Cancel(channel_, tag);
  if (absl::IsDeadlineExceeded(status)) doubtful_tags_.push_back(tag);
  return status;
}

absl::Status UsedTokens::CancelDoubtful() { return CancelTags(std::exchange(doubtful_tags_, {})); }

// Those that come after one that is not answered in time may still stand.
absl::Status UsedTokens::CancelTags(const std::vector<std::string>& tags) {
  absl::Status failed;
  for (const std::string& tag : tags) {
    if (failed.ok()) {
      failed = Cancel(tag);
    } else {
      doubtful_tags_.push_back(tag);
    }
  }
  return failed;
}

}  // namespace semaphored::rabbitmq
