#include "adapters/rabbitmq/used_semaphore.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>

#include "adapters/steady_clock.h"

namespace semaphored::rabbitmq {
namespace {

constexpr char kShrink[] = "shrink";
// Above the priority of every request.
constexpr int32_t kShrinkPriority = std::numeric_limits<int32_t>::max();
constexpr uint32_t kPrefetchMax = 2000;
// Another daemon takes out what is too much, and may die: how often we look whether it still does.
constexpr std::chrono::seconds kShrinkAgain{5};
// Daemons send change notices; a change whose notice was lost is found after so long.
constexpr std::chrono::seconds kReadAgain{60};

}  // namespace

void UsedSemaphore::Keep(StoredSemaphore stored) {
  stored_ = std::move(stored);
  read_at_ = SteadyClock::now();
  stale_ = false;
}

bool UsedSemaphore::IsOld(SteadyTime now) const { return stale_ || now - read_at_ >= kReadAgain; }

absl::Status UsedSemaphore::Tend() {
  if (!holding_->is_open() || tokens_.is_closed()) return absl::OkStatus();
  if (stored_.excess() == 0) StopShrinking();
  if (stored_.excess() > 0)
    if (absl::Status status = Shrink(); !status.ok()) return status;
  if (tokens_.is_idle()) return absl::OkStatus();
  if (absl::Status status = tokens_.Open().status(); !status.ok()) return status;
  return tokens_.Tend(stored_.row);
}

bool UsedSemaphore::OnDelivery(Delivery delivery) {
  if (delivery.consumer_tag == kShrink) {
    OnShrinking(std::move(delivery));
    return false;
  }
  tokens_.AddSpare(std::move(delivery));
  return true;
}

void UsedSemaphore::KeepStranger(Delivery delivery) {
  if (!tokens_.has_strangers())
    spdlog::warn("rabbitmq: {} has an extra message: `semctl prune` makes a permit of it", name_);
  tokens_.KeepStranger(std::move(delivery));
}

std::vector<Id> UsedSemaphore::Lose() {
  removed_.clear();
  shrinking_.reset();
  stale_ = true;
  return tokens_.Lose();
}

// ---- taking out ----

// As they come free, before any other consumer gets them.
absl::Status UsedSemaphore::Shrink() {
  if (shrinking_ && shrinking_->held()) return absl::OkStatus();
  // The daemon that has the mutex does it.
  PutShrinkOff();
  absl::StatusOr<std::unique_ptr<Mutex>> mutex = broker_->LockShrinking(name_);
  if (absl::IsUnavailable(mutex.status()) && administering_->is_open()) return absl::OkStatus();
  if (!mutex.ok()) return mutex.status();
  // Perhaps it has been done meanwhile.
  absl::StatusOr<std::optional<StoredSemaphore>> stored = broker_->Read(name_);
  if (!stored.ok()) return stored.status();
  if (*stored) Keep(**std::move(stored));
  if (stored_.excess() == 0) return absl::OkStatus();
  if (absl::Status status = tokens_.Open().status(); !status.ok()) return status;
  // (It stands there already if the mutex alone was lost.)
  tokens_.Cancel(kShrink).IgnoreError();
  const size_t prefetch = std::min<size_t>(stored_.excess(), kPrefetchMax);
  if (absl::Status status = tokens_.Begin(kShrink, prefetch, kShrinkPriority); !status.ok())
    return status;
  shrinking_ = *std::move(mutex);
  return absl::OkStatus();
}

SteadyTime UsedSemaphore::NextShrink() const {
  const bool leaves = stored_.excess() > 0 && !(shrinking_ && shrinking_->held());
  return leaves ? shrink_again_ : SteadyTime::max();
}

void UsedSemaphore::PutShrinkOff() { shrink_again_ = SteadyClock::now() + kShrinkAgain; }

std::unique_ptr<Mutex> UsedSemaphore::StopShrinking() {
  if (shrinking_ && tokens_.is_open()) tokens_.Cancel(kShrink).IgnoreError();
  return std::exchange(shrinking_, nullptr);
}

void UsedSemaphore::OnShrinking(Delivery delivery) {
  const std::optional<Token> token = ReadToken(delivery.body);
  if (!token) {
    // It takes room of the consumer, which begins again without it.
    KeepStranger(std::move(delivery));
    StopShrinking();
    shrink_again_ = {};
    return;
  }
  const bool is_void = IsVoid(*token, stored_);
  if (!is_void && (!shrinking_ || stored_.excess() <= removed_.size())) {
    // One more than was to go: the consumer is about to be cancelled, then it goes back.
    tokens_.AddSpare(std::move(delivery));
    return;
  }
  holding_->Acknowledge(tokens_.channel(), delivery.delivery_tag).IgnoreError();
  if (!is_void) removed_.insert(token->slot);
}

// A slot is struck, and so may be given a new token one day, only when its old one has gone for
// certain. (If that is not known it stays: one permit too few, until it is pruned.)
absl::StatusOr<bool> UsedSemaphore::StrikeRemoved() {
  if (const absl::Status status = holding_->Sync(tokens_.channel()); !status.ok()) {
    if (!absl::IsDeadlineExceeded(status)) removed_.clear();
    return status;
  }
  absl::StatusOr<std::optional<StoredSemaphore>> stored =
      broker_->Strike(name_, stored_.incarnation, removed_);
  if (absl::IsAborted(stored.status())) removed_.clear();  // They were another queue's.
  if (!stored.ok()) return stored.status();
  const size_t count = std::exchange(removed_, {}).size();
  if (!*stored) return false;
  Keep(**std::move(stored));
  spdlog::info("rabbitmq: {}: {} permits have been taken out", name_, count);
  return true;
}

}  // namespace semaphored::rabbitmq
