// A batch in as many commits as the engine and the data need: in parts that fit into one commit each, and without the
// commands that fail alone. Used by one lane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "adapters/adapter.h"
#include "adapters/ledger/core.h"
#include "adapters/ledger/one_commit.h"

namespace semaphored::ledger {

class Portions {
 public:
  // Both outlive it.
  Portions(Core* core, OneCommit* commit);

  // Carries out a batch that is not empty. A part that fails for a reason in its data is halved, down to
  // the command that is to blame: that one fails, and the others are carried out. A part is never tried
  // again after an outage, a deadline or an answer that was lost. An error: nothing was done.
  absl::StatusOr<StepResult> Step(absl::Span<const Submission> batch, SteadyTime deadline);

  // Commands that failed after others of their batch were done; they are reported with the next Step.
  std::vector<Settled> TakeFailed() { return std::exchange(failed_later_, {}); }

  // How many rows one commit may change for acts that are carried on, as far as is known.
  uint32_t changes_max() const { return changes_max_; }
  // The commit was too large for the engine. False: smaller steps would not make it smaller.
  bool TakeSmallerSteps();
  // A commit has won: the next one may change more.
  void TakeLargerSteps();

 private:
  // How many dead letters were affected.
  absl::StatusOr<uint32_t> RunParts(const std::vector<Command>& parts, SteadyTime deadline,
                                    StepResult* result);
  // Carries out a command that is too large for one commit, in its parts. OUT_OF_RANGE: it has none, and nothing was
  // done; or one of them is too large.
  absl::Status RunLarge(const Submission& submission, SteadyTime deadline, StepResult* result);

  Core* const core_;
  OneCommit* const commit_;
  std::vector<Settled> failed_later_;
  // Of how many commands a part may be, as far as is known.
  size_t part_max_ = SIZE_MAX;
  uint32_t changes_max_;
};

}  // namespace semaphored::ledger
