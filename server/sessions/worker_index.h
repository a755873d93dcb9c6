// The sessions that work, and what each works for. Single-threaded (the reactor's).
#pragma once

#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "adapters/types.h"

namespace semaphored {

class WorkerIndex {
 public:
  using Names = std::vector<std::string>;

  void Add(const Id& session, const Names& names, const Names& prefixes);
  // The session works no more. `names`, `prefixes`: what it was added with.
  void Remove(const Id& session, const Names& names, const Names& prefixes);
  // The same, where it is not known what it was added with: Tidy removes that.
  void Remove(const Id& session) { workers_.erase(session); }
  // Goes through what the sessions work for, and removes what none works for any more.
  void Tidy();

  bool empty() const { return workers_.empty(); }
  const absl::btree_set<Id>& sessions() const { return workers_; }
  // Those that work for the semaphore, by its name or by a prefix.
  absl::btree_set<Id> WorkingFor(const std::string& semaphore) const;
  // Those that work for exactly this prefix.
  absl::btree_set<Id> WithPrefix(const std::string& prefix) const;

 private:
  using Index = absl::btree_map<std::string, absl::btree_set<Id>>;

  absl::btree_set<Id> workers_;
  Index by_name_;
  Index by_prefix_;
};

}  // namespace semaphored
