// Of TokenStore: finding and mending what a semaphore may have been left with: tokens twice, things
// that are none, tokens above the limit, and tokens that have gone.
//
// An extra message of the recipe raises the limit: it is replaced by a token of a new slot.
//
// A consumer of the highest priority collects all that is free. A token that is then missing is
// either held or lost. A quorum queue counts everything that has a message of it as a consumer,
// even a consumer that was cancelled, and a client that asked for one message only: if none is left
// but ours, the missing tokens are lost, and are made again.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/rabbitmq/token_store.h"
#include "adapters/steady_clock.h"

namespace semaphored::rabbitmq {

using ledger::Pruned;

namespace {

constexpr char kPrune[] = "prune";
constexpr int32_t kPrunePriority = std::numeric_limits<int32_t>::max();
constexpr uint16_t kCollectedMax = 65'535;
// Nothing more comes if nothing has come for so long; then it is asked for certain.
constexpr std::chrono::milliseconds kQuiet{200};
constexpr std::chrono::seconds kCollecting{10};

}  // namespace

struct TokenStore::Collected {
  std::map<uint32_t, Delivery> tokens;  // By slot.
  std::vector<Delivery> others;         // Second tokens of a slot.
  std::vector<Delivery> strangers;      // Messages that are not tokens.
  std::set<uint32_t> seen;              // Slots of `tokens`, and of what our leases hold.

  void Add(Delivery delivery) {
    const std::optional<Token> token = ReadToken(delivery.body);
    if (!token) {
      strangers.push_back(std::move(delivery));
      return;
    }
    if (seen.contains(token->slot)) {
      others.push_back(std::move(delivery));
      return;
    }
    seen.insert(token->slot);
    tokens.emplace(token->slot, std::move(delivery));
  }
};

absl::StatusOr<Pruned> TokenStore::Prune(const std::string& semaphore) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<Mutex>> admin = broker_.LockAdmin(semaphore);
  if (!admin.ok()) return admin.status();
  if (Used* used = Find(semaphore)) used->stale = true;
  absl::StatusOr<Used*> used = Read(semaphore);
  if (!used.ok()) return used.status();
  if (*used == nullptr) return Pruned{};
  // A daemon that takes tokens out meanwhile would be taken for one that holds them.
  std::unique_ptr<Mutex> shrinking = std::exchange((*used)->shrinking, nullptr);
  if (!shrinking) {
    absl::StatusOr<std::unique_ptr<Mutex>> locked = broker_.LockShrinking(semaphore);
    if (!locked.ok()) return locked.status();
    shrinking = *std::move(locked);
  } else if (connection_->is_open((*used)->channel)) {
    Cancel(*used, "shrink").IgnoreError();
  }
  absl::StatusOr<Pruned> pruned = PruneLocked(semaphore, *used);
  shrinking.reset();
  if (Used* still = Find(semaphore)) TryToTend(semaphore, still);
  return pruned;
}

absl::StatusOr<Pruned> TokenStore::PruneLocked(const std::string& name, Used* used) {
  absl::StatusOr<Channel> channel = ChannelOf(used);
  if (!channel.ok()) return channel.status();
  Pruned pruned;
  absl::StatusOr<QueueState> there =
      connection_->DeclarePassively(*channel, broker_.TokenQueue(name));
  if (absl::IsNotFound(there.status())) {
    Lose(name, used);
    absl::StatusOr<std::optional<StoredSemaphore>> stored = broker_.Remake(name);
    if (!stored.ok()) return stored.status();
    if (*stored) Keep(**std::move(stored), used);
    pruned.added = static_cast<uint32_t>(used->stored.slots.size());
    return pruned;
  }
  if (!there.ok()) return there.status();
  if (absl::Status status = CancelAll(used); !status.ok()) return status;
  if (absl::Status status = Begin(used, kPrune, kCollectedMax, kPrunePriority); !status.ok())
    return status;
  Collected collected;
  for (const auto& [claim, held] : used->held) collected.seen.insert(held.slot);
  collected.strangers = std::exchange(used->strangers, {});
  // The others' go to the consumer of the prune.
  upkeep_->Note(UpkeepWork::kNotices, broker_.Tell(std::string(kPruning) + name));
  absl::Status status = Collect(used, &collected);
  if (status.ok()) status = PruneCollected(name, used, &collected, &pruned);
  // Whatever became of it: what was collected goes back.
  if (connection_->is_open(used->channel)) {
    status.Update(Cancel(used, kPrune));
    for (const Delivery& delivery : collected.strangers)
      status.Update(connection_->Reject(used->channel, delivery.delivery_tag));
    for (const auto& [slot, delivery] : collected.tokens)
      status.Update(connection_->Reject(used->channel, delivery.delivery_tag));
    if (status.ok()) status = connection_->Sync(used->channel);
  }
  if (!status.ok()) return status;
  return pruned;
}

// Until nothing has come for a while.
absl::Status TokenStore::Collect(Used* used, Collected* collected) {
  const SteadyTime end = SteadyClock::now() + kCollecting;
  while (SteadyClock::now() < end) {
    absl::StatusOr<std::vector<BrokerEvent>> events =
        connection_->WaitOn(used->channel, SteadyClock::now() + kQuiet);
    if (!events.ok()) return events.status();
    for (BrokerEvent& event : *events) {
      if (event.kind == BrokerEvent::Kind::kAnsweredLate) continue;
      if (event.kind != BrokerEvent::Kind::kDelivery)
        return absl::UnavailableError("rabbitmq: its queue has gone meanwhile; prune again");
      collected->Add(std::move(event.delivery));
    }
    if (events->empty()) return absl::OkStatus();
  }
  return absl::UnavailableError("rabbitmq: its permits pass from hand to hand; pause it first");
}

absl::Status TokenStore::PruneCollected(const std::string& name, Used* used, Collected* collected,
                                        Pruned* pruned) {
  const std::set<uint32_t>& slots = used->stored.slots;
  // Of a slot that is struck, or is to be: the highest go first.
  size_t excess = used->stored.excess();
  std::set<uint32_t> struck;
  for (auto at = collected->tokens.end(); at != collected->tokens.begin();) {
    --at;
    const bool known = slots.contains(at->first);
    if (known && excess == 0) continue;
    if (known) {
      --excess;
      struck.insert(at->first);
    }
    collected->others.push_back(std::move(at->second));
    at = collected->tokens.erase(at);
  }
  for (const Delivery& delivery : std::exchange(collected->others, {})) {
    if (absl::Status status = connection_->Acknowledge(used->channel, delivery.delivery_tag);
        !status.ok())
      return status;
    ++pruned->removed;
  }
  if (absl::Status status = connection_->Sync(used->channel); !status.ok()) return status;
  if (!struck.empty()) {
    absl::StatusOr<std::optional<StoredSemaphore>> stored = broker_.Strike(name, struck);
    if (!stored.ok()) return stored.status();
    if (*stored) Keep(**std::move(stored), used);
    for (const uint32_t slot : struck) collected->seen.erase(slot);
  }
  if (absl::Status status = TakeIn(name, used, &collected->strangers, pruned); !status.ok())
    return status;
  return Mend(name, used, collected, pruned);
}

void TokenStore::KeepStranger(const std::string& name, Used* used, Delivery delivery) {
  if (used->strangers.empty())
    spdlog::warn("rabbitmq: {} has an extra message: `semctl prune` makes a permit of it", name);
  delivery.body.clear();  // Only that it is there counts.
  used->strangers.push_back(std::move(delivery));
}

absl::Status TokenStore::GiveBackStrangers(Used* used) {
  absl::Status result;
  for (const Delivery& delivery : std::exchange(used->strangers, {}))
    result.Update(connection_->Reject(used->channel, delivery.delivery_tag));
  return result;
}

// The messages are acknowledged last before the write: a crash in between costs permits, and never makes too many.
absl::Status TokenStore::TakeIn(const std::string& name, Used* used,
                                std::vector<Delivery>* strangers, Pruned* pruned) {
  // What the limit has no room for stays in the queue.
  const uint32_t limit = used->stored.row.limit;
  const uint32_t room = guarantees_.limit_max - std::min(guarantees_.limit_max, limit);
  for (; strangers->size() > room; strangers->pop_back()) {
    if (absl::Status status = connection_->Reject(used->channel, strangers->back().delivery_tag);
        !status.ok())
      return status;
  }
  if (strangers->empty()) return absl::OkStatus();
  const auto count = static_cast<uint32_t>(strangers->size());
  const auto remove_extra = [&] {
    absl::Status status;
    for (const Delivery& delivery : std::exchange(*strangers, {}))
      status.Update(connection_->Acknowledge(used->channel, delivery.delivery_tag));
    return status.ok() ? connection_->Sync(used->channel) : status;
  };
  absl::StatusOr<std::optional<StoredSemaphore>> stored = broker_.TakeIn(name, count, remove_extra);
  if (!stored.ok() && strangers->empty())
    return absl::Status(
        stored.status().code(),
        absl::StrCat("rabbitmq: ", name, ": ", count, " extra messages were taken ",
                     "out, and the limit may not have been raised; look at it, and ",
                     "raise it by resize: ", stored.status().message()));
  if (!stored.ok()) return stored.status();
  if (!*stored) return absl::OkStatus();
  Keep(**std::move(stored), used);
  spdlog::info("rabbitmq: {}: {} extra messages were taken in: the limit is {} now", name, count,
               used->stored.row.limit);
  pruned->added += count;
  return absl::OkStatus();
}

absl::Status TokenStore::Mend(const std::string& name, Used* used, Collected* collected,
                              Pruned* pruned) {
  absl::StatusOr<QueueState> state =
      connection_->DeclarePassively(used->channel, broker_.TokenQueue(name));
  if (!state.ok()) return state.status();
  // What was sent before the answer has arrived after this.
  if (absl::Status status = connection_->Sync(used->channel); !status.ok()) return status;
  absl::StatusOr<std::vector<BrokerEvent>> late =
      connection_->WaitOn(used->channel, SteadyTime::min());
  if (!late.ok()) return late.status();
  for (BrokerEvent& event : *late) collected->Add(std::move(event.delivery));
  std::set<uint32_t> missing;
  std::ranges::set_difference(used->stored.slots, collected->seen,
                              std::inserter(missing, missing.end()));
  if (missing.empty()) {
    if (used->stored.doubtful.empty()) return absl::OkStatus();
    absl::StatusOr<std::optional<StoredSemaphore>> stored = broker_.Seen(name, collected->seen);
    if (!stored.ok()) return stored.status();
    if (*stored) Keep(**std::move(stored), used);
    return absl::OkStatus();
  }
  std::set<std::string> ours = {kPrune};
  size_t single = 0;
  for (const auto& [claim, held] : used->held) {
    if (held.consumer_tag.empty()) ++single;
    if (!held.consumer_tag.empty()) ours.insert(held.consumer_tag);
  }
  for (const auto& [slot, delivery] : collected->tokens)
    if (!delivery.consumer_tag.empty()) ours.insert(delivery.consumer_tag);
  if (state->consumers > ours.size() + single) {
    pruned->unresolved = static_cast<uint32_t>(missing.size());
    pruned->message =
        absl::StrCat("rabbitmq: ", missing.size(), " permits of ", name, " are not free, and ",
                     state->consumers - ours.size() - single,
                     " other consumers hold or wait for some: whether any is lost cannot be said");
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<StoredSemaphore>> stored = broker_.Strike(name, missing);
  if (!stored.ok()) return stored.status();
  if (*stored) Keep(**std::move(stored), used);
  pruned->added += static_cast<uint32_t>(missing.size());
  spdlog::info("rabbitmq: {}: {} permits had been lost and are made again", name, missing.size());
  return absl::OkStatus();
}

}  // namespace semaphored::rabbitmq
