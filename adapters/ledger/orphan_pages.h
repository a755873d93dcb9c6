// What dead nodes left in a shared store, in pages. One query lists the names, once for each take-over; the view reads
// the rows behind the names page by page. Used by one lane.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "adapters/adapter.h"
#include "adapters/ledger/rules/rules.h"
#include "adapters/ledger/shared_store.h"

namespace semaphored::ledger {

class OrphanPages {
 public:
  // The store outlives it.
  OrphanPages(SharedStore* store, NodeRef self) : store_(store), self_(self) {}

  // The page that the command asks for: names of semaphores that may have changed since they were listed,
  // and rows of sessions, which may have moved since. The dead nodes write no more, so that the list stays
  // complete. Blocks in the store if the list is not known. Errors are those of the store.
  absl::StatusOr<OrphansPage> Read(const OrphansCommand& command);

 private:
  // What one take-over is about: this lane's part.
  struct List {
    std::vector<NodeRef> dead;
    std::vector<std::string> semaphores;  // In alphabetical order.
    std::vector<SessionPtr> sessions;     // By id.
  };
  absl::StatusOr<List> Ask(const OrphansCommand& command) const;

  SharedStore* const store_;
  const NodeRef self_;
  std::vector<List> lists_;  // Of take-overs that have begun and not ended, the newest last.
};

}  // namespace semaphored::ledger
