// All that we know of one semaphore, as the value of one key: JSON, short, for us and for people
// who look into Consul. It changes in every commit that touches the semaphore, so its ModifyIndex
// is the condition of the next one, and what a commit gives (tokens, its revision) follows from the
// index at which it landed: it need not be written before it is known.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
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
// when all have gone: so no commit rewrites a long queue. The document says which of them are still
// there.
struct Page {
  static constexpr size_t kWaiters = 16;
  uint32_t left = 0;               // A bit for each place on the page.
  uint64_t index = 0;              // Of its key.
  std::vector<WaiterPtr> waiters;  // By their places, also those who have gone. Empty: not read.
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
        if ((page.left >> i & 1) != 0 && is(page.waiters[i])) return true;
      }
    }
    return false;
  }
};

// `client_id` gives the names of clients by number; `ordinals` the places of the leases that are
// granted by the commit that writes this.
std::string WriteDocument(const Document& document,
                          const std::function<const std::string&(uint32_t)>& client_id,
                          const absl::flat_hash_map<Id, uint64_t>& ordinals);

std::string WritePage(absl::Span<const WaiterPtr> waiters,
                      const std::function<const std::string&(uint32_t)>& client_id);
// DATA_LOSS: it is not understood.
absl::StatusOr<std::vector<WaiterPtr>> ReadPage(
    const std::string& name, const std::string& value,
    const std::function<uint32_t(const std::string&)>& client_number);

// The waiters on pages are not in it. DATA_LOSS: it is not understood. `client_number` gives
// numbers for the names of clients. The indexes are those of the key.
absl::StatusOr<Document> ReadDocument(
    const std::string& name, const std::string& value, uint64_t create_index, uint64_t modify_index,
    const std::function<uint32_t(const std::string&)>& client_number);

}  // namespace semaphored::consul
