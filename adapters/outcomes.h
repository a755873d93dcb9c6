// The results of a Step: the outcomes of its commands, and the events in the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "adapters/types.h"

namespace semaphored {

// ---- Outcomes of commands ----

struct ClaimInfo {
  std::string semaphore;
  LeasePtr lease;  // One of the two.
  WaiterPtr waiter;
  TicketPtr ticket = nullptr;  // The lease's, if it has one.
};

// A waiter at the moment of the answer.
struct WaiterInfo {
  uint64_t position = 0;
  WaiterPtr waiter;
  WaitReason reason = WaitReason::kNone;
};

struct TicketInfo {
  TicketPtr ticket = nullptr;
  uint64_t position = 0;  // From 1; 0: it is not kQueued.
  // Null if none was asked for, or if it could not be read now: AdminShowTicket reads it again.
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

// A ticket whose delay the daemon counts from now on: RipenCommand ends the delay.
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
  // Only for AdminDescribe, with `…_next`: where the list continues, for AdminDescribe::…_after; nullopt: it is complete.
  // For ListCommand `waiters` has the one that has waited the longest, where the list of the engine has its waiters.
  std::vector<LeasePtr> leases;
  std::vector<WaiterInfo> waiters;
  std::optional<LeasePlace> leases_next = {};
  std::optional<QueuePlace> waiters_next = {};
};

// A session, or a detached claim, whose node is dead.
struct Orphan {
  Id session;
  uint32_t epoch = 0;
  int64_t ttl_ms = 0;
  std::string owner;  // As in Claim.
  std::vector<ClaimInfo> claims;
  // Its host was an earlier life of this node that no daemon has found dead: it may still vouch
  // until it learns that it was replaced. Never on an exclusive store.
  bool replaced = false;
};

// Long answers. They are apart from Outcome, which stays small.
struct Report {
  std::optional<SemaphoreInfo> info;
  std::vector<SemaphoreInfo> infos;
  std::vector<HistoryRow> history;
  std::vector<Orphan> orphans;
  // To OrphansCommand: those whose host is as dead as an orphan's; their delays begin again.
  std::vector<DelayedTicket> delayed;
  // For OrphansCommand: `after` of the next page; empty: this was the last one.
  std::string next;
  std::optional<Session> session;
  std::vector<ClaimInfo> claims;
  // To AdoptSessionCommand: the session may have more claims, in semaphores that could not be read.
  bool unread = false;
  std::vector<TicketInfo> tickets;
  bool more = false;
  // Other daemons recall leases of theirs, too; Outcome::Affected does not count them.
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
  kOverQuota,  // `message` names the quota of the command's owner.
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
  // Other clients of the engine, or people, have left the semaphore there in a state that does not
  // show how many permits are free: `message` says what the state is, and what to do.
  kUnusable,
  // The semaphore is in quarantine: `message` says why. Nothing is changed. (Of CloseSessionCommand
  // see there.)
  kDamaged,
  // A repeated acquire whose wait had ended: see cause.
  kWaitEnded,
  // There is room, but nothing is granted for now: the engine may have lost commits at a fail-over,
  // and the leases in them have not yet run out.
  kWithheld,
  // Another client of the engine keeps the semaphore locked for too long: nothing was done. The lane
  // makes an error of it (UNAVAILABLE).
  kBusy,
  kEnqueued,
  // There is no ticket for the offer.
  kNothing,
  kNoSuchTicket,
  // An acquire that was to be answered only if repeated is not known: nothing was done.
  kNotAskedBefore,
  // The lease was moved here from another session, whose holder may still count on it: nothing is
  // granted yet. See AcquireCommand.
  kMoving,
  // This Step has read a part of what the command needs: nothing was done, and the command must be sent
  // again immediately. See AdoptSessionCommand.
  kReading,
  // It may or may not have been done. The adapter finds out: StepResult::settled of a later Step has the
  // final outcome.
  kUnknown,
};

struct Outcome {
  // A claim in the queue (kQueued, kStillWaiting, kBelongsToSession), or a ticket (kEnqueued).
  struct InQueue {
    uint64_t position =
        0;  // From 1. 0: it is not in the queue (a ticket with a delay, or with a worker).
    uint32_t epoch = 0;  // Claim::epoch of a claim that existed before the command; 0: a new one.
    // Why it waits; kNone for a ticket.
    WaitReason reason = WaitReason::kNone;
  };
  // kReleased: the permits that were released, and those that the lease still has.
  struct Released {
    uint32_t permits = 0;
    uint32_t remaining = 0;
    std::string owner;  // Of the lease. Empty: it has none, or the answer is to a repeated request.
  };
  // kDone of an administrative act: how many leases, or tickets, it concerns. Of OrphansCommand see there.
  struct Affected {
    uint32_t count = 0;
  };
  // kLimitMismatch: the stored limit, and the one that the request asks for. kExceedsLimit: the most that one
  // request can ever be granted.
  struct Limit {
    uint32_t permits = 0;
    uint32_t asked = 0;
  };
  // kNoSuchSlot: the first slot that the lease does not hold, or that was named twice.
  struct NotItsSlot {
    uint32_t slot = 0;
  };
  // kHeld and kNotHeld, to a question by slot: the token that holds the slot now; 0: none.
  struct AtSlot {
    uint64_t token = 0;
  };
  // kDamaged, to CloseSessionCommand: the epoch of the session's row from now on.
  struct Closing {
    uint32_t epoch = 0;
  };

  OutcomeKind kind = OutcomeKind::kDone;
  EndCause cause = EndCause::kNone;
  bool changed = false;
  std::variant<std::monostate, InQueue, Released, Affected, Limit, NotItsSlot, AtSlot, Closing>
      detail;
  LeasePtr lease;
  // kQueued: the claim that waits. For a repeated request it is another one than the command's.
  Id claim;
  // A sentence about a limit that was reached or a thing that is not supported; else empty.
  std::string message;
  std::unique_ptr<Report> report;

  // What `detail` says; all 0 where it says something else.
  uint64_t position() const { return Get<InQueue>().position; }
  uint32_t epoch() const { return Get<InQueue>().epoch; }
  WaitReason wait_reason() const { return Get<InQueue>().reason; }
  uint32_t released() const { return Get<Released>().permits; }
  uint32_t remaining() const { return Get<Released>().remaining; }
  std::string former_owner() const { return Get<Released>().owner; }
  uint32_t affected() const { return Get<Affected>().count; }
  uint32_t limit() const { return Get<Limit>().permits; }
  uint32_t asked_limit() const { return Get<Limit>().asked; }
  uint32_t wrong_slot() const { return Get<NotItsSlot>().slot; }
  uint64_t slot_token() const { return Get<AtSlot>().token; }
  uint32_t closing_epoch() const { return Get<Closing>().epoch; }

 private:
  template <typename Detail>
  Detail Get() const {
    const Detail* found = std::get_if<Detail>(&detail);
    return found == nullptr ? Detail() : *found;
  }
};

// ---- Events of claims, whatever the cause. They may be about claims of other daemons, too. ----

struct Event {
  enum class Kind : uint8_t {
    kGranted,    // A waiter became a lease.
    kEnded,      // A lease has ended (cause).
    kWaitEnded,  // A wait has ended without a grant (cause).
    kRecalled,   // lease->recall has the grace.
    // Another node hosts the claim or session now; or, with `session`, the claim has left that session:
    // its holder there has lost it.
    kMoved,
  };
  Kind kind = Kind::kGranted;
  EndCause cause = EndCause::kNone;
  Id claim;
  std::string_view semaphore;  // Valid until the next Step.
  LeasePtr lease;              // kGranted, kRecalled: as it is now. kEnded: as it was.
  uint32_t epoch = 0;          // kMoved: the one that it has at the other node.
  // kGranted to an offer that is hosted here: the ticket to carry out. Null: its lease has ended already.
  TicketPtr ticket = nullptr;
  // The same; null also if it could not be read, as in TicketInfo.
  PayloadPtr payload = nullptr;
  // kWaitEnded: Waiter::session. (For leases it is in `lease`.) kMoved: the session that the claim has
  // left; empty: it has left none.
  Id session = {};
};

// For Watch, of names that are watched: see LedgerOptions::watched.
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

// A semaphore that cannot be used though the engine can: its rows are damaged, or no commit to it
// succeeds, not even one that changes nothing. Commands about it are answered kDamaged; its permits stay
// as they are.
struct Quarantine {
  std::string semaphore;
  // OK: it has ended.
  absl::Status why;
  // It cannot be read either: this daemon does not see what other daemons do to it.
  bool unread = false;
};

struct StepResult {
  // One for each command of the batch, in order.
  std::vector<Outcome> outcomes;
  // The final outcomes of commands of earlier batches that were kUnknown.
  std::vector<Settled> settled;
  std::vector<Event> events;
  std::vector<SemaphoreChange> changes;
  // Delays that have begun, and that this daemon counts.
  std::vector<DelayedTicket> delayed;
  // Quarantines that have begun, ended, or changed `unread` since the last result; in order.
  std::vector<Quarantine> quarantines;
};

}  // namespace semaphored
