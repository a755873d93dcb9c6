#include "adapters/rabbitmq/token_store.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "adapters/rabbitmq/recipe_queue.h"
#include "adapters/rabbitmq/token_prune.h"
#include "adapters/steady_clock.h"

namespace semaphored::rabbitmq {

using ledger::CommitResult;
using ledger::Image;
using ledger::LeaseChange;
using ledger::SemaphoreDelta;
using ledger::Transaction;
using ledger::WaiterChange;

namespace {

constexpr uint32_t kAllNames = std::numeric_limits<uint32_t>::max();
// However many extra messages stand before the tokens, a command meets so many of them.
constexpr size_t kStrangersAtOnce = 100;
// A notice with this revision: whatever is known, it is to be read again.
constexpr uint64_t kReadAgain = std::numeric_limits<uint64_t>::max();
// Of the broker's counts of messages.
constexpr std::chrono::milliseconds kCountedAfter{200};
constexpr std::chrono::milliseconds kCountPause{5};

// For callers that need not know why.
absl::Status AsUnavailable(const absl::Status& status) {
  return absl::IsDeadlineExceeded(status) ? absl::UnavailableError(status.message()) : status;
}

uint64_t TokenOf(const Token& token, const Delivery& delivery) {
  return token.base + static_cast<uint64_t>(delivery.returned_count) + 1;
}

// What the semaphore's claims that wait, and its leases, are from now on. What has ended is sent back, and not waited
// for: should it not arrive, the connection has broken, and it is given back all the same.
void FollowClaims(const SemaphoreDelta& delta, UsedTokens* tokens) {
  for (const WaiterChange& change : delta.waiters) {
    if (change.before) tokens->RemoveWaiting(change.before->priority);
    if (change.after) tokens->AddWaiting(change.after->priority);
  }
  for (const LeaseChange& change : delta.leases) {
    if (!change.after && change.before) tokens->GiveBack(change.before->id).IgnoreError();
  }
}

}  // namespace

TokenStore::TokenStore(std::unique_ptr<Connection> holding,
                       std::unique_ptr<Connection> administering, const std::string& prefix,
                       const Guarantees& guarantees, std::shared_ptr<Upkeep> upkeep)
    : connection_(std::move(holding)),
      administering_(std::move(administering)),
      guarantees_(guarantees),
      upkeep_(std::move(upkeep)),
      broker_(administering_.get(), prefix),
      used_(connection_.get(), administering_.get(), &broker_, upkeep_.get()),
      shown_(connection_.get(), &broker_,
             [this](const std::string& name) { return used_.ReadRow(name); }),
      pages_([this](const std::string& of) { return broker_.Names(of, "", kAllNames); }),
      sealing_(administering_.get(), broker_.Secret()),
      recalls_(&sealing_, &broker_, &used_, upkeep_.get()),
      rows_(&broker_, &used_) {}

TokenStore::~TokenStore() {
  for (auto& [name, used] : used_.all()) {
    if (!used.removed().empty() && used.tokens().is_open())
      upkeep_->Note(UpkeepWork::kPermits, used.StrikeRemoved().status());
  }
}

// ---- the connection ----

absl::Status TokenStore::Ready(Taken taken) {
  if (connection_->is_open() && connection_->life() == life_) {
    // Without it only what other daemons ask of this one is not heard.
    upkeep_->Note(UpkeepWork::kNotices, sealing_.BeginIfDue(SteadyClock::now()));
    return absl::OkStatus();
  }
  if (taken == Taken::kKept && !taken_.empty())
    return absl::UnavailableError("rabbitmq: the connection broke; try again");
  changes_ = 0;
  used_.LoseAll();
  if (absl::Status status = connection_->Open(); !status.ok()) return status;
  if (absl::Status status = Subscribe(); !status.ok()) {
    connection_->Close();
    return status;
  }
  life_ = connection_->life();
  return Ready(taken);
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
  for (auto& [name, used] : used_.all()) used.MarkStale();
  shown_.BeginLife();
  return connection_->ConsumeForGood(*channel, *queue, "changes");
}

std::vector<LostPermit> TokenStore::TakeLostPermits() {
  if (!connection_->is_open()) used_.LoseAll();
  return used_.TakeLost();
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

absl::StatusOr<Image> TokenStore::Load(absl::Span<const std::string> names) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  Image image;
  for (const std::string& name : names) {
    shown_.Forget(name);
    absl::StatusOr<UsedSemaphore*> used = used_.Read(name);
    if (!used.ok()) return used.status();
    if (*used != nullptr) image.semaphores.emplace_back().row = (*used)->stored().row;
  }
  return image;
}

absl::StatusOr<std::optional<PermitStore::Shown>> TokenStore::Look(const std::string& semaphore) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  return shown_.Look(semaphore);
}

absl::Status TokenStore::Provide(const SemaphoreRow& row) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  bool begun = false;
  absl::Status made = broker_.Create(row, /*act=*/0, &begun).status();
  return absl::IsAlreadyExists(made) ? absl::OkStatus() : made;
}

bool TokenStore::Unload(const std::string& semaphore) {
  UsedSemaphore* used = used_.Find(semaphore);
  if (used == nullptr) return true;
  if (used->is_shrinking() || !used->tokens().held().empty()) return false;
  used_.Drop(semaphore, /*ended=*/true);
  return true;
}

absl::StatusOr<bool> TokenStore::Check(const std::string& semaphore, const Id& claim) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  UsedSemaphore* used = used_.Find(semaphore);
  if (used == nullptr || !used->tokens().held().contains(claim)) return true;
  if (used->MarkChecked(step_)) return true;
  absl::Status status = used_.LookForQueue(used);
  // It is silent, and has not taken anything back.
  if (status.ok() || absl::IsDeadlineExceeded(status)) return true;
  return status;
}

bool TokenStore::Silent(const std::string& semaphore) {
  const UsedSemaphore* used = used_.Find(semaphore);
  return used != nullptr && used->tokens().is_late();
}

bool TokenStore::Withholds(const std::string& semaphore) {
  const UsedSemaphore* used = used_.Find(semaphore);
  return used != nullptr && (used->stored().excess() > 0 || used->tokens().is_late());
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
  UsedSemaphore* used = used_.Find(semaphore);
  // While there are more tokens than permits no request is granted.
  if (used == nullptr || used->stored().excess() > 0) return std::nullopt;
  if (absl::Status status = Ready(); !status.ok()) return NotAsked(semaphore, status, waits);
  UsedTokens& tokens = used->tokens();
  for (size_t strangers = 0; strangers < kStrangersAtOnce; ++strangers) {
    if (!tokens.has_spare()) {
      // Where a consumer of ours stands, the broker gives of itself. And many are served faster by
      // a consumer than one by one.
      if (waits && (tokens.has_consumers() || used->asked_in_step() == step_)) return std::nullopt;
      absl::StatusOr<bool> any = AskForOne(used);
      if (!any.ok()) return NotAsked(semaphore, any.status(), waits);
      if (!*any) return std::nullopt;
    }
    Delivery delivery = *tokens.TakeSpare();
    const std::optional<Token> token = ReadToken(delivery.body);
    if (token && IsVoid(*token, used->stored())) {
      tokens.Discard(delivery).IgnoreError();  // Else it comes again.
    } else if (token) {
      tokens.Hold(claim, delivery, token->slot);
      taken_.emplace_back(semaphore, claim);
      return Permit{token->slot, TokenOf(*token, delivery)};
    } else {
      used->KeepStranger(std::move(delivery));
    }
  }
  return NotAsked(semaphore,
                  absl::UnavailableError("rabbitmq: extra messages stand before the permits of " +
                                         semaphore + ": prune it"),
                  waits);
}

// For an answer at once: what is under way to a consumer of ours, or else is free.
absl::StatusOr<bool> TokenStore::AskForOne(UsedSemaphore* used) {
  UsedTokens& tokens = used->tokens();
  if (tokens.is_closed()) return absl::UnavailableError("rabbitmq: its permits are lost just now");
  used->MarkAsked(step_);
  absl::StatusOr<Channel> channel = tokens.Open();
  if (!channel.ok()) return channel.status();
  if (tokens.has_consumers()) {
    if (absl::Status status = connection_->Sync(*channel); !status.ok()) return status;
    absl::StatusOr<std::vector<BrokerEvent>> events =
        connection_->WaitOn(*channel, SteadyTime::min());
    if (!events.ok()) return events.status();
    for (BrokerEvent& event : *events) OnEvent(std::move(event), &pending_notices_);
    if (tokens.channel() != *channel) return false;
    if (tokens.has_spare()) return true;
  }
  absl::StatusOr<std::optional<Delivery>> got =
      connection_->Get(*channel, broker_.TokenQueue(used->name()));
  if (absl::IsNotFound(got.status())) return false;  // The queue has gone: an event follows.
  if (!got.ok()) return got.status();
  if (!*got) return false;
  tokens.AddSpare(*std::move(*got));
  return true;
}

void TokenStore::GiveBackTaken() {
  for (const auto& [name, claim] : std::exchange(taken_, {})) {
    if (UsedSemaphore* used = used_.Find(name)) used->tokens().GiveBack(claim).IgnoreError();
  }
}

absl::StatusOr<uint32_t> TokenStore::HeldElsewhere(const std::string& semaphore) {
  for (;;) {
    absl::StatusOr<uint32_t> count = CountElsewhere(semaphore);
    const UsedSemaphore* used = used_.Find(semaphore);
    if (!count.ok() || *count == 0 || used == nullptr) return count;
    // What we gave back is counted a moment later.
    if (SteadyClock::now() >= used->tokens().given_back_at() + kCountedAfter) return count;
    std::this_thread::sleep_for(kCountPause);
  }
}

absl::StatusOr<uint32_t> TokenStore::CountElsewhere(const std::string& semaphore) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  UsedSemaphore* used = used_.Find(semaphore);
  if (used == nullptr) return 0;
  absl::StatusOr<Channel> channel = used_.Open(used);
  if (!channel.ok()) return channel.status();
  absl::StatusOr<QueueState> state =
      connection_->DeclarePassively(*channel, broker_.TokenQueue(semaphore));
  if (absl::IsNotFound(state.status())) return 0;
  if (!state.ok()) return state.status();
  // What is on its way to a consumer of ours is ours. What was sent before the answer has arrived after this.
  if (absl::Status status = connection_->Sync(*channel); !status.ok()) return status;
  absl::StatusOr<std::vector<BrokerEvent>> events =
      connection_->WaitOn(*channel, SteadyTime::min());
  if (!events.ok()) return events.status();
  for (BrokerEvent& event : *events) OnEvent(std::move(event), &pending_notices_);
  used = used_.Find(semaphore);
  if (used == nullptr) return 0;
  const size_t slots = used->stored().slots.size();
  const size_t here = used->tokens().here() + used->removed().size() + state->ready;
  return static_cast<uint32_t>(slots - std::min(slots, here));
}

// ---- acts of several steps ----

absl::StatusOr<ledger::Pruned> TokenStore::Prune(const std::string& semaphore) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<Mutex>> admin = broker_.LockAdmin(semaphore);
  if (!admin.ok()) return admin.status();
  if (UsedSemaphore* used = used_.Find(semaphore)) used->MarkStale();
  absl::StatusOr<UsedSemaphore*> read = used_.Read(semaphore);
  if (!read.ok()) return read.status();
  if (*read == nullptr) return ledger::Pruned{};
  UsedSemaphore* used = *read;
  // The prune may make new tokens of these slots, which are not to be struck afterwards.
  if (!used->removed().empty()) {
    if (absl::Status status = used->StrikeRemoved().status(); !status.ok()) return status;
  }
  // A daemon that takes tokens out meanwhile would be taken for one that holds them.
  absl::StatusOr<std::unique_ptr<Mutex>> shrinking = used->StopShrinking();
  if (*shrinking == nullptr) shrinking = broker_.LockShrinking(semaphore);
  if (!shrinking.ok()) return shrinking.status();
  absl::StatusOr<ledger::Pruned> pruned =
      TokenPrune(connection_.get(), &broker_, upkeep_.get(), &used_, used, guarantees_.limit_max)
          .Run();
  shrinking->reset();
  used_.Tend(used);
  return pruned;
}

absl::StatusOr<std::optional<ledger::Adoptable>> TokenStore::Adopt(const SemaphoreRow& row) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  if (absl::Status status = administering_->Open(); !status.ok()) return status;
  const std::string name = broker_.TokenQueue(row.name);
  const absl::StatusOr<std::optional<QueueState>> queue =
      RecipeQueue(administering_.get(), name).Find();
  if (!queue.ok()) return queue.status();
  ledger::Adoptable found = DescribeRecipe(name, *queue, guarantees_.limit_max);
  if (!found.refusal.empty()) found.refusal.insert(0, "rabbitmq: ");
  if (found.refusal.empty() && row.limit == found.limit) {
    absl::Status adopted = broker_.Adopt(row);
    found.made = adopted.ok();
    if (absl::IsFailedPrecondition(adopted)) {
      found.clients = std::max(found.clients, 1U);
      found.refusal = std::string(adopted.message());
    } else if (!adopted.ok() && !absl::IsAlreadyExists(adopted)) {
      return adopted;
    }
  }
  return std::optional<ledger::Adoptable>(std::move(found));
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
    if (RowCommit::IsSame(&delta)) continue;
    const absl::Status ready = Ready(Taken::kLost);
    std::optional<absl::Status> status = ready;
    if (ready.ok()) status = rows_.Apply(&delta, again);
    if (!status || (!ready.ok() && again)) return {CommitResult::Kind::kUnknown, {}, false, {}, {}};
    if (status->ok()) continue;
    GiveBackTaken();
    if (UsedSemaphore* used = used_.Find(delta.name)) used->MarkStale();
    if (absl::IsAlreadyExists(*status) || absl::IsNotFound(*status) || absl::IsAborted(*status))
      return {CommitResult::Kind::kLost, {delta.name}, false, {}, {}};
    return {CommitResult::Kind::kFailed, {}, false, {}, AsUnavailable(*status)};
  }
  return {};
}

void TokenStore::Finish(const Transaction& transaction) {
  taken_.clear();
  for (const ledger::AskedRecall& wanted : transaction.asked_recalls) recalls_.Send(wanted);
  // From here on it stands: if the connection breaks, all goes back, and is reported as lost.
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    if (UsedSemaphore* used = used_.Find(delta.name)) FollowClaims(delta, &used->tokens());
  }
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    if (UsedSemaphore* used = used_.Find(delta.name)) used_.Tend(used);
  }
}

// ---- what comes ----

// "<version> <name>", "pruning <name>", or what asked_recalls.h says.
void TokenStore::OnChange(const std::string& text, ChangeNotices* notices) {
  if (text.starts_with('{')) return recalls_.Hear(text);
  if (text.starts_with(kPruning)) {
    if (UsedSemaphore* used = used_.Find(text.substr(kPruning.size())))
      upkeep_->Note(UpkeepWork::kPermits, used->tokens().GiveBackStrangers());
    return;
  }
  const size_t space = text.find(' ');
  uint64_t version = 0;
  if (space == std::string::npos || !absl::SimpleAtoi(text.substr(0, space), &version)) return;
  const std::string name = text.substr(space + 1);
  shown_.Forget(name);
  UsedSemaphore* used = used_.Find(name);
  if (used == nullptr || used->stored().row.revision == version) return;
  used->MarkStale();
  notices->push_back({name, version, ""});
}

void TokenStore::Strike(UsedSemaphore* used, ChangeNotices* notices) {
  const absl::StatusOr<bool> struck = used->StrikeRemoved();
  upkeep_->Note(UpkeepWork::kPermits, struck.status());
  if (!struck.ok() || !*struck) return;
  used_.Tend(used);
  notices->push_back({used->name(), used->stored().row.revision, ""});
  notices->push_back({used->name(), 0, ""});
}

void TokenStore::OnEvent(BrokerEvent event, ChangeNotices* notices) {
  if (event.channel == 0) return;
  if (event.channel == changes_) {
    if (event.kind == BrokerEvent::Kind::kDelivery) return OnChange(event.delivery.body, notices);
    if (event.kind == BrokerEvent::Kind::kAnsweredLate) return;
    connection_->Close();  // Without it nothing is heard: a new connection hears again.
    return;
  }
  UsedSemaphore* used = used_.OfChannel(event.channel);
  if (used == nullptr) return;
  const std::string& name = used->name();
  if (event.kind == BrokerEvent::Kind::kAnsweredLate) {
    const absl::Status cancelled = used->tokens().CancelDoubtful();
    upkeep_->Note(UpkeepWork::kPermits, cancelled);
    if (!cancelled.ok()) return;
    notices->push_back({name, 0, ""});
    used_.Tend(used);  // Those that wait may have no consumer now.
    return;
  }
  if (event.kind == BrokerEvent::Kind::kDelivery) {
    if (used->OnDelivery(std::move(event.delivery))) notices->push_back({name, 0, ""});
    return;
  }
  // The queue has gone, with all that is held of it; or the channel. From 4.3 on the broker
  // cancels a consumer also when it has kept a message for too long.
  spdlog::warn("rabbitmq: {}: {}", name,
               event.status.ok()
                   ? "its queue has gone, or a permit was held for longer than consumer_timeout"
                   : std::string(event.status.message()));
  used_.Lose(used);
  notices->push_back({name, kReadAgain, ""});
}

absl::StatusOr<std::vector<ledger::ChangeNotice>> TokenStore::Wait(SteadyTime deadline) {
  ChangeNotices notices = std::exchange(pending_notices_, {});
  if (!notices.empty() || recalls_.any()) deadline = SteadyTime::min();
  if (used_.any_lost()) return notices;
  if (absl::Status status = Ready(Taken::kLost); !status.ok()) {
    if (used_.any_lost()) return notices;  // Lost permits are reported before the error.
    return status;
  }
  ++step_;
  KeepAlive();
  upkeep_->Note(UpkeepWork::kNotices, broker_.TellRest());
  for (auto& [name, used] : used_.all()) {
    if (SteadyClock::now() >= used.NextShrink()) {
      used.PutShrinkOff();
      used_.Tend(&used);
    }
    deadline = std::min({deadline, used.NextShrink(), used.tokens().NextDrop()});
  }
  const SteadyTime alive = SteadyClock::now() + AskEvery(connection_->url());
  absl::StatusOr<std::vector<BrokerEvent>> events =
      connection_->Wait(std::min({deadline, alive, recalls_.Next()}));
  if (!events.ok()) {
    used_.LoseAll();
    if (used_.any_lost()) return notices;
    return events.status();
  }
  for (BrokerEvent& event : *events) OnEvent(std::move(event), &notices);
  for (std::string& name : used_.LoseClosed()) notices.push_back({std::move(name), kReadAgain, ""});
  recalls_.Choose();
  const SteadyTime now = SteadyClock::now();
  for (auto& [name, used] : used_.all()) {
    // Tokens that came when no request waited any more go back.
    if (now >= used.tokens().NextDrop())
      upkeep_->Note(UpkeepWork::kPermits, used.tokens().DropUnwanted());
    if (!used.removed().empty()) Strike(&used, &notices);
  }
  return notices;
}

}  // namespace semaphored::rabbitmq
