// What becomes of commands, and what else has happened meanwhile.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "adapters/types.h"

namespace semaphored {

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

// A ticket with a delay that somebody must count from now on: RipenCommand ends it.
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
  // To OrphansCommand: those whose host is as dead as an orphan's; their delays begin anew.
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
  // The semaphore is in quarantine: `message` says why. Nothing is changed. (Of CloseSessionCommand
  // see there.)
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
  // An acquire that was to be answered only if repeated is not known: nothing was done.
  kNotAskedBefore,
  // The lease was moved here from another session, whose holder may still count on it: nothing is
  // granted yet. See AcquireCommand.
  kMoving,
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
    // The claim's or session's liveness is now kept by another node; or, with `session`, the claim
    // has left that session, whichever node kept it: to its holder there it is lost.
    kMoved,
  };
  Kind kind = Kind::kGranted;
  EndCause cause = EndCause::kNone;
  Id claim;
  std::string_view semaphore;  // Valid until the next Step.
  LeasePtr lease;              // kGranted, kRecalled: as it is now. kEnded: as it was.
  uint32_t epoch = 0;          // kMoved: the one that it has at the other node.
  // kGranted to an offer that is hosted here: what is to be carried out. Null: it has ended again
  // by now.
  TicketPtr ticket = nullptr;
  // The same; null also if it could not be read, as in TicketInfo.
  PayloadPtr payload = nullptr;
  // kWaitEnded: whose it was, as Waiter::session. Of leases it is in `lease`. kMoved: the session that
  // the claim has left; empty: it has left none.
  Id session = {};
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
  uint64_t number = 0;  // Submission::number.
  absl::StatusOr<Outcome> outcome;
};

// A semaphore that cannot be used though the engine can: what the engine keeps of it is damaged, or no
// commit to it succeeds, not even one that changes nothing. Commands about it are answered kDamaged;
// its permits stay as they are.
struct Quarantine {
  std::string semaphore;
  // OK: it has ended.
  absl::Status why;
  // It cannot be read either: what other daemons do to it is not seen here.
  bool unread = false;
};

struct StepResult {
  // One for each command of the batch, in order.
  std::vector<Outcome> outcomes;
  // The final outcomes of commands of earlier batches that were kUnknown.
  std::vector<Settled> settled;
  std::vector<Event> events;
  std::vector<SemaphoreChange> changes;
  // Delays that have begun, and are this daemon's to count.
  std::vector<DelayedTicket> delayed;
  // Quarantines that have begun, ended, or changed `unread` since the last result; in order.
  std::vector<Quarantine> quarantines;
};

}  // namespace semaphored
