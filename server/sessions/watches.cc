#include "server/sessions/watches.h"

#include <map>
#include <utility>

namespace semaphored {
namespace {

// As many as come at once: see Lists.
constexpr uint32_t kSnapshotRows = 1000;

}  // namespace

uint64_t Watches::Add(std::string prefix, std::string name, WatchListener* listener) {
  Entry entry;
  entry.listener = listener;
  entry.snapshot.next.prefix = name.empty() ? prefix : name;
  entry.snapshot.next.rows_max = name.empty() ? kSnapshotRows : 1;
  entry.snapshot.name = name;
  entry.watch = names_->Add(std::move(prefix), std::move(name));
  const uint64_t id = entry.watch.id();
  watches_[id] = std::move(entry);
  return id;
}

Watches::Snapshot* Watches::FindSnapshot(uint64_t id) {
  const auto found = watches_.find(id);
  return found == watches_.end() ? nullptr : &found->second.snapshot;
}

WatchListener* Watches::Find(uint64_t id) const {
  const auto found = watches_.find(id);
  return found == watches_.end() ? nullptr : found->second.listener;
}

void Watches::Tell(const SemaphoreChange& change) const {
  for (const uint64_t id : names_->MatchesOf(change.info.row.name)) {
    if (WatchListener* listener = Find(id)) listener->OnChange(change);
  }
}

std::vector<WatchListener*> Watches::TakeAll() {
  std::map<uint64_t, WatchListener*> ordered;
  for (const auto& [id, entry] : std::exchange(watches_, {})) ordered[id] = entry.listener;
  std::vector<WatchListener*> listeners;
  listeners.reserve(ordered.size());
  for (const auto& [id, listener] : ordered) listeners.push_back(listener);
  return listeners;
}

}  // namespace semaphored
