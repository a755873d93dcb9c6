// The difference between a store that one daemon owns and one that several share: what is read before a batch is
// decided, which conditions its commit has, and how the changes of other daemons arrive. Used by one lane; calls may block
// in the store unless the comment says otherwise.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "adapters/adapter.h"
#include "adapters/ledger/core.h"
#include "adapters/ledger/store.h"

namespace semaphored::ledger {

class Mirror;

class View {
 public:
  virtual ~View() = default;

  // Loads what must be known before the first Step.
  virtual absl::Status Start() = 0;
  // A new batch, before its first decision. What is read after this call is recent enough for an outcome that changes
  // nothing.
  virtual void BeginRun() {}
  // Before each decision of a batch: loads into the state everything that the batch is about.
  virtual absl::Status Prepare(absl::Span<const Submission> batch) = 0;
  // After a batch was decided: adds to its transaction the conditions on what it has read and does not write.
  virtual void AddConditions(Transaction* transaction) = 0;
  // Checks the conditions of a transaction that writes nothing, in place of a commit.
  virtual CommitResult Check(const Transaction& transaction) = 0;
  // A commit has won, and its outcomes are not reported yet: adds to them what other commits wrote between the reading and
  // this commit. What cannot be read is left out; for a session Report::unread says so.
  virtual void Complete(Decided*) {}
  // Waits for change notices until `deadline` or Wake, and does the periodic work that is due.
  virtual absl::Status Listen(SteadyTime deadline) = 0;

  // The store's own answer to a command. nullopt: the rules decide the command.
  virtual absl::StatusOr<std::optional<Outcome>> Answer(const Command& command) = 0;
  // True: this lane carries the intentions of the semaphore on. REQUIRES: it has intentions. Does not block.
  virtual bool CarriesOn(const SemaphoreRow& row) const = 0;

  // The lane's copy of a shared store; nullptr: the store owns its state. Does not block.
  virtual const Mirror* mirror() const { return nullptr; }

  // True: a batch that has lost is decided again, also if only Settle found out that it has lost.
  virtual bool DecidesAgain() const = 0;
  // Reads again what the lost batch rested upon.
  virtual absl::Status LearnWhyLost(const Transaction& lost, const CommitResult& commit) = 0;
  // Reads these semaphores again.
  virtual absl::Status Refresh(std::vector<std::string> names) = 0;
};

// Both outlive the view.
std::unique_ptr<View> MakeExclusiveView(Core* core, LedgerStore* store);
std::unique_ptr<View> MakeSharedView(Core* core, SharedStore* store);

}  // namespace semaphored::ledger
