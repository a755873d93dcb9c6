#include "adapters/rabbitmq/token_store.h"

#include <algorithm>
#include <limits>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/steady_clock.h"

namespace semaphored::rabbitmq {

using ledger::CommitResult;
using ledger::Image;
using ledger::LeaseChange;
using ledger::SemaphoreDelta;
using ledger::Transaction;
using ledger::WaiterChange;

namespace {

// Daemons send change notices; a change whose notice was lost is found after so long.
constexpr std::chrono::seconds kReadAgain{60};
// Each question to a queue that does not answer holds up all others.
constexpr std::chrono::seconds kNotAskedFor{5};
constexpr uint32_t kAllNames = std::numeric_limits<uint32_t>::max();

// Whether it was done is not known.
bool Unanswered(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

// For callers that need not know why.
absl::Status AsUnavailable(const absl::Status& status) {
  return absl::IsDeadlineExceeded(status) ? absl::UnavailableError(status.message()) : status;
}

uint64_t TokenOf(const Token& token, const Delivery& delivery) {
  return token.base + static_cast<uint64_t>(delivery.returned_count) + 1;
}

constexpr size_t kStrangersAtOnce = 100;

}  // namespace

TokenStore::TokenStore(std::unique_ptr<Connection> holding,
                       std::unique_ptr<Connection> administering, const std::string& prefix,
                       const Guarantees& guarantees, std::shared_ptr<Upkeep> upkeep)
    : connection_(std::move(holding)),
      administering_(std::move(administering)),
      guarantees_(guarantees),
      upkeep_(std::move(upkeep)),
      broker_(administering_.get(), prefix),
      pages_([this](const std::string& of) { return broker_.Names(of, "", kAllNames); }),
      sealing_(administering_.get(), broker_.Secret()) {}

// ---- the connection ----

absl::Status TokenStore::Ready() {
  if (connection_->is_open() && connection_->life() == life_) {
    // Without it only what other daemons ask of this one is not heard.
    upkeep_->Note(UpkeepWork::kNotices, sealing_.BeginIfDue(SteadyClock::now()));
    return absl::OkStatus();
  }
  LoseAll();
  if (absl::Status status = connection_->Open(); !status.ok()) return status;
  if (absl::Status status = Subscribe(); !status.ok()) {
    connection_->Close();
    return status;
  }
  life_ = connection_->life();
  return Ready();
}

absl::Status TokenStore::Start() {
  const absl::Status begun = sealing_.BeginIfDue(SteadyClock::now());
  return absl::IsUnimplemented(begun) ? begun : absl::OkStatus();
}

// From here on changes are heard of; whatever was known before may be old.
absl::Status TokenStore::Subscribe() {
  absl::StatusOr<Channel> channel = connection_->OpenChannel();
  if (!channel.ok()) return channel.status();
  absl::StatusOr<std::string> queue = connection_->Subscribe(*channel, broker_.Changes());
  if (!queue.ok()) return queue.status();
  changes_ = *channel;
  for (auto& [name, used] : used_) used.stale = true;
  looked_.clear();
  return connection_->ConsumeForGood(*channel, *queue, "changes");
}

TokenStore::~TokenStore() {
  for (auto& [name, used] : used_) {
    std::vector<ledger::Hint> unheard;
    if (!used.removed.empty() && connection_->is_open(used.channel))
      StrikeRemoved(name, &used, &unheard);
  }
}

void TokenStore::Lose(const std::string& name, Used* used) {
  for (const auto& [claim, held] : used->held) lost_.push_back({name, claim});
  used->held.clear();
  used->spare.clear();
  used->strangers.clear();
  used->consumers.clear();
  used->doubtful_tags.clear();
  used->removed.clear();
  used->shrinking.reset();
  used->unwanted_since = {};
  used->stale = true;
  if (connection_->is_open(used->channel)) connection_->CloseChannel(used->channel).IgnoreError();
  used->channel = 0;
}

void TokenStore::LoseAll() {
  changes_ = 0;
  looking_ = 0;
  for (auto& [name, used] : used_) Lose(name, &used);
}

std::vector<LostPermit> TokenStore::TakeLostPermits() {
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

// The broker would give up a connection of which it hears nothing. That we live for it is shown by
// the last call that it answered; if none was made for a while, it is asked.
void TokenStore::KeepAlive() {
  const SteadyTime now = SteadyClock::now();
  if (now < kept_alive_at_ + AskEvery(connection_->url())) return;
  kept_alive_at_ = now;
  if (administering_->is_open()) administering_->Wait(SteadyTime::min()).status().IgnoreError();
  if (connection_->is_open(changes_))
    upkeep_->Note(UpkeepWork::kNotices, connection_->Sync(changes_));
}

// ---- rows ----

void TokenStore::Keep(StoredSemaphore stored, Used* used) {
  used->stored = std::move(stored);
  used->read_at = SteadyClock::now();
  used->stale = false;
}

absl::StatusOr<std::optional<StoredSemaphore>> TokenStore::Ask(const std::string& name) {
  if (const auto silent = silent_until_.find(name); silent != silent_until_.end()) {
    if (SteadyClock::now() < silent->second)
      return absl::DeadlineExceededError(
          absl::StrCat("rabbitmq: the settings of ", name, " did not answer of late"));
    silent_until_.erase(silent);
  }
  absl::StatusOr<std::optional<StoredSemaphore>> stored = broker_.Read(name);
  if (absl::IsDeadlineExceeded(stored.status())) {
    const SteadyTime now = SteadyClock::now();
    std::erase_if(silent_until_, [&](const auto& each) { return each.second <= now; });
    silent_until_[name] = now + kNotAskedFor;
  }
  return stored;
}

bool TokenStore::Silent(const std::string& semaphore) {
  const Used* used = Find(semaphore);
  return used != nullptr && connection_->is_late(used->channel);
}

bool TokenStore::Withholds(const std::string& semaphore) {
  const Used* used = Find(semaphore);
  return used != nullptr && (used->stored.excess() > 0 || connection_->is_late(used->channel));
}

// A daemon that holds permits and consumes nothing gets no notice that the queue has gone.
absl::Status TokenStore::LookForQueue(const std::string& name, Used* used) {
  if (used->held.empty() || !connection_->is_open(used->channel)) return absl::OkStatus();
  absl::Status there =
      connection_->DeclarePassively(used->channel, broker_.TokenQueue(name)).status();
  if (there.ok() || Unanswered(there)) return there;
  // With any other answer the broker has closed the channel.
  Lose(name, used);
  return absl::OkStatus();
}

absl::StatusOr<bool> TokenStore::Check(const std::string& semaphore, const Id& claim) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  Used* used = Find(semaphore);
  if (used == nullptr || !used->held.contains(claim)) return true;
  if (std::exchange(used->checked_in_step, step_) == step_) return true;
  absl::Status status = LookForQueue(semaphore, used);
  // It is silent, and has not taken anything back.
  if (status.ok() || absl::IsDeadlineExceeded(status)) return true;
  return status;
}

// nullptr: the semaphore is not there.
absl::StatusOr<TokenStore::Used*> TokenStore::Read(const std::string& name) {
  looked_.erase(name);
  Used* used = Find(name);
  const bool old =
      used == nullptr || used->stale || SteadyClock::now() - used->read_at >= kReadAgain;
  if (!old) {
    if (absl::Status status = LookForQueue(name, used); !status.ok()) return status;
    return used;
  }
  absl::StatusOr<std::optional<StoredSemaphore>> stored = Ask(name);
  if (!stored.ok()) return stored.status();
  if (!*stored) {
    if (used != nullptr) Lose(name, used);
    used_.erase(name);
    return nullptr;
  }
  // Its queue was made again: what was held of the old one is void.
  if (used != nullptr && used->stored.incarnation != (*stored)->incarnation) Lose(name, used);
  used = &used_[name];
  Keep(**std::move(stored), used);
  // Whether it can be used here must be known before a request receives kFull.
  absl::StatusOr<Channel> channel = ChannelOf(used);
  if (absl::IsOutOfRange(channel.status())) used_.erase(name);
  if (!channel.ok()) return channel.status();
  if (used->stored.excess() > 0 || used->shrinking) TryToTend(name, used);
  return used;
}

absl::StatusOr<Image> TokenStore::Load(absl::Span<const std::string> names) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  Image image;
  for (const std::string& name : names) {
    absl::StatusOr<Used*> used = Read(name);
    if (!used.ok()) return used.status();
    if (*used != nullptr) image.semaphores.emplace_back().row = (*used)->stored.row;
  }
  return image;
}

absl::Status TokenStore::Provide(const SemaphoreRow& row) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  bool begun = false;
  absl::Status made = broker_.Create(row, /*act=*/0, &begun).status();
  return absl::IsAlreadyExists(made) ? absl::OkStatus() : made;
}

bool TokenStore::Unload(const std::string& semaphore) {
  Used* used = Find(semaphore);
  if (used == nullptr) return true;
  if (used->shrinking) return false;
  if (!used->held.empty()) return false;
  Lose(semaphore, used);  // Closes its channel, and gives back what it has.
  used_.erase(semaphore);
  return true;
}

// ---- permits ----

std::optional<ledger::PermitSource::Permit> TokenStore::NotAsked(const std::string& semaphore,
                                                                 const absl::Status& why,
                                                                 bool waits) {
  // A request that waits is served when the broker answers again; one that does not must fail with
  // `why`, not with kFull.
  if (!waits) not_asked_[semaphore] = why;
  return std::nullopt;
}

std::optional<ledger::PermitSource::Permit> TokenStore::Take(const std::string& semaphore,
                                                             const Id& claim, bool waits) {
  Used* used = Find(semaphore);
  // While there are more tokens than permits no request is granted.
  if (used == nullptr || used->stored.excess() > 0) return std::nullopt;
  if (absl::Status status = Ready(); !status.ok()) return NotAsked(semaphore, status, waits);
  // However many extra messages stand before the tokens, a command meets so many of them.
  for (size_t strangers = 0; strangers < kStrangersAtOnce;) {
    if (used->spare.empty()) {
      // Where a consumer of ours stands, the broker gives of itself. And many are served faster by
      // a consumer than one by one.
      if (waits && (!used->consumers.empty() || used->asked_in_step == step_)) return std::nullopt;
      absl::StatusOr<bool> any = AskForOne(semaphore, used);
      if (!any.ok()) return NotAsked(semaphore, any.status(), waits);
      if (!*any) return std::nullopt;
    }
    const Delivery delivery = std::move(used->spare.front());
    used->spare.pop_front();
    const std::optional<Token> token = ReadToken(delivery.body);
    if (!token) {
      KeepStranger(semaphore, used, delivery);
      ++strangers;
      continue;
    }
    used->held[claim] = {delivery.delivery_tag, delivery.consumer_tag, token->slot};
    taken_.emplace_back(semaphore, claim);
    return Permit{token->slot, TokenOf(*token, delivery)};
  }
  return NotAsked(semaphore,
                  absl::UnavailableError("rabbitmq: extra messages stand before the permits of " +
                                         semaphore + ": prune it"),
                  waits);
}

// For an answer at once: what is under way to a consumer of ours, or else is free.
absl::StatusOr<bool> TokenStore::AskForOne(const std::string& name, Used* used) {
  used->asked_in_step = step_;
  absl::StatusOr<Channel> channel = ChannelOf(used);
  if (!channel.ok()) return channel.status();
  if (!used->consumers.empty()) {
    if (absl::Status status = connection_->Sync(*channel); !status.ok()) return status;
    absl::StatusOr<std::vector<BrokerEvent>> events =
        connection_->WaitOn(*channel, SteadyTime::min());
    if (!events.ok()) return events.status();
    for (BrokerEvent& event : *events) OnEvent(std::move(event), &pending_hints_);
    if (used->channel != *channel) return false;
    if (!used->spare.empty()) return true;
  }
  absl::StatusOr<std::optional<Delivery>> got =
      connection_->Get(*channel, broker_.TokenQueue(name));
  if (absl::IsNotFound(got.status())) return false;  // The queue has gone: an event follows.
  if (!got.ok()) return got.status();
  if (!*got) return false;
  used->spare.push_back(*std::move(*got));
  return true;
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
  used->given_back_at = SteadyClock::now();
  return connection_->Reject(used->channel, delivery_tag);
}

// ---- commits ----

CommitResult TokenStore::Commit(Transaction& transaction, SteadyTime) {
  ++step_;
  CommitResult result = CommitRows(&transaction, /*again=*/false);
  if (result.kind == CommitResult::Kind::kWon) Finish(transaction);
  return result;
}

// What happened to claims needs no settling: permits are given and taken at once.
CommitResult TokenStore::Settle(Transaction& transaction, SteadyTime) {
  CommitResult result = CommitRows(&transaction, /*again=*/true);
  if (result.kind == CommitResult::Kind::kWon) Finish(transaction);
  return result;
}

CommitResult TokenStore::CommitRows(Transaction* transaction, bool again) {
  for (SemaphoreDelta& delta : transaction->semaphores) {
    std::optional<absl::Status> status = Apply(&delta, again);
    if (!status) return {CommitResult::Kind::kUnknown, {}, false, {}, {}};
    if (status->ok()) continue;
    GiveBackTaken().IgnoreError();
    if (Used* used = Find(delta.name)) used->stale = true;
    if (absl::IsAlreadyExists(*status) || absl::IsNotFound(*status) || absl::IsAborted(*status))
      return {CommitResult::Kind::kLost, {delta.name}, false, {}, {}};
    return {CommitResult::Kind::kFailed, {}, false, {}, AsUnavailable(*status)};
  }
  return {};
}

void TokenStore::Finish(const Transaction& transaction) {
  taken_.clear();
  for (const ledger::AskedRecall& wanted : transaction.asked_recalls) TellOthers(wanted);
  // From here on it stands: if the connection breaks, all goes back, and is reported as lost.
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    if (Used* used = Find(delta.name)) GiveBackEnded(delta, used);
  }
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    if (Used* used = Find(delta.name)) TryToTend(delta.name, used);
  }
}

// Sent, and not waited for: should it not arrive, the connection has broken, and it is given back
// all the same.
void TokenStore::GiveBackEnded(const SemaphoreDelta& delta, Used* used) {
  for (const WaiterChange& change : delta.waiters) {
    if (change.before && --used->waiting[change.before->priority] == 0)
      used->waiting.erase(change.before->priority);
    if (change.after) ++used->waiting[change.after->priority];
  }
  for (const LeaseChange& change : delta.leases) {
    if (change.after || !change.before) continue;
    const auto held = used->held.find(change.before->id);
    if (held == used->held.end()) continue;
    GiveBack(used, held->second.delivery_tag, held->second.consumer_tag).IgnoreError();
    used->held.erase(held);
  }
}

std::optional<absl::Status> TokenStore::Apply(SemaphoreDelta* delta, bool again) {
  if (!delta->before && !delta->after) return absl::OkStatus();
  if (delta->before) {
    delta->revision = delta->before->revision;
    SemaphoreRow same = *delta->before;
    if (delta->after) same.next_order = delta->after->next_order;
    if (delta->after && same == *delta->after) return absl::OkStatus();
  }
  if (absl::Status status = Ready(); !status.ok()) {
    if (again) return std::nullopt;
    return status;
  }
  if (!delta->after) {
    Used* used = Find(delta->name);
    bool begun = again;
    absl::Status gone =
        broker_.Destroy(delta->name, used == nullptr ? 0 : used->stored.incarnation, &begun);
    if (Unanswered(gone) && begun) return std::nullopt;
    if (!gone.ok()) return gone;
    if (used != nullptr) {
      used->held.clear();  // They have ended with it.
      Lose(delta->name, used);
      used_.erase(delta->name);
    }
    return absl::OkStatus();
  }
  bool unknown = false;
  absl::StatusOr<StoredSemaphore> stored = Write(*delta, again, &unknown);
  if (unknown) return std::nullopt;
  if (!stored.ok()) return stored.status();
  Used& used = used_[delta->name];
  Keep(*std::move(stored), &used);
  delta->revision = used.stored.row.revision;
  return absl::OkStatus();
}

absl::StatusOr<StoredSemaphore> TokenStore::Write(const SemaphoreDelta& delta, bool again,
                                                  bool* unknown) {
  if (again) {
    absl::StatusOr<std::optional<StoredSemaphore>> found = broker_.FindAct(delta.name, act_);
    *unknown = !found.ok();
    if (!found.ok()) return found.status();
    if (*found) return **std::move(found);
    return absl::UnavailableError(absl::StrCat(act_failed_, "; nothing was done, try again"));
  }
  static thread_local std::mt19937_64 random{std::random_device{}()};
  act_ = random();
  bool begun = false;
  absl::StatusOr<StoredSemaphore> stored = delta.before
                                               ? broker_.Update(*delta.after, act_, &begun)
                                               : broker_.Create(*delta.after, act_, &begun);
  *unknown = begun && Unanswered(stored.status());
  if (*unknown) act_failed_ = std::string(stored.status().message());
  return stored;
}

}  // namespace semaphored::rabbitmq
