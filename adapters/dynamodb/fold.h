// A batch may change a row several times; a transaction of DynamoDB writes an item once.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "adapters/types.h"

namespace semaphored::dynamodb {

// All changes of a row in a batch as one: from what it was to what it is.
template <typename Row>
struct Folded {
  Row before;
  Row after;
};

// In the order in which each was first spoken of. A row that came and went is {nullptr, nullptr}.
template <typename Row, typename Change>
std::vector<Folded<Row>> Fold(const std::vector<Change>& changes) {
  std::vector<Folded<Row>> folded;
  absl::flat_hash_map<Id, size_t> places;
  for (const Change& change : changes) {
    const Id& id = (change.before ? change.before : change.after)->id;
    const auto [at, is_new] = places.try_emplace(id, folded.size());
    if (is_new) folded.push_back({change.before, nullptr});
    folded[at->second].after = change.after;
  }
  return folded;
}

}  // namespace semaphored::dynamodb
