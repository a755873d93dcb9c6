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

enum class Mutant {
  kNone,
  // ---- the engine ----
  kIgnoreRevision,
  kIgnoreIncarnation,
  kTokensRepeat,  // Tokens begin anew with each semaphore that is made.
  kLifo,          // Who comes last is filed first.
  // ---- the store ----
  kLoseRequests,   // A request's row is never found again, nor stands in a commit's way.
  kStaleReads,     // Changed() says that nothing has.
  kForgetWaiters,  // A semaphore is loaded without its last waiter.
  kReverseQueue,   // A semaphore is loaded with its queue turned round.
  kNoHints,        // No notifications, and no sweep either.
  kHalfNews,       // What a notification tells leaves out the leases that were granted.
  kTicketTwice,    // A ticket that a worker has is loaded as if nobody had it.
  // ---- the adapter ----
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
