// The words of the project as data: what a semaphore, a lease, a waiter and a session are, the same
// for every engine. Plain values: no I/O, no clock, no threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "adapters/slots.h"

namespace semaphored {

// 128 random bits: names a claim (a lease or the waiter it was), a session or a ticket. All zero
// means none.
struct Id {
  uint64_t high = 0;
  uint64_t low = 0;

  bool empty() const { return high == 0 && low == 0; }
  // 32 lower-case hexadecimal digits.
  std::string Hex() const;
  // nullopt unless `text` is exactly what Hex() makes.
  static std::optional<Id> FromHex(std::string_view text);

  friend bool operator==(const Id&, const Id&) = default;
  friend auto operator<=>(const Id&, const Id&) = default;  // NOLINT(modernize-use-nullptr)
  template <typename H>
  friend H AbslHashValue(H h, const Id& id) {
    return H::combine(std::move(h), id.high, id.low);
  }
};

// One life of one daemon. `number` stands for the node id in the engine; it is given by
// NodeStore::Join.
struct NodeRef {
  uint32_t number = 0;
  uint32_t incarnation = 0;
  friend bool operator==(const NodeRef&, const NodeRef&) = default;
};

// A request that may be repeated: the client, by its number in the adapter, and its sequence
// number; or a UUID that is the id of this one request. Neither: the request carries no id and is
// not remembered.
struct RequestKey {
  uint32_t client = 0;
  uint64_t sequence = 0;
  Id one_shot = {};  // Not empty: client and sequence are 0.
  bool remembered() const { return sequence != 0 || !one_shot.empty(); }
  friend bool operator==(const RequestKey&, const RequestKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const RequestKey& key) {
    return H::combine(std::move(h), key.client, key.sequence, key.one_shot);
  }
};

// How a lease, or a wait, came to its end. The numbers are those of semaphore.v1.EndCause and of
// the stores.
enum class EndCause : uint8_t {
  kNone = 0,
  kReleased = 1,
  kExpired = 2,
  kRevoked = 3,
  kRecalled = 4,
  kDestroyed = 5,
  kDisconnected = 6,
  kUnknown = 7,
  kWaitExpired = 8,
  kCancelled = 9,
  kExceedsLimit = 10,
  kEngineLost = 11,  // The engine took it back: the connection that it belonged to was lost.
  // The lease has not ended: it belongs to another session of its client now, or to none. Occurs in
  // answers only, never in a row.
  kMoved = 12,
  kCount  // The number of causes.
};

// Why a waiter waits: the first of these that applies, in the order kDestroying, kPaused, kWithheld,
// kHolderCap, kFull, kBehind, kForeign. Of another client of the engine that waits there (Waiter::foreign)
// only kFull or kNone; of an offer, which waits for a ticket, kNone.
enum class WaitReason : uint8_t {
  // Nothing is in its way: this commit grants it, or the next one.
  kNone = 0,
  // Fewer permits are free than it asks for. On an engine that hands out permits itself: the engine has
  // given none.
  kFull = 1,
  // Enough are free, but an earlier waiter is served first: mostly a larger one that does not fit. Or an
  // earlier ticket, which a worker offers to take.
  kBehind = 2,
  // With it its holder would have more than permits_per_holder; or an earlier waiter of that holder waits
  // for that reason.
  kHolderCap = 3,
  kPaused = 4,
  // The semaphore is being destroyed: the waiter is about to be dismissed.
  kDestroying = 5,
  // Nothing is granted for now, whatever is free: the engine may have lost commits at a fail-over, the
  // semaphore is in quarantine or locked by another client of the engine, or the engine does not answer.
  kWithheld = 6,
  // What is free is left to other clients of the engine, which wait before it.
  kForeign = 7,
  kCount  // The number of reasons.
};

// A place in a queue: what sorts first is served first. A claim keeps its place for as long as it waits,
// and no other claim of the semaphore ever has it.
struct QueuePlace {
  int32_t priority = 0;
  uint64_t order = 0;
  friend bool operator<(const QueuePlace& a, const QueuePlace& b) {
    return a.priority != b.priority ? a.priority > b.priority : a.order < b.order;
  }
  friend bool operator==(const QueuePlace&, const QueuePlace&) = default;
};

// Where a list of leases shows one: by Lease::listed_at(), then by id. A lease keeps this place for life, as
// long as this daemon knows it.
struct LeasePlace {
  uint32_t slot = 0;
  Id claim = {};
  friend bool operator==(const LeasePlace&, const LeasePlace&) = default;
  friend auto operator<=>(const LeasePlace&,
                          const LeasePlace&) = default;  // NOLINT(modernize-use-nullptr)
};

// What an administrator may set on a semaphore. The defaults here are those of the API.
struct Settings {
  bool backfill = false;
  int64_t longest_hold_ms = 0;       // 0: no bound.
  int64_t recall_grace_ms = 30'000;  // 0: none.
  uint32_t permits_per_holder = 0;   // 0: no bound.
  uint32_t waiters_max = 0;          // 0: the daemon's limit.
  friend bool operator==(const Settings&, const Settings&) = default;
};

// What a lease and a waiter have in common: the request, the permits, and the session on which it depends.
struct Claim {
  Id id;
  // The session on which it depends. Equal to `id` for a detached claim, which is a session of its own:
  // then host, epoch and ttl_ms below are that session's. Otherwise Session has them.
  Id session;
  RequestKey request;
  // Of the request's effect (ledger/requests.h); empty if the request is not remembered.
  Id fingerprint;
  NodeRef host;
  uint32_t epoch = 1;
  uint32_t permits = 1;
  int32_t priority = 0;
  int64_t ttl_ms = 0;
  // Its place in the queue within its priority; rises with each claim of the semaphore.
  uint64_t order = 0;
  std::string holder;
  // The identity of its request; empty: none was known, and it belongs to none.
  std::string owner;

  bool detached() const { return session == id; }
};

// The holder is to give a lease back. A recall is written on the lease; only the lease's host ends it, once
// its grace is over.
struct Recall {
  enum class Reason : uint8_t {
    kNone = 0,
    kShrunk = 1,
    kLongestHold = 2,
    kAdministrator = 3,
    kDestroyed = 4
  };
  // In a command. No lease has a recall with one of these two.
  static constexpr int64_t kNow =
      0;  // The commit itself ends the lease, even if its holder still counts on it.
  static constexpr int64_t kOwnGrace = -1;  // Settings::recall_grace_ms.

  Reason reason = Reason::kNone;
  // The host counts it from the time at which it learns of the recall.
  int64_t grace_ms = 0;
  bool pending() const { return reason != Reason::kNone; }
  friend bool operator==(const Recall&, const Recall&) = default;
};

// How a lease ends whose recall is over. REQUIRES: a reason.
constexpr EndCause EndCauseOf(Recall::Reason reason) {
  switch (reason) {
    case Recall::Reason::kAdministrator:
      return EndCause::kRevoked;
    case Recall::Reason::kDestroyed:
      return EndCause::kDestroyed;
    case Recall::Reason::kNone:
    case Recall::Reason::kShrunk:
    case Recall::Reason::kLongestHold:
      break;
  }
  return EndCause::kRecalled;
}

struct Lease : Claim {
  Slots slots;  // As many as permits.
  // 0 until the commit that grants it has won; given by the store.
  uint64_t token = 0;
  int64_t granted_at_unix_ms = 0;
  Recall recall;
  // The semaphore's setting when it was granted, or loaded; stores do not keep it here. 0: no
  // bound.
  int64_t longest_hold_ms = 0;
  // It was moved out of another session, which this node hosted; that node may have vouched for it
  // to the former session, and it is not reported as held until that is over. 0: it was not moved,
  // or that is over.
  uint32_t moved_from = 0;
  // Taken by another client of the same engine: no session, no token, never ended by us.
  bool foreign = false;
  // The slot at which lists show it, where that is not the lowest that it has: its lowest when it was
  // granted or first seen, which it has given back since. 0: the lowest. Kept in memory only.
  uint32_t listed_slot = 0;
  // REQUIRES: it has slots.
  uint32_t listed_at() const { return listed_slot != 0 ? listed_slot : slots.front(); }
  // The ticket that is carried out under it, and which of its attempts this is; empty and 0 for a
  // lease that a client acquired for itself.
  Id ticket;
  uint32_t attempt = 0;
};

struct Waiter : Claim {
  int64_t queued_at_unix_ms = 0;
  // Another client of the same engine that waits there: a permit is left to it, which it takes itself. It
  // has no session, and we neither grant nor end it.
  bool foreign = false;
  // An offer: it waits for a ticket to carry out, not for a permit of its own. It is not in the queue.
  bool works = false;
};

// How long a ticket waits after an attempt that failed: initial_ms, and for each further attempt
// multiplier_percent of the time before, up to max_ms.
struct BackOff {
  int64_t initial_ms = 1000;
  uint32_t multiplier_percent = 200;
  int64_t max_ms = 300'000;
  friend bool operator==(const BackOff&, const BackOff&) = default;
};

// The numbers are those of the stores.
enum class TicketState : uint8_t {
  kQueued = 1,    // Eligible: a worker that offers to work gets it when its turn comes.
  kDelayed = 2,   // Not before delay_ms have passed.
  kAssigned = 3,  // A worker holds a lease for it.
  kDead = 4,      // A dead letter: no worker gets it until it is requeued.
};

// Why an attempt failed.
struct TicketReason {
  uint32_t attempt = 0;
  std::string text;
  int64_t at_unix_ms = 0;
  friend bool operator==(const TicketReason&, const TicketReason&) = default;
};

// A durable waiter: a piece of work that waits in the queue without a client, for any worker to carry
// out. Only the store has its payload.
struct Ticket {
  Id id;
  int32_t priority = 0;
  // Its place in the queue within its priority; from the same counter as Claim::order. It keeps it
  // for life.
  uint64_t order = 0;
  TicketState state = TicketState::kQueued;
  uint32_t attempt = 0;       // Attempts begun, but for those that were put back.
  uint32_t max_attempts = 0;  // 0: no bound.
  BackOff back_off;
  int64_t delay_ms = 0;  // kDelayed: more than 0. Otherwise 0.
  // Delays begun: names the present one.
  uint32_t delays = 0;
  NodeRef host;  // kDelayed: the daemon whose clock counts the delay. Otherwise meaningless.
  Id lease;      // kAssigned: the claim under which it is carried out. Otherwise empty.
  std::string content_type;
  uint32_t payload_bytes = 0;
  std::string trace;                  // W3C traceparent of who enqueued it; may be empty.
  std::vector<TicketReason> reasons;  // The last ones, the newest at the end.
  std::string owner;                  // The identity that enqueued it, as in Claim.
  int64_t enqueued_at_unix_ms = 0;
  friend bool operator==(const Ticket&, const Ticket&) = default;
};

// Bytes that never change; null: none.
using PayloadPtr = std::shared_ptr<const std::string>;

// Rows are shared between a state and the transactions over it, and never changed once made, but
// for Lease::token, which the winning commit sets. A change makes a new row.
using LeasePtr = std::shared_ptr<Lease>;
using WaiterPtr = std::shared_ptr<Waiter>;
using TicketPtr = std::shared_ptr<const Ticket>;

// A client's liveness on a stream: one TTL for all the claims under it.
struct Session {
  Id id;
  NodeRef host;
  uint32_t epoch = 1;
  int64_t ttl_ms = 0;
  uint32_t client = 0;
  bool release_on_disconnect = false;
  // It has ended: no claim of it is granted, it cannot be resumed, and the lanes end its claims. The row
  // is removed with its last claim.
  bool closing = false;
  std::string holder;
  std::string owner;  // As in Claim.
};

// True: what belongs to `owner` is hidden from a command of `caller`. If either is empty, it is not.
inline bool IsAnothers(std::string_view owner, std::string_view caller) {
  return !owner.empty() && !caller.empty() && owner != caller;
}

// A semaphore without its leases and waiters.
struct SemaphoreRow {
  std::string name;
  uint32_t limit = 0;
  Settings settings;
  bool paused = false;
  bool destroying = false;
  // An Acquire or an Enqueue has made it, and no administrator has changed it since.
  bool made_on_use = false;
  // What acts that are larger than one commit still have to do, encoded by ledger/rules/intentions.h;
  // empty: nothing. A store keeps it unchanged.
  std::string intentions;
  uint64_t next_order = 1;
  // Rises by one with each commit that touches the semaphore or its claims. 0: not in the store
  // yet.
  uint64_t revision = 0;
  int64_t created_at_unix_ms = 0;
  std::string owner;  // The identity that made it, as in Claim; its quota counts it.
  friend bool operator==(const SemaphoreRow&, const SemaphoreRow&) = default;
};

struct HistoryRow {
  uint64_t number = 0;  // Given by the store; rises.
  std::string semaphore;
  LeasePtr lease;
  int64_t ended_at_unix_ms = 0;
  EndCause cause = EndCause::kNone;
};

// What an adapter can promise. docs/semantics.md shows it as a table; the contract suite checks
// each line.
struct Guarantees {
  std::string adapter;     // "sqlite", "postgres", …
  bool push = true;        // A release reaches waiters of other daemons by push.
  bool exclusive = false;  // One daemon at a time owns the store: no other can end a lease.
  bool leases_survive_daemon = true;  // Promise 4.
  bool weighted = true;               // A claim may ask for more than one permit.
  bool fencing = true;                // Tokens rise per slot, over all holders that we know of.
  bool queue = true;                  // The engine keeps the order of waiters, across daemons.
  bool history = true;                // Ended leases can be listed.
  bool durable_tickets = false;       // Enqueue and Work.
  bool safe_at_failover = true;       // The engine loses no acknowledged commit at a fail-over.
  // Daemons see each other's leases, waiters, sessions and answers. False: of others only how many
  // permits they have, and a lease is known to its own daemon alone.
  bool shares_claims = true;
  // An administrator's revoke, and the recall of a lowered limit, reach the leases of all daemons;
  // if claims are not shared, a moment later. False: those of the daemon that receives the request.
  bool administers_all = true;
  bool grants_at_once =
      true;  // The Step that makes room grants it to waiters; else a later one, soon.
  // Waiters that one commit grants to at most; further ones follow immediately, in commits of their
  // own. 0: no bound.
  uint32_t grants_per_commit_max = 0;
  bool lowest_slot = true;  // A grant takes the lowest free slots; else any.
  bool settings = true;     // Settings and pauses can be kept, not only the limit.
  bool holder_cap = true;   // permits_per_holder can be kept to.
  bool revisions = true;    // expected_revision holds against all daemons.
  // Each grant, wait and end raises the revision by one; else only what changes the semaphore's own
  // row does, by one or more.
  bool revision_counts_claims = true;
  bool names = true;        // All semaphores can be listed.
  bool made_on_use = true;  // SemaphoreRow::made_on_use is kept; else idle semaphores stay.
  // Verify returns held for a lease on a slot that a lowered limit has removed. False: it returns not
  // held, though the lease remains until its holder releases it.
  bool verifies_removed_slots = true;
  uint32_t permits_per_request_max = 1'000'000;
  uint32_t limit_max = 1'000'000;  // Of a semaphore.
  uint32_t lanes_max = 1;          // More adapters on one store than this bring nothing.
  // Rows of requests with a one-shot id, of one lane.
  uint32_t one_shot_requests_max = 10'000'000;
  // The engine takes back a permit that is held for longer: each lease is recalled so that its
  // grace ends before, and what was vouched for. 0: no bound.
  int64_t longest_hold_max_ms = 0;
  // The engine may take leases back so long after it was last reached: after a Step that succeeded a
  // daemon vouches for no longer. 0: the engine takes none back.
  int64_t vouch_max_ms = 0;
};

}  // namespace semaphored
