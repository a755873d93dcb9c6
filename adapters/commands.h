// The commands that the server gives to an adapter. The server has checked all names and numbers in
// them. The comment of each command lists the kinds of its Outcome, with the fields that are set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "adapters/types.h"

namespace semaphored {

// The id of a request, so that a repeated request gets the same answer: the client and its sequence
// number, or the UUID of this one request. Without an id (sequence 0, no UUID) each is new.
struct Requester {
  std::string client_id;
  uint64_t sequence = 0;
  Id one_shot = {};  // Not empty: client_id is empty and sequence 0.
  bool remembered() const { return sequence != 0 || !one_shot.empty(); }
  friend bool operator==(const Requester&, const Requester&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Requester& requester) {
    return H::combine(std::move(h), requester.client_id, requester.sequence, requester.one_shot);
  }
};

// The most of each kind that an identity may have made, counted over what this daemon has loaded. Nothing that exists is
// taken away, and a repeated request gets its answer. kOverQuota: the request would make more.
struct OwnerQuotas {
  static constexpr uint64_t kNone = UINT64_MAX;
  uint64_t semaphores = kNone;
  uint64_t tickets = kNone;       // Dead letters among them.
  uint64_t ticket_bytes = kNone;  // Of their payloads.
  friend bool operator==(const OwnerQuotas&, const OwnerQuotas&) = default;
};

// Takes permits, or a place in the queue.
//   kGranted (lease), kQueued (InQueue; later the event kGranted or kWaitEnded), kFull,
//   kHolderCap, kPaused, kWithheld, kLimitMismatch (Limit), kExceedsLimit (Limit),
//   kNoSuchSemaphore, kDestroyed, kLimitReached, kOverQuota, kTooOld, kReused,
//   kSessionLost, kStale (the session has another epoch), kUnusable, kNotAskedBefore, kMoving
//   (lease, claim).
// A repeated request finds its waiter or its living lease again, moved to this node if it was
// detached; if the lease has ended: kNotHeld with the cause where it is known. Repeated under another
// session (or detached, when the first was not; or the other way round) it moves: a waiter at once,
// with the answer kQueued. A lease moves too, but the answer is kMoving until a command says that
// `moved_is_over`.
struct AcquireCommand {
  Requester requester;
  std::string semaphore;
  Id claim;    // New, made by the server. A repeated request is answered with the first one's.
  Id session;  // Equal to claim: detached. Otherwise a session that OpenSession made.
  uint32_t permits = 1;
  uint32_t limit = 0;  // 0: must exist.
  bool adopt_limit = false;
  // A semaphore that does not exist is not made, even with a limit: kNoSuchSemaphore.
  bool must_exist = false;
  bool wait = false;
  int32_t priority = 0;
  int64_t ttl_ms = 0;
  std::string holder;
  std::string owner;  // Claim::owner, and of a semaphore that it makes.
  OwnerQuotas quotas;
  // The client named no holder, and the daemon filled it in: the fingerprint does not cover it.
  bool holder_is_default = false;
  // As in EndCommand, if it is not detached: a daemon that the session has left can get nothing for
  // it.
  uint32_t epoch = 0;
  // Only answers a request that was made before; a new one does nothing (kNotAskedBefore). Needs a
  // request id.
  bool only_if_repeated = false;
  // The former session's holder no longer counts on this lease: it has acknowledged the loss, or every
  // validity that may have been reported to it has passed.
  bool moved_is_over = false;
  // `moved_is_over` holds only for a lease with this Claim::epoch, not for a later move. 0: any.
  uint32_t moved_epoch = 0;
};

// Gives permits back: all (slots empty) or some.
//   kReleased (Released; lease = what is left of it), kNotHeld (cause),
//   kNoSuchSlot (NotItsSlot), kTooOld, kReused.
struct ReleaseCommand {
  Requester requester;
  std::string semaphore;
  Id claim;
  Slots slots;
  // Only if the claim belongs to this session; kNotHeld (cause kMoved) otherwise. Empty: any.
  Id session = {};
  // The identity that calls: a claim of another identity is kNotHeld. Empty: any identity's.
  std::string caller = {};
};

// kHeld (lease) or kNotHeld (cause). By claim, or, if claim is empty, by slot and token (AtSlot).
struct VerifyCommand {
  std::string semaphore;
  Id claim;
  uint32_t slot = 0;
  uint64_t token = 0;
  std::string caller = {};  // As in ReleaseCommand, if it is by claim.
};

// Ends a lease or a wait in place of its holder: its TTL, its wait or its recall has run out, or its
// client has disconnected.
//   kDone; kNotHeld: it has ended already; kStale: the condition no longer holds, and nothing was done.
struct EndCommand {
  std::string semaphore;
  Id claim;
  EndCause cause = EndCause::kExpired;
  // Only if the claim still belongs to this session (its own id: it is detached), and the session has
  // this epoch. An epoch alone names no session: each begins at 1. Empty, 0: any.
  Id session = {};
  uint32_t epoch = 0;
  // Only if it still waits (for a wait that ran out or was given up): a lease is not touched.
  bool only_waiting = false;
};

// Recalls a lease; one that is recalled already stays as it is. kDone (lease), kNotHeld.
struct RecallCommand {
  std::string semaphore;
  Id claim;
  Recall recall;
};

// Moves a detached claim to this node: epoch + 1. kHeld (lease; `changed` if it was moved now),
// kStillWaiting, kNotHeld (cause), kBelongsToSession. Hosted here already: the same answer, without
// a write.
struct AdoptCommand {
  std::string semaphore;
  Id claim;
  std::string caller = {};  // As in ReleaseCommand.
};

// Puts a ticket into the semaphore's queue, where it outlives its client.
//   kEnqueued (claim = the ticket's id, InQueue; position 0: it is delayed, or has been given to a worker
//   at once), kLimitMismatch (Limit), kNoSuchSemaphore, kDestroyed,
//   kLimitReached, kOverQuota, kTooOld, kReused, kUnusable, kUnsupported.
// A full, paused or closed semaphore is no reason to refuse. A repeated request is answered with the
// ticket of the first one, at its present position.
struct EnqueueCommand {
  Requester requester;
  std::string semaphore;
  Id ticket;           // New, made by the server.
  uint32_t limit = 0;  // As in AcquireCommand, and so the next two.
  bool adopt_limit = false;
  bool must_exist = false;
  int32_t priority = 0;
  int64_t delay_ms = 0;       // No worker gets it earlier after the enqueue than this.
  uint32_t max_attempts = 0;  // 0: no bound.
  BackOff back_off;
  std::string content_type;
  std::string trace;
  PayloadPtr payload;
  std::string owner;  // Ticket::owner, and of a semaphore that it makes.
  OwnerQuotas quotas;
};

// What becomes of an offer to work for which there is no ticket now.
enum class OfferKept : uint8_t {
  kNo = 0,
  kWhileTickets =
      1,        // It is kept if there are tickets, dead letters aside, that may become eligible.
  kAlways = 2,  // It is kept: a ticket that is enqueued later comes to it.
};

// Offers to carry out one ticket.
//   kGranted (lease; report->tickets has the ticket with its payload), kQueued (the offer is kept;
//   later the event kGranted or kWaitEnded), kNothing (there is no ticket, or with kNo none that is
//   eligible), kLimitReached, kNoSuchSemaphore, kDestroyed, kSessionLost, kStale (the session
//   has another epoch), kUnsupported; with kNo also kFull, kHolderCap, kPaused and kWithheld, where
//   there is an eligible ticket.
// Whatever is not kGranted or kQueued leaves nothing behind.
struct TakeCommand {
  std::string semaphore;
  Id claim;    // New, made by the server.
  Id session;  // As in AcquireCommand.
  int64_t ttl_ms = 0;
  std::string holder;
  std::string owner;  // Claim::owner.
  OfferKept keep = OfferKept::kNo;
  // As in EndCommand: a daemon that the session has left makes no offer for it.
  uint32_t epoch = 0;
};

// A worker's result of a ticket. The lease ends with it.
//   kReleased (Released: 1), kNotHeld (cause): the lease had ended, and nothing was done: another
//   worker has the ticket, or will get it; kNoSuchTicket: it is not a ticket's lease; kStale:
//   the session has another epoch; kTooOld, kReused, kUnsupported.
struct FinishCommand {
  enum class Result : uint8_t {
    kDone = 0,     // It was carried out; the ticket is removed.
    kFailed = 1,   // It is queued again after retry_after_ms, or its back-off; after the last
                   // attempt it becomes a dead letter.
    kReject = 2,   // It will never work: it becomes a dead letter.
    kPutBack = 3,  // It was not begun: it is queued at its place, and the attempt does not count.
  };
  Requester requester;
  std::string semaphore;
  Id claim;
  Result result = Result::kDone;
  std::string reason;  // Of kFailed and kReject; cut if it is long.
  std::optional<int64_t> retry_after_ms;
  // As in EndCommand: set by a daemon that puts back a ticket that its worker has not received. If
  // the session has moved, its new host may deliver the ticket. 0: the worker itself reports.
  uint32_t epoch = 0;
  std::string caller = {};  // As in ReleaseCommand.
};

// A delay is over: the ticket becomes eligible. kDone; kNoSuchTicket; kStale: it is no longer in this
// delay; kUnsupported.
struct RipenCommand {
  std::string semaphore;
  Id ticket;
  uint32_t delay = 0;  // Ticket::delays.
};

// Makes a session on this node. kDone; kLimitReached; done twice with the same id: kDone.
struct OpenSessionCommand {
  Id session;
  std::string client_id;
  int64_t ttl_ms = 0;
  std::string holder;
  bool release_on_disconnect = false;
  std::string owner = {};  // Session::owner.
};

// Moves a session to this node: epoch + 1, and `changed`; not if it is here already.
//   kDone with `session`, `claims` (all that it has, by semaphore; within one, leases and waiters in
//   the order of their requests) and `unread`; kSessionLost (`changed`: it is closing, and its row still
//   exists); kStale (another epoch; 0: any); kReading (it has claims in very many semaphores that are not
//   loaded: each such answer has loaded some more).
struct AdoptSessionCommand {
  Id session;
  uint32_t epoch = 0;
  std::string caller = {};  // As in ReleaseCommand: another identity's session is kSessionLost.
};

// Ends the claims that the session still has, with `cause`, and removes its row.
//   kDone, kSessionLost, kStale (another epoch; 0: any; a session that is closing also accepts the epoch
//   before); kDamaged (message, Closing): its claims in semaphores that are in quarantine are left, all
//   others have ended. The row is then closing: no daemon adopts it, and the command must be repeated.
struct CloseSessionCommand {
  Id session;
  uint32_t epoch = 0;
  EndCause cause = EndCause::kExpired;
  // Only marks the row as closing (kDone): no later commit lands under its former epoch.
  bool marks_only = false;
};

// The number of the lane that a semaphore belongs to.
inline size_t LaneOf(std::string_view semaphore, size_t lanes) {
  return lanes == 1 ? 0 : std::hash<std::string_view>{}(semaphore) % lanes;
}

// A page of what dead nodes host: other incarnations of this node; any other node, if the store is
// exclusive; and the nodes `dead` in these incarnations or earlier ones, whose successors may have died
// before they took over. kDone with `orphans`, `delayed`, `next`, and Affected: how many claims and
// tickets were read. Nothing is moved.
//   Of a shared store a page has at most `rows_max` semaphores, all of which belong to `lane`, and sessions.
//   Lane 0 returns all sessions, without what they have in other pages; the claims of a session come with
//   their semaphores, so that several pages may name it.
//   An exclusive store, which is in memory, returns everything at once.
struct OrphansCommand {
  std::vector<NodeRef> dead;
  uint32_t lane = 0;
  uint32_t lanes = 1;
  std::string after = {};  // Report::next of the page before; empty: the first page.
  uint32_t rows_max = 256;
};

struct AdminCreate {
  uint32_t limit = 0;
  Settings settings;
};
enum class ShrinkPolicy : uint8_t { kWait = 0, kRecall = 1, kRefuse = 2 };
struct AdminResize {
  enum class Change : uint8_t { kSet, kAdd, kRemove };
  Change change = Change::kSet;
  uint32_t amount = 0;
  uint32_t limit_max = 0;  // The daemon's.
  ShrinkPolicy policy = ShrinkPolicy::kWait;
  int64_t grace_ms = Recall::kOwnGrace;
};
struct AdminConfigure {
  Settings settings;
};
enum class DestroyPolicy : uint8_t { kRefuse = 0, kWait = 1, kForce = 2 };
struct AdminDestroy {
  DestroyPolicy policy = DestroyPolicy::kRefuse;
  int64_t grace_ms = Recall::kNow;  // Of kForce, for the leases.
};
struct AdminPause {
  bool paused = true;
};
struct AdminRevoke {
  Id claim;            // One lease, or …
  std::string holder;  // … those of a holder, or, with both empty, all.
  int64_t grace_ms = Recall::kNow;
};
struct AdminPrune {};
// Makes the semaphore in place of what programs of a recipe keep under its name, with their limit. Refused unless
// that is `limit`. kDone with Affected: that limit; kInUse (message): those programs are there, or the limit is
// another one; kUnusable (message): nothing can be adopted; kAlreadyExists (info, message); kUnsupported: no
// recipe is known on this engine.
struct AdminAdopt {
  uint32_t limit = 0;  // 0: nothing is changed; `message` says what would be.
};
// Its leases by slot and its waiters in the order of the queue (without offers), foreign ones among them, up
// to `rows_max` of each. SemaphoreInfo says where each list continues: the command for the next page has that.
// A row that exists from the first page to the last is in exactly one of them, whatever other rows are added or
// removed meanwhile. (A lease that gives back its lowest slots between two pages may be shown twice if another
// daemon, or another life of this one, answers the second.)
// A page costs O(rows_max log n). Besides, a lease whose slots are not neighbours costs as much as it has runs
// of them, in the page that shows it and those that follow.
struct AdminDescribe {
  uint32_t rows_max = 0;  // 0: no rows.
  // Each list begins behind this place; nullopt: with its first row.
  std::optional<LeasePlace> leases_after = {};
  std::optional<QueuePlace> waiters_after = {};
  // False: this list is not wanted, since it is complete while the other continues.
  bool leases = true;
  bool waiters = true;
};

// By age: the ticket with the lowest `order` above `after_order` first. kDone with
// report->tickets (without payloads) and `more`.
struct AdminListTickets {
  uint64_t after_order = 0;
  uint32_t rows_max = 100;
  // Empty: all states.
  std::vector<TicketState> states;
};
// kDone with report->tickets (one, with its payload); kNoSuchTicket.
struct AdminShowTicket {
  Id ticket;
};
// Removes the ticket, in any state; kInUse: a worker has it, and `force`, which revokes its lease, is
// not set.
struct AdminCancelTicket {
  Id ticket;
  bool force = false;
};
// Changes its priority; within a priority tickets are ordered by age.
struct AdminPrioritizeTicket {
  Id ticket;
  int32_t priority = 0;
};
// Queues a dead letter, or with an empty id all of them, at its old place as if never tried. Affected =
// how many. kNoSuchTicket: it is no dead letter. kLimitReached: there is no room for so many.
struct AdminRequeue {
  Id ticket;
};
// Removes a dead letter, or with an empty id all of them. Affected = how many.
struct AdminPurge {
  Id ticket;
};

// One administrative act on one semaphore.
//   kDone with `info` (the semaphore after the act; none if it was removed), changed, Affected;
//   kNoSuchSemaphore, kRevisionMismatch (info), kAlreadyExists (info), kInUse (info), kWouldOvershoot (info), kOutOfRange (a limit below 0 or above limit_max), kLimitReached, kOverQuota,
//   kNoSuchTicket, kDestroyed, kUnsupported, kTooOld, kReused. A destroy is kInUse while there are
//   tickets, unless it is forced.
// A resize, a revoke, a destroy and a configure may concern more claims than one commit changes. kDone then
// means that the act binds; Affected is the number of leases that it covers. The rest of their ends and
// recalls follow as events, of this Step or later ones (ledger/rules/intentions.h).
struct AdminCommand {
  Requester requester;
  std::string semaphore;
  uint64_t expected_revision = 0;
  std::variant<AdminCreate, AdminResize, AdminConfigure, AdminDestroy, AdminPause, AdminRevoke,
               AdminPrune, AdminDescribe, AdminListTickets, AdminShowTicket, AdminCancelTicket,
               AdminPrioritizeTicket, AdminRequeue, AdminPurge, AdminAdopt>
      act;
  std::string owner = {};  // Of a semaphore that it makes.
  OwnerQuotas quotas = {};
};

// Names in alphabetical order, without rows. kDone with `infos`, `more`.
struct ListCommand {
  std::string prefix;
  std::string after;
  uint32_t rows_max = 100;
};

// Newest first. kDone with `history`, `more`; kUnsupported. An empty name: of all semaphores.
struct HistoryCommand {
  std::string semaphore;
  uint32_t rows_max = 100;
  uint64_t before = 0;
};

// Does nothing. kDone: all commands before it have been reported.
struct FlushCommand {};

using Command =
    std::variant<AcquireCommand, ReleaseCommand, VerifyCommand, EndCommand, RecallCommand,
                 AdoptCommand, OpenSessionCommand, AdoptSessionCommand, CloseSessionCommand,
                 OrphansCommand, AdminCommand, ListCommand, HistoryCommand, FlushCommand,
                 EnqueueCommand, TakeCommand, FinishCommand, RipenCommand>;

// True for a command that cannot change anything, whatever its outcome.
bool IsReadOnly(const Command& command);

// The name of the semaphore that a command is about; empty for those about sessions, lists and all.
std::string_view SemaphoreOf(const Command& command);

}  // namespace semaphored
