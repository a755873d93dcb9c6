// What the rules of claims, tickets, sessions and administration share. Included by the rules' own
// files only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "adapters/ledger/rules/queue.h"
#include "adapters/ledger/rules/rules.h"

namespace semaphored::ledger {

inline Outcome Simply(OutcomeKind kind) {
  Outcome outcome;
  outcome.kind = kind;
  return outcome;
}

inline Outcome LimitReached(std::string message) {
  Outcome outcome;
  outcome.kind = OutcomeKind::kLimitReached;
  outcome.message = std::move(message);
  return outcome;
}

// nullopt: the owner's quotas allow `more`.
std::optional<Outcome> OverQuota(const LedgerState& state, const std::string& owner,
                                 const OwnerQuotas& quotas, const OwnerUsage& more);

// Of an act that makes a semaphore. nullopt: there is room for it.
std::optional<Outcome> NoRoomFor(const LedgerState& state, const AdminCommand& command,
                                 const Limits& limits);

inline Outcome NotHeld(EndCause cause = EndCause::kNone) {
  Outcome outcome = Simply(OutcomeKind::kNotHeld);
  outcome.cause = cause;
  return outcome;
}

// ---- Claims ----

// The semaphore that a request is about, made if the request says its limit and there is none,
// unless it must exist. `permits`: that it asks for; 0: none now. In the outcome: it is refused,
// and nothing has changed.
struct AskedSemaphore {
  const std::string& name;
  uint32_t limit = 0;
  bool adopt_limit = false;
  bool must_exist = false;
  uint32_t permits = 0;
  const std::string& owner;  // Of the semaphore, if it is made.
  const OwnerQuotas& quotas;
};
std::optional<Outcome> FindOrCreate(Editor& editor, const AskedSemaphore& asked,
                                    const Context& context, Semaphore** semaphore);

// As many leases and waiters as may be; nullopt: there is room for one more.
std::optional<Outcome> ClaimsAtLimit(const LedgerState& state, const Limits& limits);

// Ends a lease. Its ticket, if it has one, returns to its place in the queue, or becomes a dead letter if this was its
// last attempt.
void EndLease(Editor& editor, Semaphore* semaphore, const LeasePtr& lease, EndCause cause,
              const Context& context);

// ---- Tickets ----

// As a list shows it: of its rows, the waiter that has waited the longest.
SemaphoreInfo DescribeListed(const Semaphore& semaphore);

// What an administrator does with tickets. Without the semaphore's info; the first two change
// nothing.
Outcome ListTickets(const Semaphore& semaphore, const AdminListTickets& act);
Outcome ShowTicket(const Semaphore& semaphore, const AdminShowTicket& act);
Outcome CancelTicket(Editor& editor, Semaphore* semaphore, const AdminCancelTicket& act,
                     const Context& context);
Outcome PrioritizeTicket(Editor& editor, Semaphore* semaphore, const AdminPrioritizeTicket& act);
Outcome Requeue(Editor& editor, Semaphore* semaphore, const AdminRequeue& act,
                const Context& context);
Outcome Purge(Editor& editor, Semaphore* semaphore, const AdminPurge& act);

// The dead letter that is named, or with an empty id all, the oldest first.
std::vector<TicketPtr> DeadLetters(const Semaphore& semaphore, const Id& id);

// Whether a command may name `epoch` for this session, or for what this claim hangs on. 0 is any. A session
// that is closing answers to the epoch before, too: its daemon may not know that the row is marked so. Of
// a session that is gone every other epoch is wrong.
bool IsEpochOf(const Session& session, uint32_t epoch);
bool IsEpochOf(const LedgerState& state, const Claim& claim, uint32_t epoch);

// The node that keeps the claim's session, or the detached claim itself.
NodeRef HostOf(const LedgerState& state, const Claim& claim);

// The row of a request that makes no claim; what it was answered is filled in by the caller.
RequestRow DoneBy(const Requester& requester, std::string_view semaphore, const Context& context);

// Why nothing may be asked for in this session: it is gone or closing, or has another epoch (0: any).
std::optional<Outcome> SessionRefuses(const LedgerState& state, const Id& id, uint32_t epoch);

// ---- Acts that may be larger than one commit (intentions.h) ----

// Of our own leases that are `wanted` (LeasePtr → bool) those with the highest slots, at most `max`, the
// highest first.
template <typename Wanted>
std::vector<LeasePtr> HighestFirst(const Semaphore& semaphore, size_t max, Wanted&& wanted) {
  std::vector<const LeasePtr*> found;
  for (const auto& [id, lease] : semaphore.leases) {
    if (!lease->foreign && wanted(lease)) found.push_back(&lease);
  }
  const size_t count = std::min(max, found.size());
  std::ranges::partial_sort(
      found, found.begin() + static_cast<ptrdiff_t>(count),
      [](const LeasePtr* a, const LeasePtr* b) { return (*a)->slots.back() > (*b)->slots.back(); });
  std::vector<LeasePtr> highest;
  for (size_t i = 0; i < count; ++i) highest.push_back(*found[i]);
  return highest;
}

// What is in the way of a limit: our own leases, those with the highest slots first, but for those
// that are recalled; and permits beyond them, which others have. Of the leases at most `leases_max`;
// `elsewhere` is right if there are not more.
struct Excess {
  std::vector<LeasePtr> leases;
  uint64_t elsewhere = 0;
};
Excess ExcessOver(const Semaphore& semaphore, uint32_t limit, size_t leases_max = SIZE_MAX);

// Waiters that could never be served with the present limit and cap leave the queue. True: none is
// left; else as many as the commit may change have left.
bool TellHopeless(Editor& editor, Semaphore* semaphore, const Context& context);

// The same for all waiters and offers of a semaphore that is destroyed.
bool DismissWaiters(Editor& editor, Semaphore* semaphore, const Context& context);

// The lease is recalled already, and its grace ends no later than this recall's would.
inline bool IsRecalledBy(const Lease& lease, const Recall& recall) {
  return lease.recall.pending() && lease.recall.grace_ms <= recall.grace_ms;
}

// The grace of a command. No grace at all still leaves the end to the lease's host: a millisecond.
inline int64_t GraceOf(int64_t asked_ms, const Semaphore& semaphore) {
  if (asked_ms == Recall::kNow) return Recall::kNow;
  const int64_t own_ms = semaphore.row.settings.recall_grace_ms;
  return std::max<int64_t>(asked_ms == Recall::kOwnGrace ? own_ms : asked_ms, 1);
}

// Writes the recall on the lease, or with kNow ends it. A lease with a pending recall whose grace is not
// longer stays as it is: that grace began earlier.
void RecallLease(Editor& editor, Semaphore* semaphore, const LeasePtr& lease, const Recall& recall,
                 const Context& context);

}  // namespace semaphored::ledger
