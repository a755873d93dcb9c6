#include "adapters/rabbitmq/used_semaphores.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "adapters/steady_clock.h"

namespace semaphored::rabbitmq {
namespace {

// Each question to a queue that does not answer holds up all others.
constexpr std::chrono::seconds kNotAskedFor{5};

}  // namespace

UsedSemaphore* UsedSemaphores::Find(const std::string& name) {
  const auto found = used_.find(name);
  return found == used_.end() ? nullptr : &found->second;
}

UsedSemaphore* UsedSemaphores::OfChannel(Channel channel) {
  const auto found = std::ranges::find_if(
      used_, [&](const auto& each) { return each.second.tokens().channel() == channel; });
  return found == used_.end() ? nullptr : &found->second;
}

absl::StatusOr<std::optional<StoredSemaphore>> UsedSemaphores::ReadRow(const std::string& name) {
  if (const auto silent = silent_until_.find(name); silent != silent_until_.end()) {
    if (SteadyClock::now() < silent->second)
      return absl::DeadlineExceededError(
          absl::StrCat("rabbitmq: the settings of ", name, " did not answer of late"));
    silent_until_.erase(silent);
  }
  absl::StatusOr<std::optional<StoredSemaphore>> stored = broker_->Read(name);
  if (absl::IsDeadlineExceeded(stored.status())) {
    const SteadyTime now = SteadyClock::now();
    std::erase_if(silent_until_, [&](const auto& each) { return each.second <= now; });
    silent_until_[name] = now + kNotAskedFor;
  }
  return stored;
}

UsedSemaphore* UsedSemaphores::Keep(const std::string& name, StoredSemaphore stored) {
  UsedSemaphore* used =
      &used_.try_emplace(name, name, holding_, administering_, broker_).first->second;
  used->Keep(std::move(stored));
  return used;
}

absl::StatusOr<UsedSemaphore*> UsedSemaphores::Read(const std::string& name) {
  UsedSemaphore* used = Find(name);
  if (used != nullptr && !used->IsOld(SteadyClock::now())) {
    if (absl::Status status = LookForQueue(used); !status.ok()) return status;
    return used;
  }
  absl::StatusOr<std::optional<StoredSemaphore>> stored = ReadRow(name);
  if (!stored.ok()) return stored.status();
  if (!*stored) {
    Drop(name, /*ended=*/false);
    return nullptr;
  }
  // Its queue was made again: what was held of the old one is void.
  if (used != nullptr && used->stored().incarnation != (*stored)->incarnation) Lose(used);
  used = Keep(name, **std::move(stored));
  // Whether it can be used here must be known before a request receives kFull.
  const absl::Status open = Open(used).status();
  if (absl::IsOutOfRange(open)) Drop(name, /*ended=*/false);
  if (!open.ok()) return open;
  // After a new connection also those that wait here have no consumer.
  if (used->stored().excess() > 0 || used->is_shrinking() || !used->tokens().is_idle()) Tend(used);
  return used;
}

void UsedSemaphores::Drop(const std::string& name, bool ended) {
  UsedSemaphore* used = Find(name);
  if (used == nullptr) return;
  if (ended) {
    used->Lose();
  } else {
    Lose(used);
  }
  used_.erase(name);
}

void UsedSemaphores::Tend(UsedSemaphore* used) {
  upkeep_->Note(UpkeepWork::kPermits, used->Tend());
}

absl::Status UsedSemaphores::LookForQueue(UsedSemaphore* used) {
  const UsedTokens& tokens = used->tokens();
  if (tokens.held().empty() || !tokens.is_open()) return absl::OkStatus();
  absl::Status there =
      holding_->DeclarePassively(tokens.channel(), broker_->TokenQueue(used->name())).status();
  if (there.ok() || absl::IsUnavailable(there) || absl::IsDeadlineExceeded(there)) return there;
  // With any other answer the broker has closed the channel.
  Lose(used);
  return absl::OkStatus();
}

absl::StatusOr<Channel> UsedSemaphores::Open(UsedSemaphore* used) {
  if (used->tokens().is_closed()) Lose(used);
  return used->tokens().Open();
}

void UsedSemaphores::Lose(UsedSemaphore* used) {
  for (const Id& claim : used->Lose()) lost_.push_back({used->name(), claim});
}

std::vector<std::string> UsedSemaphores::LoseClosed() {
  std::vector<std::string> names;
  for (auto& [name, used] : used_) {
    if (!used.tokens().is_closed()) continue;
    Lose(&used);
    names.push_back(name);
  }
  return names;
}

void UsedSemaphores::LoseAll() {
  for (auto& [name, used] : used_) Lose(&used);
}

}  // namespace semaphored::rabbitmq
