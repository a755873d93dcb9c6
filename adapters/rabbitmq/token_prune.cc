#include "adapters/rabbitmq/token_prune.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/steady_clock.h"

namespace semaphored::rabbitmq {
namespace {

constexpr char kPrune[] = "prune";
constexpr int32_t kPrunePriority = std::numeric_limits<int32_t>::max();
constexpr uint16_t kCollectedMax = 65'535;
// Nothing more comes if nothing has come for so long; then it is asked for certain.
constexpr std::chrono::milliseconds kQuiet{200};
constexpr std::chrono::seconds kCollecting{10};

}  // namespace

TokenPrune::TokenPrune(Connection* holding, TokenBroker* broker, Upkeep* upkeep,
                       UsedSemaphores* all, UsedSemaphore* used, uint32_t limit_max)
    : holding_(holding),
      broker_(broker),
      upkeep_(upkeep),
      all_(all),
      used_(used),
      limit_max_(limit_max) {}

absl::StatusOr<ledger::Pruned> TokenPrune::Run() {
  absl::StatusOr<Channel> channel = all_->Open(used_);
  if (!channel.ok()) return channel.status();
  absl::Status status =
      holding_->DeclarePassively(*channel, broker_->TokenQueue(used_->name())).status();
  if (status.ok()) {
    status = CollectAndMend();
  } else if (absl::IsNotFound(status)) {
    status = Remake();
  }
  if (!status.ok()) return status;
  return std::move(pruned_);
}

absl::Status TokenPrune::Remake() {
  all_->Lose(used_);
  if (absl::Status status = KeepIfThere(broker_->Remake(used_->name())); !status.ok())
    return status;
  pruned_.added = static_cast<uint32_t>(used_->stored().slots.size());
  return absl::OkStatus();
}

absl::Status TokenPrune::CollectAndMend() {
  UsedTokens& tokens = used_->tokens();
  if (absl::Status status = tokens.CancelAll(); !status.ok()) return status;
  if (absl::Status status = tokens.Begin(kPrune, kCollectedMax, kPrunePriority); !status.ok())
    return status;
  for (const auto& [claim, held] : tokens.held()) seen_.insert(held.slot);
  strangers_ = tokens.TakeStrangers();
  // The others' go to the consumer of the prune.
  upkeep_->Note(UpkeepWork::kNotices, broker_->Tell(std::string(kPruning) + used_->name()));
  absl::Status status = Collect();
  if (status.ok()) status = Mend();
  if (tokens.is_open()) status.Update(GiveBack());
  return status;
}

void TokenPrune::Add(Delivery delivery) {
  const std::optional<Token> token = ReadToken(delivery.body);
  if (!token) {
    strangers_.push_back(std::move(delivery));
  } else if (IsVoid(*token, used_->stored()) || !seen_.insert(token->slot).second) {
    others_.push_back(std::move(delivery));
  } else {
    tokens_.emplace(token->slot, std::move(delivery));
  }
}

absl::Status TokenPrune::Collect() {
  const SteadyTime end = SteadyClock::now() + kCollecting;
  while (SteadyClock::now() < end) {
    absl::StatusOr<std::vector<BrokerEvent>> events =
        holding_->WaitOn(used_->tokens().channel(), SteadyClock::now() + kQuiet);
    if (!events.ok()) return events.status();
    for (BrokerEvent& event : *events) {
      if (event.kind == BrokerEvent::Kind::kAnsweredLate) continue;
      if (event.kind != BrokerEvent::Kind::kDelivery)
        return absl::UnavailableError("rabbitmq: its queue has gone meanwhile; prune again");
      Add(std::move(event.delivery));
    }
    if (events->empty()) return absl::OkStatus();
  }
  return absl::UnavailableError("rabbitmq: its permits pass from hand to hand; pause it first");
}

absl::Status TokenPrune::Mend() {
  if (absl::Status status = RemoveExcess(); !status.ok()) return status;
  if (absl::Status status = TakeInStrangers(); !status.ok()) return status;
  return MakeLostAgain();
}

absl::Status TokenPrune::GiveBack() {
  UsedTokens& tokens = used_->tokens();
  absl::Status status = tokens.Cancel(kPrune);
  for (const Delivery& delivery : strangers_)
    status.Update(holding_->Reject(tokens.channel(), delivery.delivery_tag));
  for (const auto& [slot, delivery] : tokens_)
    status.Update(holding_->Reject(tokens.channel(), delivery.delivery_tag));
  return status.ok() ? holding_->Sync(tokens.channel()) : status;
}

absl::Status TokenPrune::KeepIfThere(absl::StatusOr<std::optional<StoredSemaphore>> stored) {
  if (!stored.ok()) return stored.status();
  if (*stored) used_->Keep(**std::move(stored));
  return absl::OkStatus();
}

absl::Status TokenPrune::RemoveExcess() {
  const std::set<uint32_t>& slots = used_->stored().slots;
  // Of a slot that is struck, or is to be: the highest go first.
  size_t excess = used_->stored().excess();
  std::set<uint32_t> struck;
  for (auto at = tokens_.end(); at != tokens_.begin();) {
    --at;
    const bool known = slots.contains(at->first);
    if (known && excess == 0) continue;
    if (known) {
      --excess;
      struck.insert(at->first);
    }
    others_.push_back(std::move(at->second));
    at = tokens_.erase(at);
  }
  const Channel channel = used_->tokens().channel();
  for (const Delivery& delivery : std::exchange(others_, {})) {
    if (absl::Status status = holding_->Acknowledge(channel, delivery.delivery_tag); !status.ok())
      return status;
    ++pruned_.removed;
  }
  if (absl::Status status = holding_->Sync(channel); !status.ok()) return status;
  if (struck.empty()) return absl::OkStatus();
  for (const uint32_t slot : struck) seen_.erase(slot);
  return KeepIfThere(broker_->Strike(used_->name(), used_->stored().incarnation, struck));
}

// The messages are acknowledged last before the write: a crash in between costs permits, and never makes too many.
absl::Status TokenPrune::TakeInStrangers() {
  const Channel channel = used_->tokens().channel();
  const std::string& name = used_->name();
  // What the limit has no room for stays in the queue.
  const uint32_t room = limit_max_ - std::min(limit_max_, used_->stored().row.limit);
  for (; strangers_.size() > room; strangers_.pop_back()) {
    if (absl::Status status = holding_->Reject(channel, strangers_.back().delivery_tag);
        !status.ok())
      return status;
  }
  if (strangers_.empty()) return absl::OkStatus();
  const auto count = static_cast<uint32_t>(strangers_.size());
  const auto remove_extra = [&] {
    absl::Status status;
    for (const Delivery& delivery : std::exchange(strangers_, {}))
      status.Update(holding_->Acknowledge(channel, delivery.delivery_tag));
    return status.ok() ? holding_->Sync(channel) : status;
  };
  absl::StatusOr<std::optional<StoredSemaphore>> stored =
      broker_->TakeIn(name, count, remove_extra);
  if (!stored.ok() && strangers_.empty())
    return absl::Status(
        stored.status().code(),
        absl::StrCat("rabbitmq: ", name, ": ", count, " extra messages were taken ",
                     "out, and the limit may not have been raised; look at it, and ",
                     "raise it by resize: ", stored.status().message()));
  if (!stored.ok()) return stored.status();
  if (!*stored) return absl::OkStatus();
  used_->Keep(**std::move(stored));
  spdlog::info("rabbitmq: {}: {} extra messages were taken in: the limit is {} now", name, count,
               used_->stored().row.limit);
  pruned_.added += count;
  return absl::OkStatus();
}

size_t TokenPrune::OwnConsumers() const {
  std::set<std::string> tags = {kPrune};
  size_t single = 0;
  for (const auto& [claim, held] : used_->tokens().held()) {
    if (held.consumer_tag.empty()) ++single;
    if (!held.consumer_tag.empty()) tags.insert(held.consumer_tag);
  }
  for (const auto& [slot, delivery] : tokens_)
    if (!delivery.consumer_tag.empty()) tags.insert(delivery.consumer_tag);
  return tags.size() + single;
}

absl::Status TokenPrune::MakeLostAgain() {
  const Channel channel = used_->tokens().channel();
  const std::string& name = used_->name();
  absl::StatusOr<QueueState> state = holding_->DeclarePassively(channel, broker_->TokenQueue(name));
  if (!state.ok()) return state.status();
  // What was sent before the answer has arrived after this.
  if (absl::Status status = holding_->Sync(channel); !status.ok()) return status;
  absl::StatusOr<std::vector<BrokerEvent>> late = holding_->WaitOn(channel, SteadyTime::min());
  if (!late.ok()) return late.status();
  for (BrokerEvent& event : *late) {
    if (event.kind == BrokerEvent::Kind::kDelivery) Add(std::move(event.delivery));
  }
  const StoredSemaphore& stored = used_->stored();
  std::set<uint32_t> missing;
  std::ranges::set_difference(stored.slots, seen_, std::inserter(missing, missing.end()));
  if (missing.empty()) {
    if (stored.doubtful.empty()) return absl::OkStatus();
    return KeepIfThere(broker_->Seen(name, stored.incarnation, seen_));
  }
  if (const size_t ours = OwnConsumers(); state->consumers > ours) {
    pruned_.unresolved = static_cast<uint32_t>(missing.size());
    pruned_.message =
        absl::StrCat("rabbitmq: ", missing.size(), " permits of ", name, " are not free, and ",
                     state->consumers - ours,
                     " other consumers hold or wait for some: whether any is lost cannot be said");
    return absl::OkStatus();
  }
  if (absl::Status status = KeepIfThere(broker_->Strike(name, stored.incarnation, missing));
      !status.ok())
    return status;
  pruned_.added += static_cast<uint32_t>(missing.size());
  spdlog::info("rabbitmq: {}: {} permits had been lost and are made again", name, missing.size());
  return absl::OkStatus();
}

}  // namespace semaphored::rabbitmq
