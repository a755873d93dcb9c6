// The difference between a store that owns its state and one that it shares with other daemons: what
// must be known before a batch is decided, what a commit rests upon, and what other daemons changed.
// Used by one lane; calls may block in the store, unless it says otherwise.
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
  // A batch is about to be decided, as often as it takes. It has come: a reading from here on is of a moment at which
  // an outcome that changes nothing may hold.
  virtual void BeginRun() {}
  // Before a batch is decided: the state then knows all that the batch is about.
  virtual absl::Status Prepare(absl::Span<const Submission> batch) = 0;
  // After a batch was decided: adds to its transaction what it rests upon and does not write.
  virtual void AddConditions(Transaction* transaction) = 0;
  // Looks at the conditions of a transaction that writes nothing, in place of a commit.
  virtual CommitResult Check(const Transaction& transaction) = 0;
  // After a commit that stands, before its outcomes are reported: adds to them what landed after it was
  // read and before it was committed, if it is theirs. What cannot be read is left out; of a session,
  // Report::unread says so.
  virtual void Complete(Decided*) {}
  // Waits for change notices until `deadline` or Wake, and looks after what falls due meanwhile.
  virtual absl::Status Listen(SteadyTime deadline) = 0;

  // What the store says of a command in place of the rules. nullopt: the rules decide it.
  virtual absl::StatusOr<std::optional<Outcome>> Answer(const Command& command) = 0;
  // This lane is to do what is left of acts on the semaphore. REQUIRES: it has intentions. Does not block.
  virtual bool CarriesOn(const SemaphoreRow& row) const = 0;

  // What the lane knows of a store that it shares; nullptr: it owns its state. Does not block.
  virtual const Mirror* mirror() const { return nullptr; }

  // A batch that has lost is decided again, also when that came to light after its answer was lost.
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
