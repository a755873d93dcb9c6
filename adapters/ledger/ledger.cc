// A Step: a batch is decided by the rules, committed by the store, and settled if the engine's answer
// was lost. What an engine takes at once is portions.h; what differs between stores is view.h.
#include "adapters/ledger/ledger.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/advice.h"
#include "adapters/ledger/capabilities.h"
#include "adapters/ledger/core.h"
#include "adapters/ledger/faults.h"
#include "adapters/ledger/inside.h"
#include "adapters/ledger/one_commit.h"
#include "adapters/ledger/portions.h"
#include "adapters/ledger/quarantine.h"
#include "adapters/ledger/requests.h"
#include "adapters/ledger/rules/intentions.h"
#include "adapters/ledger/rules/steps.h"
#include "adapters/ledger/shared_store.h"
#include "adapters/ledger/view.h"

namespace semaphored::ledger {
namespace {

// A request waits, is granted and ends: more often its row cannot have run ahead of what was read after it.
constexpr int kStaleRowsMax = 5;

// Other daemons write to the store, and it says so.
SharedStore* SharedOf(LedgerStore* store) {
  return store->guarantees().exclusive ? nullptr : store->shared();
}

class LedgerAdapter final : public Adapter, private OneCommit {
 public:
  LedgerAdapter(std::unique_ptr<LedgerStore> store, LedgerOptions options);

  absl::Status Start() { return view_->Start(); }

  const Guarantees& guarantees() const override { return store_->guarantees(); }
  absl::StatusOr<StepResult> Step(absl::Span<const Submission> batch, SteadyTime deadline) override;
  void Wake() override { store_->Wake(); }
  Inside inside() const { return {core_, view_->mirror(), unknown_.get()}; }

 private:
  // ---- OneCommit ----
  absl::Status Run(absl::Span<const Submission> batch, SteadyTime deadline,
                   StepResult* result) override;
  absl::StatusOr<StepResult> SettleUnknown(SteadyTime deadline) override;
  bool ServeInSmallerSteps() override {
    return CarriesOnSomewhere() && portions_.TakeSmallerSteps();
  }

  absl::StatusOr<StepResult> StepOnce(absl::Span<const Submission> batch, SteadyTime deadline);
  absl::StatusOr<StepResult> WaitForEvents(SteadyTime deadline);
  // This lane is to do what is left of acts on the semaphore.
  bool CarriesOn(const Semaphore& semaphore) const;
  bool CarriesOnSomewhere() const;

  absl::Status Decide(absl::Span<const Submission> batch, int attempt, Decided* decided);
  void Serve(Editor& editor);
  // A command failed alone: a serving commit looks whether its semaphores are to blame.
  void Suspect(const Transaction& failed);
  absl::Status DecideOne(const Command& command, Editor& editor, Decided* decided);
  Context NewContext() const;
  // What the rules do not decide: what the engine cannot do, what is wrong there, and what it says
  // itself. nullopt: the rules decide it.
  absl::StatusOr<std::optional<Outcome>> AskStore(const Command& command, const std::string& name);
  absl::StatusOr<std::optional<Outcome>> ReadHistory(const HistoryCommand& command);

  void Win(Decided* decided, StepResult* result);
  // A request's row says something else than its semaphore, however often both are read.
  absl::Status Contradicts(const std::string& semaphore, const absl::Status& why) const;

  const std::unique_ptr<LedgerStore> store_;
  Core core_;
  const std::unique_ptr<View> view_;
  Portions portions_;
};

LedgerAdapter::LedgerAdapter(std::unique_ptr<LedgerStore> store, LedgerOptions options)
    : store_(std::move(store)),
      core_(store_->guarantees(), store_.get(), SharedOf(store_.get()) != nullptr,
            std::move(options)),
      view_(SharedOf(store_.get()) != nullptr ? MakeSharedView(&core_, SharedOf(store_.get()))
                                              : MakeExclusiveView(&core_, store_.get())),
      portions_(&core_, this) {}

absl::StatusOr<StepResult> LedgerAdapter::Step(absl::Span<const Submission> batch,
                                               SteadyTime deadline) {
  absl::StatusOr<StepResult> result = StepOnce(batch, deadline);
  if (result.ok()) ReportQuarantines(&core_, &*result);
  core_.ShowUse();
  return result;
}

absl::StatusOr<StepResult> LedgerAdapter::StepOnce(absl::Span<const Submission> batch,
                                                   SteadyTime deadline) {
  core_.outbox.BeginStep();
  if (unknown_ == nullptr) {
    StepResult result;
    result.settled = portions_.TakeFailed();
    if (!result.settled.empty()) return result;
  } else if (!unknown_->batch.empty()) {
    return SettleUnknown(deadline);
  } else if (absl::Status status = SettleOwn(&core_, deadline); !status.ok()) {
    return status;
  }
  if (batch.empty()) return WaitForEvents(deadline);
  StepResult served;
  absl::Status status = ServeOnce(&core_, this, deadline, &served);
  core_.outbox.Keep(&served);
  if (unknown_ != nullptr) status = SettleOwn(&core_, deadline);
  if (!status.ok()) return status;
  absl::StatusOr<StepResult> result = portions_.Step(batch, deadline);
  if (!result.ok() || unknown_ != nullptr) return result;
  // What acts have left for later commits is carried on for a moment, so that most are over when they
  // are answered. A failure here reaches the lane with the next Step.
  const SteadyTime until = core_.options.now() + core_.options.carry_on_time;
  for (bool goes_on = true; goes_on && unknown_ == nullptr;
       goes_on = goes_on && CarriesOnSomewhere() && core_.options.now() < until) {
    StepResult after;
    goes_on = ServeOnce(&core_, this, deadline, &after).ok();
    AppendReports(&after, &*result);
  }
  return result;
}

// ---- Commits without commands ----

absl::StatusOr<StepResult> LedgerAdapter::WaitForEvents(SteadyTime deadline) {
  deadline = core_.serving.ServesAny() ? SteadyTime{} : core_.serving.NextAttempt(deadline);
  if (absl::Status status = view_->Listen(deadline); !status.ok()) return status;
  StepResult result;
  if (core_.serving.ServesAny()) {
    absl::Status status = ServeOnce(&core_, this, core_.options.now() + kServeTime, &result);
    // What is unknown is settled by the next Step; no command waits for it.
    if (!status.ok() && unknown_ == nullptr) return status;
    return result;
  }
  Decided nothing;
  Win(&nothing, &result);
  return result;
}

bool LedgerAdapter::CarriesOn(const Semaphore& semaphore) const {
  return !semaphore.row.intentions.empty() && view_->CarriesOn(semaphore.row);
}

bool LedgerAdapter::CarriesOnSomewhere() const {
  return std::ranges::any_of(core_.serving.names(), [&](const std::string& name) {
    const Semaphore* semaphore = core_.state.Find(name);
    return core_.serving.Serves(name) && semaphore != nullptr && CarriesOn(*semaphore);
  });
}

// ---- Decide and commit ----

absl::Status LedgerAdapter::Run(absl::Span<const Submission> batch, SteadyTime deadline,
                                StepResult* result) {
  core_.requests.BeginRun();
  view_->BeginRun();
  int stale_rows = 0;
  for (int attempt = 0; attempt < core_.options.attempts_max; ++attempt) {
    // A lane that decides for ever makes no progress, and its daemon could vouch for nothing.
    if (attempt > 0 && core_.options.now() >= deadline) break;
    auto decided = std::make_unique<Decided>();
    if (absl::Status status = Decide(batch, attempt, decided.get()); !status.ok()) {
      core_.RollBack(decided->transaction);
      std::vector<std::string> stale = core_.requests.TakeStale();
      if (stale.empty()) return status;
      if (++stale_rows > kStaleRowsMax) return Contradicts(stale.front(), status);
      // A row was found of a claim that is not known here: what it speaks of has changed.
      core_.requests.BeginRun();
      if (absl::Status read = view_->Refresh(std::move(stale)); !read.ok()) return read;
      continue;
    }
    CommitResult commit = decided->transaction.empty()
                              ? view_->Check(decided->transaction)
                              : store_->Commit(decided->transaction, deadline);
    switch (commit.kind) {
      case CommitResult::Kind::kWon:
        if (batch.empty()) core_.serving.Served();
        portions_.TakeLargerSteps();
        Win(decided.get(), result);
        core_.serving.ForgetBusy();
        return absl::OkStatus();
      case CommitResult::Kind::kFailed:
        core_.RollBack(decided->transaction);
        if (!commit.busy.empty() && core_.serving.LeaveAlone(commit.busy)) continue;
        if (batch.size() == 1 && LiesInData(commit.status)) Suspect(decided->transaction);
        return commit.status;
      case CommitResult::Kind::kUnknown:
        KeepUnknown(batch, std::move(decided), result);
        return absl::OkStatus();
      case CommitResult::Kind::kLost:
        core_.RollBack(decided->transaction);
        if (absl::Status status = view_->LearnWhyLost(decided->transaction, commit); !status.ok())
          return status;
        core_.requests.BeginRun();
        if (commit.requests_lost) {
          if (absl::Status status = core_.requests.LookUp(batch); !status.ok()) return status;
        }
    }
  }
  return absl::AbortedError(absl::StrCat(core_.can.adapter,
                                         ": other daemons were first each time; nothing was done, "
                                         "try again"));
}

absl::Status LedgerAdapter::Contradicts(const std::string& semaphore,
                                        const absl::Status& why) const {
  return WithAdvice(
      absl::DataLossError(absl::StrCat(core_.can.adapter, ": the row of this request contradicts ",
                                       semaphore, ": ", why.message())),
      "send it under a new request id; no back-up has to be restored");
}

absl::Status LedgerAdapter::Decide(absl::Span<const Submission> batch, int attempt,
                                   Decided* decided) {
  decided->transaction.node = core_.options.self;
  decided->transaction.attempt = attempt;
  decided->outcomes.reserve(batch.size());
  core_.requests.BeginBatch();
  if (absl::Status status = view_->Prepare(batch); !status.ok()) return status;
  Editor editor(&core_.state, &decided->transaction, batch.size());
  if (batch.empty()) Serve(editor);
  for (const Submission& submission : batch) {
    editor.BeginCommand();
    if (absl::Status status = DecideOne(submission.command, editor, decided); !status.ok()) {
      editor.Finish();
      return status;
    }
  }
  editor.Finish();
  core_.requests.Finish(&decided->transaction);
  view_->AddConditions(&decided->transaction);
  return absl::OkStatus();
}

Context LedgerAdapter::NewContext() const {
  Context context = core_.NewContext();
  context.changes_max = portions_.changes_max();
  return context;
}

void LedgerAdapter::Suspect(const Transaction& failed) {
  for (const SemaphoreDelta& delta : failed.semaphores) {
    if (delta.before) core_.serving.Touch(delta.name);  // Else there is nothing to touch.
  }
}

// Grants to those for whom other daemons have made room.
void LedgerAdapter::Serve(Editor& editor) {
  for (const std::string& name : core_.serving.names()) {
    if (!core_.serving.Serves(name) || core_.damaged.contains(name)) continue;
    Semaphore* semaphore = core_.state.Find(name);
    if (semaphore == nullptr) continue;
    const Context context = NewContext();
    if (core_.serving.IsTouched(name)) editor.Touch(semaphore);
    if (CarriesOn(*semaphore))
      CarryOn(editor, semaphore, Decode(semaphore->row.intentions), context, /*act=*/false);
    AfterRoom(editor, semaphore, context);
  }
}

absl::Status LedgerAdapter::DecideOne(const Command& command, Editor& editor, Decided* decided) {
  const std::string name(SemaphoreOf(command));
  if (core_.serving.IsBusy(name) && !IsReadOnly(command)) {
    Outcome outcome = Simply(OutcomeKind::kBusy);
    outcome.message =
        absl::StrCat(core_.can.adapter, ": another client of the engine keeps ", name, " locked");
    decided->outcomes.push_back(std::move(outcome));
    return absl::OkStatus();
  }
  Context context = NewContext();
  context.withheld = core_.GrantsNothing(name);
  absl::StatusOr<std::optional<Outcome>> outcome = core_.requests.Find(command, editor, &context);
  if (outcome.ok() && !outcome->has_value()) outcome = AskStore(command, name);
  if (!outcome.ok()) return outcome.status();
  if (outcome->has_value()) {
    decided->outcomes.push_back(std::move(**outcome));
    return absl::OkStatus();
  }
  if (!core_.pruned.empty()) {
    const auto found = core_.pruned.find(name);
    if (found != core_.pruned.end()) context.pruned = &found->second;
  }
  context.adoptable = core_.AdoptableFor(command);
  if (const auto* orphans = std::get_if<OrphansCommand>(&command)) {
    const auto page = core_.orphans.find(orphans);
    if (page != core_.orphans.end()) context.page = &page->second;
  }
  const absl::btree_map<std::string, std::string> untouchable = UntouchableOf(core_, command);
  if (!untouchable.empty()) context.unusable = &untouchable;
  decided->outcomes.push_back(core_.Execute(command, editor, context));
  if (WantsPayload(command, decided->outcomes.back()))
    decided->payloads_wanted.push_back({decided->outcomes.size() - 1, name});
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Outcome>> LedgerAdapter::AskStore(const Command& command,
                                                               const std::string& name) {
  // (What cannot be read may have it.)
  if (IsOnlyIfRepeated(command) && !core_.damaged.contains(name))
    return Simply(OutcomeKind::kNotAskedBefore);
  if (std::optional<Outcome> excluded = ExcludedRequest(core_.can, command)) return excluded;
  if (std::optional<Outcome> excluded = ExcludedTicket(core_.can, command)) return excluded;
  if (std::optional<Outcome> excluded = ExcludedAct(core_.can, core_.state, command))
    return excluded;
  // What can be read is shown.
  if (const absl::Status why = WhyUntouchable(core_, name);
      !why.ok() && (core_.damaged.contains(name) || !IsReadOnly(command))) {
    Outcome outcome = Simply(OutcomeKind::kDamaged);
    outcome.message = std::string(why.message());
    return std::optional<Outcome>(std::move(outcome));
  }
  absl::StatusOr<std::optional<Outcome>> answer = view_->Answer(command);
  if (!answer.ok() || answer->has_value()) return answer;
  if (std::optional<Outcome> excluded = ExcludedAdoption(core_, command)) return excluded;
  const auto* history = std::get_if<HistoryCommand>(&command);
  return history == nullptr ? std::nullopt : ReadHistory(*history);
}

absl::StatusOr<std::optional<Outcome>> LedgerAdapter::ReadHistory(const HistoryCommand& command) {
  if (std::optional<Outcome> excluded = ExcludedHistory(core_.can)) return excluded;
  absl::StatusOr<std::vector<HistoryRow>> rows =
      store_->ReadHistory(command.semaphore, command.before, command.rows_max + 1);
  if (!rows.ok()) return rows.status();
  Outcome outcome = Simply(OutcomeKind::kDone);
  outcome.report = std::make_unique<Report>();
  outcome.report->more = rows->size() > command.rows_max;
  if (outcome.report->more) rows->resize(command.rows_max);
  outcome.report->history = *std::move(rows);
  return std::optional<Outcome>(std::move(outcome));
}

void LedgerAdapter::Win(Decided* decided, StepResult* result) {
  view_->Complete(decided);
  core_.Win(decided, result);
  if (core_.can.durable_tickets)
    AddPayloads(decided->payloads_wanted, core_.state, core_.options.self, store_.get(), result);
}

// ---- Settle ----

absl::StatusOr<StepResult> LedgerAdapter::SettleUnknown(SteadyTime deadline) {
  StepResult result;
  CommitResult commit = store_->Settle(unknown_->transaction, deadline);
  if (commit.kind == CommitResult::Kind::kUnknown) return result;
  const std::unique_ptr<Decided> decided = std::move(unknown_);
  const std::vector<Submission> batch = std::move(decided->batch);
  absl::Status status;
  if (commit.kind == CommitResult::Kind::kWon) {
    Win(decided.get(), &result);
  } else {
    core_.RollBack(decided->transaction);
    if (commit.kind == CommitResult::Kind::kLost && view_->DecidesAgain()) {
      // It has not landed and cannot any more: the batch is decided again. If this fails, its
      // revisions are found stale and loaded again by the next.
      status = view_->LearnWhyLost(decided->transaction, commit);
      if (status.ok()) status = Run(batch, deadline, &result);
      if (status.ok() && unknown_ != nullptr) return StepResult();
    } else {
      status = WhyNotDone(commit);
    }
  }
  core_.requests.SetFingerprint({});
  SettleAll(batch, status, &result);
  return result;
}

}  // namespace

Inside InsideOf(const Adapter& adapter) {
  return static_cast<const LedgerAdapter&>(adapter).inside();
}

absl::StatusOr<std::unique_ptr<Adapter>> MakeLedgerAdapter(std::unique_ptr<LedgerStore> store,
                                                           LedgerOptions options) {
  auto adapter = std::make_unique<LedgerAdapter>(std::move(store), std::move(options));
  if (absl::Status status = adapter->Start(); !status.ok()) return status;
  return adapter;
}

}  // namespace semaphored::ledger
