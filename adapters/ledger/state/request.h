// Requests that may be repeated, as rows. A request is a row from the moment it is accepted: the
// commit that queues it, grants it or carries out its act inserts the row, and the row then follows
// the claim until that has ended. A request that is refused leaves no row.
//
// When a row may go. Of a numbered request: when it is below its client's floor, or its client is
// forgotten. Of a one-shot request: when a node has known the row in its last state (ended, done) for
// request_retention of that node's steady clock. The node that writes the last state knows it from then
// on. A node that takes rows over (after a restart, or of a dead node) knows them from when it first
// reads them, so it counts from zero. No clock of an engine, nor its TTL, removes such a row.
#pragma once

#include <cstdint>
#include <string>

#include "adapters/types.h"

namespace semaphored::ledger {

struct RequestRow {
  // The numbers are those of the stores.
  enum class State : uint8_t {
    kWaiting = 1,    // `claim` waits in `semaphore`.
    kGranted = 2,    // `claim` holds permits of `semaphore`.
    kEnded = 3,      // The lease of `claim` has ended, by `cause`.
    kWaitEnded = 4,  // The wait of `claim` has ended without a grant, by `cause`.
    kDone = 5,       // A request that makes no claim has been carried out.
  };
  RequestKey request;
  // Of the effect that was asked for (requests.h). The same id with another one is refused.
  Id fingerprint;
  State state = State::kDone;
  std::string semaphore;
  // The claim that the request made, gave back or finished; of an enqueue, the ticket; of an
  // administrative act, empty.
  Id claim;
  EndCause cause = EndCause::kNone;  // kEnded, kWaitEnded.
  // kDone: what it was answered.
  uint32_t number = 0;
  uint32_t remaining = 0;
  bool changed = false;

  // The claim waits or stands: the row must not be forgotten, however old it is.
  bool pinned() const { return state == State::kWaiting || state == State::kGranted; }
  friend bool operator==(const RequestRow&, const RequestRow&) = default;
};

// What one commit does to the row of one request; a transaction has at most one for each request.
struct RequestChange {
  enum class Op : uint8_t {
    // Lands only if the engine has no row of this request, and its sequence number is not below the
    // client's floor in the engine.
    kInsert,
    // The row is there, as the claim that it speaks of is: the revision of the claim's semaphore is
    // the condition. A store that can tell, when it forgets rows, which claims still stand need not
    // write an update to kEnded.
    kUpdate,
    kRemove,  // The same; `row` is as it was.
  };
  Op op = Op::kInsert;
  RequestRow row;
};

// Rows of this client with lower sequence numbers may be forgotten, unless they are pinned.
struct RequestFloor {
  uint32_t client = 0;
  uint64_t below = 0;
};

// A request, with the name of the client, which the store may not know by number; empty with a
// one-shot id.
struct NamedRequest {
  RequestKey request;
  std::string client_id;
};

}  // namespace semaphored::ledger
