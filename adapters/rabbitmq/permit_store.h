// A broker that hands out permits one by one: what the adapter asks of a layout. The broker has the
// permits; the claims that have them are known to this daemon alone. All calls may block for as long as
// the broker takes to answer, unless they say otherwise; an error means that it could not be asked
// (DEADLINE_EXCEEDED: it could not for this semaphore alone). Used by one thread at a time, but for
// Wake(); never throws.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "adapters/adapter.h"
#include "adapters/ledger/state/permits.h"
#include "adapters/ledger/store.h"

namespace semaphored::rabbitmq {

// The broker has taken back what this claim had.
struct LostPermit {
  std::string semaphore;
  Id claim;
};

class PermitStore : public ledger::PermitSource {
 public:
  virtual const Guarantees& guarantees() const = 0;

  // Rows only, asked for when a semaphore is first spoken of and now and then after; their revision
  // rises with each change of the row, by whatever daemon, and never with a claim.
  virtual absl::StatusOr<ledger::Image> Load(absl::Span<const std::string> names) = 0;
  // As LedgerStore has it. Gives back what has ended, and sets SemaphoreDelta::revision where the row
  // changed.
  virtual ledger::CommitResult Commit(ledger::Transaction& transaction, SteadyTime deadline) = 0;
  virtual ledger::CommitResult Settle(ledger::Transaction& transaction, SteadyTime deadline) = 0;
  // As LedgerStore has it. A notice with a revision other than the known one: the row is to be read;
  // without: permits have come, or there may be some.
  virtual absl::StatusOr<std::vector<ledger::ChangeNotice>> Wait(SteadyTime deadline) = 0;
  virtual void Wake() = 0;
  // Names of existing semaphores from `after` (not itself) on. Called only with Guarantees::names.
  virtual absl::StatusOr<std::vector<std::string>> Names(const std::string& prefix,
                                                         const std::string& after,
                                                         uint32_t rows_max) = 0;

  // For lists: what there is of a semaphore that is not in use here, which it does not come to be by this. The
  // row is of up to some minutes ago if the change notice of another daemon was lost. nullopt: there is none.
  // Called only with Guarantees::names.
  struct Shown {
    SemaphoreRow row;
    uint32_t held = 0;
  };
  virtual absl::StatusOr<std::optional<Shown>> Look(const std::string&) {
    return absl::UnimplementedError("no list is kept");
  }

  // Why the broker can have no semaphore of this name with this limit; empty: it can. Does not block.
  virtual std::string Refuses(const std::string&, uint32_t) const { return ""; }

  // The semaphores, and why, for which a Take since the last call could not ask the broker, for a
  // claim that does not wait: then it is not known whether it is full.
  virtual std::map<std::string, absl::Status> TakeNotAsked() { return {}; }

  // The broker is known not to answer for this semaphore now, though it does for others. Does not
  // block.
  virtual bool Silent(const std::string&) { return false; }

  // Gives back what was taken since the last commit: that batch does not come to one.
  virtual void Abandon() = 0;

  // Makes the semaphore unless it is there, for a batch that then takes of it.
  virtual absl::Status Provide(const SemaphoreRow& row) = 0;

  // No claim of this daemon is about it any more. False: it is in use all the same.
  virtual bool Unload(const std::string& semaphore) = 0;

  // Permits that neither are free nor held by us: other daemons' and foreign ones.
  virtual absl::StatusOr<uint32_t> HeldElsewhere(const std::string& semaphore) = 0;

  // Finds and mends what the broker may have been left with: never by granting too many.
  // UNAVAILABLE: another client administers the semaphore just now.
  virtual absl::StatusOr<ledger::Pruned> Prune(const std::string& semaphore) = 0;

  // What programs of a recipe keep under this name, and, if it has row.limit permits, is unused and can be adopted,
  // makes the semaphore in its place. A limit of 0: nothing is changed. nullopt: no recipe is known to this layout.
  // REQUIRES: no semaphore of this name is known. UNAVAILABLE: nothing is known to have been done.
  virtual absl::StatusOr<std::optional<ledger::Adoptable>> Adopt(const SemaphoreRow&) {
    return std::optional<ledger::Adoptable>();
  }

  // Queries the broker for what this claim has. If it keeps it no longer, the claim is among the lost
  // ones afterwards. False: it stands, and is not to be verified as held (Guarantees::verifies_removed_slots).
  virtual absl::StatusOr<bool> Check(const std::string& semaphore, const Id& claim) = 0;

  // What other daemons have asked for since the last call: a transaction's `asked_recalls` are sent to
  // all that hold something, when it stands. Of a shrinking, claims of this daemon. Empty unless
  // Guarantees::administers_all.
  virtual std::vector<ledger::AskedRecall> TakeAskedRecalls() { return {}; }

  // The claims whose permits the broker has taken back since the last call.
  virtual std::vector<LostPermit> TakeLostPermits() = 0;
};

}  // namespace semaphored::rabbitmq
