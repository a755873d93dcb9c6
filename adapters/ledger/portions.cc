#include "adapters/ledger/portions.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "adapters/ledger/faults.h"
#include "adapters/ledger/large_commands.h"
#include "adapters/ledger/requests.h"
#include "adapters/ledger/rules/steps.h"

namespace semaphored::ledger {
namespace {

// A part that was too large is tried again without one in so many commands: only this lane pays.
constexpr size_t kPartShrinksBy = 8;
constexpr size_t kPartsAtOnce = 16;

}  // namespace

Portions::Portions(Core* core, OneCommit* commit)
    : core_(core), commit_(commit), changes_max_(core->options.changes_per_commit_max) {}

bool Portions::TakeSmallerSteps() {
  if (changes_max_ <= 1) return false;
  changes_max_ /= 2;
  return true;
}

void Portions::TakeLargerSteps() {
  changes_max_ = std::min(changes_max_ + 1, core_->options.changes_per_commit_max);
}

absl::StatusOr<StepResult> Portions::Step(absl::Span<const Submission> batch, SteadyTime deadline) {
  StepResult all;
  size_t size_max = batch.size();
  for (size_t done = 0; done < batch.size();) {
    const size_t size = std::min({batch.size() - done, part_max_, size_max});
    StepResult part;
    absl::Status status = commit_->Run(batch.subspan(done, size), deadline, &part);
    if (absl::IsOutOfRange(status) && size > 1) {
      part_max_ = size - (size + kPartShrinksBy - 1) / kPartShrinksBy;
      continue;
    }
    if (LiesInData(status) && size > 1) {
      size_max = size / 2;
      continue;
    }
    if (absl::IsOutOfRange(status) && IsCarriedOn(batch[done].command) && TakeSmallerSteps())
      continue;
    const std::string too_large(status.message());
    if (absl::IsOutOfRange(status)) status = RunLarge(batch[done], deadline, &part);
    if (absl::IsOutOfRange(status)) {
      part.outcomes.push_back(LimitReached(too_large));
    } else if (LiesInData(status) && batch.size() > 1) {
      // It alone is to blame.
      FailLater(batch.subspan(done, 1), status, &part, &failed_later_);
    } else if (!status.ok() && done == 0) {
      return status;
    } else if (!status.ok()) {
      FailLater(batch.subspan(done), status, &all, &failed_later_);
      return all;
    } else if (size == part_max_) {
      ++part_max_;  // It grows slowly: a part that is too large is decided in vain.
    }
    size_max = std::min(batch.size(), 2 * size_max);
    std::ranges::move(part.outcomes, std::back_inserter(all.outcomes));
    AppendReports(&part, &all);
    done += size;
    if (!commit_->unsettled()) continue;
    FailLater(batch.subspan(done),
              absl::UnavailableError(
                  "what came before it is not settled; nothing of this was done, try again"),
              &all, &failed_later_);
    return all;
  }
  return all;
}

absl::StatusOr<uint32_t> Portions::RunParts(const std::vector<Command>& parts, SteadyTime deadline,
                                            StepResult* result) {
  uint32_t affected = 0;
  size_t at_once = kPartsAtOnce;
  for (size_t done = 0; done < parts.size();) {
    std::vector<Submission> batch;
    for (size_t i = done; i < std::min(parts.size(), done + at_once); ++i)
      batch.push_back({0, parts[i]});
    StepResult part;
    const absl::Status status = commit_->Run(batch, deadline, &part);
    if (absl::IsOutOfRange(status) && at_once > 1) {
      at_once /= 2;
      continue;
    }
    if (!status.ok()) return status;
    AppendReports(&part, result);
    if (commit_->unsettled()) {
      // No client waits for this part; the whole is to be asked for again.
      commit_->DropUnsettledBatch();
      return absl::UnavailableError("a part of it is not settled yet; try again");
    }
    // Skipped, it would make the last part as large as the whole is.
    const auto busy = std::ranges::find(part.outcomes, OutcomeKind::kBusy, &Outcome::kind);
    if (busy != part.outcomes.end()) return absl::UnavailableError(busy->message);
    for (const Outcome& outcome : part.outcomes) affected += outcome.affected();
    done += batch.size();
  }
  return affected;
}

absl::Status Portions::RunLarge(const Submission& submission, SteadyTime deadline,
                                StepResult* result) {
  const Parts parts = PartsOf(submission.command, core_->state);
  if (!parts.first && parts.before.empty()) return absl::OutOfRangeError("it has no parts");
  const bool is_act = std::holds_alternative<AdminCommand>(submission.command);
  absl::StatusOr<uint32_t> affected = 0;
  if (parts.first) affected = RunParts({*parts.first}, deadline, result);
  // As a whole it is refused for the same reason, which is the answer.
  const bool refused = is_act && parts.first && affected.ok() && *affected == 0;
  if (affected.ok() && !refused) {
    const uint32_t by_first = *affected;
    affected = RunParts(parts.before, deadline, result);
    if (affected.ok()) *affected += by_first;
  }
  absl::Status status = affected.status();
  StepResult last;
  const Submission whole{submission.number, refused ? submission.command : parts.last};
  if (is_act && affected.ok())
    core_->requests.SetFingerprint(FingerprintOf(submission.command), *affected);
  if (status.ok()) status = commit_->Run({&whole, 1}, deadline, &last);
  if (!commit_->unsettled()) core_->requests.SetFingerprint({});
  AppendReports(&last, result);
  if (!status.ok()) {
    // What was done is reported all the same, with the next result.
    core_->outbox.Keep(result);
    return status;
  }
  std::ranges::move(last.outcomes, std::back_inserter(result->outcomes));
  return absl::OkStatus();
}

}  // namespace semaphored::ledger
