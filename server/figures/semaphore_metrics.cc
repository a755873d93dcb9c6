#include "server/figures/semaphore_metrics.h"

#include <algorithm>
#include <utility>

namespace semaphored {

// What one semaphore, or the rest, is counted in.
struct FigurePlace {
  std::string semaphore;
  SemaphoreFigures figures;
  ClaimFigures* first_waiter = nullptr;
  ClaimFigures* last_waiter = nullptr;
  SteadyTime used_at = SteadyTime::min();  // min(): only seen in a list.

  bool in_use() const { return figures.leases > 0 || figures.waiters > 0; }
};

namespace {

constexpr Milliseconds kIdle{600'000};
constexpr Milliseconds kLookEvery{10'000};

using Stage = ClaimFigures::Stage;

uint64_t Microseconds(SteadyTime::duration duration) {
  const auto count = std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
  return count > 0 ? static_cast<uint64_t>(count) : 0;
}

EngineSemaphoreFigures FiguresOf(const SemaphoreInfo& info) {
  EngineSemaphoreFigures figures;
  figures.limit = info.row.limit;
  figures.held_permits = info.held;
  figures.waiters = info.waiting;
  figures.tickets_queued = info.tickets.queued;
  figures.tickets_delayed = info.tickets.delayed;
  figures.tickets_assigned = info.tickets.assigned;
  figures.dead_letters = info.tickets.dead;
  return figures;
}

}  // namespace

EngineSemaphoreFigures& EngineSemaphoreFigures::operator+=(const EngineSemaphoreFigures& more) {
  limit += more.limit;
  held_permits += more.held_permits;
  waiters += more.waiters;
  tickets_queued += more.tickets_queued;
  tickets_delayed += more.tickets_delayed;
  tickets_assigned += more.tickets_assigned;
  dead_letters += more.dead_letters;
  return *this;
}

SemaphoreMetrics::SemaphoreMetrics(const Clock* clock, size_t semaphores_max,
                                   ForEachClaim for_each_claim)
    : clock_(clock),
      semaphores_max_(semaphores_max),
      for_each_claim_(std::move(for_each_claim)),
      rest_(std::make_unique<FigurePlace>()) {}

SemaphoreMetrics::~SemaphoreMetrics() = default;

// ---- places ----

FigurePlace* SemaphoreMetrics::Find(const std::string& semaphore) {
  const auto found = places_.find(semaphore);
  return found == places_.end() ? nullptr : found->second.get();
}

FigurePlace* SemaphoreMetrics::Make(const std::string& semaphore) {
  auto& place = places_[semaphore];
  place = std::make_unique<FigurePlace>();
  place->semaphore = semaphore;
  return place.get();
}

FigurePlace* SemaphoreMetrics::PlaceOf(const std::string& semaphore) {
  FigurePlace* place = Find(semaphore);
  if (place == nullptr && places_.size() < semaphores_max_) {
    // What it may have in the rest stays there until it ends, as only GiveToWanting looks for it;
    // there is a rest only after all places were taken.
    if (rest_->in_use()) {
      Want(semaphore, 1);
    } else {
      place = Make(semaphore);
    }
  } else if (place == nullptr) {
    Want(semaphore, 1);
  }
  return place != nullptr ? place : rest_.get();
}

void SemaphoreMetrics::Want(const std::string& semaphore, uint64_t how_much) {
  const auto found = wanting_.find(semaphore);
  if (found != wanting_.end()) {
    found->second += how_much;
  } else if (wanting_.size() < semaphores_max_) {
    wanting_.emplace(semaphore, how_much);
  }
}

void SemaphoreMetrics::GiveUp(FigurePlace* place) {
  const std::string semaphore = place->semaphore;  // The key must not lie in what is erased.
  places_.erase(semaphore);
}

void SemaphoreMetrics::GiveToWanting() {
  const SteadyTime now = Now();
  if (wanting_.empty() || now - looked_at_ < kLookEvery) return;
  looked_at_ = now;
  std::vector<std::pair<uint64_t, std::string>> wanting;
  for (auto& [semaphore, uses] : wanting_) wanting.emplace_back(uses, semaphore);
  wanting_.clear();
  std::ranges::sort(wanting, std::greater<>());
  std::vector<FigurePlace*> idle;
  for (const auto& [semaphore, place] : places_) {
    const bool never = place->used_at == SteadyTime::min();
    if (!place->in_use() && (never || now - place->used_at >= kIdle)) idle.push_back(place.get());
  }
  std::ranges::sort(idle, {}, [](const FigurePlace* place) {
    return std::pair<SteadyTime, std::string>(place->used_at, place->semaphore);
  });
  size_t given = 0;
  for (const auto& [uses, semaphore] : wanting) {
    if (places_.size() >= semaphores_max_) {
      if (given == idle.size()) break;
      GiveUp(idle[given]);
    }
    ++given;
    Make(semaphore)->used_at = now;
  }
  if (given == 0 || !rest_->in_use()) return;
  for_each_claim_([this](const std::string& semaphore, ClaimFigures* claim) {
    if (claim->place != rest_.get()) return;
    FigurePlace* place = Find(semaphore);
    if (place == nullptr) return;
    Leave(claim);
    Enter(place, claim);
  });
}

// ---- claims ----

// By age: a claim that comes later stands behind, unless it was moved here.
void SemaphoreMetrics::Link(ClaimFigures* claim) {
  FigurePlace* place = claim->place;
  ClaimFigures* before = place->last_waiter;
  while (before != nullptr && before->since > claim->since) before = before->previous;
  claim->previous = before;
  claim->next = before == nullptr ? place->first_waiter : before->next;
  (before == nullptr ? place->first_waiter : before->next) = claim;
  (claim->next == nullptr ? place->last_waiter : claim->next->previous) = claim;
}

void SemaphoreMetrics::Unlink(ClaimFigures* claim) {
  FigurePlace* place = claim->place;
  (claim->previous == nullptr ? place->first_waiter : claim->previous->next) = claim->next;
  (claim->next == nullptr ? place->last_waiter : claim->next->previous) = claim->previous;
  claim->previous = claim->next = nullptr;
}

void SemaphoreMetrics::Enter(FigurePlace* place, ClaimFigures* claim) {
  claim->place = place;
  if (claim->stage == Stage::kWaiting) {
    ++place->figures.waiters;
    Link(claim);
  } else if (claim->stage == Stage::kHeld) {
    ++place->figures.leases;
    place->figures.held_permits += claim->permits;
  }
}

void SemaphoreMetrics::Leave(ClaimFigures* claim) {
  if (claim->place == nullptr) return;
  if (claim->stage == Stage::kWaiting) {
    --claim->place->figures.waiters;
    Unlink(claim);
  } else if (claim->stage == Stage::kHeld) {
    --claim->place->figures.leases;
    claim->place->figures.held_permits -= claim->permits;
  }
  claim->place = nullptr;
}

void SemaphoreMetrics::Asked(ClaimFigures* claim) {
  if (!on()) return;
  claim->stage = Stage::kAsked;
  claim->since = Now();
}

void SemaphoreMetrics::Waiting(const std::string& semaphore, ClaimFigures* claim) {
  if (!on() || claim->stage == Stage::kWaiting) return;
  if (claim->stage != Stage::kAsked) claim->since = Now();
  Leave(claim);
  claim->stage = Stage::kWaiting;
  FigurePlace* place = PlaceOf(semaphore);
  place->used_at = claim->since;
  Enter(place, claim);
}

void SemaphoreMetrics::Hold(const std::string& semaphore, ClaimFigures* claim, uint32_t permits) {
  FigurePlace* place = claim->place != nullptr ? claim->place : PlaceOf(semaphore);
  Leave(claim);
  claim->stage = Stage::kHeld;
  claim->permits = permits;
  Enter(place, claim);
}

void SemaphoreMetrics::Granted(const std::string& semaphore, ClaimFigures* claim,
                               uint32_t permits) {
  if (!on()) return;
  if (claim->stage == Stage::kHeld) return Changed(claim, permits);
  const SteadyTime now = Now();
  const bool asked_here = claim->stage != Stage::kNone;
  Hold(semaphore, claim, permits);
  SemaphoreFigures& figures = claim->place->figures;
  claim->place->used_at = now;
  ++figures.grants;
  if (asked_here) figures.wait_us.Observe(kWaitBounds, Microseconds(now - claim->since));
  claim->since = now;
  claim->granted_here = true;
}

void SemaphoreMetrics::Found(const std::string& semaphore, ClaimFigures* claim, uint32_t permits) {
  if (!on()) return;
  if (claim->stage == Stage::kHeld) return Changed(claim, permits);
  Hold(semaphore, claim, permits);
  claim->place->used_at = claim->since = Now();
  claim->granted_here = false;
}

void SemaphoreMetrics::Changed(ClaimFigures* claim, uint32_t permits) {
  if (claim->stage != Stage::kHeld || claim->place == nullptr) return;
  claim->place->figures.held_permits += permits;
  claim->place->figures.held_permits -= claim->permits;
  claim->permits = permits;
}

void SemaphoreMetrics::Recalled(ClaimFigures* claim) {
  if (claim->stage == Stage::kHeld && claim->place != nullptr) ++claim->place->figures.recalls;
}

void SemaphoreMetrics::Denied(const std::string& semaphore, ClaimFigures* claim, Reason reason) {
  if (!on()) return;
  FigurePlace* place = claim != nullptr ? claim->place : nullptr;
  if (place == nullptr) place = Find(semaphore);
  const bool exists = reason == Reason::kFull || reason == Reason::kHolderCap ||
                      reason == Reason::kPaused || reason == Reason::kExceedsLimit ||
                      reason == Reason::kLimitMismatch;
  if (place == nullptr) place = exists ? PlaceOf(semaphore) : rest_.get();
  ++place->figures.denials[static_cast<size_t>(reason) % kReasons];
  if (place != rest_.get()) place->used_at = Now();
}

void SemaphoreMetrics::Ended(ClaimFigures* claim, EndCause cause) {
  if (claim->stage != Stage::kHeld || claim->place == nullptr) return;
  SemaphoreFigures& figures = claim->place->figures;
  if (cause == EndCause::kReleased) {
    ++figures.releases;
  } else {
    ++figures.losses[static_cast<size_t>(cause) % kCauses];
  }
  const SteadyTime now = Now();
  claim->place->used_at = now;
  if (claim->granted_here) figures.hold_us.Observe(kHoldBounds, Microseconds(now - claim->since));
  Forget(claim);
}

void SemaphoreMetrics::Forget(ClaimFigures* claim) {
  Leave(claim);
  claim->stage = Stage::kNone;
}

void SemaphoreMetrics::Destroyed(const std::string& semaphore) {
  FigurePlace* place = Find(semaphore);
  if (place != nullptr && !place->in_use()) GiveUp(place);
}

// ---- what the engine has ----

void SemaphoreMetrics::BeginList() {
  listing_ = Listed{};
  listing_since_ = Now();
}

void SemaphoreMetrics::List(const std::vector<SemaphoreInfo>& infos) {
  listing_.listed += infos.size();
  for (const SemaphoreInfo& info : infos) {
    ListLimits(info);
    const bool in_use = info.held > 0 || info.waiting > 0 || info.tickets.living() > 0;
    FigurePlace* place = Find(info.row.name);
    if (place == nullptr && places_.size() < semaphores_max_ && !rest_->in_use())
      place = Make(info.row.name);
    if (place == nullptr) {
      if (in_use) Want(info.row.name, 1);
      listing_.rest += FiguresOf(info);
      continue;
    }
    if (in_use) place->used_at = Now();
    listing_.by_name[info.row.name] += FiguresOf(info);
  }
}

void SemaphoreMetrics::ListLimits(const SemaphoreInfo& info) {
  listing_.most_waiters = std::max<uint64_t>(listing_.most_waiters, info.waiting);
  listing_.most_tickets = std::max<uint64_t>(listing_.most_tickets, info.tickets.living());
  listing_.most_dead_letters = std::max<uint64_t>(listing_.most_dead_letters, info.tickets.dead);
  if (!info.row.paused) return;
  const auto before = listed_.paused_since.find(info.row.name);
  const SteadyTime since = before == listed_.paused_since.end() ? listing_since_ : before->second;
  listing_.paused_since[info.row.name] = since;
  listing_.oldest_pause = std::min(listing_.oldest_pause, since);
}

void SemaphoreMetrics::EndList(bool complete) {
  listing_.complete = complete;
  listed_ = std::exchange(listing_, {});
  list_begun_at_ = listing_since_;
  if (!complete) return;
  // Destroyed, here or by another daemon.
  std::vector<FigurePlace*> gone;
  for (const auto& [semaphore, place] : places_) {
    const bool since = place->used_at >= listing_since_;
    if (!since && !place->in_use() && !listed_.by_name.contains(semaphore))
      gone.push_back(place.get());
  }
  for (FigurePlace* place : gone) GiveUp(place);
}

void SemaphoreMetrics::Snapshot(SessionsFigures* out) {
  GiveToWanting();
  const SteadyTime now = Now();
  const auto add = [&](const FigurePlace& place) {
    SessionsFigures::Named named;
    named.semaphore = place.semaphore;
    named.here = place.figures;
    if (place.first_waiter != nullptr) {
      named.oldest_waiter_age_ms =
          std::chrono::duration_cast<Milliseconds>(now - place.first_waiter->since).count();
    }
    out->semaphores.push_back(std::move(named));
  };
  for (const auto& [semaphore, place] : places_) add(*place);
  std::ranges::sort(out->semaphores, {}, &SessionsFigures::Named::semaphore);
  add(*rest_);
  if (!list_begun_at_.has_value()) return;
  out->list_age_ms = std::chrono::duration_cast<Milliseconds>(now - *list_begun_at_).count();
  out->listed = listed_.listed;
  out->list_complete = listed_.complete;
  out->most_waiters = listed_.most_waiters;
  out->most_tickets = listed_.most_tickets;
  out->most_dead_letters = listed_.most_dead_letters;
  if (!listed_.paused_since.empty())
    out->oldest_pause_ms =
        std::chrono::duration_cast<Milliseconds>(now - listed_.oldest_pause).count();
  EngineSemaphoreFigures rest = listed_.rest;
  absl::flat_hash_map<std::string, EngineSemaphoreFigures> left = listed_.by_name;
  for (SessionsFigures::Named& named : out->semaphores) {
    const auto found = left.find(named.semaphore);
    if (named.semaphore.empty() || found == left.end()) continue;
    named.engine = found->second;
    left.erase(found);
  }
  // Those that have lost their place since.
  for (const auto& [semaphore, engine] : left) rest += engine;
  out->semaphores.back().engine = rest;
}

}  // namespace semaphored
