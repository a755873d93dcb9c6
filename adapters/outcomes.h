// What becomes of commands, and what else has happened meanwhile.
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

// ---- Outcomes: what became of a command. ----

struct ClaimInfo {
  std::string semaphore;
  LeasePtr lease;  // One of the two.
  WaiterPtr waiter;
  TicketPtr ticket = nullptr;  // The lease's, if it has one.
};

// A waiter as it stands at the moment of the answer.
struct WaiterInfo {
  uint64_t position = 0;
  WaiterPtr waiter;
  WaitReason reason = WaitReason::kNone;
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

// A ticket with a delay that the daemon must count from now on: RipenCommand ends it.
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
  // Only to AdminDescribe, with `…_next`: where the list goes on, as AdminDescribe::…_after takes it; nullopt: it does
  // not. To ListCommand `waiters` has the one that has waited the longest, where the ledger keeps the list.
  std::vector<LeasePtr> leases;
  std::vector<WaiterInfo> waiters;
  std::optional<LeasePlace> leases_next = {};
  std::optional<QueuePlace> waiters_next = {};
};

// A session, or a detached claim standing for one, without a living node.
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

// The long answers, apart so that the short ones stay short.
struct Report {
  std::optional<SemaphoreInfo> info;
  std::vector<SemaphoreInfo> infos;
  std::vector<HistoryRow> history;
  std::vector<Orphan> orphans;
  // To OrphansCommand: those whose host is as dead as an orphan's; their delays begin again.
  std::vector<DelayedTicket> delayed;
  // To OrphansCommand: what the command for the next page names; empty: this was the last one.
  std::string next;
  std::optional<Session> session;
  std::vector<ClaimInfo> claims;
  // To AdoptSessionCommand: the session may have more claims, in semaphores that could not be read.
  bool unread = false;
  std::vector<TicketInfo> tickets;
  bool more = false;
  // Other daemons were asked for what they hold, too; Outcome::Affected does not count it.
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
  // So much has to be read for it that this Step has read a part: nothing was done, and the command is
  // to be sent again at once. See AdoptSessionCommand.
  kReading,
  // It may or may not have been done. The adapter finds out; the final outcome comes in
  // StepResult::settled.
  kUnknown,
};

struct Outcome {
  // A claim in the queue (kQueued, kStillWaiting, kBelongsToSession), or a ticket (kEnqueued).
  struct InQueue {
    uint64_t position =
        0;  // From 1. 0: it does not stand there (a ticket with a delay, or with a worker).
    uint32_t epoch = 0;  // Claim::epoch of a claim that stood before the command; 0: a new one.
    // Why it waits; kNone for a ticket.
    WaitReason reason = WaitReason::kNone;
  };
  // kReleased: what went back, and what the holder has left of the lease.
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
  // kQueued: the claim that waits. It is another than the command's when the request was a repeated
  // one.
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

// ---- Events: what happened to claims, whatever the cause. Events about other daemons' claims may
// come too. ----

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
