// The rules of a semaphore: the outcome of a command, as a function of the state, the command and the context alone. No
// I/O, no clock, no randomness. The rules change the state through the editor, which records the inverse of each change; a
// command that fails changes nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "adapters/adapter.h"
#include "adapters/ledger/state/permits.h"
#include "adapters/ledger/state/transaction.h"

namespace semaphored::ledger {

struct Limits {
  uint32_t semaphores_max = 100'000;
  uint32_t leases_max = 1'000'000;
  uint32_t waiters_max = 1'000'000;
  uint32_t waiters_per_semaphore_max = 200'000;
  uint32_t sessions_max = 200'000;
  // How far behind a large waiter backfill looks for a smaller one that fits.
  uint32_t backfill_depth = 256;
  uint32_t tickets_max = 1'000'000;
  uint32_t tickets_per_semaphore_max = 100'000;     // Living ones.
  uint32_t dead_letters_per_semaphore_max = 1'000;  // With so many no ticket is taken in.
  uint32_t payload_bytes_max = 65'536;
  // Of all tickets together, dead letters included. A ticket without a payload is never over them.
  uint64_t payload_bytes_per_semaphore_max = uint64_t{256} << 20;
  uint64_t payload_bytes_total_max = uint64_t{4} << 30;
};

// Cut to these, or refused by the server; records rest on them.
inline constexpr size_t kContentTypeBytesMax = 255;
inline constexpr size_t kTraceBytesMax = 255;
inline constexpr size_t kReasonBytesMax = 256;
inline constexpr size_t kReasonsMax = 10;

// Of a shared store: what one OrphansCommand is to look at, and Report::next.
struct OrphansPage {
  std::vector<std::string> semaphores;
  std::vector<SessionPtr> sessions;
  std::string next;
};

struct Context {
  NodeRef self;
  int64_t now_unix_ms = 0;  // For people.
  uint32_t client = 0;      // Number of the command's requester, if it has one.
  Id fingerprint;           // Of the command, if it may be repeated.
  Limits limits;
  bool shared = false;              // Other daemons may work on the store.
  bool withheld = false;            // Core::GrantsNothing: nothing is granted, whatever is free.
  PermitSource* permits = nullptr;  // nullptr: whatever the state has room for is granted.
  bool tells_others = false;        // An act on claims can reach daemons that have other claims.
  int64_t longest_hold_max_ms = 0;  // Guarantees::longest_hold_max_ms.
  int64_t vouch_max_ms = 0;         // Guarantees::vouch_max_ms.
  uint32_t grants_max = 0;          // LedgerOptions::grants_per_commit_max.
  // Of claims and tickets, by acts that may be carried on by later commits; 0: no bound.
  uint32_t changes_max = 0;
  // Tickets that earlier parts of an administrative act have changed: its answer counts all of them.
  uint32_t affected_before = 0;
  const OrphansPage* page = nullptr;     // The command's; nullptr: everything.
  const Pruned* pruned = nullptr;        // What was pruned before the command was decided.
  const Adoptable* adoptable = nullptr;  // Core::adoptable of the command.
  // Semaphores that no commit may touch now, and why. nullptr: there are none.
  const absl::btree_map<std::string, std::string>* unusable = nullptr;
};

Outcome Acquire(Editor& editor, const AcquireCommand& command, const Context& context);
// An acquire that is repeated while its claim waits or is held. kNotHeld: the claim does neither.
Outcome Repeat(Editor& editor, const AcquireCommand& command, const Id& claim,
               const Context& context);
Outcome Release(Editor& editor, const ReleaseCommand& command, const Context& context);
Outcome Verify(const LedgerState& state, const VerifyCommand& command);
Outcome End(Editor& editor, const EndCommand& command, const Context& context);
Outcome RecallLease(Editor& editor, const RecallCommand& command, const Context& context);
Outcome Adopt(Editor& editor, const AdoptCommand& command, const Context& context);

Outcome Enqueue(Editor& editor, const EnqueueCommand& command, const Context& context);
Outcome Take(Editor& editor, const TakeCommand& command, const Context& context);
Outcome Finish(Editor& editor, const FinishCommand& command, const Context& context);
Outcome Ripen(Editor& editor, const RipenCommand& command, const Context& context);

// All claims of a session, by semaphore; within one, leases and waiters in the order in which they asked.
std::vector<ClaimInfo> ClaimsOf(const LedgerState& state, const Id& session);
// Of a session that moves, at most so many of its semaphores are touched: its former host learns of the
// move from any of them. Each costs two operations on Consul, whose transactions take 64.
inline constexpr size_t kTouchedByMove = 16;

Outcome OpenSession(Editor& editor, const OpenSessionCommand& command, const Context& context);
Outcome AdoptSession(Editor& editor, const AdoptSessionCommand& command, const Context& context);
Outcome CloseSession(Editor& editor, const CloseSessionCommand& command, const Context& context);
// Looks at what context.page names, or at everything.
Outcome Orphans(const LedgerState& state, const OrphansCommand& command, const Context& context,
                bool exclusive);

Outcome Administer(Editor& editor, const AdminCommand& command, const Context& context);
Outcome List(const LedgerState& state, const ListCommand& command);

// Grants to waiters, and to tickets that a worker offers to carry out, in order, whatever there is
// room for. The rules call it after each change that may make room; it is idempotent.
void Advance(Editor& editor, Semaphore* semaphore, const Context& context);

// Without rows.
SemaphoreInfo Describe(const Semaphore& semaphore);
// With the page of rows that is asked for.
SemaphoreInfo DescribePage(const LedgerState& state, const Semaphore& semaphore,
                           const AdminDescribe& act, const Context& context);

}  // namespace semaphored::ledger
