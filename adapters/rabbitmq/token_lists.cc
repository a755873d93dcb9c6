// Of TokenStore: what lists show, and how many permits other daemons and clients have.
#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "adapters/rabbitmq/token_store.h"
#include "adapters/steady_clock.h"

namespace semaphored::rabbitmq {
namespace {

// Of the broker's counts of messages.
constexpr std::chrono::milliseconds kCountedAfter{200};
constexpr std::chrono::milliseconds kCountPause{5};
// What was shown in a list, though no change notice has come.
constexpr std::chrono::minutes kLookAgain{10};
constexpr size_t kLookedMax = 100'000;

}  // namespace

absl::StatusOr<uint32_t> TokenStore::HeldElsewhere(const std::string& semaphore) {
  for (;;) {
    absl::StatusOr<uint32_t> count = CountElsewhere(semaphore);
    const Used* used = Find(semaphore);
    if (!count.ok() || *count == 0 || used == nullptr) return count;
    // What we gave back is counted a moment later.
    if (SteadyClock::now() >= used->given_back_at + kCountedAfter) return count;
    std::this_thread::sleep_for(kCountPause);
  }
}

absl::StatusOr<uint32_t> TokenStore::CountElsewhere(const std::string& semaphore) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  Used* used = Find(semaphore);
  if (used == nullptr) return 0;
  absl::StatusOr<Channel> channel = ChannelOf(used);
  if (!channel.ok()) return channel.status();
  absl::StatusOr<QueueState> state =
      connection_->DeclarePassively(*channel, broker_.TokenQueue(semaphore));
  if (absl::IsNotFound(state.status())) return 0;
  if (!state.ok()) return state.status();
  // What is on its way to a consumer of ours is ours.
  absl::StatusOr<std::vector<BrokerEvent>> events =
      connection_->WaitOn(*channel, SteadyTime::min());
  if (!events.ok()) return events.status();
  for (BrokerEvent& event : *events) OnEvent(std::move(event), &pending_hints_);
  used = Find(semaphore);
  if (used == nullptr) return 0;
  const size_t here = used->held.size() + used->spare.size() + used->removed.size() + state->ready;
  return static_cast<uint32_t>(used->stored.slots.size() -
                               std::min(used->stored.slots.size(), here));
}

absl::StatusOr<std::vector<std::string>> TokenStore::Names(const std::string& prefix,
                                                           const std::string& after,
                                                           uint32_t rows_max) {
  return pages_.Page(prefix, after, rows_max, SteadyClock::now());
}

absl::StatusOr<std::optional<PermitStore::Shown>> TokenStore::Look(const std::string& semaphore) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  const SteadyTime now = SteadyClock::now();
  auto known = looked_.find(semaphore);
  if (known == looked_.end() || now >= known->second.read_at + kLookAgain) {
    absl::StatusOr<std::optional<StoredSemaphore>> stored = Ask(semaphore);
    if (!stored.ok()) return stored.status();
    if (!*stored) {
      looked_.erase(semaphore);
      return std::optional<Shown>();
    }
    if (looked_.size() >= kLookedMax) looked_.clear();
    const auto tokens = static_cast<uint32_t>((*stored)->slots.size());
    known = looked_.insert_or_assign(semaphore, Looked{(*stored)->row, tokens, now}).first;
  }
  if (!connection_->is_open(looking_)) {
    absl::StatusOr<Channel> channel = connection_->OpenChannel();
    if (!channel.ok()) return channel.status();
    looking_ = *channel;
  }
  absl::StatusOr<QueueState> state =
      connection_->DeclarePassively(looking_, broker_.TokenQueue(semaphore));
  if (!state.ok() && !absl::IsNotFound(state.status())) return state.status();
  Shown shown{known->second.row, 0};
  if (state.ok()) shown.held = known->second.tokens - std::min(known->second.tokens, state->ready);
  return std::optional<Shown>(std::move(shown));
}

}  // namespace semaphored::rabbitmq
