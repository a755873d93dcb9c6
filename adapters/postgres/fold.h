// What a batch did to each row, however often it did something.
#pragma once

#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "adapters/ledger/state/transaction.h"

namespace semaphored::postgres {

// All changes of one row in a batch, as one: from what it was to what it is.
template <typename Row, typename Change>
struct Folded {
  Row before;
  Row after;
  EndCause cause = EndCause::kNone;
  Row last;                                       // As it was when it ended.
  std::vector<std::pair<Slots, EndCause>> parts;  // Given back while the rest stayed.
};
using FoldedLease = Folded<LeasePtr, ledger::LeaseChange>;

inline const Id& IdOf(const ledger::LeaseChange& change) {
  return (change.before ? change.before : change.after)->id;
}
inline const Id& IdOf(const ledger::WaiterChange& change) {
  return (change.before ? change.before : change.after)->id;
}
inline const Id& IdOf(const ledger::SessionChange& change) {
  return (change.before ? change.before : change.after)->id;
}

// In the order in which each was first spoken of.
template <typename Row, typename Change>
std::vector<Folded<Row, Change>> Fold(const std::vector<Change>& changes) {
  std::vector<Folded<Row, Change>> folded;
  absl::flat_hash_map<Id, size_t> places;
  for (const Change& change : changes) {
    const auto [at, is_new] = places.try_emplace(IdOf(change), folded.size());
    if (is_new) folded.push_back({change.before, nullptr, EndCause::kNone, nullptr, {}});
    Folded<Row, Change>& row = folded[at->second];
    if constexpr (std::is_same_v<Change, ledger::LeaseChange>) {
      row.cause = change.cause;
      if (!change.after) row.last = change.before;
      if (change.before && change.after &&
          change.after->slots.size() < change.before->slots.size()) {
        row.parts.emplace_back(change.before->slots.Without(change.after->slots),
                               EndCause::kReleased);
      }
    }
    row.after = change.after;
  }
  return folded;
}

}  // namespace semaphored::postgres
