#include "adapters/ledger/ledger_adapter.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/ledger_adapter_impl.h"

namespace semaphored::ledger {

absl::Status LedgerAdapter::Start() {
  swept_at_ = options_.now();
  if (!exclusive()) return absl::OkStatus();
  absl::StatusOr<Image> image = store_->LoadAll();
  if (!image.ok()) return image.status();
  for (SessionPtr& session : image->sessions)
    state_.Apply(SessionChange{nullptr, std::move(session)});
  for (LoadedClient& client : image->clients) {
    clients_.AddStored(client.number, std::move(client.client_id), client.sequence_high,
                       options_.now());
  }
  for (LoadedSemaphore& loaded : image->semaphores) {
    Semaphore* semaphore = state_.Insert(std::move(loaded.row));
    for (LeasePtr& lease : loaded.leases)
      lease->longest_hold_ms = semaphore->row.settings.longest_hold_ms;
    for (LeasePtr& lease : loaded.leases)
      state_.Apply(semaphore, LeaseChange{nullptr, std::move(lease), EndCause::kNone});
    for (WaiterPtr& waiter : loaded.waiters)
      state_.Apply(semaphore, WaiterChange{nullptr, std::move(waiter), EndCause::kNone});
  }
  const std::string wrong = state_.CheckInvariants();
  if (!wrong.empty())
    return absl::DataLossError(absl::StrCat(store_->guarantees().adapter, ": ", wrong));
  absl::StatusOr<std::vector<HistoryRow>> history = store_->ReadHistory("", 0, 10'000);
  if (!history.ok())
    return absl::IsUnimplemented(history.status()) ? absl::OkStatus() : history.status();
  for (auto row = history->rbegin(); row != history->rend(); ++row)
    ends_.Add(row->lease->id, row->cause);
  return absl::OkStatus();
}

absl::StatusOr<StepResult> LedgerAdapter::Step(absl::Span<const Submission> batch,
                                               SteadyTime deadline) {
  if (found_events_.empty()) last_.clear();
  if (unknown_ != nullptr) return SettleUnknown(deadline);
  if (batch.empty()) return WaitForEvents(deadline);

  StepResult result;
  for (int attempt = 0; attempt < options_.attempts_max; ++attempt) {
    auto decided = std::make_unique<Decided>();
    if (absl::Status status = Decide(batch, attempt, decided.get()); !status.ok()) {
      Undo(decided->transaction);
      return status;
    }
    CommitResult commit;
    if (!decided->transaction.empty()) commit = store_->Commit(decided->transaction, deadline);
    switch (commit.kind) {
      case CommitResult::Kind::kWon:
        Win(decided.get(), &result);
        return result;
      case CommitResult::Kind::kFailed:
        Undo(decided->transaction);
        return commit.status;
      case CommitResult::Kind::kUnknown:
        for (const Submission& submission : batch) decided->tickets.push_back(submission.ticket);
        unknown_ = std::move(decided);
        result.outcomes.resize(batch.size());
        for (Outcome& outcome : result.outcomes) outcome.kind = OutcomeKind::kUnknown;
        return result;
      case CommitResult::Kind::kLost:
        Undo(decided->transaction);
        if (absl::Status status = RefreshSessions(decided->transaction); !status.ok()) {
          return status;
        }
        if (absl::Status status = Refresh(std::move(commit.stale)); !status.ok()) return status;
    }
  }
  return absl::AbortedError(absl::StrCat(store_->guarantees().adapter,
                                         ": other daemons were first ", options_.attempts_max,
                                         " times; nothing was done, try again"));
}

absl::StatusOr<StepResult> LedgerAdapter::WaitForEvents(SteadyTime deadline) {
  if (!exclusive()) deadline = std::min(deadline, swept_at_ + options_.sweep_interval);
  absl::StatusOr<std::vector<std::string>> names = store_->Wait(deadline);
  if (!names.ok()) return names.status();
  if (!exclusive()) {
    std::erase_if(*names, [&](const std::string& name) { return !loaded_.contains(name); });
    if (absl::Status status = Refresh(*std::move(names)); !status.ok()) return status;
    if (absl::Status status = SweepIfDue(); !status.ok()) return status;
  }
  StepResult result;
  Decided nothing;
  Win(&nothing, &result);
  return result;
}

absl::StatusOr<StepResult> LedgerAdapter::SettleUnknown(SteadyTime deadline) {
  StepResult result;
  CommitResult commit = store_->Settle(unknown_->transaction, deadline);
  if (commit.kind == CommitResult::Kind::kUnknown) return result;
  const std::unique_ptr<Decided> decided = std::move(unknown_);
  std::vector<uint64_t> tickets = std::move(decided->tickets);
  if (commit.kind == CommitResult::Kind::kWon) {
    Win(decided.get(), &result);
    for (size_t i = 0; i < tickets.size(); ++i) {
      result.settled.push_back({tickets[i], std::move(result.outcomes[i])});
    }
    result.outcomes.clear();
    return result;
  }
  Undo(decided->transaction);
  const absl::Status status =
      commit.kind == CommitResult::Kind::kFailed && !commit.status.ok()
          ? commit.status
          : absl::UnavailableError(
                "the engine's answer was lost, and the write with it; nothing was done, try again");
  for (uint64_t ticket : tickets) result.settled.push_back({ticket, status});
  std::vector<std::string> stale = std::move(commit.stale);
  for (const SemaphoreDelta& delta : decided->transaction.semaphores) stale.push_back(delta.name);
  // If this fails, the next batch finds its revisions stale and loads them again.
  if (!exclusive()) Refresh(std::move(stale)).IgnoreError();
  return result;
}

void LedgerAdapter::Win(Decided* decided, StepResult* result) {
  Transaction& transaction = decided->transaction;
  const SteadyTime now = options_.now();
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    if (Semaphore* semaphore = state_.Find(delta.name)) {
      const uint64_t next = delta.before ? delta.before->revision + 1 : 1;
      semaphore->row.revision = delta.revision != 0 ? delta.revision : next;
    }
  }
  for (const NewClient& added : transaction.new_clients) clients_.Find(added.number)->stored = true;
  for (const Answer& answer : transaction.answers) {
    if (Client* client = clients_.Find(answer.request.client)) {
      client->sequence_high = std::max(client->sequence_high, answer.request.sequence);
      clients_.Use(client, now);
    }
  }
  for (const AnswerFloor& floor : transaction.answer_floors)
    clients_.Find(floor.client)->floor = floor.below;
  for (uint32_t number : transaction.forgotten_clients) clients_.Forget(number);
  for (const HistoryRow& row : transaction.history) ends_.Add(row.lease->id, row.cause);
  for (Outcome& outcome : decided->outcomes) {
    if (!outcome.report || !outcome.report->info) continue;
    SemaphoreRow& row = outcome.report->info->row;
    if (const Semaphore* semaphore = state_.Find(row.name)) row.revision = semaphore->row.revision;
  }
  result->outcomes = std::move(decided->outcomes);
  result->events = std::move(found_events_);
  found_events_.clear();
  AppendEvents(transaction, &result->events);
  if (watching_) {
    result->changes = std::move(found_changes_);
    AppendChanges(transaction, state_, &result->changes);
  }
  found_changes_.clear();
  last_.push_back(std::move(transaction));
}

void LedgerAdapter::Undo(const Transaction& transaction) {
  Revert(transaction, &state_);
  for (uint32_t number : transaction.forgotten_clients) clients_.SetOverdue(number);
}

absl::StatusOr<std::unique_ptr<Adapter>> MakeLedgerAdapter(std::unique_ptr<LedgerStore> store,
                                                           LedgerOptions options) {
  auto adapter = std::make_unique<LedgerAdapter>(std::move(store), std::move(options));
  if (absl::Status status = adapter->Start(); !status.ok()) return status;
  return adapter;
}

}  // namespace semaphored::ledger
