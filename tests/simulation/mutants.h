// Rules that are broken on purpose, one at a time, to see that the checks notice. Nothing of this
// is in the daemon: each mutant is a wrapper, a condition that the simulated engine leaves out, a
// wrong setting, or a client that cheats.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "adapters/adapter.h"
#include "adapters/ledger/shared_store.h"
#include "tests/simulation/memory_engine.h"

namespace semaphored::simulation {

// In this order: mutants.cc takes those of one place for a range.
enum class Mutant {
  kNone,
  // ---- the engine ----
  kIgnoreRevision,
  kIgnoreIncarnation,
  kTokensRepeat,  // Tokens begin anew with each semaphore that is made.
  kLifo,          // Who comes last is filed first.
  // ---- the store ----
  kLoseRequests,         // A request's row is never found again, nor stands in a commit's way.
  kStaleReads,           // Changed() says that nothing has.
  kForgetWaiters,        // A semaphore is loaded without its last waiter.
  kReverseQueue,         // A semaphore is loaded with its queue turned round.
  kNoNotices,            // No notifications, and no sweep either.
  kHalfNotices,          // What a notification tells leaves out the leases that were granted.
  kTicketTwice,          // A ticket that a worker has is loaded as if nobody had it.
  kAffectedStoredWrong,  // The row of an act says one more than it concerned.
  kForeignIsOurs,        // A foreign holder's lease is loaded as one of ours.
  kForeignStays,         // What foreign holders have left behind is not ended.
  kCapIgnored,           // A semaphore is loaded without its cap of permits for each holder.
  kOneHolderEach,        // Each waiter is loaded as if another holder waited.
  kDamageSpreads,        // With one damaged record, all that is read with it counts as damaged.
  kDamageStays,          // What was damaged once is reported as damaged for ever.
  kWithheldIgnored,      // Grants go on while the engine may have lost some.
  // ---- the adapter ----
  kAffectedOffByOne,     // An act's answer says one more.
  kRemainingOffByOne,    // The answer to a release says that one permit more is left.
  kCloseStopsAtDamage,   // A session with a claim in a damaged semaphore keeps all others, too.
  kGrantWhenFull,        // "Full" is told as a grant.
  kAnswerBeforeSettled,  // An acquire whose commit is in doubt is told as granted.
  kEndIgnoresEpoch,      // A TTL that ran out ends also what has moved meanwhile.
  kNeverExpire,          // A lease whose holder is gone is never ended.
  kTakeOverAtOnce,       // What a dead node left behind is ended at once, without its TTL.
  kDoneStays,            // A ticket that is done is put back.
  kFailureNotCounted,    // An attempt that failed is put back.
  kDelaysCutShort,       // A delay is counted as a third of what it is.
  kDelaysForgotten,      // What a dead node counted is counted by nobody.
  kWorkIgnoresEpoch,     // A daemon that a worker has left offers it, and puts back, all the same.
  // ---- the server ----
  kVouchForEver,       // A daemon that lost touch with the engine goes on vouching.
  kNoGraceAfterMove,   // Whoever adopts does not wait for the last host to notice.
  kFastClock,          // A daemon's clock runs half as fast again.
  kDeclareDeadAtOnce,  // A node counts as dead when its counter was seen twice.
  kForgetAtOnce,       // Requesters are forgotten when they have been silent for no time.
  // ---- the client ----
  kForgetTimeSent,  // Counts a lease's time from when the answer came.
};

struct MutantName {
  Mutant mutant;
  std::string name;
};
// All but kNone.
const std::vector<MutantName>& AllMutants();

void MutateEngine(Mutant mutant, MemoryEngine* engine);
// Wrapped if the mutant lives there; else the argument itself.
std::unique_ptr<ledger::SharedStore> MutateStore(Mutant mutant,
                                                 std::unique_ptr<ledger::SharedStore> store);
std::unique_ptr<Adapter> MutateAdapter(Mutant mutant, std::unique_ptr<Adapter> adapter);
std::unique_ptr<NodeStore> MutateNodes(Mutant mutant, std::unique_ptr<NodeStore> nodes);

}  // namespace semaphored::simulation
