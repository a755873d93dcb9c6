#include "server/sessions/drains.h"

#include <utility>

namespace semaphored {

void Drains::Add(const Id& id, Drain drain) {
  by_semaphore_[drain.semaphore].insert(id);
  drains_[id] = std::move(drain);
}

std::optional<Drains::Drain> Drains::Take(const Id& id) {
  const auto found = drains_.find(id);
  if (found == drains_.end()) return std::nullopt;
  Drain drain = std::move(found->second);
  drains_.erase(found);
  const auto place = by_semaphore_.find(drain.semaphore);
  place->second.erase(id);
  if (place->second.empty()) by_semaphore_.erase(place);
  return drain;
}

std::vector<Drains::Drain> Drains::TakeDone(const SemaphoreChange& change) {
  const bool gone = change.kind == SemaphoreChange::Kind::kDestroyed;
  std::vector<Drain> done;
  const auto place = by_semaphore_.find(change.info.row.name);
  if (place == by_semaphore_.end()) return done;
  const absl::btree_set<Id> waiting = place->second;
  for (const Id& id : waiting) {
    if (gone || drains_.at(id).IsDoneAt(change.info.held)) done.push_back(*Take(id));
  }
  return done;
}

std::vector<Drains::Drain> Drains::TakeAll() {
  std::vector<Drain> all;
  all.reserve(drains_.size());
  for (auto& [id, drain] : std::exchange(drains_, {})) all.push_back(std::move(drain));
  by_semaphore_.clear();
  return all;
}

}  // namespace semaphored
