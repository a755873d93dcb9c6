#include "adapters/ledger/ledger_adapter.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/ledger_adapter_impl.h"
#include "adapters/ledger/rules/intentions.h"
#include "spdlog/spdlog.h"

namespace semaphored::ledger {

namespace {
constexpr size_t kBusyRemembered = 1000;
// A part that was too large is tried again without so great a part of it: it costs nobody but us.
constexpr size_t kPartShrinksBy = 8;
// For granting to those for whom others have made room.
constexpr std::chrono::seconds kServeTime{5};

// What the engine cannot take at once of this, later commits do.
bool IsCarriedOn(const Command& command) {
  const auto* admin = std::get_if<AdminCommand>(&command);
  return admin != nullptr && (std::holds_alternative<AdminResize>(admin->act) ||
                              std::holds_alternative<AdminConfigure>(admin->act) ||
                              std::holds_alternative<AdminRevoke>(admin->act) ||
                              std::holds_alternative<AdminDestroy>(admin->act));
}
}  // namespace

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
    for (TicketPtr& ticket : loaded.tickets)
      state_.Apply(semaphore, TicketChange{nullptr, std::move(ticket), nullptr});
  }
  for (const auto& [name, semaphore] : state_) {
    if (semaphore->row.destroying || !semaphore->row.intentions.empty()) to_serve_.insert(name);
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
  absl::StatusOr<StepResult> result = StepOnce(batch, deadline);
  if (result.ok()) ReportQuarantines(&*result);
  return result;
}

absl::StatusOr<StepResult> LedgerAdapter::StepOnce(absl::Span<const Submission> batch,
                                                   SteadyTime deadline) {
  if (found_events_.empty()) last_.clear();
  if (unknown_ == nullptr && !failed_later_.empty()) {
    StepResult result;
    result.settled = std::exchange(failed_later_, {});
    return result;
  }
  if (unknown_ != nullptr) {
    if (!unknown_->batch.empty()) {
      absl::StatusOr<StepResult> settled = SettleUnknown(deadline);
      if (unknown_ == nullptr) fingerprint_of_whole_ = {};
      return settled;
    }
    if (absl::Status status = SettleOwn(deadline); !status.ok()) return status;
  }
  if (store_->permits() != nullptr) {
    CollectLost();
    if (!lost_permits_.empty()) {
      StepResult lost;
      if (absl::Status status = Run({}, deadline, &lost); !status.ok()) return status;
      if (batch.empty()) return lost;
      found_events_.insert(found_events_.end(), lost.events.begin(), lost.events.end());
      found_changes_.insert(found_changes_.end(), lost.changes.begin(), lost.changes.end());
    }
  }
  if (batch.empty()) return WaitForEvents(deadline);
  // Waiters are let in by commits of their own: what is wrong with them is no concern of the batch.
  StepResult served;
  absl::Status status = ServeOnce(deadline, &served);
  KeepForLater(&served);
  if (unknown_ != nullptr) status = SettleOwn(deadline);
  if (!status.ok()) return status;
  absl::StatusOr<StepResult> result =
      store_->permits() != nullptr ? StepInParts(batch, deadline) : StepInSizes(batch, deadline);
  if (!result.ok() || unknown_ != nullptr) return result;
  // What acts have left for later commits is carried on for a moment, so that most are over when they
  // are answered. A failure here reaches the lane with the next Step.
  const SteadyTime until = options_.now() + options_.carry_on_time;
  for (bool goes_on = true; goes_on && unknown_ == nullptr;
       goes_on = goes_on && CarriesOnSomewhere() && options_.now() < until) {
    StepResult after;
    goes_on = ServeOnce(deadline, &after).ok();
    std::ranges::move(after.events, std::back_inserter(result->events));
    std::ranges::move(after.changes, std::back_inserter(result->changes));
    std::ranges::move(after.delayed, std::back_inserter(result->delayed));
  }
  return result;
}

absl::Status LedgerAdapter::SettleOwn(SteadyTime deadline) {
  absl::StatusOr<StepResult> settled = SettleUnknown(deadline);
  if (unknown_ == nullptr) fingerprint_of_whole_ = {};
  if (!settled.ok()) return settled.status();
  if (unknown_ != nullptr) {
    return absl::UnavailableError(absl::StrCat(
        store_->guarantees().adapter, ": the engine's answer was lost, and is not found out yet"));
  }
  KeepForLater(&*settled);
  return absl::OkStatus();
}

void LedgerAdapter::KeepForLater(StepResult* result) {
  std::ranges::move(result->events, std::back_inserter(found_events_));
  std::ranges::move(result->changes, std::back_inserter(found_changes_));
  std::ranges::move(result->delayed, std::back_inserter(found_delayed_));
}

// One commit that lets waiters in where there may be room, if there is such a place. Of a semaphore
// for which not even that succeeds alone, nothing is tried for a while.
absl::Status LedgerAdapter::ServeOnce(SteadyTime deadline, StepResult* result) {
  if (!ServesSomebody()) return absl::OkStatus();
  absl::Status status = Run({}, deadline, result);
  while (absl::IsOutOfRange(status) && CarriesOnSomewhere() && TakeSmallerSteps())
    status = Run({}, deadline, result);
  if (unknown_ != nullptr) {
    return absl::UnavailableError(absl::StrCat(
        store_->guarantees().adapter, ": the engine's answer was lost, and is not found out yet"));
  }
  if (!LiesInData(status)) return status;
  const std::vector<std::string> names(to_serve_.begin(), to_serve_.end());
  for (const std::string& name : names) {
    if (IsQuarantined(name)) continue;
    serves_only_ = name;
    StepResult one;
    status = Run({}, deadline, &one);
    serves_only_.clear();
    if (unknown_ != nullptr || (!status.ok() && !LiesInData(status)))
      return status.ok() ? absl::UnavailableError("a commit is not settled yet") : status;
    if (!status.ok()) LeaveAloneFor(name, status);
    std::ranges::move(one.events, std::back_inserter(result->events));
    std::ranges::move(one.changes, std::back_inserter(result->changes));
    std::ranges::move(one.delayed, std::back_inserter(result->delayed));
  }
  return absl::OkStatus();
}

// A part that fails for a reason in its data is halved, down to the command that is to blame: that one
// fails, and the others are carried out. A part is never tried again after an outage, a deadline or an
// answer that was lost.
absl::StatusOr<StepResult> LedgerAdapter::StepInSizes(absl::Span<const Submission> batch,
                                                      SteadyTime deadline) {
  StepResult all;
  size_t size_max = batch.size();
  for (size_t done = 0; done < batch.size();) {
    const size_t size = std::min({batch.size() - done, part_max_, size_max});
    StepResult part;
    absl::Status status = Run(batch.subspan(done, size), deadline, &part);
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
      FailLater(batch.subspan(done, 1), status, &part);
    } else if (!status.ok() && done == 0) {
      return status;
    } else if (!status.ok()) {
      FailLater(batch.subspan(done), status, &all);
      return all;
    } else if (size == part_max_) {
      ++part_max_;  // It grows slowly: a part that is too large is decided in vain.
    }
    size_max = std::min(batch.size(), 2 * size_max);
    std::ranges::move(part.outcomes, std::back_inserter(all.outcomes));
    std::ranges::move(part.events, std::back_inserter(all.events));
    std::ranges::move(part.changes, std::back_inserter(all.changes));
    std::ranges::move(part.delayed, std::back_inserter(all.delayed));
    done += size;
    if (unknown_ == nullptr) continue;
    FailLater(batch.subspan(done),
              absl::UnavailableError(
                  "what came before it is not settled; nothing of this was done, try again"),
              &all);
    return all;
  }
  return all;
}

// They are not done; that is told with the next Step, or when what is unknown has been found out.
void LedgerAdapter::FailLater(absl::Span<const Submission> rest, const absl::Status& status,
                              StepResult* result) {
  for (const Submission& submission : rest) {
    result->outcomes.push_back(Simply(OutcomeKind::kUnknown));
    failed_later_.push_back({submission.number, status});
  }
}

absl::Status LedgerAdapter::Run(absl::Span<const Submission> batch, SteadyTime deadline,
                                StepResult* result) {
  looked_up_.clear();
  not_asked_.clear();
  for (int attempt = 0; attempt < options_.attempts_max; ++attempt) {
    // A lane that decides for ever makes no progress, and its daemon could vouch for nothing.
    if (attempt > 0 && options_.now() >= deadline) break;
    auto decided = std::make_unique<Decided>();
    if (absl::Status status = Decide(batch, attempt, decided.get()); !status.ok()) {
      Undo(decided->transaction);
      if (store_->permits() != nullptr) store_->permits()->Abandon();
      if (stale_.empty()) return status;
      // A row was found of a claim that is not known here: what it speaks of has changed.
      looked_up_.clear();
      if (absl::Status read = Refresh(std::exchange(stale_, {})); !read.ok()) return read;
      continue;
    }
    if (PermitSource* permits = store_->permits(); permits != nullptr) {
      // Whoever wanted to know is told that nobody does, and the rest is decided without it.
      if (auto not_asked = permits->TakeNotAsked(); !not_asked.empty()) {
        Undo(decided->transaction);
        permits->Abandon();
        not_asked_.merge(not_asked);
        continue;
      }
    }
    CommitResult commit;
    if (!decided->transaction.empty()) {
      commit = store_->Commit(decided->transaction, deadline);
    } else if (!exclusive()) {
      commit = CheckConditions(decided->transaction);
    }
    switch (commit.kind) {
      case CommitResult::Kind::kWon:
        if (batch.empty()) ForgetServed();
        changes_max_ = std::min(changes_max_ + 1, options_.changes_per_commit_max);
        Win(decided.get(), result);
        if (busy_.size() > kBusyRemembered) busy_.clear();
        return absl::OkStatus();
      case CommitResult::Kind::kFailed:
        Undo(decided->transaction);
        if (!commit.busy.empty() && LeaveAlone(commit.busy)) continue;
        if (batch.size() == 1 && LiesInData(commit.status)) Suspect(decided->transaction);
        return commit.status;
      case CommitResult::Kind::kUnknown:
        decided->batch.assign(batch.begin(), batch.end());
        unknown_ = std::move(decided);
        result->outcomes.resize(batch.size());
        for (Outcome& outcome : result->outcomes) outcome.kind = OutcomeKind::kUnknown;
        return absl::OkStatus();
      case CommitResult::Kind::kLost:
        Undo(decided->transaction);
        if (absl::Status status = LearnWhyLost(decided->transaction, commit); !status.ok())
          return status;
        looked_up_.clear();
        if (commit.requests_lost) {
          if (absl::Status status = LookUpRequests(batch); !status.ok()) return status;
        }
    }
  }
  return absl::AbortedError(absl::StrCat(store_->guarantees().adapter,
                                         ": other daemons were first each time; nothing was done, "
                                         "try again"));
}

absl::StatusOr<StepResult> LedgerAdapter::WaitForEvents(SteadyTime deadline) {
  if (!exclusive() || store_->permits() != nullptr)
    deadline = std::min(deadline, swept_at_ + options_.sweep_interval);
  for (const auto& [name, each] : quarantined_) {
    if (IsQuarantined(name)) deadline = std::min(deadline, each.until);
  }
  if (ServesSomebody()) deadline = SteadyTime{};
  if (absl::Status status = Hear(store_->Wait(deadline)); !status.ok()) return status;
  if (store_->permits() != nullptr) {
    CollectLost();
    if (lost_permits_.empty()) {
      if (absl::Status status = SweepPermits(); !status.ok()) return status;
    }
  }
  if (!exclusive()) {
    LookWhetherWithheld();
    if (absl::Status status = SweepIfDue(); !status.ok()) return status;
  }
  StepResult result;
  if (!lost_permits_.empty() || !asked_back_.empty() || !vanished_.empty() || !lowered_.empty() ||
      ServesSomebody()) {
    const SteadyTime until = options_.now() + kServeTime;
    absl::Status status =
        store_->permits() != nullptr ? Run({}, until, &result) : ServeOnce(until, &result);
    // What is unknown is settled by the next Step; no command waits for it.
    if (!status.ok() && unknown_ == nullptr) return status;
    return result;
  }
  Decided nothing;
  Win(&nothing, &result);
  return result;
}

bool LedgerAdapter::CarriesOn(const Semaphore& semaphore) const {
  if (semaphore.row.intentions.empty()) return false;
  return exclusive() || stood_still_.contains(semaphore.row.name) ||
         Decode(semaphore.row.intentions).host.number == options_.self.number;
}

bool LedgerAdapter::CarriesOnSomewhere() const {
  return std::ranges::any_of(to_serve_, [&](const std::string& name) {
    const Semaphore* semaphore = state_.Find(name);
    return Serves(name) && semaphore != nullptr && CarriesOn(*semaphore);
  });
}

bool LedgerAdapter::TakeSmallerSteps() {
  if (store_->permits() != nullptr || changes_max_ <= 1) return false;
  changes_max_ /= 2;
  return true;
}

void LedgerAdapter::LookAtIntentions() {
  absl::flat_hash_map<std::string, uint64_t> seen;
  stood_still_.clear();
  for (const auto& [name, semaphore] : state_) {
    const SemaphoreRow& row = semaphore->row;
    if (row.intentions.empty()) continue;
    const auto before = others_intentions_.find(name);
    if (before != others_intentions_.end() && before->second == row.revision) {
      stood_still_.insert(name);
      to_serve_.insert(name);
    }
    seen.emplace(name, row.revision);
  }
  others_intentions_ = std::move(seen);
}

void LedgerAdapter::ForgetServed() {
  absl::erase_if(to_serve_, [&](const std::string& name) {
    if (!Serves(name)) return false;
    quarantined_.erase(name);
    suspects_.erase(name);
    return true;
  });
}

bool LedgerAdapter::Serves(const std::string& name) const {
  return (serves_only_.empty() || serves_only_ == name) && !IsBusy(name) && !IsQuarantined(name);
}

bool LedgerAdapter::ServesSomebody() const {
  return std::ranges::any_of(to_serve_, [&](const std::string& name) { return Serves(name); });
}

namespace {

absl::Status WriteLost() {
  return absl::UnavailableError(
      "the engine's answer was lost, and the write with it; nothing was done, try again");
}

// The batch is not halved: which of its commands is to blame is found when they are repeated.
void FailSettled(const std::vector<Submission>& batch, const absl::Status& status,
                 StepResult* result) {
  const bool blames_one = LiesInData(status) && batch.size() > 1;
  for (const Submission& submission : batch)
    result->settled.push_back({submission.number, blames_one ? WriteLost() : status});
}

}  // namespace

absl::StatusOr<StepResult> LedgerAdapter::SettleUnknown(SteadyTime deadline) {
  StepResult result;
  CommitResult commit = store_->Settle(unknown_->transaction, deadline);
  if (commit.kind == CommitResult::Kind::kUnknown) return result;
  const std::unique_ptr<Decided> decided = std::move(unknown_);
  const std::vector<Submission> batch = std::move(decided->batch);
  const auto settle = [&] {
    for (size_t i = 0; i < batch.size(); ++i) {
      result.settled.push_back({batch[i].number, std::move(result.outcomes[i])});
    }
    result.outcomes.clear();
    return std::move(result);
  };
  if (commit.kind == CommitResult::Kind::kWon) {
    Win(decided.get(), &result);
    return settle();
  }
  Undo(decided->transaction);
  if (commit.kind == CommitResult::Kind::kLost && !exclusive()) {
    // It has not landed and cannot any more: the batch is decided anew. If this fails, its
    // revisions are found stale and loaded again by the next.
    absl::Status status = LearnWhyLost(decided->transaction, commit);
    if (status.ok()) status = Run(batch, deadline, &result);
    if (status.ok()) return unknown_ != nullptr ? StepResult() : settle();
    FailSettled(batch, status, &result);
    return result;
  }
  const bool failed = commit.kind == CommitResult::Kind::kFailed && !commit.status.ok();
  FailSettled(batch, failed ? commit.status : WriteLost(), &result);
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
    if (store_->permits() == nullptr) continue;
    // What is gone may be made anew by others: it is asked for when it is next spoken of.
    if (delta.after) loaded_.insert(delta.name);
    if (!delta.after) loaded_.erase(delta.name);
  }
  for (const NewClient& added : transaction.new_clients) clients_.Find(added.number)->stored = true;
  for (const RequestChange& change : transaction.requests) {
    Client* client = clients_.Find(change.row.request.client);
    if (client == nullptr) continue;
    client->sequence_high = std::max(client->sequence_high, change.row.request.sequence);
    clients_.Use(client, now);
  }
  for (const RequestFloor& floor : transaction.request_floors)
    clients_.Find(floor.client)->floor = floor.below;
  for (uint32_t number : transaction.forgotten_clients) clients_.Forget(number);
  to_serve_.insert(transaction.to_advance.begin(), transaction.to_advance.end());
  for (const HistoryRow& row : transaction.history) ends_.Add(row.lease->id, row.cause);
  for (Outcome& outcome : decided->outcomes) {
    if (!outcome.report || !outcome.report->info) continue;
    SemaphoreRow& row = outcome.report->info->row;
    if (const Semaphore* semaphore = state_.Find(row.name)) row.revision = semaphore->row.revision;
  }
  lost_permits_.clear();
  asked_back_.clear();
  vanished_.clear();
  lowered_.clear();
  result->outcomes = std::move(decided->outcomes);
  result->events = std::move(found_events_);
  found_events_.clear();
  result->delayed = std::move(found_delayed_);
  found_delayed_.clear();
  AppendEvents(transaction, &result->events);
  if (guarantees().durable_tickets) {
    AppendDelays(transaction, &result->delayed);
    TellTickets(decided->payloads_wanted, result);
  }
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
