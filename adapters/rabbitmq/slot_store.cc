#include "adapters/rabbitmq/slot_store.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace semaphored::rabbitmq {

using ledger::CommitResult;
using ledger::Failed;
using ledger::Image;
using ledger::SemaphoreDelta;
using ledger::Transaction;
using std::chrono::milliseconds;

namespace {

// Before 4.1.8 and 4.2.3 the end of a connection that was just declaring a B queue can delete another one's of
// that name (rabbitmq-server#15276), within milliseconds of its declaration: one that is new is
// looked at soon, and then ever more rarely.
constexpr milliseconds kCheckEveryMax{5000};
constexpr int kChecksAtOnce = 32;

}  // namespace

SlotStore::SlotStore(std::unique_ptr<Connection> holding, std::unique_ptr<Connection> probing,
                     std::string prefix, const Guarantees& guarantees,
                     std::shared_ptr<Upkeep> upkeep)
    : holding_(std::move(holding)),
      probing_(std::move(probing)),
      prefix_(std::move(prefix)),
      guarantees_(guarantees),
      upkeep_(std::move(upkeep)),
      broker_(holding_.get(), probing_.get(), upkeep_) {}

// ---- the connection ----

absl::Status SlotStore::Ready(Taken taken) {
  if (holding_->is_open() && holding_->life() == life_) return absl::OkStatus();
  if (taken == Taken::kKept && !taken_.empty())
    return absl::UnavailableError("rabbitmq: the connection broke; try again");
  LoseAll();
  if (absl::Status status = holding_->Open(); !status.ok()) return status;
  life_ = holding_->life();
  return absl::OkStatus();
}

void SlotStore::Lose(const std::string& name, Used* used) {
  for (const auto& [claim, slot] : used->held) lost_.push_back({name, claim});
  used->held.clear();
  used->slots.clear();
  used->view.reset();
}

void SlotStore::LoseAll() {
  for (auto& [name, used] : used_) Lose(name, &used);
}

void SlotStore::LoseVanished(const std::string& name, Used* used) {
  for (auto at = used->slots.begin(); at != used->slots.end();) {
    const auto& [slot, mine] = *at;
    if (slot > used->view->looked || used->view->taken.contains(slot)) {
      ++at;
      continue;
    }
    const uint32_t vanished = slot;
    ++at;
    LoseSlot(name, used, vanished);
  }
}

void SlotStore::LoseSlot(const std::string& name, Used* used, uint32_t slot) {
  const Id claim = used->slots[slot].claim;
  used->slots.erase(slot);
  spdlog::warn("rabbitmq: the queue {} is not ours any more: the broker has deleted it",
               HolderQueue(Full(name), slot));
  if (claim.empty()) return;
  lost_.push_back({name, claim});
  used->held.erase(claim);
}

absl::StatusOr<bool> SlotStore::StillOurs(const std::string& name, Used* used, uint32_t slot) {
  absl::StatusOr<bool> ours = broker_.IsOurs(Full(name), slot);
  if (!ours.ok() || *ours || !holding_->is_open()) return ours;
  LoseSlot(name, used, slot);
  used->view.reset();
  return false;
}

void SlotStore::CheckDue() {
  const SteadyTime now = SteadyClock::now();
  int checks = 0;
  for (auto& [name, used] : used_) {
    for (auto at = used.slots.begin(); at != used.slots.end();) {
      const uint32_t slot = at->first;
      Slot& mine = at->second;
      ++at;
      if (mine.check_at > now) continue;
      if (checks++ == kChecksAtOnce) return;
      absl::StatusOr<bool> ours = StillOurs(name, &used, slot);
      if (!ours.ok()) return upkeep_->Failed(UpkeepWork::kPermits, ours.status());
      if (!*ours) continue;
      mine.check_every = std::min(2 * mine.check_every, kCheckEveryMax);
      mine.check_at = now + mine.check_every;
    }
  }
}

std::vector<LostPermit> SlotStore::TakeLostPermits() {
  if (!holding_->is_open()) LoseAll();
  return std::exchange(lost_, {});
}

// ---- rows ----

SlotStore::Used* SlotStore::Find(const std::string& name) {
  const auto found = used_.find(name);
  return found == used_.end() ? nullptr : &found->second;
}

absl::StatusOr<const SlotView*> SlotStore::See(const std::string& name, Used* used, bool wide) {
  const uint32_t to =
      wide ? std::max(used->row.limit, used->highest) + kOvershoot : used->row.limit + 1;
  if (used->view && used->view->looked >= to) return &*used->view;
  absl::StatusOr<SlotView> view = broker_.Look(Full(name), to, wide ? kOvershoot : 0);
  if (!view.ok()) return view.status();
  used->view = *std::move(view);
  used->highest = std::max(used->highest, used->view->size);
  // Where something goes on it is worth to look again soon.
  if (used->view->taken != used->last_taken) used->pause = milliseconds(0);
  used->last_taken = used->view->taken;
  return &*used->view;
}

void SlotStore::SetLimit(Used* used, uint32_t limit) {
  if (used->row.limit == limit && used->row.revision != 0) return;
  used->row.limit = limit;
  used->row.revision = ++revisions_;
  used->highest = std::max(used->highest, limit);
}

absl::StatusOr<Image> SlotStore::Load(absl::Span<const std::string> names) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  Image image;
  for (const std::string& name : names) {
    Used fresh;
    Used* known = Find(name);
    Used* used = known == nullptr ? &fresh : known;
    used->view.reset();
    absl::StatusOr<const SlotView*> view = See(name, used, /*wide=*/true);
    if (!view.ok()) {
      if (known == nullptr || !holding_->is_open()) return view.status();
      image.semaphores.emplace_back().row = known->row;
      continue;
    }
    LoseVanished(name, used);
    const uint32_t size = (*view)->size;
    const bool destroying = used->row.destroying;
    // One that others made again is theirs and ours, once our permits of the old one have ended.
    used->row.destroying = size == 0 || (destroying && !used->held.empty());
    if (used->row.destroying != destroying) used->row.revision = ++revisions_;
    used->elsewhere = TakenElsewhere(*used);
    if (size == 0 && used->held.empty() && !destroying) {
      Unload(name);
      continue;
    }
    if (!used->row.destroying) SetLimit(used, size);
    if (known == nullptr) {
      fresh.row.name = name;
      used = &used_.emplace(name, std::move(fresh)).first->second;
    }
    image.semaphores.emplace_back().row = used->row;
  }
  return image;
}

std::string SlotStore::Refuses(const std::string& semaphore, uint32_t limit) const {
  return WhyNoSlots(Full(semaphore), limit);
}

absl::Status SlotStore::Provide(const SemaphoreRow& row) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  bool begun = false;
  absl::Status made = broker_.Create(Full(row.name), row.limit, &begun);
  if (absl::IsAlreadyExists(made)) return absl::OkStatus();
  if (!made.ok()) return made;
  Used& used = used_[row.name];
  used.row.name = row.name;
  used.row.created_at_unix_ms = row.created_at_unix_ms;
  SetLimit(&used, row.limit);
  return absl::OkStatus();
}

bool SlotStore::Unload(const std::string& semaphore) {
  Used* used = Find(semaphore);
  if (used == nullptr) return true;
  if (!used->held.empty()) return false;
  EndOffers(semaphore, used, SteadyTime::max());
  // What could not be freed is kept in the books.
  if (!used->slots.empty()) return false;
  used_.erase(semaphore);
  return true;
}

uint32_t SlotStore::TakenElsewhere(const Used& used) {
  return static_cast<uint32_t>(std::ranges::count_if(
      used.view->taken, [&](uint32_t slot) { return !used.slots.contains(slot); }));
}

absl::StatusOr<uint32_t> SlotStore::HeldElsewhere(const std::string& semaphore) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  Used* used = Find(semaphore);
  if (used == nullptr) return 0;
  absl::StatusOr<const SlotView*> view = See(semaphore, used, /*wide=*/true);
  if (!view.ok() && holding_->is_open() && used->elsewhere) return *used->elsewhere;
  if (!view.ok()) return view.status();
  used->elsewhere = TakenElsewhere(*used);
  return *used->elsewhere;
}

absl::StatusOr<ledger::Pruned> SlotStore::Prune(const std::string& semaphore) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  ledger::Pruned pruned;
  absl::StatusOr<uint32_t> strays = broker_.DeleteStrays(Full(semaphore));
  if (!strays.ok()) return strays.status();
  pruned.removed = *strays;
  Used* used = Find(semaphore);
  if (used == nullptr) return pruned;
  used->view.reset();
  absl::StatusOr<const SlotView*> view = See(semaphore, used, /*wide=*/true);
  if (!view.ok()) return view.status();
  LoseVanished(semaphore, used);
  const std::set<uint32_t> taken = (*view)->taken;
  for (const uint32_t slot : taken) {
    if (used->slots.contains(slot)) continue;
    absl::StatusOr<bool> ours = broker_.IsOurs(Full(semaphore), slot);
    if (!ours.ok()) return ours.status();
    if (!*ours) continue;
    if (absl::Status status = broker_.Free(Full(semaphore), slot); !status.ok()) return status;
    ++pruned.removed;
  }
  used->view.reset();
  return pruned;
}

absl::StatusOr<bool> SlotStore::Check(const std::string& semaphore, const Id& claim) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  Used* used = Find(semaphore);
  if (used == nullptr) return true;
  const auto held = used->held.find(claim);
  if (held == used->held.end()) return true;
  const uint32_t slot = held->second;
  absl::StatusOr<bool> ours = StillOurs(semaphore, used, slot);
  if (!ours.ok() || !*ours) return ours;
  return broker_.HasSlot(Full(semaphore), slot);
}

// ---- commits ----

CommitResult SlotStore::Commit(Transaction& transaction, SteadyTime) {
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    bool begun = false;
    const absl::Status status = Apply(delta, &begun);
    if (status.ok()) continue;
    if (begun && absl::IsUnavailable(status)) {
      act_failed_ = std::string(status.message());
      return {CommitResult::Kind::kUnknown, {}, false, {}, {}};
    }
    GiveBackUncommitted(nullptr);
    if (absl::IsAlreadyExists(status) || absl::IsAborted(status))
      return {CommitResult::Kind::kLost, {delta.name}, false, {}, {}};
    return Failed(status);
  }
  Finish(&transaction);
  return {};
}

// An act is alone in its transaction.
CommitResult SlotStore::Settle(Transaction& transaction, SteadyTime) {
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    bool unknown = false;
    const absl::Status status = ApplyAgain(delta, &unknown);
    if (unknown) return {CommitResult::Kind::kUnknown, {}, false, {}, {}};
    if (status.ok()) continue;
    GiveBackUncommitted(nullptr);
    return Failed(status);
  }
  Finish(&transaction);
  return {};
}

void SlotStore::Finish(Transaction* transaction) {
  GiveBackUncommitted(transaction);
  // From here on it stands: if the connection breaks, all goes back, and is reported as lost.
  for (SemaphoreDelta& delta : transaction->semaphores) {
    CarryOut(delta);
    if (const Used* used = Find(delta.name)) delta.revision = used->row.revision;
  }
  for (auto& [name, used] : used_) used.view.reset();
}

namespace {

// How many slots a row stands for.
uint32_t SlotsOf(const std::optional<SemaphoreRow>& row) {
  return row && !row->destroying ? row->limit : 0;
}

}  // namespace

// What of a row the broker has to know.
absl::Status SlotStore::Apply(const SemaphoreDelta& delta, bool* begun) {
  const uint32_t from = Find(delta.name) == nullptr ? 0 : SlotsOf(delta.before);
  const uint32_t to = SlotsOf(delta.after);
  if (from == to) return absl::OkStatus();
  if (absl::Status status = Ready(Taken::kLost); !status.ok()) return status;
  if (absl::Status status = Act(delta.name, from, to, begun); !status.ok()) return status;
  Keep(delta, from, to);
  return absl::OkStatus();
}

absl::Status SlotStore::Act(const std::string& name, uint32_t from, uint32_t to, bool* begun) {
  if (to == 0) return broker_.Destroy(Full(name), begun);
  if (from == 0) return broker_.Create(Full(name), to, begun);
  return broker_.Resize(Full(name), from, to, begun);
}

void SlotStore::Keep(const SemaphoreDelta& delta, uint32_t from, uint32_t to) {
  Used& used = used_[delta.name];
  if (to == 0) {
    used.row.destroying = true;
    used.row.revision = ++revisions_;
    used.elsewhere.reset();
    return;
  }
  if (from == 0) {
    used.row.name = delta.name;
    used.row.created_at_unix_ms = delta.after->created_at_unix_ms;
    used.row.destroying = false;
  }
  SetLimit(&used, to);
}

// The connection of the first try has ended when its mutex is free: nothing of it comes after.
absl::Status SlotStore::ApplyAgain(const SemaphoreDelta& delta, bool* unknown) {
  const uint32_t from = SlotsOf(delta.before);
  const uint32_t to = SlotsOf(delta.after);
  if (from == to) return absl::OkStatus();
  absl::Status status = Ready(Taken::kLost);
  if (status.ok()) {
    absl::StatusOr<uint32_t> size = broker_.QuietSize(Full(delta.name));
    status = size.status();
    // Begun, and to be ended: only what removes slots can be done in part.
    if (size.ok() && *size > to && *size < from) {
      bool begun = false;
      status = Act(delta.name, *size, to, &begun);
      if (status.ok()) size = to;
    }
    if (status.ok() && *size != to)
      return absl::UnavailableError(absl::StrCat(act_failed_, "; nothing was done, try again"));
  }
  *unknown = absl::IsUnavailable(status) || absl::IsAborted(status);
  if (status.ok()) Keep(delta, from, to);
  return status;
}

}  // namespace semaphored::rabbitmq
