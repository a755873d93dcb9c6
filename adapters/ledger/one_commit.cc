#include "adapters/ledger/one_commit.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/faults.h"
#include "adapters/ledger/rules/steps.h"
#include "spdlog/spdlog.h"

namespace semaphored::ledger {
namespace {

absl::Status WriteLost() {
  return absl::UnavailableError(
      "the engine's answer was lost, and the write with it; nothing was done, try again");
}

absl::Status ServeOneByOne(Core* core, OneCommit* commit, SteadyTime deadline, StepResult* result) {
  Serving& serving = core->serving;
  const std::vector<std::string> names(serving.names().begin(), serving.names().end());
  for (const std::string& name : names) {
    if (serving.IsQuarantined(name)) continue;
    serving.ServeOnly(name);
    StepResult one;
    const absl::Status status = commit->Run({}, deadline, &one);
    serving.ServeOnly("");
    if (commit->unsettled() || (!status.ok() && !LiesInData(status)))
      return status.ok() ? absl::UnavailableError("a commit is not settled yet") : status;
    if (!status.ok()) {
      const auto pause = serving.Quarantine(name, status);
      spdlog::error("{}: {} is left alone for {} ms: {}", core->can.adapter, name, pause.count(),
                    std::string(status.message()));
    }
    AppendReports(&one, result);
  }
  return absl::OkStatus();
}

absl::Status NotFoundOutYet(const Core& core) {
  return absl::UnavailableError(
      absl::StrCat(core.can.adapter, ": the engine's answer was lost, and is not found out yet"));
}

}  // namespace

absl::Status ServeOnce(Core* core, OneCommit* commit, SteadyTime deadline, StepResult* result) {
  if (!core->serving.ServesAny()) return absl::OkStatus();
  absl::Status status = commit->Run({}, deadline, result);
  while (absl::IsOutOfRange(status) && commit->ServeInSmallerSteps())
    status = commit->Run({}, deadline, result);
  if (commit->unsettled()) return NotFoundOutYet(*core);
  return LiesInData(status) ? ServeOneByOne(core, commit, deadline, result) : status;
}

void OneCommit::KeepUnknown(absl::Span<const Submission> batch, std::unique_ptr<Decided> decided,
                            StepResult* result) {
  decided->batch.assign(batch.begin(), batch.end());
  unknown_ = std::move(decided);
  result->outcomes.resize(batch.size());
  for (Outcome& outcome : result->outcomes) outcome.kind = OutcomeKind::kUnknown;
}

absl::Status OneCommit::SettleOwn(Core* core, SteadyTime deadline) {
  absl::StatusOr<StepResult> settled = SettleUnknown(deadline);
  if (!settled.ok()) return settled.status();
  if (unsettled()) return NotFoundOutYet(*core);
  core->outbox.Keep(&*settled);
  return absl::OkStatus();
}

void FailLater(absl::Span<const Submission> rest, const absl::Status& status, StepResult* result,
               std::vector<Settled>* later) {
  for (const Submission& submission : rest) {
    result->outcomes.push_back(Simply(OutcomeKind::kUnknown));
    later->push_back({submission.number, status});
  }
}

void SettleAll(const std::vector<Submission>& batch, const absl::Status& status,
               StepResult* result) {
  // The batch is not halved: which of its commands is to blame is found when they are repeated.
  const bool blames_one = LiesInData(status) && batch.size() > 1;
  const absl::Status failed = blames_one ? WriteLost() : status;
  for (size_t i = 0; i < batch.size(); ++i) {
    if (status.ok()) {
      result->settled.push_back({batch[i].number, std::move(result->outcomes[i])});
    } else {
      result->settled.push_back({batch[i].number, failed});
    }
  }
  result->outcomes.clear();
}

absl::Status WhyNotDone(const CommitResult& settled) {
  if (settled.kind == CommitResult::Kind::kFailed && !settled.status.ok()) return settled.status;
  return WriteLost();
}

}  // namespace semaphored::ledger
