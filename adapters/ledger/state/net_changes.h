// A batch may change a row several times; a store writes it once.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "adapters/ledger/state/state.h"

namespace semaphored::ledger {

// All changes of a row in a batch as one: from what it was to what it is. Both are nullptr for a row
// that came and went.
template <typename Change>
struct NetChange {
  Id id;
  decltype(Change::before) before;
  decltype(Change::after) after;
  // In the order in which they happened; at least one. They are the batch's own.
  std::vector<const Change*> steps;
};

// In the order in which each row was first changed.
template <typename Change>
std::vector<NetChange<Change>> NetChanges(const std::vector<Change>& changes) {
  std::vector<NetChange<Change>> net;
  absl::flat_hash_map<Id, size_t> positions;
  for (const Change& change : changes) {
    const Id& id = (change.before ? change.before : change.after)->id;
    const auto [at, is_new] = positions.try_emplace(id, net.size());
    if (is_new) net.push_back({id, change.before, nullptr, {}});
    net[at->second].after = change.after;
    net[at->second].steps.push_back(&change);
  }
  return net;
}

}  // namespace semaphored::ledger
