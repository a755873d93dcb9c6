// One record for each claim and each session that this daemon knows. All other classes of Sessions work on them.
// The books own the records: see ClaimBook and SessionBook. Single-threaded (the reactor's).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "server/figures/semaphore_metrics.h"
#include "server/sessions/lease_spans.h"
#include "server/sessions/sessions.h"
#include "server/sessions/worker.h"

namespace semaphored {

// Liveness of a session, or of a detached claim, which is a session of its own.
struct Liveness {
  int64_t ttl_ms = 0;
  uint32_t epoch = 1;
  SteadyTime expires_at = SteadyTime::max();
  // Never ended before: until then the daemon that it came from may still vouch for it.
  SteadyTime keep_until = SteadyTime::min();
  // The latest time until which a client may count on it, by the validity that this daemon has reported or the former host
  // may have reported.
  SteadyTime vouched_until = SteadyTime::min();
  // False: a dead node left it. Its client may still come; then it is adopted.
  bool hosted = true;
  // The command that ends it is under way: nothing is vouched for any more.
  bool expiring = false;
  bool armed = false;  // There is a timer that will look at it.
  // Nothing is vouched for beyond: a semaphore of it cannot be read.
  SteadyTime vouch_max = SteadyTime::max();
  // All its leases are recalled, and end until then.
  SteadyTime recalled_until = SteadyTime::max();
};

// The recalls of a lease, as far as this daemon knows them.
struct RecallState {
  uint64_t id = 0;  // Of the latest one; 0: none.
  // The earliest end of a grace.
  SteadyTime grace_until = SteadyTime::max();
  // The lease is ended then: at the end of the grace; while the client has not acknowledged the recall, not
  // before the client may count on the lease no longer.
  SteadyTime end_at = SteadyTime::max();
  // When the timer that ends it is due; max: none. Other timers of its recalls are void.
  SteadyTime armed_for = SteadyTime::max();
};

struct SessionRecord {
  Id id;
  Liveness life;
  SessionListener* listener = nullptr;
  bool opened = false;
  bool closing = false;
  // Of a close that waits until leases have moved, or semaphores can be changed: it is not resumed.
  EndCause end_cause = EndCause::kNone;
  bool release_on_disconnect = false;
  bool has_recalls = false;      // A lease of it was recalled.
  bool recalls_changed = false;  // Its life's recalled_until is to be computed again.
  SteadyTime grace_until;        // Without a listener: waiters keep their places until then.
  std::string client_id;
  std::string holder;
  std::string owner;                         // The identity that it belongs to; empty: none.
  TraceContext trace;                        // Of its stream.
  absl::btree_set<Id> claims;                // Ordered, so that a simulation replays.
  absl::flat_hash_map<uint64_t, Id> by_tag;  // Claims that were asked for and not granted yet.
  std::unique_ptr<Worker> worker;            // While a stream that works has the session.
  ChargePtr charge;
};

// The move of a lease from another session, or from a detached call, to the one that has repeated
// the request. It lasts as long as a former holder may count on the lease.
struct Move {
  SteadyTime over_at;
  // The request. Without an id: this daemon has not received it yet.
  Requester requester;
};

struct ClaimRecord {
  enum class State : uint8_t {
    kAsked,
    kWaiting,
    kMoving,  // A lease with `move`: the daemon has reported no grant and vouches for nothing.
    kHeld,
  };
  Id id;
  std::string semaphore;
  State state = State::kAsked;
  bool remembered = false;  // Asked with a request id: the client can find it again.
  bool abandoned = false;   // Its client went away before it was granted.
  bool end_lease = false;   // … and wants no lease.
  bool cancel_asked = false;
  bool denied =
      false;  // The rules changed before it was granted, and no longer allow it: see Deny.
  // Its wait is being ended, since its session's client was away for too long. If the client resumes the session
  // meanwhile, the acquire is submitted again, and the outcome of that is reported in place of the end.
  bool given_up = false;
  // Its semaphore could not be read for too long: the lease was reported as lost to its holder, and is ended when the
  // semaphore can be changed again. Until then its permits stay held.
  bool lost = false;
  bool report_queued = true;
  SessionRecord* session = nullptr;  // nullptr: detached.
  // Of a detached claim. Of every claim `epoch`: Claim::epoch, which rises with each move.
  Liveness life;
  std::unique_ptr<Move> move;
  ClaimListener* listener = nullptr;
  uint64_t tag = 0;
  LeasePtr lease;  // When held.
  SteadyTime wait_until = SteadyTime::max();
  SteadyTime wait_armed_for =
      SteadyTime::max();  // When the earliest timer looks at wait_until; max: none.
  RecallState recall;
  TraceContext trace;                 // Of the call that asked for it.
  std::unique_ptr<ClaimSpans> spans;  // Null: it has none.
  ClaimFigures figures;
  ChargePtr charge;  // Of what it holds or waits for. A worker's offers have none.
  // AcquireParams::unless_repeated, until it is answered.
  std::shared_ptr<const Refusal> unless_repeated;
  // A repeated request was answered with an earlier one's claim: that one's id. The record only
  // leads there.
  Id leads_to;
  Id led_from;

  // ---- of a worker's offers, and of the tickets that came to them ----
  bool offers = false;  // It has no listener and no tag of its own: its session's listener has it.
  TicketPtr ticket;     // When held; null if it has ended again.
  bool told = false;    // The ticket was reported to the worker.
  bool listed = false;  // It works on this: its stream was opened with it.
  bool finishing = false;  // The worker has reported its result: the end is not reported to it.
  bool put_back = false;   // This daemon puts it back; the worker never had it.

  bool has_lease() const { return state == State::kHeld || state == State::kMoving; }
  // The session that the claim belongs to, as Claim::session.
  Id owner() const { return session != nullptr ? session->id : id; }
  // By which the claim lives: its session's, or its own.
  Liveness* owner_life() { return session != nullptr ? &session->life : &life; }
  // The listener of its lease; for an offer and its ticket, the session's. May be null.
  ClaimListener* lease_listener() const {
    if (!offers) return listener;
    return session != nullptr ? session->listener : nullptr;
  }
};

// A lease as a recall's event has it. Permits only become fewer: of one that is known with fewer, some were given
// back after the recall, and the recall alone is new.
inline LeasePtr WithRecallOf(const LeasePtr& recalled, const LeasePtr& known) {
  if (recalled == nullptr || known == nullptr || recalled->permits <= known->permits)
    return recalled;
  auto lease = std::make_shared<Lease>(*known);
  lease->recall = recalled->recall;
  return lease;
}

inline const Claim& RowOf(const ClaimInfo& info) {
  if (info.lease) return *info.lease;
  return *info.waiter;
}

// The command that ends the claim, if it still has this owner with this epoch.
inline EndCommand EndOf(const ClaimRecord& record, EndCause cause) {
  EndCommand end;
  end.semaphore = record.semaphore;
  end.claim = record.id;
  end.cause = cause;
  end.session = record.owner();
  end.epoch = record.session != nullptr ? record.session->life.epoch : record.life.epoch;
  return end;
}

// The same for a claim of a session that ends: a wait that the client gives up with it is cancelled.
inline EndCommand EndWithSession(const ClaimRecord& record, EndCause cause) {
  const bool gives_up = !record.has_lease() && cause == EndCause::kReleased;
  return EndOf(record, gives_up ? EndCause::kCancelled : cause);
}

}  // namespace semaphored
