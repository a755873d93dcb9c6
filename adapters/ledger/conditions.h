// What the commit of a batch rests upon in a store that daemons share: the semaphores that the batch has looked at and does
// not write, and the requests that were taken for new. Used by one lane.
#pragma once

#include <string>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "adapters/ledger/core.h"
#include "adapters/ledger/mirror.h"
#include "adapters/ledger/shared_store.h"
#include "adapters/ledger/store.h"

namespace semaphored::ledger {

class Conditions {
 public:
  // All outlive it.
  Conditions(Core* core, SharedStore* store, const Mirror* mirror)
      : core_(core), store_(store), mirror_(mirror) {}

  // A batch begins.
  void Clear() {
    read_.clear();
    decided_on_.clear();
    read_to_adopt_.clear();
  }
  // A command has looked at the semaphore. `decides`: it may write.
  void LookedAt(const std::string& semaphore, bool decides) {
    read_.insert(semaphore);
    if (decides) decided_on_.insert(semaphore);
  }
  // All in which a session that is to be adopted has claims.
  void LookedAtToAdopt(const Id& session, std::vector<std::string> semaphores) {
    read_to_adopt_[session] = std::move(semaphores);
  }

  // As View::AddConditions: once, when the batch has been decided. Adds the nodes that receive a change notice, too.
  void AddTo(Transaction* transaction);
  // As View::Check. Blocks in the store.
  CommitResult Check(const Transaction& transaction);

 private:
  void AddReadToAdopt(const Transaction& transaction);
  // The nodes that receive a change notice of what the transaction does to the semaphore.
  void AddConcerned(const SemaphoreDelta& delta, Transaction* transaction) const;

  Core* const core_;
  SharedStore* const store_;
  const Mirror* const mirror_;
  absl::btree_set<std::string> read_;  // Names that this batch has looked at, …
  // … of them those of commands that may write, …
  absl::flat_hash_set<std::string> decided_on_;
  // … and those that it has looked at to adopt a session, by session.
  absl::flat_hash_map<Id, std::vector<std::string>> read_to_adopt_;
};

}  // namespace semaphored::ledger
