#include "adapters/rabbitmq/shown_semaphores.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "adapters/steady_clock.h"

namespace semaphored::rabbitmq {
namespace {

// What was shown in a list, though no change notice has come.
constexpr std::chrono::minutes kReadAgain{10};
constexpr size_t kRowsMax = 100'000;

}  // namespace

absl::StatusOr<std::optional<PermitStore::Shown>> ShownSemaphores::Look(
    const std::string& semaphore) {
  const SteadyTime now = SteadyClock::now();
  auto known = rows_.find(semaphore);
  if (known == rows_.end() || now >= known->second.read_at + kReadAgain) {
    absl::StatusOr<std::optional<StoredSemaphore>> stored = read_(semaphore);
    if (!stored.ok()) return stored.status();
    if (!*stored) {
      rows_.erase(semaphore);
      return std::optional<PermitStore::Shown>();
    }
    if (rows_.size() >= kRowsMax) rows_.clear();
    const auto tokens = static_cast<uint32_t>((*stored)->slots.size());
    known = rows_.insert_or_assign(semaphore, Row{(*stored)->row, tokens, now}).first;
  }
  if (!connection_->is_open(channel_)) {
    absl::StatusOr<Channel> channel = connection_->OpenChannel();
    if (!channel.ok()) return channel.status();
    channel_ = *channel;
  }
  absl::StatusOr<QueueState> state =
      connection_->DeclarePassively(channel_, broker_->TokenQueue(semaphore));
  // Its number may be given to another.
  if (!connection_->is_open(channel_)) channel_ = 0;
  if (!state.ok() && !absl::IsNotFound(state.status())) return state.status();
  PermitStore::Shown shown{known->second.row, 0};
  if (state.ok()) shown.held = known->second.tokens - std::min(known->second.tokens, state->ready);
  return std::optional<PermitStore::Shown>(std::move(shown));
}

}  // namespace semaphored::rabbitmq
