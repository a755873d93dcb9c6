// What adapters on the ledger's rules share beyond a commit: commits without commands, which grant to waiters; and the
// outcomes of a batch that failed, or whose result is unknown.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "adapters/adapter.h"
#include "adapters/ledger/core.h"

namespace semaphored::ledger {

// The time for a commit that grants to waiters for which other daemons have made room.
inline constexpr std::chrono::seconds kServeTime{5};

// One batch as one commit, and its data while the engine's answer is unknown.
class OneCommit {
 public:
  virtual ~OneCommit() = default;
  // Decides the batch and writes it; again, as often as another daemon was first. An error: nothing of
  // it was done. OUT_OF_RANGE: it is larger than a commit of the engine may be.
  virtual absl::Status Run(absl::Span<const Submission> batch, SteadyTime deadline,
                           StepResult* result) = 0;
  // The engine's answer to the last Run was lost.
  bool unsettled() const { return unknown_ != nullptr; }
  // No client waits for the commands of the unsettled commit.
  void DropUnsettledBatch() { unknown_->batch.clear(); }
  // A commit without commands was larger than a commit of the engine may be. True: the next one is smaller.
  virtual bool ServeInSmallerSteps() { return false; }

 protected:
  // Queries the store for the result of the unsettled batch, and reports it. Empty: it is still unknown.
  virtual absl::StatusOr<StepResult> SettleUnknown(SteadyTime deadline) = 0;
  // The answer to the commit of `batch` was lost: its outcomes are unknown.
  void KeepUnknown(absl::Span<const Submission> batch, std::unique_ptr<Decided> decided,
                   StepResult* result);
  // SettleUnknown of a commit without commands of clients. UNAVAILABLE: its result is still unknown.
  absl::Status SettleOwn(Core* core, SteadyTime deadline);

  std::unique_ptr<Decided> unknown_;  // The engine's answer to its commit was lost.
};

// Grants to waiters where there may be room, and carries intentions on, by one commit without commands, so that no batch
// fails with it. If it fails for a reason in its data, each semaphore gets a commit of its own, and one whose own commit
// fails too is put into quarantine. UNAVAILABLE: the
// commit is unsettled, or the engine cannot be reached.
absl::Status ServeOnce(Core* core, OneCommit* commit, SteadyTime deadline, StepResult* result);

// These commands of the batch under way were not done, and `status` is to be reported with the next Step.
void FailLater(absl::Span<const Submission> rest, const absl::Status& status, StepResult* result,
               std::vector<Settled>* later);

// The batch whose fate was unknown is settled: as its outcomes in `result` say, or with `status`. A status that
// blames one command of several is none for the others: all are to be repeated.
void SettleAll(const std::vector<Submission>& batch, const absl::Status& status,
               StepResult* result);

// Why an unsettled batch was not done, by the result of Settle, which is not kWon.
absl::Status WhyNotDone(const CommitResult& settled);

}  // namespace semaphored::ledger
