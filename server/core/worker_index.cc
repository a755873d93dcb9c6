#include "server/core/worker_index.h"

#include <iterator>

#include "absl/strings/match.h"

namespace semaphored {

void WorkerIndex::Add(const Id& session, const Names& names, const Names& prefixes) {
  workers_.insert(session);
  for (const std::string& name : names) by_name_[name].insert(session);
  for (const std::string& prefix : prefixes) by_prefix_[prefix].insert(session);
}

void WorkerIndex::Remove(const Id& session, const Names& names, const Names& prefixes) {
  for (const std::string& name : names) by_name_[name].erase(session);
  for (const std::string& prefix : prefixes) by_prefix_[prefix].erase(session);
  workers_.erase(session);
}

void WorkerIndex::Tidy() {
  for (Index* index : {&by_name_, &by_prefix_}) {
    for (auto entry = index->begin(); entry != index->end();) {
      absl::erase_if(entry->second, [this](const Id& id) { return !workers_.contains(id); });
      entry = entry->second.empty() ? index->erase(entry) : std::next(entry);
    }
  }
}

absl::btree_set<Id> WorkerIndex::WorkingFor(const std::string& semaphore) const {
  absl::btree_set<Id> working;
  if (const auto named = by_name_.find(semaphore); named != by_name_.end()) working = named->second;
  for (const auto& [prefix, sessions] : by_prefix_) {
    if (absl::StartsWith(semaphore, prefix)) working.insert(sessions.begin(), sessions.end());
  }
  return working;
}

absl::btree_set<Id> WorkerIndex::WithPrefix(const std::string& prefix) const {
  const auto found = by_prefix_.find(prefix);
  return found == by_prefix_.end() ? absl::btree_set<Id>() : found->second;
}

}  // namespace semaphored
