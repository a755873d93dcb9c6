// What the rules know of an engine that hands out permits one by one, instead of keeping the claims that
// have them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "adapters/types.h"

namespace semaphored::ledger {

// What Prune has found.
struct Pruned {
  uint32_t removed = 0;  // Permits too many, and things that were none.
  uint32_t added = 0;    // Permits that had been lost.
  // Permits that are either lost or in a client's hands, which cannot be found out: `message` says
  // why. They were left as they are.
  uint32_t unresolved = 0;
  std::string message;
};

// What programs of a recipe keep under the name of a semaphore that does not exist.
struct Adoptable {
  uint32_t limit = 0;
  uint32_t clients = 0;  // Of those programs, that hold or wait.
  std::string changes;   // For people: what an adoption changes.
  std::string refusal;   // Why it cannot be adopted now; empty: it can.
  bool made = false;     // It was adopted: the semaphore exists.
};

// Leases that an administrator has asked daemons to recall, or with kNow to end, each its own.
struct AskedRecall {
  std::string semaphore;
  Id claim;            // Empty: of any claim.
  std::string holder;  // Empty: of any holder.
  Recall recall;
  // kShrunk: so many leases of the daemons that are asked, all together.
  uint32_t leases_max = 0;
};

class PermitSource {
 public:
  struct Permit {
    uint32_t slot = 0;
    uint64_t token = 0;  // 0: the engine has none.
  };
  virtual ~PermitSource() = default;

  // A grant takes a permit, for this claim, or does not take place. nullopt: the engine has none to
  // give now, or cannot be asked; if the claim `waits`, it may also have been asked to give one
  // soon, and a notice will follow. Until the commit that has the grant, it may be given back. Blocks for
  // as long as the engine takes to answer.
  virtual std::optional<Permit> Take(const std::string& semaphore, const Id& claim, bool waits) = 0;

  // The engine gives no permit of the semaphore now, however many are free: it is known not to answer, or has
  // more permits than the limit allows. Does not block.
  virtual bool Withholds(const std::string& /*semaphore*/) { return false; }
};

}  // namespace semaphored::ledger
