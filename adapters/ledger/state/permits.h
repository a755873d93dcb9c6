// Engines that hand out permits one by one, instead of keeping who has them. All calls may block
// for as long as the engine takes to answer; an error means that the engine could not be asked
// (DEADLINE_EXCEEDED: it could not for this semaphore alone).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "adapters/types.h"

namespace semaphored::ledger {

// The engine has taken back what this claim had.
struct LostPermit {
  std::string semaphore;
  Id claim;
};

// What Prune has found.
struct Pruned {
  uint32_t removed = 0;  // Permits too many, and things that were none.
  uint32_t added = 0;    // Permits that had been lost.
  // Permits of which it cannot be said whether they are lost or in somebody's hands, and why; they
  // were left as they are.
  uint32_t unresolved = 0;
  std::string message;
};

// Leases that an administrator has asked daemons to recall or end, each its own.
struct TakeBack {
  std::string semaphore;
  Id claim;            // Empty: of any claim.
  std::string holder;  // Empty: of any holder.
  Recall recall;       // With no grace the lease ends at once.
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
  // soon, and a hint will follow. Until the commit that has the grant, it may be given back.
  virtual std::optional<Permit> Take(const std::string& semaphore, const Id& claim, bool waits) = 0;

  // Why the engine can have no semaphore of this name with this limit; empty: it can. Asks nobody.
  virtual std::string Refuses(const std::string&, uint32_t) const { return ""; }

  // The semaphores, and why, for which a Take since the last call could not ask the engine, for a
  // claim that does not wait: then nobody knows whether it is full.
  virtual std::map<std::string, absl::Status> TakeNotAsked() { return {}; }

  // The engine is known not to answer for this semaphore now, though it does for others. Asks
  // nobody.
  virtual bool Silent(const std::string&) { return false; }

  // Gives back what was taken since the last commit: that batch does not come to one.
  virtual void Abandon() = 0;

  // Makes the semaphore unless it is there, for a batch that then takes of it.
  virtual absl::Status Provide(const SemaphoreRow& row) = 0;

  // Nobody here holds it, waits for it or asks for it any more. False: it is in use all the same.
  virtual bool Unload(const std::string& semaphore) = 0;

  // Permits that neither are free nor held by us: other daemons' and foreign ones.
  virtual absl::StatusOr<uint32_t> HeldElsewhere(const std::string& semaphore) = 0;

  // Finds and mends what the engine may have been left with: never by granting too many.
  // UNAVAILABLE: somebody else administers the semaphore just now.
  virtual absl::StatusOr<Pruned> Prune(const std::string& semaphore) = 0;

  // Asks the engine whether it still keeps for us what this claim has. If it does not, the claim is
  // among the lost ones afterwards.
  virtual absl::Status Check(const std::string& semaphore, const Id& claim) = 0;

  // What other daemons have asked for since the last call: a transaction's `take_backs` are told to
  // all that hold something, when it stands. Of a shrinking, claims of this daemon. Empty unless
  // Guarantees::administers_all.
  virtual std::vector<TakeBack> TakeAsked() { return {}; }

  // The claims whose permits the engine has taken back since the last call.
  virtual std::vector<LostPermit> TakeLostPermits() = 0;
};

}  // namespace semaphored::ledger
