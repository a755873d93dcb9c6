// Of TokenStore: consumers for the waiters, the consumer that takes out tokens above the limit, and
// what the broker sends them.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "adapters/rabbitmq/token_store.h"
#include "adapters/steady_clock.h"

namespace semaphored::rabbitmq {

namespace {

// Above the priority of every request.
constexpr int32_t kShrinkPriority = std::numeric_limits<int32_t>::max();
constexpr uint32_t kPrefetchMax = 2000;
constexpr char kShrink[] = "shrink";
// Another daemon takes out what is too much, and may die: how often we look whether it still does.
constexpr std::chrono::seconds kShrinkAgain{5};
// A consumer that has no waiters any more is kept for so long, in case the next comes at once.
constexpr std::chrono::milliseconds kKeptUnwanted{5};
// A hint with this revision: whatever is known, it is to be read again.
constexpr uint64_t kReadAgain = std::numeric_limits<uint64_t>::max();

}  // namespace

// ---- consumers ----

absl::Status TokenStore::Tend(const std::string& name, Used* used) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  if (used->stored.excess() == 0) EndShrinking(used);
  if (used->stored.excess() > 0)
    if (absl::Status status = Shrink(name, used); !status.ok()) return status;
  const bool idle = used->waiting.empty() && used->consumers.empty() && used->spare.empty();
  if (idle) return absl::OkStatus();
  absl::StatusOr<Channel> channel = ChannelOf(used);
  if (!channel.ok()) return channel.status();
  return TendConsumers(used);
}

void TokenStore::TryToTend(const std::string& name, Used* used) {
  upkeep_->Note(UpkeepWork::kPermits, Tend(name, used));
}

// A consumer for each priority that waits, with room for as many tokens as there are waiters.
absl::Status TokenStore::TendConsumers(Used* used) {
  if (used->stored.row.paused || used->stored.row.destroying) return CancelAll(used);
  bool unwanted = false;
  // What we have ourselves, the broker cannot send.
  const size_t here = used->held.size() + used->spare.size();
  const size_t limit = used->stored.row.limit;
  const auto most = static_cast<uint32_t>(limit - std::min(limit, here));
  for (auto at = used->consumers.begin(); at != used->consumers.end();) {
    const auto waiting = used->waiting.find(at->first);
    const uint32_t wanted = waiting == used->waiting.end() ? 0 : waiting->second;
    const uint32_t room =
        at->second.prefetch - std::min(at->second.prefetch, at->second.outstanding);
    unwanted = unwanted || wanted == 0;
    if (wanted == 0 || room >= std::min(wanted, most)) {
      ++at;
      continue;
    }
    // Answered late, it is known as doubtful, and no more as one that stands.
    const std::string tag = std::move(at->second.tag);
    at = used->consumers.erase(at);
    if (absl::Status status = Cancel(used, tag); !status.ok()) return status;
  }
  if (!unwanted) used->unwanted_since = {};
  if (unwanted && used->unwanted_since == SteadyTime{}) used->unwanted_since = SteadyClock::now();
  for (const auto& [priority, count] : used->waiting) {
    if (used->consumers.contains(priority)) continue;
    Consumer consumer;
    consumer.tag = absl::StrCat("waiters-", ++tags_);
    // Twice as many as wait, so that not each new waiter needs a new consumer.
    consumer.prefetch =
        std::min<uint32_t>({2 * count, std::max(used->stored.row.limit, 1u), kPrefetchMax});
    if (absl::Status status = Begin(used, consumer.tag, consumer.prefetch, priority); !status.ok())
      return status;
    used->consumers.emplace(priority, std::move(consumer));
  }
  return absl::OkStatus();
}

// A queue that does not answer in time may do so later, and the consumer then stands, or stood.
absl::Status TokenStore::Begin(Used* used, const std::string& tag, size_t prefetch,
                               int32_t priority) {
  absl::Status status =
      connection_->Consume(used->channel, broker_.TokenQueue(used->stored.row.name), tag,
                           static_cast<uint16_t>(prefetch), priority);
  if (absl::IsDeadlineExceeded(status)) used->doubtful_tags.push_back(tag);
  return status;
}

absl::Status TokenStore::Cancel(Used* used, const std::string& tag) {
  absl::Status status = connection_->Cancel(used->channel, tag);
  if (absl::IsDeadlineExceeded(status)) used->doubtful_tags.push_back(tag);
  return status;
}

void TokenStore::OnAnsweredLate(const std::string& name, Used* used,
                                std::vector<ledger::Hint>* hints) {
  const absl::Status cancelled = CancelTags(used, std::exchange(used->doubtful_tags, {}));
  upkeep_->Note(UpkeepWork::kPermits, cancelled);
  if (!cancelled.ok()) return;
  hints->push_back({name, 0, ""});
  // Those that wait may have no consumer now.
  TryToTend(name, used);
}

// Those that come after one that is not answered in time may still stand.
absl::Status TokenStore::CancelTags(Used* used, const std::vector<std::string>& tags) {
  absl::Status failed;
  for (const std::string& tag : tags) {
    if (failed.ok()) {
      failed = Cancel(used, tag);
    } else {
      used->doubtful_tags.push_back(tag);
    }
  }
  return failed;
}

absl::Status TokenStore::CancelAll(Used* used) {
  std::vector<std::string> tags;
  for (const auto& [priority, consumer] : std::exchange(used->consumers, {}))
    tags.push_back(consumer.tag);
  if (absl::Status status = CancelTags(used, tags); !status.ok()) return status;
  used->unwanted_since = {};
  if (!used->spare.empty()) used->given_back_at = SteadyClock::now();
  for (const Delivery& delivery : std::exchange(used->spare, {})) {
    if (absl::Status status = connection_->Reject(used->channel, delivery.delivery_tag);
        !status.ok())
      return status;
  }
  return absl::OkStatus();
}

// An open consumer would get again what is given back.
absl::Status TokenStore::DropUnwanted(Used* used) {
  if (used->waiting.empty()) return CancelAll(used);
  used->unwanted_since = {};
  for (auto at = used->consumers.begin(); at != used->consumers.end();) {
    if (used->waiting.contains(at->first)) {
      ++at;
      continue;
    }
    // Answered late, it is known as doubtful, and no more as one that stands.
    const std::string tag = std::move(at->second.tag);
    at = used->consumers.erase(at);
    if (absl::Status status = Cancel(used, tag); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// ---- taking out what is too much ----

// As they come free, before any other consumer gets them.
absl::Status TokenStore::Shrink(const std::string& name, Used* used) {
  if (used->shrinking && used->shrinking->held()) return absl::OkStatus();
  // The daemon that has the mutex does it.
  used->shrink_again = SteadyClock::now() + kShrinkAgain;
  absl::StatusOr<std::unique_ptr<Mutex>> mutex = broker_.LockShrinking(name);
  if (absl::IsUnavailable(mutex.status()) && administering_->is_open()) return absl::OkStatus();
  if (!mutex.ok()) return mutex.status();
  // Perhaps it has been done meanwhile.
  absl::StatusOr<std::optional<StoredSemaphore>> stored = broker_.Read(name);
  if (!stored.ok()) return stored.status();
  if (*stored) Keep(**std::move(stored), used);
  if (used->stored.excess() == 0) return absl::OkStatus();
  absl::StatusOr<Channel> channel = ChannelOf(used);
  if (!channel.ok()) return channel.status();
  // (It stands there already if the mutex alone was lost.)
  Cancel(used, kShrink).IgnoreError();
  const size_t prefetch = std::min<size_t>(used->stored.excess(), kPrefetchMax);
  if (absl::Status status = Begin(used, kShrink, prefetch, kShrinkPriority); !status.ok())
    return status;
  used->shrinking = *std::move(mutex);
  return absl::OkStatus();
}

bool TokenStore::LeavesShrinking(const Used& used) {
  return used.stored.excess() > 0 && !(used.shrinking && used.shrinking->held());
}

void TokenStore::EndShrinking(Used* used) {
  if (!used->shrinking) return;
  if (connection_->is_open(used->channel)) Cancel(used, kShrink).IgnoreError();
  used->shrinking.reset();
}

void TokenStore::OnShrinking(Used* used, BrokerEvent event) {
  const std::optional<Token> token = ReadToken(event.delivery.body);
  if (!token) {
    // It takes room of the consumer, which begins again without it.
    KeepStranger(used->stored.row.name, used, std::move(event.delivery));
    EndShrinking(used);
    used->shrink_again = {};
    return;
  }
  if (!used->shrinking || used->stored.excess() <= used->removed.size()) {
    // One more than was to go: the consumer is about to be cancelled, then it goes back.
    used->spare.push_back(std::move(event.delivery));
    return;
  }
  connection_->Acknowledge(used->channel, event.delivery.delivery_tag).IgnoreError();
  used->removed.insert(token->slot);
}

// A slot is struck, and so may be given a new token one day, only when its old one has gone for
// certain. (If that is not known it stays: one permit too few, until it is pruned.)
void TokenStore::StrikeRemoved(const std::string& name, Used* used,
                               std::vector<ledger::Hint>* hints) {
  if (const absl::Status status = connection_->Sync(used->channel); !status.ok()) {
    upkeep_->Failed(UpkeepWork::kPermits, status);
    if (!absl::IsDeadlineExceeded(status)) used->removed.clear();
    return;
  }
  absl::StatusOr<std::optional<StoredSemaphore>> stored = broker_.Strike(name, used->removed);
  upkeep_->Note(UpkeepWork::kPermits, stored.status());
  if (!stored.ok()) return;  // Tried again.
  const size_t count = std::exchange(used->removed, {}).size();
  if (!*stored) return;
  Keep(**std::move(stored), used);
  spdlog::info("rabbitmq: {}: {} permits have been taken out", name, count);
  TryToTend(name, used);
  hints->push_back({name, used->stored.row.revision, ""});
  hints->push_back({name, 0, ""});
}

// ---- what comes ----

// "<version> <name>", "pruning <name>", or what token_asking.cc says.
void TokenStore::OnChange(const std::string& text, std::vector<ledger::Hint>* hints) {
  if (text.starts_with('{')) return OnAsked(text);
  if (text.starts_with(kPruning)) {
    if (Used* used = Find(text.substr(kPruning.size())))
      upkeep_->Note(UpkeepWork::kPermits, GiveBackStrangers(used));
    return;
  }
  const size_t space = text.find(' ');
  uint64_t version = 0;
  if (space == std::string::npos || !absl::SimpleAtoi(text.substr(0, space), &version)) return;
  const std::string name = text.substr(space + 1);
  looked_.erase(name);
  Used* used = Find(name);
  if (used == nullptr || used->stored.row.revision == version) return;
  used->stale = true;
  hints->push_back({name, version, ""});
}

void TokenStore::OnEvent(BrokerEvent event, std::vector<ledger::Hint>* hints) {
  if (event.channel == 0) return;
  if (event.channel == changes_) {
    if (event.kind == BrokerEvent::Kind::kDelivery) return OnChange(event.delivery.body, hints);
    if (event.kind == BrokerEvent::Kind::kAnsweredLate) return;
    connection_->Close();  // Without it nothing is heard: a new connection hears again.
    return;
  }
  const auto found = std::ranges::find_if(
      used_, [&](const auto& each) { return each.second.channel == event.channel; });
  if (found == used_.end()) return;
  const std::string& name = found->first;
  Used* used = &found->second;
  if (event.kind == BrokerEvent::Kind::kAnsweredLate) return OnAnsweredLate(name, used, hints);
  if (event.kind != BrokerEvent::Kind::kDelivery) {
    // The queue has gone, with all that is held of it; or the channel. From 4.3 on the broker
    // cancels a consumer also when it has kept a message for too long.
    spdlog::warn("rabbitmq: {}: {}", name,
                 event.status.ok()
                     ? "its queue has gone, or a permit was held for longer than consumer_timeout"
                     : std::string(event.status.message()));
    Lose(name, used);
    hints->push_back({name, kReadAgain, ""});
    return;
  }
  if (event.delivery.consumer_tag == kShrink) return OnShrinking(used, std::move(event));
  for (auto& [priority, consumer] : used->consumers) {
    if (consumer.tag == event.delivery.consumer_tag) ++consumer.outstanding;
  }
  used->spare.push_back(std::move(event.delivery));
  hints->push_back({name, 0, ""});
}

absl::StatusOr<std::vector<ledger::Hint>> TokenStore::Wait(SteadyTime deadline) {
  std::vector<ledger::Hint> hints = std::exchange(pending_hints_, {});
  if (!hints.empty() || !asked_.empty()) deadline = SteadyTime::min();
  if (!lost_.empty()) return hints;
  if (absl::Status status = Ready(); !status.ok()) {
    if (!lost_.empty()) return hints;  // Lost permits are reported before the error.
    return status;
  }
  ++step_;
  KeepAlive();
  upkeep_->Note(UpkeepWork::kNotices, broker_.TellRest());
  for (auto& [name, used] : used_) {
    if (used.unwanted_since != SteadyTime{})
      deadline = std::min(deadline, used.unwanted_since + kKeptUnwanted);
    if (!LeavesShrinking(used)) continue;
    if (const SteadyTime now = SteadyClock::now(); now >= used.shrink_again) {
      used.shrink_again = now + kShrinkAgain;
      TryToTend(name, &used);
    }
    deadline = std::min(deadline, used.shrink_again);
  }
  const SteadyTime alive = SteadyClock::now() + AskEvery(connection_->url());
  absl::StatusOr<std::vector<BrokerEvent>> events =
      connection_->Wait(std::min({deadline, alive, NextChoice()}));
  if (!events.ok()) {
    LoseAll();
    if (!lost_.empty()) return hints;
    return events.status();
  }
  for (BrokerEvent& event : *events) OnEvent(std::move(event), &hints);
  Choose();
  const SteadyTime now = SteadyClock::now();
  for (auto& [name, used] : used_) {
    // Tokens that came when no request waited any more go back.
    const bool unwanted =
        used.unwanted_since != SteadyTime{} && now >= used.unwanted_since + kKeptUnwanted;
    const bool left = !used.spare.empty() && used.waiting.empty() && used.consumers.empty();
    if (unwanted || left) upkeep_->Note(UpkeepWork::kPermits, DropUnwanted(&used));
    if (!used.removed.empty()) StrikeRemoved(name, &used, &hints);
  }
  return hints;
}

}  // namespace semaphored::rabbitmq
