#include "server/sessions/worker_index.h"

#include <algorithm>
#include <iterator>

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
  // All prefixes of the semaphore that are still to be found are prefixes of `rest`. The last key
  // that is not after `rest` is the longest of them, or they are prefixes of that key, too.
  std::string rest = semaphore;
  for (auto after = by_prefix_.upper_bound(rest); after != by_prefix_.begin();
       after = by_prefix_.upper_bound(rest)) {
    const auto& [prefix, sessions] = *std::prev(after);
    const auto differs = std::ranges::mismatch(rest, prefix).in1;
    auto common = static_cast<size_t>(differs - rest.begin());
    if (common == prefix.size()) {
      working.insert(sessions.begin(), sessions.end());
      if (common == 0) break;
      --common;
    }
    rest.resize(common);
  }
  return working;
}

absl::btree_set<Id> WorkerIndex::WithPrefix(const std::string& prefix) const {
  const auto found = by_prefix_.find(prefix);
  return found == by_prefix_.end() ? absl::btree_set<Id>() : found->second;
}

}  // namespace semaphored
