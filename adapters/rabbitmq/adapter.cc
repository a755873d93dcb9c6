#include "adapters/rabbitmq/adapter.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "adapters/ledger/capabilities.h"
#include "adapters/ledger/core.h"
#include "adapters/ledger/faults.h"
#include "adapters/ledger/one_commit.h"
#include "adapters/ledger/quarantine.h"
#include "adapters/ledger/requests.h"
#include "adapters/ledger/rules/steps.h"
#include "adapters/rabbitmq/in_use.h"
#include "adapters/rabbitmq/request_memory.h"

namespace semaphored::rabbitmq {
namespace {

using ledger::AfterRoom;
using ledger::AppendReports;
using ledger::CommitResult;
using ledger::ConcernsOneOnly;
using ledger::Context;
using ledger::Core;
using ledger::Decided;
using ledger::Editor;
using ledger::FailLater;
using ledger::IsOnlyIfRepeated;
using ledger::RefusedBy;
using ledger::Semaphore;
using ledger::SemaphoreDelta;
using ledger::SettleAll;
using ledger::Simply;

bool ChangesRow(const Command& command) {
  const auto* admin = std::get_if<AdminCommand>(&command);
  if (admin == nullptr) return false;
  return !std::holds_alternative<AdminDescribe>(admin->act) &&
         !std::holds_alternative<AdminPrune>(admin->act) &&
         !std::holds_alternative<AdminRevoke>(admin->act);
}

class BrokerAdapter final : public Adapter, private ledger::OneCommit {
 public:
  BrokerAdapter(std::unique_ptr<PermitStore> store, ledger::LedgerOptions options)
      : store_(std::move(store)),
        core_(store_->guarantees(), &requests_, /*is_shared=*/false, std::move(options)),
        in_use_(&core_, store_.get()) {}

  const Guarantees& guarantees() const override { return store_->guarantees(); }
  absl::StatusOr<StepResult> Step(absl::Span<const Submission> batch, SteadyTime deadline) override;
  void Wake() override { store_->Wake(); }

 private:
  // ---- OneCommit ----
  absl::Status Run(absl::Span<const Submission> batch, SteadyTime deadline,
                   StepResult* result) override;
  absl::StatusOr<StepResult> SettleUnknown(SteadyTime deadline) override;

  absl::StatusOr<StepResult> StepOnce(absl::Span<const Submission> batch, SteadyTime deadline);
  absl::StatusOr<StepResult> WaitForEvents(SteadyTime deadline);
  // Changes of rows are written one by one, with no transaction over them: an act that changes one
  // is a batch of its own, so that none is done again because another was lost.
  absl::StatusOr<StepResult> StepInParts(absl::Span<const Submission> batch, SteadyTime deadline);

  // What must be known before the batch is decided.
  absl::Status Prepare(absl::Span<const Submission> batch);
  absl::Status PrepareOne(const Command& command);
  absl::Status Decide(absl::Span<const Submission> batch, int attempt, Decided* decided);
  absl::Status DecideOne(const Command& command, Editor& editor, Decided* decided);
  Context NewContext() const;
  // What the rules do not decide. nullopt: they do.
  absl::StatusOr<std::optional<Outcome>> AskStore(const Command& command, const Editor& editor);
  std::optional<Outcome> Unsupported(const Command& command) const;
  // A semaphore that the acquire makes must be in the broker before a permit is taken of it.
  absl::Status ProvideFor(const AcquireCommand& acquire, const Editor& editor);
  // Likewise one that the act adopts. An outcome: there is no room for it.
  absl::StatusOr<std::optional<Outcome>> AdoptFor(const AdminCommand& command,
                                                  const AdminAdopt& act);
  // Reads again what the lost batch rested upon.
  absl::Status LearnWhyLost(const ledger::Transaction& lost, const CommitResult& commit);

  void RollBack(const Decided& decided);
  void Win(Decided* decided, StepResult* result);

  const std::unique_ptr<PermitStore> store_;
  RequestMemory requests_;
  Core core_;
  InUse in_use_;
  // Commands of a batch in parts, after the part that failed; reported with the next Step.
  std::vector<Settled> failed_later_;
  // Semaphores whose things in the broker cannot be used, and why; for this batch.
  absl::flat_hash_map<std::string, absl::Status> unusable_;
  absl::flat_hash_set<Id> not_verified_;           // PermitStore::Check, for this batch.
  std::map<std::string, absl::Status> not_asked_;  // PermitStore::TakeNotAsked, for this batch.
};

absl::StatusOr<StepResult> BrokerAdapter::Step(absl::Span<const Submission> batch,
                                               SteadyTime deadline) {
  absl::StatusOr<StepResult> result = StepOnce(batch, deadline);
  if (result.ok()) ledger::ReportQuarantines(&core_, &*result);
  core_.ShowUse();
  // The broker's word for a thing that is not as it was asked for, or a channel that it has closed. To a lane it would
  // say that this node must not go on.
  if (absl::IsFailedPrecondition(result.status()))
    return absl::UnavailableError(result.status().message());
  return result;
}

absl::StatusOr<StepResult> BrokerAdapter::StepOnce(absl::Span<const Submission> batch,
                                                   SteadyTime deadline) {
  core_.outbox.BeginStep();
  if (unknown_ == nullptr && !failed_later_.empty()) {
    StepResult result;
    result.settled = std::exchange(failed_later_, {});
    return result;
  }
  if (unknown_ != nullptr && !unknown_->batch.empty()) return SettleUnknown(deadline);
  if (unknown_ != nullptr) {
    if (absl::Status status = SettleOwn(&core_, deadline); !status.ok()) return status;
  }
  in_use_.Collect();
  if (in_use_.HasLost()) {
    StepResult lost;
    if (absl::Status status = Run({}, deadline, &lost); !status.ok()) return status;
    if (batch.empty()) return lost;
    core_.outbox.Keep(&lost);
  }
  if (batch.empty()) return WaitForEvents(deadline);
  StepResult served;
  absl::Status status = ServeOnce(&core_, this, deadline, &served);
  core_.outbox.Keep(&served);
  if (unknown_ != nullptr) status = SettleOwn(&core_, deadline);
  if (!status.ok()) return status;
  absl::StatusOr<StepResult> result = StepInParts(batch, deadline);
  if (!result.ok() || unknown_ != nullptr) return result;
  // A failure here reaches the lane with the next Step.
  StepResult after;
  ServeOnce(&core_, this, deadline, &after).IgnoreError();
  AppendReports(&after, &*result);
  return result;
}

absl::StatusOr<StepResult> BrokerAdapter::WaitForEvents(SteadyTime deadline) {
  deadline = std::min(deadline, in_use_.next_sweep());
  deadline = core_.serving.ServesAny() ? SteadyTime{} : core_.serving.NextAttempt(deadline);
  if (absl::Status status = in_use_.Hear(store_->Wait(deadline)); !status.ok()) return status;
  in_use_.Collect();
  if (!in_use_.HasLost()) {
    if (absl::Status status = in_use_.Sweep(); !status.ok()) return status;
  }
  StepResult result;
  if (in_use_.HasNews() || core_.serving.ServesAny()) {
    absl::Status status = Run({}, core_.options.now() + ledger::kServeTime, &result);
    // What is unknown is settled by the next Step; no command waits for it.
    if (!status.ok() && unknown_ == nullptr) return status;
    return result;
  }
  Decided nothing;
  Win(&nothing, &result);
  return result;
}

absl::StatusOr<StepResult> BrokerAdapter::StepInParts(absl::Span<const Submission> batch,
                                                      SteadyTime deadline) {
  StepResult all;
  size_t done = 0;
  while (done < batch.size()) {
    size_t end = done;
    while (end < batch.size() && !ChangesRow(batch[end].command)) ++end;
    if (end == done) end = done + 1;
    StepResult part;
    absl::Status status = Run(batch.subspan(done, end - done), deadline, &part);
    AppendReports(&part, &all);
    if (status.ok()) {
      std::ranges::move(part.outcomes, std::back_inserter(all.outcomes));
      done = end;
    } else if (done == 0) {
      return status;
    }
    if (status.ok() && unknown_ == nullptr) continue;
    if (status.ok()) {
      status = absl::UnavailableError(
          "an act before it is not settled; nothing of this was done, try again");
    }
    FailLater(batch.subspan(done), status, &all, &failed_later_);
    break;
  }
  return all;
}

// ---- Decide and commit ----

absl::Status BrokerAdapter::Run(absl::Span<const Submission> batch, SteadyTime deadline,
                                StepResult* result) {
  core_.requests.BeginRun();
  not_asked_.clear();
  for (int attempt = 0; attempt < core_.options.attempts_max; ++attempt) {
    if (attempt > 0 && core_.options.now() >= deadline) break;
    auto decided = std::make_unique<Decided>();
    if (absl::Status status = Decide(batch, attempt, decided.get()); !status.ok()) {
      RollBack(*decided);
      return status;
    }
    // A client that does not wait is answered that the broker could not be asked, and the rest is
    // decided without it.
    if (auto not_asked = store_->TakeNotAsked(); !not_asked.empty()) {
      RollBack(*decided);
      not_asked_.merge(not_asked);
      continue;
    }
    CommitResult commit;
    if (!decided->transaction.empty()) commit = store_->Commit(decided->transaction, deadline);
    switch (commit.kind) {
      case CommitResult::Kind::kWon:
        if (batch.empty()) core_.serving.Served();
        Win(decided.get(), result);
        return absl::OkStatus();
      case CommitResult::Kind::kFailed:
        core_.RollBack(decided->transaction);
        return commit.status;
      case CommitResult::Kind::kUnknown:
        KeepUnknown(batch, std::move(decided), result);
        return absl::OkStatus();
      case CommitResult::Kind::kLost:
        core_.RollBack(decided->transaction);
        if (absl::Status status = LearnWhyLost(decided->transaction, commit); !status.ok())
          return status;
        core_.requests.BeginRun();
    }
  }
  return absl::AbortedError(absl::StrCat(
      core_.can.adapter, ": other daemons were first each time; nothing was done, try again"));
}

absl::Status BrokerAdapter::LearnWhyLost(const ledger::Transaction& lost,
                                         const CommitResult& commit) {
  if (lost.attempt == 0) {
    // The daemon that was first may have reported by now what it did.
    absl::Status status = in_use_.Hear(store_->Wait(SteadyTime::min()));
    if (!status.ok()) return status;
    const bool changed = std::ranges::any_of(lost.semaphores, [&](const SemaphoreDelta& delta) {
      const Semaphore* semaphore = core_.state.Find(delta.name);
      const uint64_t before = delta.before ? delta.before->revision : 0;
      return (semaphore == nullptr ? 0 : semaphore->row.revision) != before;
    });
    if (changed) return absl::OkStatus();
  }
  return in_use_.LoadAll(commit.stale);
}

absl::Status BrokerAdapter::Prepare(absl::Span<const Submission> batch) {
  // What was lost is reported whether or not the broker can be reached.
  if (batch.empty() && in_use_.HasLost()) return absl::OkStatus();
  absl::Status status = in_use_.Hear(store_->Wait(SteadyTime::min()));
  if (!status.ok()) return status;
  in_use_.Collect();
  if (status = in_use_.Sweep(); !status.ok()) return status;
  core_.pruned.clear();
  core_.adoptable.clear();
  unusable_.clear();
  not_verified_.clear();
  for (const Submission& submission : batch) {
    status = PrepareOne(submission.command);
    if (status.ok()) continue;
    if (!ConcernsOneOnly(status)) return status;
    unusable_[std::string(SemaphoreOf(submission.command))] = status;
  }
  in_use_.Collect();
  return absl::OkStatus();
}

absl::Status BrokerAdapter::PrepareOne(const Command& command) {
  const std::string name(SemaphoreOf(command));
  if (name.empty()) return absl::OkStatus();
  if (!in_use_.Has(name)) {
    if (absl::Status status = in_use_.Load(name); !status.ok()) return status;
  }
  if (const auto* verify = std::get_if<VerifyCommand>(&command);
      verify != nullptr && !verify->claim.empty()) {
    absl::StatusOr<bool> held = store_->Check(name, verify->claim);
    if (held.ok() && !*held) not_verified_.insert(verify->claim);
    return held.status();
  }
  // A request that waits can do so until the broker answers again.
  if (const auto* acquire = std::get_if<AcquireCommand>(&command);
      acquire != nullptr && !acquire->wait) {
    if (const auto why = not_asked_.find(name); why != not_asked_.end())
      return absl::DeadlineExceededError(why->second.message());
    if (store_->Silent(name))
      return absl::DeadlineExceededError(
          absl::StrCat(core_.can.adapter, ": what keeps ", name, " does not answer now"));
  }
  const auto* admin = std::get_if<AdminCommand>(&command);
  if (admin == nullptr || !in_use_.Has(name)) return absl::OkStatus();
  if (std::holds_alternative<AdminPrune>(admin->act)) {
    absl::StatusOr<ledger::Pruned> pruned = store_->Prune(name);
    if (!pruned.ok()) return pruned.status();
    core_.pruned[name] = *std::move(pruned);
    if (absl::Status status = in_use_.Load(name); !status.ok()) return status;
  }
  Semaphore* semaphore = core_.state.Find(name);
  return semaphore == nullptr ? absl::OkStatus() : in_use_.CountElsewhere(semaphore);
}

absl::Status BrokerAdapter::Decide(absl::Span<const Submission> batch, int attempt,
                                   Decided* decided) {
  decided->transaction.node = core_.options.self;
  decided->transaction.attempt = attempt;
  decided->outcomes.reserve(batch.size());
  core_.requests.BeginBatch();
  if (absl::Status status = Prepare(batch); !status.ok()) return status;
  Editor editor(&core_.state, &decided->transaction, batch.size());
  in_use_.CarryOut(editor);
  if (batch.empty()) {
    for (const std::string& name : core_.serving.names()) {
      Semaphore* semaphore = core_.serving.Serves(name) ? core_.state.Find(name) : nullptr;
      if (semaphore != nullptr) AfterRoom(editor, semaphore, NewContext());
    }
  }
  for (const Submission& submission : batch) {
    editor.BeginCommand();
    if (absl::Status status = DecideOne(submission.command, editor, decided); !status.ok()) {
      editor.Finish();
      return status;
    }
  }
  editor.Finish();
  core_.requests.Finish(&decided->transaction);
  return absl::OkStatus();
}

Context BrokerAdapter::NewContext() const {
  Context context = core_.NewContext();
  context.permits = store_.get();
  return context;
}

absl::Status BrokerAdapter::DecideOne(const Command& command, Editor& editor, Decided* decided) {
  Context context = NewContext();
  context.withheld = core_.GrantsNothing(std::string(SemaphoreOf(command)));
  absl::StatusOr<std::optional<Outcome>> outcome = core_.requests.Find(command, editor, &context);
  if (outcome.ok() && !outcome->has_value()) outcome = AskStore(command, editor);
  if (!outcome.ok()) return outcome.status();
  if (outcome->has_value()) {
    decided->outcomes.push_back(std::move(**outcome));
    return absl::OkStatus();
  }
  const auto pruned = core_.pruned.find(std::string(SemaphoreOf(command)));
  if (pruned != core_.pruned.end()) context.pruned = &pruned->second;
  context.adoptable = core_.AdoptableFor(command);
  decided->outcomes.push_back(core_.Execute(command, editor, context));
  const auto* verify = std::get_if<VerifyCommand>(&command);
  if (verify != nullptr && not_verified_.contains(verify->claim))
    decided->outcomes.back() = ledger::NotHeld();
  return absl::OkStatus();
}

// ---- What the broker cannot do, or says itself ----

absl::StatusOr<std::optional<Outcome>> BrokerAdapter::AskStore(const Command& command,
                                                               const Editor& editor) {
  if (IsOnlyIfRepeated(command)) return Simply(OutcomeKind::kNotAskedBefore);
  const auto* admin = std::get_if<AdminCommand>(&command);
  const auto* adopt = admin == nullptr ? nullptr : std::get_if<AdminAdopt>(&admin->act);
  if (adopt != nullptr) {
    absl::StatusOr<std::optional<Outcome>> full = AdoptFor(*admin, *adopt);
    if (!full.ok() || full->has_value()) return full;
  }
  if (std::optional<Outcome> refusal = Unsupported(command)) return refusal;
  const std::string name(SemaphoreOf(command));
  if (const auto* acquire = std::get_if<AcquireCommand>(&command)) {
    absl::Status status = ProvideFor(*acquire, editor);
    if (!status.ok() && !ConcernsOneOnly(status)) return status;
    if (!status.ok()) unusable_[name] = status;
  }
  if (const absl::Status why = ledger::WhyUntouchable(core_, name);
      !why.ok() && !IsReadOnly(command)) {
    Outcome outcome = Simply(OutcomeKind::kDamaged);
    outcome.message = std::string(why.message());
    return std::optional<Outcome>(std::move(outcome));
  }
  const auto unusable = unusable_.find(name);
  if (unusable != unusable_.end() && in_use_.NeedsBroker(command, unusable->second)) {
    OutcomeKind kind = OutcomeKind::kUnsupported;
    if (absl::IsOutOfRange(unusable->second)) kind = OutcomeKind::kLimitReached;
    if (absl::IsDeadlineExceeded(unusable->second)) kind = OutcomeKind::kBusy;
    Outcome outcome = Simply(kind);
    outcome.message = std::string(unusable->second.message());
    return std::optional<Outcome>(std::move(outcome));
  }
  if (std::optional<Outcome> refusal = ledger::ExcludedAdoption(core_, command)) return refusal;
  if (std::holds_alternative<HistoryCommand>(command)) return ledger::ExcludedHistory(core_.can);
  const auto* list = std::get_if<ListCommand>(&command);
  if (list == nullptr) return std::nullopt;
  absl::StatusOr<Outcome> outcome = in_use_.List(*list);
  if (!outcome.ok()) return outcome.status();
  return std::optional<Outcome>(*std::move(outcome));
}

std::optional<Outcome> BrokerAdapter::Unsupported(const Command& command) const {
  if (std::optional<Outcome> refusal = ledger::ExcludedRequest(core_.can, command)) return refusal;
  if (const std::string why = in_use_.WhyNoSuchLimit(command); !why.empty())
    return RefusedBy(core_.can, absl::StrCat("refuses: ", why));
  if (std::optional<Outcome> refusal = ledger::ExcludedTicket(core_.can, command)) return refusal;
  return ledger::ExcludedAct(core_.can, core_.state, command);
}

// Not if the request will be refused whatever the engine has: that must leave nothing behind.
absl::Status BrokerAdapter::ProvideFor(const AcquireCommand& acquire, const Editor& editor) {
  if (acquire.limit == 0 || acquire.must_exist || acquire.permits > acquire.limit)
    return absl::OkStatus();
  // What this batch has destroyed is still there, until the commit.
  if (core_.state.Find(acquire.semaphore) != nullptr || editor.Touched(acquire.semaphore))
    return absl::OkStatus();
  if (acquire.session != acquire.claim && !core_.state.FindSession(acquire.session))
    return absl::OkStatus();
  const ledger::Limits& limits = core_.options.limits;
  if (core_.state.lease_count() + core_.state.waiter_count() >= limits.leases_max ||
      core_.state.semaphore_count() >= limits.semaphores_max ||
      ledger::OverQuota(core_.state, acquire.owner, acquire.quotas, {.semaphores = 1}))
    return absl::OkStatus();
  SemaphoreRow row;
  row.owner = acquire.owner;
  row.name = acquire.semaphore;
  row.limit = acquire.limit;
  row.created_at_unix_ms = core_.options.now_unix_ms();
  if (absl::Status status = store_->Provide(row); !status.ok()) return status;
  return in_use_.Load(row.name);
}

absl::StatusOr<std::optional<Outcome>> BrokerAdapter::AdoptFor(const AdminCommand& command,
                                                               const AdminAdopt& act) {
  const std::string& name = command.semaphore;
  if (core_.state.Find(name) != nullptr || unusable_.contains(name))
    return std::optional<Outcome>();
  if (act.limit != 0) {
    if (auto full = ledger::NoRoomFor(core_.state, command, core_.options.limits)) return full;
  }
  SemaphoreRow row;
  row.owner = command.owner;
  row.name = name;
  row.limit = act.limit;
  row.created_at_unix_ms = core_.options.now_unix_ms();
  absl::StatusOr<std::optional<ledger::Adoptable>> found = store_->Adopt(row);
  if (!found.ok() && !ConcernsOneOnly(found.status())) return found.status();
  if (!found.ok()) unusable_[name] = found.status();
  if (!found.ok() || !found->has_value()) return std::optional<Outcome>();
  core_.adoptable[&act] = **std::move(found);
  if (act.limit != 0) {
    if (absl::Status loaded = in_use_.Load(name); !loaded.ok()) return loaded;
  }
  return std::optional<Outcome>();
}

// ---- Settle ----

absl::StatusOr<StepResult> BrokerAdapter::SettleUnknown(SteadyTime deadline) {
  StepResult result;
  const CommitResult commit = store_->Settle(unknown_->transaction, deadline);
  if (commit.kind == CommitResult::Kind::kUnknown) return result;
  const std::unique_ptr<Decided> decided = std::move(unknown_);
  const std::vector<Submission> batch = std::move(decided->batch);
  if (commit.kind == CommitResult::Kind::kWon) {
    Win(decided.get(), &result);
    SettleAll(batch, absl::OkStatus(), &result);
  } else {
    core_.RollBack(decided->transaction);
    SettleAll(batch, WhyNotDone(commit), &result);
  }
  return result;
}

void BrokerAdapter::RollBack(const Decided& decided) {
  core_.RollBack(decided.transaction);
  store_->Abandon();
}

void BrokerAdapter::Win(Decided* decided, StepResult* result) {
  in_use_.Won(decided->transaction);
  requests_.Keep(decided->transaction);
  core_.Win(decided, result);
}

}  // namespace

std::unique_ptr<Adapter> MakeAdapter(std::unique_ptr<PermitStore> store,
                                     ledger::LedgerOptions options) {
  return std::make_unique<BrokerAdapter>(std::move(store), std::move(options));
}

}  // namespace semaphored::rabbitmq
