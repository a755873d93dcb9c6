// layout=slots: permits taken, handed on and given back, and the clock of the waiters.
#include <algorithm>
#include <thread>

#include "adapters/rabbitmq/slot_store.h"
#include "adapters/steady_clock.h"

namespace semaphored::rabbitmq {

using ledger::LeaseChange;
using ledger::SemaphoreDelta;
using ledger::Transaction;
using ledger::WaiterChange;
using std::chrono::milliseconds;

namespace {

// How often another connection may be first before a claim gets nothing, and the pause between.
constexpr int kRacesMax = 5;
constexpr milliseconds kRaceSkew{6};
// Between looks on behalf of waiters, each up to so much and a half.
constexpr milliseconds kPauseMin{80};
constexpr milliseconds kPauseMax{700};
// A slot goes from claim to claim so often before all that share the semaphore may have it.
constexpr uint32_t kPassedOnMax = 8;
// Until the ledger has taken it up, or will not.
constexpr milliseconds kOfferFor{200};
// After a slot has become ours: see CheckDue.
constexpr milliseconds kCheckFirst{50};

}  // namespace

// ---- permits ----

// The lowest slot that the view shows as free, or that is offered. A slot of our own claims may
// look free for a while, if another program has deleted its queue.
std::optional<uint32_t> SlotStore::LowestFree(const Used& used) const {
  for (uint32_t slot = 1; slot <= used.view->size; ++slot) {
    const auto ours = used.slots.find(slot);
    if (ours != used.slots.end() ? ours->second.claim.empty() : !used.view->taken.contains(slot))
      return slot;
  }
  return std::nullopt;
}

std::optional<ledger::PermitSource::Permit> SlotStore::NotAsked(const std::string& semaphore,
                                                                absl::Status why, bool waits) {
  // A request that waits is served when the broker answers again; one that does not must fail with
  // `why`, not with kFull.
  if (!waits) not_asked_[semaphore] = std::move(why);
  return std::nullopt;
}

std::optional<ledger::PermitSource::Permit> SlotStore::Take(const std::string& semaphore,
                                                            const Id& claim, bool waits) {
  Used* used = Find(semaphore);
  if (used == nullptr || used->row.destroying) return std::nullopt;
  if (absl::Status status = Ready(); !status.ok())
    return NotAsked(semaphore, std::move(status), waits);
  for (int attempt = 0; attempt < kRacesMax; ++attempt) {
    absl::StatusOr<const SlotView*> view = See(semaphore, used, /*wide=*/false);
    if (!view.ok()) return NotAsked(semaphore, view.status(), waits);
    const std::optional<uint32_t> slot = LowestFree(*used);
    if (!slot) return std::nullopt;
    auto ours = used->slots.find(*slot);
    if (ours == used->slots.end()) {
      absl::StatusOr<SlotBroker::Attempt> tried = broker_.TryTake(Full(semaphore), *slot);
      if (!tried.ok()) return NotAsked(semaphore, tried.status(), waits);
      if (*tried != SlotBroker::Attempt::kTaken) {
        // Others have changed it since it was looked at: not all of them again at the same moment.
        used->view.reset();
        std::this_thread::sleep_for(milliseconds(random_() % kRaceSkew.count()));
        continue;
      }
      used->view->taken.insert(*slot);
      ours = used->slots.try_emplace(*slot).first;
      ours->second.check_every = kCheckFirst;
      ours->second.check_at = SteadyClock::now() + kCheckFirst;
    } else {
      absl::StatusOr<bool> still = StillOurs(semaphore, used, *slot);
      if (!still.ok()) return NotAsked(semaphore, still.status(), waits);
      if (!*still) continue;
    }
    ours->second.claim = claim;
    used->held[claim] = *slot;
    used->pause = milliseconds(0);
    taken_.emplace_back(semaphore, claim);
    return Permit{*slot, 0};
  }
  RetryAfter(used, kPauseMin);
  return std::nullopt;
}

void SlotStore::Free(const std::string& name, Used* used, uint32_t slot) {
  if (!holding_->is_open()) return;
  const absl::Status status = broker_.Free(Full(name), slot);
  if (absl::IsNotFound(status)) {
    LoseSlot(name, used, slot);
    return;
  }
  if (!status.ok()) {
    upkeep_->Failed(UpkeepWork::kPermits, status);
    // It is still ours: another claim of ours may have it, or freeing it is tried again.
    if (holding_->is_open()) used->slots[slot] = {{}, SteadyClock::now() + kOfferFor, kPassedOnMax};
    return;
  }
  used->slots.erase(slot);
  if (used->view) used->view->taken.erase(slot);
}

// To our next waiter; otherwise, or when it has gone round among our claims for long, to all.
void SlotStore::GiveBack(const std::string& name, Used* used, const Id& claim) {
  const auto held = used->held.find(claim);
  if (held == used->held.end()) return;
  const uint32_t slot = held->second;
  used->held.erase(held);
  Slot& mine = used->slots[slot];
  mine.claim = {};
  const size_t offers = used->slots.size() - used->held.size();
  const bool wanted = offers <= used->waiting && slot <= used->row.limit && !used->row.destroying;
  if (wanted && mine.passed_on < kPassedOnMax) {
    ++mine.passed_on;
    mine.offer_ends = SteadyClock::now() + kOfferFor;
    used->offered = true;
    return;
  }
  Free(name, used, slot);
  // The others have their chance first.
  if (wanted) RetryAfter(used, kPauseMin);
}

// Those that a transaction grants are good; without one, none is.
void SlotStore::GiveBackUncommitted(const Transaction* transaction) {
  if (taken_.empty()) return;
  std::set<Id> granted;
  if (transaction != nullptr) {
    for (const SemaphoreDelta& delta : transaction->semaphores) {
      for (const LeaseChange& change : delta.leases) {
        if (change.after && !change.before) granted.insert(change.after->id);
      }
    }
  }
  for (const auto& [name, claim] : std::exchange(taken_, {})) {
    if (granted.contains(claim)) continue;
    if (Used* used = Find(name)) GiveBack(name, used, claim);
  }
}

void SlotStore::CarryOut(const SemaphoreDelta& delta) {
  Used* used = Find(delta.name);
  if (used == nullptr) return;
  const uint32_t waited = used->waiting;
  for (const WaiterChange& change : delta.waiters) {
    if (change.before) --used->waiting;
    if (change.after) ++used->waiting;
  }
  for (const LeaseChange& change : delta.leases) {
    if (change.before && !change.after) GiveBack(delta.name, used, change.before->id);
  }
  if (used->waiting > waited) RetryAfter(used, kPauseMin);
  if (!delta.after) Unload(delta.name);
}

// ---- waiters ----

// Where all slots are ours, no other connection can make room.
bool SlotStore::MayRetry(const Used& used) const {
  return used.waiting > 0 && !used.row.destroying && used.held.size() < used.row.limit;
}

void SlotStore::RetryAfter(Used* used, milliseconds pause) {
  used->pause = pause;
  const auto skew = static_cast<int64_t>(random_() % static_cast<uint64_t>(pause.count()));
  used->retry_at = SteadyClock::now() + pause / 2 + milliseconds(skew);
}

void SlotStore::EndOffers(const std::string& name, Used* used, SteadyTime now) {
  std::vector<uint32_t> ended;
  for (const auto& [slot, mine] : used->slots) {
    if (mine.claim.empty() && (used->waiting == 0 || mine.offer_ends <= now)) ended.push_back(slot);
  }
  for (const uint32_t slot : ended) Free(name, used, slot);
}

// What the ledger is to look at now.
void SlotStore::TakeDue(std::vector<ledger::ChangeNotice>* notices) {
  const SteadyTime now = SteadyClock::now();
  for (auto& [name, used] : used_) {
    EndOffers(name, &used, now);
    const bool due = MayRetry(used) && used.retry_at <= now;
    if (!used.offered && !due) continue;
    used.offered = false;
    notices->push_back({name, 0, ""});
    if (due) RetryAfter(&used, std::clamp(used.pause * 3 / 2, kPauseMin, kPauseMax));
  }
}

SteadyTime SlotStore::NextDue() const {
  SteadyTime next = SteadyTime::max();
  for (const auto& [name, used] : used_) {
    if (used.offered) return SteadyTime::min();
    if (MayRetry(used)) next = std::min(next, used.retry_at);
    for (const auto& [slot, mine] : used.slots) {
      if (mine.claim.empty()) next = std::min(next, mine.offer_ends);
      next = std::min(next, mine.check_at);
    }
  }
  return next;
}

absl::StatusOr<std::vector<ledger::ChangeNotice>> SlotStore::Wait(SteadyTime deadline) {
  std::vector<ledger::ChangeNotice> notices;
  if (!lost_.empty()) return notices;
  if (absl::Status status = Ready(Taken::kLost); !status.ok()) {
    if (!lost_.empty()) return notices;  // Lost permits are reported before the error.
    return status;
  }
  // We live for the broker if it has answered a call; it is asked when none was made for a while.
  const milliseconds ask_every = AskEvery(holding_->url());
  if (SteadyClock::now() >= holding_->answered_at() + ask_every) {
    absl::StatusOr<Channel> channel = holding_->OpenChannel();
    if (channel.ok()) holding_->CloseChannel(*channel).IgnoreError();
  }
  GiveBackUncommitted(nullptr);
  CheckDue();
  if (!lost_.empty()) return notices;
  for (auto& [name, used] : used_) used.view.reset();
  TakeDue(&notices);
  if (!notices.empty()) deadline = SteadyTime::min();
  deadline = std::min(deadline, SteadyClock::now() + ask_every);
  // What comes of itself is only the end of channels, which are opened again when they are needed.
  absl::StatusOr<std::vector<BrokerEvent>> events = holding_->Wait(std::min(deadline, NextDue()));
  if (!events.ok()) {
    LoseAll();
    if (!lost_.empty()) return notices;
    return events.status();
  }
  if (notices.empty()) TakeDue(&notices);
  return notices;
}

}  // namespace semaphored::rabbitmq
