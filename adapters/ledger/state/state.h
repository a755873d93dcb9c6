// What the ledger knows: semaphores with their leases, waiters and tickets, and sessions. Held in
// memory; the truth is in the store. Single-threaded.
//
// Invariants, after every whole command:
//   * the rows are the truth; `held`, `slots`, `queue`, `offers`, `eligible` and the counts are
//     indexes derived from them, kept here only;
//   * each slot is taken by at most one lease, and a slot above `row.limit` only since before it
//     was lowered;
//   * `queue` holds every waiter but the offers, by priority (higher first) and then by order;
//     `offers` those that offer to work, by order; `eligible` the tickets that are queued, by the
//     same positions as `queue`;
//   * a ticket that is assigned names a lease that names it, with the same attempt; every lease
//     that names a ticket is named by it;
//   * a claim id names a lease or a waiter, never both.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ext/pb_ds/assoc_container.hpp>
#include <ext/pb_ds/tree_policy.hpp>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "adapters/ledger/state/owner_book.h"
#include "adapters/ledger/state/slot_map.h"
#include "adapters/outcomes.h"
#include "adapters/types.h"

namespace semaphored::ledger {

using semaphored::QueuePlace;
inline QueuePlace PlaceOf(const Claim& claim) { return {claim.priority, claim.order}; }
inline QueuePlace PlaceOf(const Ticket& ticket) { return {ticket.priority, ticket.order}; }
inline LeasePlace ListPlaceOf(const Lease& lease) { return {lease.listed_at(), lease.id}; }

// Ordered by place; knows how many stand before a place in O(log n).
template <typename Row>
using ByPlace = __gnu_pbds::tree<QueuePlace, Row, std::less<QueuePlace>, __gnu_pbds::rb_tree_tag,
                                 __gnu_pbds::tree_order_statistics_node_update>;
using Queue = ByPlace<WaiterPtr>;

// Whose turn may come, of those who wait (or offer to work), while a holder may have only so many
// permits: of each holder the first one, unless with it the holder would have too many. The others of
// that holder stand behind it, whatever they ask for. Foreign clients have no turn.
struct Turns {
  Queue ready;
  absl::flat_hash_map<std::string, Queue> of_holder;
  absl::flat_hash_map<std::string, QueuePlace> ready_of;  // Where each holder stands in `ready`.
};

// One semaphore. Change it only through LedgerState, which keeps its indexes.
struct Semaphore {
  SemaphoreRow row;
  absl::flat_hash_map<Id, LeasePtr> leases;
  absl::flat_hash_map<Id, WaiterPtr> waiters;
  absl::flat_hash_map<Id, TicketPtr> tickets;
  SlotMap slots;
  // The leases that lists do not show at their lowest slot (Lease::listed_slot).
  absl::btree_map<LeasePlace, LeasePtr> listed_apart;
  Queue queue;
  Queue offers;
  Queue foreign;  // Those in the queue that are other clients of the engine.
  // Only while row.settings.permits_per_holder is set.
  Turns queue_turns;
  Turns offer_turns;
  ByPlace<TicketPtr> eligible;
  TicketCounts ticket_counts;
  uint64_t payload_bytes = 0;  // Of its tickets, dead letters included.
  uint32_t held = 0;
  // Permits that other daemons and foreign clients had when the engine was last asked; only of
  // engines that hand out permits, elsewhere their leases are here.
  uint32_t held_elsewhere = 0;
  // Permits by holder text, only while row.settings.permits_per_holder is set.
  absl::flat_hash_map<std::string, uint32_t> held_by;

  bool capped() const { return row.settings.permits_per_holder != 0; }
  // With so many permits more the holder would have more than permits_per_holder.
  bool AtCap(const std::string& holder, uint32_t permits) const;
  // Those whose turn may come, by place. Without a cap foreign clients are among them.
  const Queue& ready_queue() const { return capped() ? queue_turns.ready : queue; }
  const Queue& ready_offers() const { return capped() ? offer_turns.ready : offers; }

  LeasePtr FindLease(const Id& id) const;
  // nullptr if the slot is free.
  LeasePtr LeaseAt(uint32_t slot) const { return FindLease(slots.At(slot)); }
  WaiterPtr FindWaiter(const Id& id) const;
  TicketPtr FindTicket(const Id& id) const;
  // From 1. A waiter's: with the tickets before it that a worker offers to take. An offer's: among
  // the offers.
  uint64_t PositionOf(const Waiter& waiter) const;
  // Among waiters and tickets; 0: it is not queued.
  uint64_t PositionOf(const Ticket& ticket) const;
};

// The one of the counts that this state counts into.
uint64_t& CountOf(TicketState state, TicketCounts* counts);

// What a list shows of a semaphore's rows.
struct SemaphoreCounts {
  uint32_t held = 0;     // Permits.
  uint64_t waiting = 0;  // Without offers.
  uint64_t offers = 0;
  TicketCounts tickets;
  friend bool operator==(const SemaphoreCounts&, const SemaphoreCounts&) = default;
};
SemaphoreCounts CountsOf(const Semaphore& semaphore);

struct LeaseChange {
  LeasePtr before;  // nullptr: granted by this change.
  LeasePtr after;   // nullptr: ended by this change.
  EndCause cause = EndCause::kNone;
};

struct WaiterChange {
  WaiterPtr before;  // nullptr: queued by this change.
  WaiterPtr after;   // nullptr: it left the queue. cause kNone: because it was granted.
  EndCause cause = EndCause::kNone;
};

struct TicketChange {
  TicketPtr before;    // nullptr: enqueued by this change.
  TicketPtr after;     // nullptr: it is done, cancelled or purged.
  PayloadPtr payload;  // Of a ticket that is enqueued; null: it is empty.
};

using SessionPtr = std::shared_ptr<Session>;

struct SessionChange {
  SessionPtr before;  // nullptr: opened.
  SessionPtr after;   // nullptr: closed.
};

class LedgerState {
 public:
  // (These are not here: the containers' code would be compiled with each file that includes this.)
  explicit LedgerState(OwnerCounting counting = {});
  ~LedgerState();
  LedgerState(const LedgerState&) = delete;
  LedgerState& operator=(const LedgerState&) = delete;

  // nullptr if there is none. The pointer is good until the semaphore is erased.
  Semaphore* Find(std::string_view name);
  const Semaphore* Find(std::string_view name) const;
  const SessionPtr& FindSession(const Id& id) const;
  // Ids of all claims of a session (not of a detached claim). Empty if there are none.
  const absl::flat_hash_map<Id, Semaphore*>& ClaimsOf(const Id& session) const;

  // The waiter that stands for this request, and its semaphore; nullptrs if none waits.
  std::pair<Semaphore*, WaiterPtr> FindWaiting(const RequestKey& request) const;
  // The same for a lease that this request was granted.
  std::pair<Semaphore*, LeasePtr> FindGranted(const RequestKey& request) const;
  // Leases and waiters that this client's requests made; of 0, those of requests with a one-shot id.
  size_t ClaimCountOf(uint32_t client) const;

  size_t semaphore_count() const { return semaphores_.size(); }
  size_t lease_count() const { return lease_count_; }
  size_t waiter_count() const { return waiter_count_; }
  size_t ticket_count() const { return ticket_count_; }
  uint64_t payload_bytes() const { return payload_bytes_; }
  size_t session_count() const { return sessions_.size(); }
  // Of all lanes that count together; otherwise of this one.
  OwnerUsage UsageOf(const std::string& owner) const;
  // In alphabetical order, from the first name not below `from`.
  std::map<std::string, std::unique_ptr<Semaphore>, std::less<>>::const_iterator From(
      std::string_view from) const {
    return semaphores_.lower_bound(from);
  }
  auto begin() const { return semaphores_.begin(); }
  auto end() const { return semaphores_.end(); }
  const absl::flat_hash_map<Id, SessionPtr>& sessions() const { return sessions_; }

  // The only ways to change it. Each is undone by the call with before and after exchanged.
  Semaphore* Insert(SemaphoreRow row);
  // REQUIRES: without leases and waiters. Tickets go with it.
  void Erase(std::string_view name);
  void SetRow(Semaphore* semaphore, const SemaphoreRow& row);
  void Apply(Semaphore* semaphore, const LeaseChange& change);
  void Apply(Semaphore* semaphore, const WaiterChange& change);
  void Apply(Semaphore* semaphore, const TicketChange& change);
  void Apply(const SessionChange& change);

  // Recounts everything from the rows. Empty when the invariants above hold; else what is wrong.
  // O(all).
  std::string CheckInvariants() const;

 private:
  void Index(const Claim& claim, Semaphore* semaphore);
  void Unindex(const Claim& claim);
  static void RebuildCap(Semaphore* semaphore);
  static void CountHeld(Semaphore* semaphore, const std::string& holder, int64_t permits);
  static void AddTurn(Semaphore* semaphore, const WaiterPtr& waiter);
  static void RemoveTurn(Semaphore* semaphore, const Waiter& waiter);
  std::string CheckIndexes() const;
  std::string CheckOwners() const;
  // Adds one, or takes one away. Without an owner nothing is counted, and of another lane's semaphore either.
  void CountSemaphore(const SemaphoreRow& row, bool comes);
  void CountTicket(const Semaphore& semaphore, const Ticket& ticket, bool comes);
  void Count(const std::string& semaphore, const std::string& owner, const OwnerUsage& usage,
             bool comes);

  std::map<std::string, std::unique_ptr<Semaphore>, std::less<>> semaphores_;
  absl::flat_hash_map<std::string_view, Semaphore*> by_name_;  // Keys are those of semaphores_.
  absl::flat_hash_map<Id, SessionPtr> sessions_;
  absl::flat_hash_map<Id, absl::flat_hash_map<Id, Semaphore*>> claims_of_;
  absl::flat_hash_map<RequestKey, std::pair<Semaphore*, Id>> waiting_;
  absl::flat_hash_map<RequestKey, std::pair<Semaphore*, Id>> granted_;
  absl::flat_hash_map<uint32_t, size_t> claims_of_client_;
  OwnerCounting counting_;
  UsageByOwner of_owner_;  // What this state has counted.
  size_t lease_count_ = 0;
  size_t waiter_count_ = 0;
  size_t ticket_count_ = 0;
  uint64_t payload_bytes_ = 0;
};

}  // namespace semaphored::ledger
