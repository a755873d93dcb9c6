// All that the daemons know of one semaphore: what stands in one key of Consul, but for tickets and
// most of a long queue (format.h). It changes in every commit that touches the semaphore, so its
// ModifyIndex is the condition of the next one, and what a commit gives (tokens, its revision)
// follows from the index at which it landed: it need not be written before it is known.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "adapters/ledger/state/request.h"
#include "adapters/types.h"

namespace semaphored::consul {

// A token: the index of the commit that granted, then the place of the grant among those of the
// commit, which share the index.
inline constexpr int kTokenOrdinalBits = 16;
inline uint64_t TokenOf(uint64_t index, uint64_t ordinal) {
  return (index << kTokenOrdinalBits) | ordinal;
}

// The places of one lease, where permits end with a daemon: whose check their sessions hang on.
struct BoundPlaces {
  NodeRef host;
  std::vector<std::string> sessions;
  friend bool operator==(const BoundPlaces&, const BoundPlaces&) = default;
};

// Waiters who are far from their turn, in a key of their own, which is written once and removed
// when all have gone: so no commit rewrites a long queue. The document says which have gone.
struct Page {
  static constexpr size_t kWaiters = 16;
  uint64_t index = 0;              // Of its key.
  std::vector<WaiterPtr> waiters;  // Also those who have gone. Empty: not read.
  std::vector<uint32_t> gone;      // By their places in `waiters`.

  bool HasGone(size_t i) const { return std::ranges::find(gone, i) != gone.end(); }
  bool empty() const { return gone.size() >= waiters.size(); }
};

struct Document {
  // row.revision is the index at which the key was made, and the number of commits since: a number
  // that the name has never had, also when it was destroyed meanwhile.
  SemaphoreRow row;
  uint64_t changes = 0;
  // Consul's sessions that have a contender's entry in the folder for us. As many as we hold
  // permits, from the front, stand among the holders of the record: a permit passes from lease to
  // lease without any foreign client noticing.
  std::vector<std::string> places;
  // Where permits end with a daemon: which of the places are whose, and those that no lease has. Empty
  // otherwise.
  absl::flat_hash_map<Id, BoundPlaces> bound;
  std::vector<BoundPlaces> spares;
  absl::flat_hash_map<Id, LeasePtr> leases;
  absl::flat_hash_map<Id, WaiterPtr> waiters;  // But for those on pages.
  std::map<uint64_t, Page> pages;              // By number.
  // Tickets have keys of their own, so that no commit rewrites a long queue. So many there are, and
  // these daemons count the delays of some, each named once.
  uint64_t ticket_count = 0;
  std::vector<NodeRef> delays;

  uint32_t Held() const;
  // Where permits end with a daemon: `places` from the other two, those of leases first.
  void ListBoundPlaces();
  // Wherever it stands.
  void RemoveWaiter(const Id& id);
  // Whether `is` holds for one of all the waiters; those after it are not looked at.
  template <typename Is>
  bool AnyWaiter(Is is) const {
    for (const auto& [id, waiter] : waiters) {
      if (is(waiter)) return true;
    }
    for (const auto& [number, page] : pages) {
      for (size_t i = 0; i < page.waiters.size(); ++i) {
        if (!page.HasGone(i) && is(page.waiters[i])) return true;
      }
    }
    return false;
  }
};

// Rows of the requests of one client whose sequence numbers are close to each other (request_book.h).
struct RequestBlock {
  // By sequence number. They name no client. A row that waits may have been granted since: a grant
  // does not write it (claim_states.h).
  std::map<uint64_t, ledger::RequestRow> rows;
  // Rows of it were forgotten: a sequence number without a row may have had one.
  bool closed = false;
  // The value is not understood, so there may be any row. It is closed, and never written.
  bool garbled = false;

  bool pinned() const {
    return std::ranges::any_of(rows, [](const auto& each) { return each.second.pinned(); });
  }
  friend bool operator==(const RequestBlock&, const RequestBlock&) = default;
};

// A daemon, by its node id.
struct NodeRow {
  std::string node_id;
  NodeRef ref;
  bool dead = false;
  bool stopped = false;
  std::string daemon;
};

}  // namespace semaphored::consul
