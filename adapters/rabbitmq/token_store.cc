#include "adapters/rabbitmq/token_store.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace semaphored::rabbitmq {

using ledger::CommitResult;
using ledger::Image;
using ledger::LeaseChange;
using ledger::SemaphoreDelta;
using ledger::Transaction;
using ledger::WaiterChange;

namespace {

// Above the priority of every request.
constexpr int32_t kReaperPriority = std::numeric_limits<int32_t>::max();
constexpr uint16_t kPrefetchMax = 2000;
constexpr char kReaper[] = "reaper";
// We live for the broker if it has answered a call; asked for when none was made for so long.
constexpr std::chrono::milliseconds kAskAfter{1000};

CommitResult Failed(absl::Status status) {
  return {CommitResult::Kind::kFailed, {}, false, {}, std::move(status)};
}

absl::Status NotAsked() {
  return absl::UnimplementedError("rabbitmq: a store of permits is not asked for that");
}

uint64_t TokenOf(const Token& token, const Delivery& delivery) {
  return token.base + static_cast<uint64_t>(delivery.delivery_count) + 1;
}

}  // namespace

TokenStore::TokenStore(std::unique_ptr<Connection> connection, const Guarantees& guarantees)
    : connection_(std::move(connection)), guarantees_(guarantees), broker_(connection_.get()) {}

// ---- the connection ----

absl::Status TokenStore::Ready() {
  if (connection_->is_open() && connection_->life() == life_) return absl::OkStatus();
  LoseAll();
  if (absl::Status status = connection_->Open(); !status.ok()) return status;
  life_ = connection_->life();
  return absl::OkStatus();
}

void TokenStore::Lose(const std::string& name, Used* used) {
  for (const auto& [claim, held] : used->held) lost_.push_back({name, claim});
  used->held.clear();
  used->spare.clear();
  used->consumers.clear();
  used->removed.clear();
  used->reaping = false;  // The mutex is the connection's: it is found locked by ourselves.
  if (connection_->is_open(used->channel)) connection_->CloseChannel(used->channel).IgnoreError();
  used->channel = 0;
}

void TokenStore::LoseAll() {
  for (auto& [name, used] : used_) Lose(name, &used);
}

std::vector<ledger::LostPermit> TokenStore::TakeLostPermits() {
  if (!connection_->is_open()) LoseAll();
  return std::exchange(lost_, {});
}

TokenStore::Used* TokenStore::Find(const std::string& name) {
  const auto found = used_.find(name);
  return found == used_.end() ? nullptr : &found->second;
}

absl::StatusOr<Channel> TokenStore::ChannelOf(Used* used) {
  if (used->channel != 0 && connection_->is_open(used->channel)) return used->channel;
  absl::StatusOr<Channel> channel = connection_->OpenChannel();
  if (channel.ok()) used->channel = *channel;
  return channel;
}

// ---- rows ----

absl::StatusOr<Image> TokenStore::Load(absl::Span<const std::string> names) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  Image image;
  for (const std::string& name : names) {
    absl::StatusOr<std::optional<StoredSemaphore>> stored = broker_.Read(name);
    if (!stored.ok()) return stored.status();
    if (!*stored) {
      if (Used* used = Find(name)) Lose(name, used);
      used_.erase(name);
      continue;
    }
    ledger::LoadedSemaphore& loaded = image.semaphores.emplace_back();
    loaded.row = (*stored)->row;
    used_[name].stored = *std::move(*stored);
  }
  return image;
}

absl::Status TokenStore::Provide(const SemaphoreRow& row) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  absl::Status made = broker_.Create(row);
  return absl::IsAlreadyExists(made) ? absl::OkStatus() : made;
}

// ---- permits ----

std::optional<ledger::PermitSource::Permit> TokenStore::Take(const std::string& semaphore,
                                                             const Id& claim) {
  Used* used = Find(semaphore);
  // While there are more tokens than permits nobody is granted.
  if (used == nullptr || !Ready().ok() || used->stored.slots.size() > used->stored.row.limit)
    return std::nullopt;
  for (;;) {
    if (used->spare.empty()) {
      // Where a consumer of ours stands, the broker gives of itself.
      if (!used->consumers.empty()) return std::nullopt;
      absl::StatusOr<Channel> channel = ChannelOf(used);
      if (!channel.ok()) return std::nullopt;
      absl::StatusOr<std::optional<Delivery>> got =
          connection_->Get(*channel, TokenQueue(semaphore));
      if (!got.ok() || !*got) return std::nullopt;
      used->spare.push_back(*std::move(*got));
    }
    const Delivery delivery = std::move(used->spare.front());
    used->spare.pop_front();
    const std::optional<Token> token = ReadToken(delivery.body);
    if (!token) {
      // None of ours: it would be handed out again and again.
      spdlog::warn("rabbitmq: a message that is no token is taken out of {}",
                   TokenQueue(semaphore));
      if (!connection_->Acknowledge(used->channel, delivery.delivery_tag).ok()) return std::nullopt;
      continue;
    }
    used->held[claim] = {delivery.delivery_tag, delivery.consumer_tag};
    taken_.emplace_back(semaphore, claim);
    return Permit{token->slot, TokenOf(*token, delivery)};
  }
}

bool TokenStore::Unload(const std::string&) { return true; }
absl::StatusOr<uint32_t> TokenStore::HeldElsewhere(const std::string&) { return 0; }
absl::StatusOr<ledger::Pruned> TokenStore::Prune(const std::string&) {
  return absl::UnimplementedError("rabbitmq: prune");
}

absl::Status TokenStore::GiveBackTaken() {
  absl::Status result;
  for (const auto& [name, claim] : std::exchange(taken_, {})) {
    Used* used = Find(name);
    if (used == nullptr) continue;
    const auto held = used->held.find(claim);
    if (held == used->held.end()) continue;
    result.Update(GiveBack(used, held->second.delivery_tag, held->second.consumer_tag));
    used->held.erase(held);
  }
  return result;
}

absl::Status TokenStore::GiveBack(Used* used, uint64_t delivery_tag,
                                  const std::string& consumer_tag) {
  for (auto& [priority, consumer] : used->consumers) {
    if (consumer.tag == consumer_tag && consumer.outstanding > 0) --consumer.outstanding;
  }
  return connection_->Reject(used->channel, delivery_tag);
}

// ---- commits ----

CommitResult TokenStore::Commit(Transaction& transaction, SteadyTime) {
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    if (absl::Status status = Apply(delta); !status.ok()) {
      GiveBackTaken().IgnoreError();
      if (absl::IsAlreadyExists(status) || absl::IsNotFound(status))
        return {CommitResult::Kind::kLost, {delta.name}, false, {}, {}};
      return Failed(std::move(status));
    }
  }
  taken_.clear();
  for (const ledger::Answer& answer : transaction.answers)
    answers_[answer.request.client][answer.request.sequence] = answer;
  for (const ledger::AnswerFloor& floor : transaction.answer_floors) {
    auto& answers = answers_[floor.client];
    answers.erase(answers.begin(), answers.lower_bound(floor.below));
  }
  for (const uint32_t client : transaction.forgotten_clients) answers_.erase(client);
  // From here on it stands: what breaks now has given everything back, and is told as lost.
  std::set<Channel> touched;
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    Used* used = Find(delta.name);
    if (used == nullptr) continue;
    for (const LeaseChange& change : delta.leases) {
      if (change.after || !change.before) continue;
      const auto held = used->held.find(change.before->id);
      if (held == used->held.end()) continue;
      GiveBack(used, held->second.delivery_tag, held->second.consumer_tag).IgnoreError();
      touched.insert(used->channel);
      used->held.erase(held);
    }
    for (const WaiterChange& change : delta.waiters) {
      if (change.before && --used->waiting[change.before->priority] == 0)
        used->waiting.erase(change.before->priority);
      if (change.after) ++used->waiting[change.after->priority];
    }
  }
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    if (Used* used = Find(delta.name)) Tend(delta.name, used).IgnoreError();
  }
  // A release is told when it has arrived.
  for (const Channel channel : touched) {
    if (connection_->is_open(channel)) connection_->Sync(channel).IgnoreError();
  }
  return {};
}

// What of a row the broker has to know.
absl::Status TokenStore::Apply(const SemaphoreDelta& delta) {
  SemaphoreRow same = delta.before.value_or(SemaphoreRow());
  if (delta.after) {
    same.next_order = delta.after->next_order;
    same.revision = delta.after->revision;
  }
  if (delta.before && delta.after && same == *delta.after) return absl::OkStatus();
  if (!delta.before && !delta.after) return absl::OkStatus();
  if (absl::Status status = Ready(); !status.ok()) return status;
  if (!delta.after) {
    absl::Status gone = broker_.Destroy(delta.name);
    if (gone.ok()) used_.erase(delta.name);
    return gone;
  }
  if (!delta.before) {
    if (absl::Status status = broker_.Create(*delta.after); !status.ok()) return status;
    absl::StatusOr<std::optional<StoredSemaphore>> stored = broker_.Read(delta.name);
    if (!stored.ok()) return stored.status();
    if (*stored) used_[delta.name].stored = *std::move(*stored);
    return absl::OkStatus();
  }
  Used& used = used_[delta.name];
  // Ours to have: it would keep ourselves out.
  const bool reaping = std::exchange(used.reaping, false);
  absl::StatusOr<StoredSemaphore> stored = broker_.Update(*delta.after);
  if (!stored.ok()) {
    used.reaping = reaping;
    return stored.status();
  }
  used.stored = *std::move(stored);
  return absl::OkStatus();
}

// Permits are given and taken at once, and nothing of it is ever unknown.
CommitResult TokenStore::Settle(Transaction&, SteadyTime) {
  return Failed(absl::InternalError("rabbitmq: nothing is to be settled"));
}

absl::StatusOr<std::optional<ledger::Answer>> TokenStore::FindAnswer(const RequestKey& request,
                                                                     const std::string&) {
  const auto client = answers_.find(request.client);
  if (client == answers_.end()) return std::nullopt;
  const auto answer = client->second.find(request.sequence);
  if (answer == client->second.end()) return std::nullopt;
  return answer->second;
}

// ---- consumers ----

absl::Status TokenStore::Tend(const std::string& name, Used* used) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  if (used->stored.slots.size() > used->stored.row.limit)
    if (absl::Status status = Reap(name, used); !status.ok()) return status;
  const bool idle = used->waiting.empty() && used->consumers.empty() && used->spare.empty();
  if (idle) return absl::OkStatus();
  absl::StatusOr<Channel> channel = ChannelOf(used);
  if (!channel.ok()) return channel.status();
  return TendConsumers(used);
}

// A consumer for each priority that waits, with room for as many tokens as there are waiters.
absl::Status TokenStore::TendConsumers(Used* used) {
  const bool closed = used->stored.row.paused || used->stored.row.destroying;
  for (auto at = used->consumers.begin(); at != used->consumers.end();) {
    const auto waiting = used->waiting.find(at->first);
    const uint32_t wanted = closed || waiting == used->waiting.end() ? 0 : waiting->second;
    const uint32_t room =
        at->second.prefetch - std::min(at->second.prefetch, at->second.outstanding);
    const uint32_t useful = std::min<uint32_t>(wanted, used->stored.row.limit);
    if (wanted > 0 && room >= useful) {
      ++at;
      continue;
    }
    // An open consumer would get again what is given back.
    if (absl::Status status = connection_->Cancel(used->channel, at->second.tag); !status.ok())
      return status;
    at = used->consumers.erase(at);
  }
  if (used->consumers.empty() || closed) {
    for (const Delivery& delivery : std::exchange(used->spare, {})) {
      if (absl::Status status = GiveBack(used, delivery.delivery_tag, delivery.consumer_tag);
          !status.ok())
        return status;
    }
  }
  if (closed) return absl::OkStatus();
  for (const auto& [priority, count] : used->waiting) {
    if (used->consumers.contains(priority)) continue;
    Consumer consumer;
    consumer.tag = absl::StrCat("waiters-", ++tags_);
    // Twice as many as wait, so that it is not made anew for each who comes.
    consumer.prefetch =
        std::min<uint32_t>({2 * count, std::max(used->stored.row.limit, 1u), kPrefetchMax});
    if (absl::Status status =
            connection_->Consume(used->channel, TokenQueue(used->stored.row.name), consumer.tag,
                                 static_cast<uint16_t>(consumer.prefetch), priority);
        !status.ok())
      return status;
    used->consumers.emplace(priority, std::move(consumer));
  }
  return absl::OkStatus();
}

// Takes out tokens above the limit as they come free, before anybody else gets them.
absl::Status TokenStore::Reap(const std::string& name, Used* used) {
  if (used->reaping) return absl::OkStatus();
  // Whoever has the mutex does it.
  if (absl::Status status = broker_.TryLock(name); !status.ok())
    return absl::IsUnavailable(status) && connection_->is_open() ? absl::OkStatus() : status;
  // Perhaps it has been done meanwhile.
  absl::StatusOr<std::optional<StoredSemaphore>> stored = broker_.Read(name);
  if (!stored.ok()) return stored.status();
  if (*stored) used->stored = *std::move(*stored);
  if (used->stored.slots.size() <= used->stored.row.limit) return broker_.Unlock(name);
  absl::StatusOr<Channel> channel = ChannelOf(used);
  if (!channel.ok()) return channel.status();
  used->reaping = true;
  const size_t excess = used->stored.slots.size() - used->stored.row.limit;
  return connection_->Consume(*channel, TokenQueue(name), kReaper,
                              static_cast<uint16_t>(std::min<size_t>(excess, kPrefetchMax)),
                              kReaperPriority);
}

// ---- what comes ----

void TokenStore::OnEvent(const BrokerEvent& event, std::vector<ledger::Hint>* hints) {
  for (auto& [name, used] : used_) {
    if (used.channel != event.channel || event.channel == 0) continue;
    switch (event.kind) {
      case BrokerEvent::Kind::kDelivery: {
        if (event.delivery.consumer_tag == kReaper) {
          const std::optional<Token> token = ReadToken(event.delivery.body);
          const size_t left = used.stored.slots.size() - used.removed.size();
          if (token && left <= used.stored.row.limit) {
            // One more than was to go: the consumer is about to be cancelled, then it goes back.
            used.spare.push_back(event.delivery);
            break;
          }
          connection_->Acknowledge(used.channel, event.delivery.delivery_tag).IgnoreError();
          if (token) used.removed.insert(token->slot);
          break;
        }
        for (auto& [priority, consumer] : used.consumers) {
          if (consumer.tag == event.delivery.consumer_tag) ++consumer.outstanding;
        }
        used.spare.push_back(event.delivery);
        break;
      }
      case BrokerEvent::Kind::kConsumerCancelled:
        // The queue has gone, with all that is held of it.
        Lose(name, &used);
        break;
      case BrokerEvent::Kind::kChannelClosed:
        spdlog::warn("rabbitmq: {}: {}", name, std::string(event.status.message()));
        Lose(name, &used);
        break;
    }
    hints->push_back({name, 0, ""});
  }
}

absl::StatusOr<std::vector<ledger::Hint>> TokenStore::Wait(SteadyTime deadline) {
  std::vector<ledger::Hint> hints;
  if (!lost_.empty()) return hints;
  if (absl::Status status = Ready(); !status.ok()) {
    if (!lost_.empty()) return hints;  // First it is told what was lost.
    return status;
  }
  if (std::chrono::steady_clock::now() >= connection_->answered_at() + kAskAfter) {
    absl::StatusOr<Channel> channel = connection_->OpenChannel();
    if (channel.ok()) connection_->CloseChannel(*channel).IgnoreError();
  }
  absl::StatusOr<std::vector<BrokerEvent>> events = connection_->Wait(deadline);
  if (!events.ok()) {
    LoseAll();
    if (!lost_.empty()) return hints;
    return events.status();
  }
  for (const BrokerEvent& event : *events) OnEvent(event, &hints);
  for (auto& [name, used] : used_) {
    // What came when nobody waited any more goes back.
    if (!used.spare.empty() && used.waiting.empty()) Tend(name, &used).IgnoreError();
    if (used.removed.empty()) continue;
    const size_t removed = used.removed.size();
    // A slot is struck, and so may be given a new token one day, only when its old one has gone for
    // certain. (If that is not known it stays: one permit too few.)
    if (!connection_->Sync(used.channel).ok()) {
      used.removed.clear();
      continue;
    }
    if (!broker_.Strike(name, used.removed).ok()) continue;
    for (const uint32_t slot : std::exchange(used.removed, {})) used.stored.slots.erase(slot);
    if (used.stored.slots.size() > used.stored.row.limit) continue;
    spdlog::info("rabbitmq: {}: {} permits have been taken out", name, removed);
    if (used.channel != 0) connection_->Cancel(used.channel, kReaper).IgnoreError();
    used.reaping = false;
    broker_.Unlock(name).IgnoreError();
    Tend(name, &used).IgnoreError();
    hints.push_back({name, 0, ""});
  }
  return hints;
}

// ---- not asked ----

absl::StatusOr<std::vector<std::string>> TokenStore::Changed(
    absl::Span<const SemaphoreRow* const>) {
  return NotAsked();
}
absl::StatusOr<ledger::LedgerStore::SessionAt> TokenStore::LoadSession(const Id&) {
  return NotAsked();
}
absl::StatusOr<ledger::LedgerStore::Hosted> TokenStore::HostedBy(absl::Span<const NodeRef>) {
  return NotAsked();
}
absl::StatusOr<std::vector<std::string>> TokenStore::Names(const std::string&, const std::string&,
                                                           uint32_t) {
  return NotAsked();
}
absl::StatusOr<std::vector<HistoryRow>> TokenStore::ReadHistory(const std::string&, uint64_t,
                                                                uint32_t) {
  return NotAsked();
}

}  // namespace semaphored::rabbitmq
