// The interface between the server and an engine.
//
// An adapter keeps semaphores. It is synchronous and batched, is used by one thread at a time (the
// lane that owns it), and never throws. Only Wake() may be called from any thread.
//
// Losing is a value (kFull, kQueued, …), not knowing is a value (kUnknown); only breakage is an
// error.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "adapters/types.h"

namespace semaphored {

using SteadyTime = std::chrono::steady_clock::time_point;

// ---- Commands: what the server asks. All names and numbers in them have been checked by the
// server. ----

// Who asks, so that a repeated request gets the same answer. Without an id (sequence 0) each is
// new.
struct Requester {
  std::string client_id;
  uint64_t sequence = 0;
};

// Takes permits, or a place in the queue.
//   kGranted (lease), kQueued (position; later the event kGranted or kWaitEnded), kFull,
//   kHolderCap, kPaused, kWithheld, kLimitMismatch (number = the stored limit), kExceedsLimit
//   (number = the limit), kNoSuchSemaphore, kDestroyed, kLimitReached, kTooOld, kReused,
//   kSessionLost, kUnusable.
// A repeated request finds its waiter or its living lease again, moved to this node if it was
// detached; if the lease has ended: kNotHeld with the cause where it is known.
struct AcquireCommand {
  Requester requester;
  std::string semaphore;
  Id claim;    // New, made by the server. A repeated request is answered with the first one's.
  Id session;  // Equal to claim: detached. Otherwise a session that OpenSession made.
  uint32_t permits = 1;
  uint32_t limit = 0;  // 0: must exist.
  bool adopt_limit = false;
  bool wait = false;
  int32_t priority = 0;
  int64_t ttl_ms = 0;
  std::string holder;
};

// Gives permits back: all (slots empty) or some.
//   kReleased (number = permits released, remaining, lease = what is left of it), kNotHeld (cause),
//   kNoSuchSlot, kTooOld, kReused.
struct ReleaseCommand {
  Requester requester;
  std::string semaphore;
  Id claim;
  Slots slots;
};

// kHeld (lease) or kNotHeld (cause). By claim, or, if claim is empty, by slot and token (number64 =
// the token that holds the slot now, 0 = none).
struct VerifyCommand {
  std::string semaphore;
  Id claim;
  uint32_t slot = 0;
  uint64_t token = 0;
};

// Ends a lease or a wait that is not ended by its holder: its TTL, its wait, its recall ran out,
// its client went away.
//   kDone; kNotHeld: it is gone already; kStale: the condition does not hold any more, nothing was
//   done.
struct EndCommand {
  std::string semaphore;
  Id claim;
  EndCause cause = EndCause::kExpired;
  // Only if the session that the claim hangs on still has this epoch. 0: any.
  uint32_t epoch = 0;
  // Only if it still waits (for a wait that ran out or was given up): a lease is not touched.
  bool only_waiting = false;
};

// Asks the holder to give a lease back. kDone (lease), kNotHeld.
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
};

// Puts a ticket into the semaphore's queue, where it outlives its client.
//   kEnqueued (claim = the ticket's id, position; 0: it is delayed, or has been given to a worker
//   at once), kLimitMismatch (number = the stored limit), kNoSuchSemaphore, kDestroyed,
//   kLimitReached, kTooOld, kReused, kUnusable, kUnsupported.
// A full, paused or closed semaphore is no reason to refuse. A repeated request has the ticket of
// the first one, with the position that it has now.
struct EnqueueCommand {
  Requester requester;
  std::string semaphore;
  Id ticket;           // New, made by the server.
  uint32_t limit = 0;  // As in AcquireCommand.
  bool adopt_limit = false;
  int32_t priority = 0;
  int64_t delay_ms = 0;       // Not before so long after it was enqueued.
  uint32_t max_attempts = 0;  // 0: no bound.
  BackOff back_off;
  std::string content_type;
  std::string trace;
  PayloadPtr payload;
};

// What becomes of an offer to work for which there is no ticket now.
enum class OfferKept : uint8_t {
  kNo = 0,
  kWhileTickets = 1,  // It stands if some ticket, not counting dead letters, may still come.
  kAlways = 2,        // It stands: whatever is enqueued later comes to it.
};

// Offers to carry out one ticket.
//   kGranted (lease; report->tickets has the ticket with its payload), kQueued (the offer stands;
//   later the event kGranted or kWaitEnded), kNothing (there is no ticket, or with kNo none that is
//   eligible), kLimitReached, kNoSuchSemaphore, kDestroyed, kSessionLost, kUnsupported; with kNo
//   also kFull, kHolderCap, kPaused and kWithheld, where there is an eligible ticket.
// Whatever is not kGranted or kQueued leaves nothing behind.
struct TakeCommand {
  std::string semaphore;
  Id claim;    // New, made by the server.
  Id session;  // As in AcquireCommand.
  int64_t ttl_ms = 0;
  std::string holder;
  OfferKept keep = OfferKept::kNo;
};

// What has become of a ticket that a worker took. The lease ends with it.
//   kReleased (number = 1), kNotHeld (cause): the lease has ended before, and nothing was done: the
//   ticket was, or will be, given to another; kNoSuchTicket: it is not a ticket's lease; kTooOld,
//   kReused, kUnsupported.
struct FinishCommand {
  enum class Result : uint8_t {
    kDone = 0,     // It was carried out; the ticket goes.
    kFailed = 1,   // It comes back after retry_after_ms, or its back-off; or it becomes a dead
                   // letter, if this was the last attempt.
    kReject = 2,   // It will never work: a dead letter.
    kPutBack = 3,  // It was not begun: back to its place, and the attempt does not count.
  };
  Requester requester;
  std::string semaphore;
  Id claim;
  Result result = Result::kDone;
  std::string reason;  // Of kFailed and kReject; cut if it is long.
  std::optional<int64_t> retry_after_ms;
};

// A delay is over: the ticket is eligible. kDone; kNoSuchTicket; kStale: it is not in this delay
// any more; kUnsupported.
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
};

// Moves a session to this node: epoch + 1 (not if it is here already; `changed` tells).
//   kDone with `session` and `claims` (all that it has, by semaphore; within one, leases and
//   waiters in the order in which they asked), kSessionLost.
struct AdoptSessionCommand {
  Id session;
};

// Removes the session's row once its claims are ended; ends what is left with `cause`.
//   kDone, kSessionLost, kStale (another epoch; 0: any).
struct CloseSessionCommand {
  Id session;
  uint32_t epoch = 0;
  EndCause cause = EndCause::kExpired;
};

// Everything that hangs on nodes which are dead: on other incarnations of this node, on any other
// node if the store is exclusive, and on `dead` in these incarnations or earlier ones (whose
// successors may have died before they took over). kDone with `orphans`. Nothing is moved.
struct OrphansCommand {
  std::vector<NodeRef> dead;
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
  std::optional<int64_t> grace_ms;  // nullopt: the semaphore's own.
};
struct AdminConfigure {
  Settings settings;
};
enum class DestroyPolicy : uint8_t { kRefuse = 0, kWait = 1, kForce = 2 };
struct AdminDestroy {
  DestroyPolicy policy = DestroyPolicy::kRefuse;
};
struct AdminPause {
  bool paused = true;
};
struct AdminRevoke {
  Id claim;            // One lease, or …
  std::string holder;  // … those of a holder, or, with both empty, all.
  int64_t grace_ms = 0;
};
struct AdminPrune {};
struct AdminDescribe {
  uint32_t rows_max = 0;
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
// The ticket goes, in whatever state; kInUse: it is being carried out, and `force`, which revokes
// its lease, was not asked for.
struct AdminCancelTicket {
  Id ticket;
  bool force = false;
};
// A new place; within its priority it goes by age.
struct AdminPrioritizeTicket {
  Id ticket;
  int32_t priority = 0;
};
// A dead letter, or with an empty id all of them, back to its old place as if never tried. number =
// how many. kNoSuchTicket: it is no dead letter. kLimitReached: there is no room for so many.
struct AdminRequeue {
  Id ticket;
};
// A dead letter, or with an empty id all of them, is removed. number = how many.
struct AdminPurge {
  Id ticket;
};

// One administrative act on one semaphore.
//   kDone with `info` (the semaphore after the act; none when it is gone), changed, number = leases
//   affected; kNoSuchSemaphore, kRevisionMismatch (info), kAlreadyExists (info), kInUse (info),
//   kWouldOvershoot (info), kOutOfRange (a limit below 0 or above limit_max), kLimitReached,
//   kNoSuchTicket, kDestroyed, kUnsupported, kTooOld, kReused. A destroy is kInUse while there are
//   tickets, unless it is forced.
struct AdminCommand {
  Requester requester;
  std::string semaphore;
  uint64_t expected_revision = 0;
  std::variant<AdminCreate, AdminResize, AdminConfigure, AdminDestroy, AdminPause, AdminRevoke,
               AdminPrune, AdminDescribe, AdminListTickets, AdminShowTicket, AdminCancelTicket,
               AdminPrioritizeTicket, AdminRequeue, AdminPurge>
      act;
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

// From now on (or no longer) StepResult::changes are filled in. kDone.
struct WatchCommand {
  bool on = true;
};

using Command =
    std::variant<AcquireCommand, ReleaseCommand, VerifyCommand, EndCommand, RecallCommand,
                 AdoptCommand, OpenSessionCommand, AdoptSessionCommand, CloseSessionCommand,
                 OrphansCommand, AdminCommand, ListCommand, HistoryCommand, WatchCommand,
                 EnqueueCommand, TakeCommand, FinishCommand, RipenCommand>;

// ---- Outcomes: what became of a command. ----

struct ClaimInfo {
  std::string semaphore;
  LeasePtr lease;  // One of the two.
  WaiterPtr waiter;
  TicketPtr ticket = nullptr;  // The lease's, if it has one.
};

struct WaiterInfo {
  uint64_t position = 0;
  WaiterPtr waiter;
};

struct TicketInfo {
  TicketPtr ticket = nullptr;
  uint64_t position = 0;  // From 1; 0: it is not kQueued.
  // Null where none was asked for, and where it could not be read just now: AdminShowTicket asks
  // again.
  PayloadPtr payload = nullptr;
};

struct TicketCounts {
  uint64_t queued = 0;
  uint64_t delayed = 0;
  uint64_t assigned = 0;
  uint64_t dead = 0;
  uint64_t living() const { return queued + delayed + assigned; }
  friend bool operator==(const TicketCounts&, const TicketCounts&) = default;
};

// A ticket whose delay nobody counts.
struct DelayedTicket {
  std::string semaphore;
  TicketPtr ticket;
};

struct SemaphoreInfo {
  SemaphoreRow row;
  uint32_t held = 0;
  uint64_t waiting = 0;  // Without offers.
  uint64_t offers = 0;
  TicketCounts tickets;
  std::vector<LeasePtr> leases;
  std::vector<WaiterInfo> waiters;
};

// A session, or a detached claim standing for one, without a living node.
struct Orphan {
  Id session;
  uint32_t epoch = 0;
  int64_t ttl_ms = 0;
  std::vector<ClaimInfo> claims;
  // Its host was an earlier life of this node, which nobody has seen to be dead: it may still vouch
  // until it learns that it was replaced. Never on an exclusive store.
  bool replaced = false;
};

// The long answers, apart so that the short ones stay short.
struct Report {
  std::optional<SemaphoreInfo> info;
  std::vector<SemaphoreInfo> infos;
  std::vector<HistoryRow> history;
  std::vector<Orphan> orphans;
  // To OrphansCommand: those whose host is as dead as an orphan's. They are to be ripened when
  // their delay, counted from now, is over.
  std::vector<DelayedTicket> delayed;
  std::optional<Session> session;
  std::vector<ClaimInfo> claims;
  std::vector<TicketInfo> tickets;
  bool more = false;
  // Other daemons were asked for what they hold, too; Outcome::number does not count it.
  bool others_asked = false;
};

enum class OutcomeKind : uint8_t {
  kGranted,
  kQueued,
  kFull,
  kHolderCap,
  kPaused,
  kLimitMismatch,
  kExceedsLimit,
  kNoSuchSemaphore,
  kDestroyed,
  kLimitReached,
  kTooOld,
  kReused,
  kSessionLost,
  kReleased,
  kNotHeld,
  kNoSuchSlot,
  kHeld,
  kStillWaiting,
  kBelongsToSession,
  kDone,
  kStale,
  kRevisionMismatch,
  kAlreadyExists,
  kInUse,
  kWouldOvershoot,
  kOutOfRange,
  kUnsupported,
  // Other clients of the engine, or people, have left the semaphore there in a state in which
  // nobody can say how many permits are free: `message` says what it is, and what to do.
  kUnusable,
  // What the engine has of the semaphore is not understood: `message` says what. Nothing is
  // changed.
  kDamaged,
  // A repeated acquire whose wait had ended: see cause.
  kWaitEnded,
  // There is room, but nothing is granted for now: the engine may have lost commits at a fail-over,
  // and the leases in them have not yet run out.
  kWithheld,
  // Another client of the engine has the semaphore locked for so long that we have given up:
  // nothing was done. The lane makes an error of it (UNAVAILABLE).
  kBusy,
  kEnqueued,
  // There is no ticket to be had.
  kNothing,
  kNoSuchTicket,
  // It may or may not have been done. The adapter finds out; the final outcome comes in
  // StepResult::settled.
  kUnknown,
};

struct Outcome {
  OutcomeKind kind = OutcomeKind::kDone;
  EndCause cause = EndCause::kNone;
  bool changed = false;
  uint32_t number = 0;
  uint32_t remaining = 0;
  uint64_t number64 = 0;
  uint64_t position = 0;
  LeasePtr lease;
  // kQueued: the claim that waits. It is another than the command's when the request was a repeated
  // one.
  Id claim;
  // A sentence about a limit that was reached or a thing that is not supported; else empty.
  std::string message;
  std::unique_ptr<Report> report;
};

// ---- Events: what happened to claims, whoever did it. Events about other daemons' claims may come
// too. ----

struct Event {
  enum class Kind : uint8_t {
    kGranted,    // A waiter became a lease.
    kEnded,      // A lease is gone (cause).
    kWaitEnded,  // A waiter is gone (cause).
    kRecalled,   // lease->recall says how long it still has.
    kMoved,      // The claim's or session's liveness is now kept by another node.
    // A ticket of this daemon's semaphores has begun a delay that this daemon is to count (ticket);
    // when it is over, RipenCommand.
    kTicketDelayed,
  };
  Kind kind = Kind::kGranted;
  EndCause cause = EndCause::kNone;
  Id claim;
  std::string_view semaphore;  // Valid until the next Step.
  LeasePtr lease;              // kGranted, kRecalled: as it is now. kEnded: as it was.
  uint32_t epoch = 0;          // kMoved: the one that it has at the other node.
  // kTicketDelayed. kGranted to an offer that is hosted here: what is to be carried out; null: it
  // has ended again by now.
  TicketPtr ticket = nullptr;
  // kGranted to an offer. Null: it could not be read, as in TicketInfo.
  PayloadPtr payload = nullptr;
};

// For Watch, only when a WatchCommand asked for it.
struct SemaphoreChange {
  enum class Kind : uint8_t {
    kCreated,
    kChanged,
    kDestroyed,
    kQueued,
    kGranted,
    kEnded,
    kRecalled,
    kWaitEnded
  };
  Kind kind = Kind::kChanged;
  SemaphoreInfo info;  // Without rows.
  EndCause cause = EndCause::kNone;
  LeasePtr lease;
  WaiterPtr waiter;
};

struct Settled {
  uint64_t ticket = 0;
  absl::StatusOr<Outcome> outcome;
};

struct StepResult {
  // One for each command of the batch, in order.
  std::vector<Outcome> outcomes;
  // The final outcomes of commands of earlier batches that were kUnknown, by Submission::ticket.
  std::vector<Settled> settled;
  std::vector<Event> events;
  std::vector<SemaphoreChange> changes;
};

// A command with the number by which the lane knows it.
struct Submission {
  uint64_t ticket = 0;
  Command command;
};

class Adapter {
 public:
  virtual ~Adapter() = default;

  // Does not change while the adapter lives.
  virtual const Guarantees& guarantees() const = 0;

  // Carries out a batch as if one command after the other, together and durably, and reads what has
  // happened in the engine. With an empty batch it waits for events until `deadline`, or Wake().
  // With commands it does not wait for events; `deadline` then bounds how long the engine may take.
  //
  // After kUnknown, only Step with an empty batch may be called until all unknown commands were
  // settled.
  //
  // Error: nothing of the batch was done, and what was told before still holds. UNAVAILABLE: the
  // engine cannot be reached; RESOURCE_EXHAUSTED: it has no room; DATA_LOSS: what it keeps is
  // damaged; FAILED_PRECONDITION: this node has been declared dead or replaced, and must not go on.
  virtual absl::StatusOr<StepResult> Step(absl::Span<const Submission> batch,
                                          SteadyTime deadline) = 0;

  // Ends a waiting Step soon, or the next one if none waits. Any thread.
  virtual void Wake() = 0;
};

// True for a command that cannot change anything, whatever its outcome.
bool IsReadOnly(const Command& command);

// The name of the semaphore that a command is about; empty for those about sessions, lists and all.
std::string_view SemaphoreOf(const Command& command);

// A daemon's own row among the nodes on one engine. Used by one thread at a time, another one than
// the lanes'; on a connection of its own. Never throws.
class NodeStore {
 public:
  struct Node {
    NodeRef ref;
    std::string node_id;
    uint64_t counter = 0;
    bool dead = false;
  };

  virtual ~NodeStore() = default;

  // Takes the node id for this process: a new incarnation. Whoever had it before can write nothing
  // more.
  virtual absl::StatusOr<NodeRef> Join(const std::string& node_id) = 0;

  // Counts this node's counter up. FAILED_PRECONDITION: the id was taken by another process or the
  // node was declared dead. Blocks for as long as the engine takes.
  virtual absl::Status Heartbeat() = 0;

  // All nodes, this one too.
  virtual absl::StatusOr<std::vector<Node>> Observe() = 0;

  // Marks `seen` dead if its counter and incarnation still are as seen. False: it has moved on.
  virtual absl::StatusOr<bool> DeclareDead(const Node& seen) = 0;
};

}  // namespace semaphored
