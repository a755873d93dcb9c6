#include "server/sessions/worker.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"

namespace semaphored {
namespace {

constexpr size_t kTogetherMax = 256;

}  // namespace

Worker::Worker(const WorkParams& params, Actions actions)
    : names_(params.semaphores),
      prefixes_(params.prefixes),
      hands_(params.tickets_max),
      actions_(std::move(actions)) {
  for (const std::string& name : names_) places_[name].named = true;
}

bool Worker::WorksFor(const std::string& semaphore) const {
  return std::ranges::count(names_, semaphore) > 0 ||
         std::ranges::any_of(prefixes_, [&](const std::string& prefix) {
           return absl::StartsWith(semaphore, prefix);
         });
}

// ---- Offers ----

Worker::Place* Worker::TakeOut(const Id& claim) {
  const auto found = offers_.find(claim);
  if (found == offers_.end()) return nullptr;
  const Offered offered = std::move(found->second);
  offers_.erase(found);
  if (offered.stage == Stage::kWithdrawn) return nullptr;
  Place& place = places_[offered.semaphore];
  if (offered.stage == Stage::kAsked) {
    --asked_;
    place.asked.erase(claim);
  } else {
    place.standing.erase(claim);
  }
  return &place;
}

bool Worker::OnStanding(const Id& claim) {
  const auto found = offers_.find(claim);
  if (found == offers_.end() || found->second.stage == Stage::kWithdrawn) return false;
  if (found->second.stage == Stage::kStanding) return true;
  found->second.stage = Stage::kStanding;
  Place& place = places_[found->second.semaphore];
  place.asked.erase(claim);
  place.standing.insert(claim);
  --asked_;
  together_ = std::min(together_ + 1, kTogetherMax);
  return true;
}

bool Worker::OnTaken(const Id& claim) {
  const auto found = offers_.find(claim);
  // There is work: only what hands are free for is asked.
  if (found != offers_.end() && found->second.stage == Stage::kAsked) together_ = 1;
  TakeOut(claim);
  if (in_hand_.contains(claim)) return true;
  if (free_hands() == 0) return false;
  in_hand_.insert(claim);
  return true;
}

void Worker::OnNothing(const Id& claim) {
  together_ = std::min(together_ + 1, kTogetherMax);
  if (Place* place = TakeOut(claim)) {
    place->found = false;
    place->failed = place->named;  // Not to be expected: its offers are kept.
  }
}

void Worker::OnFailed(const Id& claim) {
  if (Place* place = TakeOut(claim)) {
    place->failed = true;
    place->found = false;
  }
}

void Worker::OnGone(const Id& claim) {
  in_hand_.erase(claim);
  TakeOut(claim);
}

// ---- Semaphores ----

void Worker::OnTickets(const std::string& semaphore, bool there_are) {
  if (const auto place = places_.find(semaphore); place != places_.end()) {
    place->second.found = there_are;
    if (there_are) place->second.failed = false;
  } else if (there_are) {
    AddIdle(semaphore);
  } else {
    idle_.erase(semaphore);
  }
}

void Worker::AddIdle(const std::string& semaphore) {
  idle_.insert(semaphore);
  if (idle_.size() <= kIdleMax) return;
  // The last in turn goes.
  const auto first = idle_.upper_bound(turn_);
  idle_.erase(std::prev(first == idle_.begin() ? idle_.end() : first));
  found_more_ = true;
}

void Worker::Sweep() {
  for (auto& [name, place] : places_) place.failed = false;
  std::vector<std::pair<std::string, Id>> again;
  for (const auto& [claim, offered] : offers_) {
    if (offered.stage == Stage::kWithdrawn) again.emplace_back(offered.semaphore, claim);
  }
  std::ranges::sort(again);
  for (const auto& [semaphore, claim] : again) actions_.withdraw(semaphore, claim);
}

// ---- Making and withdrawing ----

size_t Worker::Wanted(const Place& place) const {
  if (!place.named && !place.found) return 0;
  return std::min(free_hands(), kOffersPerSemaphore);
}

void Worker::Withdraw(const std::string& semaphore, Place* place, size_t keep) {
  while (!place->standing.empty() && place->offers() > keep) {
    const Id claim = *place->standing.rbegin();
    place->standing.erase(claim);
    offers_[claim].stage = Stage::kWithdrawn;
    actions_.withdraw(semaphore, claim);
  }
}

void Worker::AskAt(const std::string& semaphore, Place* place) {
  const Id claim =
      actions_.offer(semaphore, place->named ? OfferKept::kAlways : OfferKept::kWhileTickets);
  if (claim.empty()) {
    place->failed = true;
    return;
  }
  place->asked.insert(claim);
  offers_[claim] = {semaphore, Stage::kAsked};
  ++asked_;
}

std::string Worker::NextLacking() const {
  const auto lacks = [this](const auto& entry) { return Lacks(entry.second); };
  const auto after = places_.upper_bound(turn_);
  auto place = std::find_if(after, places_.end(), lacks);
  if (place == places_.end()) place = std::find_if(places_.begin(), after, lacks);
  const bool lacking = place != places_.end() && Lacks(place->second);
  if (idle_.empty()) return lacking ? place->first : "";
  auto idle = idle_.upper_bound(turn_);
  if (idle == idle_.end()) idle = idle_.begin();
  if (!lacking) return *idle;
  // What is not after `turn_` comes in the next round.
  const auto in_turn = [this](const std::string& name) { return std::pair(name <= turn_, name); };
  return std::min(in_turn(place->first), in_turn(*idle)).second;
}

void Worker::Fill() {
  for (auto place = places_.begin(); place != places_.end();) {
    Withdraw(place->first, &place->second, Wanted(place->second));
    if (place->second.named || place->second.offers() > 0) {
      ++place;
      continue;
    }
    if (place->second.found && !place->second.failed) AddIdle(place->first);
    place = places_.erase(place);
  }
  if (free_hands() == 0) return;
  while (asked_ < std::max(free_hands(), together_) && offers_.size() < kOffersMax) {
    const std::string semaphore = NextLacking();
    if (semaphore.empty()) return;
    turn_ = semaphore;
    Place& place = places_[semaphore];
    if (idle_.erase(semaphore) > 0) place.found = true;
    AskAt(semaphore, &place);
  }
}

}  // namespace semaphored
