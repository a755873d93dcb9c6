// From a batch of commands to a transaction and outcomes.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/ledger_adapter_impl.h"

namespace semaphored::ledger {

absl::Status LedgerAdapter::Decide(absl::Span<const Submission> batch, int attempt,
                                   Decided* decided) {
  decided->transaction.node = options_.self;
  decided->transaction.attempt = attempt;
  decided->outcomes.reserve(batch.size());
  read_.clear();
  closing_.clear();
  assumed_new_.clear();
  ++batch_;
  if (!exclusive()) {
    if (absl::Status status = Hear(store_->Wait(SteadyTime::min())); !status.ok()) return status;
    LookWhetherWithheld();
    // Also under load: how old our knowledge may be bounds for how long we vouch.
    if (absl::Status status = SweepIfDue(); !status.ok()) return status;
    // All that the batch needs is loaded before anything is changed, so that a reload never meets a
    // half-made batch.
    std::vector<std::string> missing;
    if (absl::Status status = PruneShared(batch, &missing); !status.ok()) return status;
    for (const Submission& submission : batch) {
      if (absl::Status status = Need(submission.command, &missing); !status.ok()) return status;
    }
    if (absl::Status status = Refresh(std::move(missing)); !status.ok()) return status;
  }
  if (store_->permits() != nullptr) {
    if (absl::Status status = PreparePermits(batch); !status.ok()) return status;
  }
  Editor editor(&state_, &decided->transaction);
  if (store_->permits() != nullptr) {
    EndLost(editor);
    GiveBackAsked(editor);
  }
  if (batch.empty()) Serve(editor);
  for (const Submission& submission : batch) {
    editor.BeginCommand();
    if (absl::Status status = DecideOne(submission.command, editor, decided); !status.ok()) {
      editor.Finish();
      return status;
    }
  }
  editor.Finish();
  NameClients(&decided->transaction);
  ForgetClients(&decided->transaction);
  if (!exclusive()) AddConditions(decided);
  return absl::OkStatus();
}

Context LedgerAdapter::NewContext() const {
  Context context;
  context.self = options_.self;
  context.limits = options_.limits;
  context.shared = !exclusive();
  context.withheld = withheld_;
  context.permits = store_->permits();
  context.tells_others = !guarantees().shares_claims && guarantees().administers_all;
  context.longest_hold_max_ms = guarantees().longest_hold_max_ms;
  context.grants_max = guarantees().grants_per_commit_max;
  // An engine that hands out permits keeps no claims: there an act is one commit.
  context.changes_max = store_->permits() != nullptr ? 0 : changes_max_;
  context.now_unix_ms = options_.now_unix_ms();
  return context;
}

absl::Status LedgerAdapter::DecideOne(const Command& command, Editor& editor, Decided* decided) {
  Context context = NewContext();
  if (const std::string_view name = SemaphoreOf(command);
      !busy_.empty() && IsBusy(name) && !IsReadOnly(command)) {
    Outcome outcome = Simply(OutcomeKind::kBusy);
    outcome.message = absl::StrCat(guarantees().adapter, ": another client of the engine keeps ",
                                   std::string(name), " locked");
    decided->outcomes.push_back(std::move(outcome));
    return absl::OkStatus();
  }
  const Requester* requester = RequesterOf(command);
  Client* client = nullptr;
  std::string_view client_id;
  if (requester != nullptr && requester->sequence != 0) client_id = requester->client_id;
  if (const auto* open = std::get_if<OpenSessionCommand>(&command)) client_id = open->client_id;
  if (!client_id.empty()) {
    client = clients_.Find(client_id);
    if (client == nullptr && clients_.size() >= options_.clients_max) {
      Client* oldest = clients_.Oldest();
      const bool in_use =
          state_.ClaimCountOf(oldest->number) > 0 || oldest->stored || oldest->batch == batch_;
      if (in_use) {
        decided->outcomes.push_back(
            LimitReached(absl::StrCat("clients_max (", options_.clients_max, ") is reached")));
        return absl::OkStatus();
      }
      clients_.Forget(oldest->number);
    }
    if (client == nullptr) client = clients_.Add(std::string(client_id), options_.now());
    UsedInBatch(client);
    context.client = client->number;
    if (requester != nullptr) context.fingerprint = Fingerprint(command);
  }
  if (client != nullptr && requester != nullptr) {
    absl::StatusOr<std::optional<Outcome>> replay =
        Replay(command, client, requester->sequence, editor, context);
    if (!replay.ok()) return replay.status();
    if (replay->has_value()) {
      decided->outcomes.push_back(std::move(**replay));
      return absl::OkStatus();
    }
  }
  // (What cannot be read may have it.)
  if (IsOnlyIfRepeated(command) && !damaged_.contains(std::string(SemaphoreOf(command)))) {
    decided->outcomes.push_back(Simply(OutcomeKind::kNotAskedBefore));
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<Outcome>> told = AskStore(command, editor);
  if (!told.ok()) return told.status();
  if (told->has_value()) {
    decided->outcomes.push_back(std::move(**told));
    return absl::OkStatus();
  }
  if (const auto found = pruned_.find(std::string(SemaphoreOf(command))); found != pruned_.end())
    context.pruned = &found->second;
  const absl::btree_map<std::string, std::string> untouchable = UntouchableOf(command);
  if (!untouchable.empty()) context.unusable = &untouchable;
  decided->outcomes.push_back(Execute(command, editor, context));
  if (WantsPayload(command, decided->outcomes.back()))
    decided->payloads_wanted.push_back(
        {decided->outcomes.size() - 1, std::string(SemaphoreOf(command))});
  return absl::OkStatus();
}

// What the rules are not asked: what the engine cannot do, what is wrong there, and what it is to
// say itself. nullopt: it is theirs to decide.
absl::StatusOr<std::optional<Outcome>> LedgerAdapter::AskStore(const Command& command,
                                                               Editor& editor) {
  if (std::optional<Outcome> refusal = Unsupported(command)) return refusal;
  const bool gives_permits = store_->permits() != nullptr;
  if (const auto* acquire = std::get_if<AcquireCommand>(&command);
      acquire != nullptr && gives_permits) {
    absl::Status status = ProvideFor(*acquire, editor);
    if (!status.ok() && !ConcernsOneOnly(status)) return status;
    if (!status.ok()) unusable_[acquire->semaphore] = status;
  }
  if (const std::string name(SemaphoreOf(command)); !name.empty()) {
    const absl::Status why = WhyUntouchable(name);
    // What can be read is shown.
    if (!why.ok() && (damaged_.contains(name) || !IsReadOnly(command))) {
      Outcome outcome = Simply(OutcomeKind::kDamaged);
      outcome.message = std::string(why.message());
      return std::optional<Outcome>(std::move(outcome));
    }
  }
  if (std::optional<Outcome> refusal = WhyUnusable(command)) return refusal;
  const auto unusable = unusable_.find(std::string(SemaphoreOf(command)));
  if (unusable != unusable_.end() && NeedsEngine(command, unusable->second)) {
    OutcomeKind kind = OutcomeKind::kUnsupported;
    if (absl::IsOutOfRange(unusable->second)) kind = OutcomeKind::kLimitReached;
    if (absl::IsDeadlineExceeded(unusable->second)) kind = OutcomeKind::kBusy;
    Outcome outcome = Simply(kind);
    outcome.message = std::string(unusable->second.message());
    return std::optional<Outcome>(std::move(outcome));
  }
  absl::StatusOr<Outcome> outcome = Simply(OutcomeKind::kDone);
  const auto* list = std::get_if<ListCommand>(&command);
  if (const auto* history = std::get_if<HistoryCommand>(&command)) {
    outcome = ReadHistory(*history);
  } else if (list != nullptr && gives_permits) {
    outcome = ListPermits(*list);
  } else if (list != nullptr && !exclusive()) {
    outcome = ListNames(*list);
  } else {
    return std::optional<Outcome>();
  }
  if (!outcome.ok()) return outcome.status();
  return std::optional<Outcome>(*std::move(outcome));
}

// A permit is not given, nor a semaphore made or made larger, where the engine's things are in
// disorder; and what is not there on that account is not told to be merely absent.
std::optional<Outcome> LedgerAdapter::WhyUnusable(const Command& command) const {
  const auto* admin = std::get_if<AdminCommand>(&command);
  const bool acquires = std::holds_alternative<AcquireCommand>(command) ||
                        std::holds_alternative<EnqueueCommand>(command) ||
                        std::holds_alternative<TakeCommand>(command);
  if (exclusive() || (!acquires && admin == nullptr)) return std::nullopt;
  const std::string name(SemaphoreOf(command));
  const absl::Status status = store_->WhyUnusable(name);
  if (status.ok()) return std::nullopt;
  if (!acquires) {
    const bool resizes = std::holds_alternative<AdminResize>(admin->act);
    const bool prunes = std::holds_alternative<AdminPrune>(admin->act);
    const bool refused = std::holds_alternative<AdminCreate>(admin->act) ||
                         (resizes && absl::IsDataLoss(status)) ||
                         (!prunes && state_.Find(name) == nullptr);
    if (!refused) return std::nullopt;
  }
  Outcome outcome = Simply(OutcomeKind::kUnusable);
  outcome.message = std::string(status.message());
  return outcome;
}

absl::Status LedgerAdapter::PruneShared(absl::Span<const Submission> batch,
                                        std::vector<std::string>* changed) {
  pruned_.clear();
  for (const Submission& submission : batch) {
    const auto* admin = std::get_if<AdminCommand>(&submission.command);
    if (admin == nullptr || !std::holds_alternative<AdminPrune>(admin->act)) continue;
    absl::StatusOr<std::optional<Pruned>> pruned = store_->Repair(admin->semaphore);
    if (!pruned.ok()) return pruned.status();
    if (!pruned->has_value()) continue;
    pruned_[admin->semaphore] = **std::move(pruned);
    changed->push_back(admin->semaphore);
  }
  return absl::OkStatus();
}

Outcome LedgerAdapter::Execute(const Command& command, Editor& editor, const Context& context) {
  struct Run {
    LedgerAdapter& self;
    Editor& editor;
    const Context& context;
    // What is not held has ended somehow: say how, if it was of late.
    Outcome WithCause(Outcome outcome, const Id& claim) const {
      if (outcome.kind == OutcomeKind::kNotHeld && outcome.cause == EndCause::kNone &&
          !claim.empty()) {
        outcome.cause = self.CauseOf(claim, editor.transaction());
      }
      return outcome;
    }
    Outcome operator()(const AcquireCommand& c) const { return Acquire(editor, c, context); }
    Outcome operator()(const ReleaseCommand& c) const {
      return WithCause(Release(editor, c, context), c.claim);
    }
    Outcome operator()(const VerifyCommand& c) const {
      return WithCause(Verify(editor.state(), c), c.claim);
    }
    Outcome operator()(const EndCommand& c) const {
      return WithCause(End(editor, c, context), c.claim);
    }
    Outcome operator()(const RecallCommand& c) const {
      return WithCause(AskBack(editor, c, context), c.claim);
    }
    Outcome operator()(const AdoptCommand& c) const {
      return WithCause(Adopt(editor, c, context), c.claim);
    }
    Outcome operator()(const OpenSessionCommand& c) const {
      return OpenSession(editor, c, context);
    }
    Outcome operator()(const AdoptSessionCommand& c) const {
      return AdoptSession(editor, c, context);
    }
    Outcome operator()(const CloseSessionCommand& c) const {
      return CloseSession(editor, c, context);
    }
    Outcome operator()(const OrphansCommand& c) const {
      return Orphans(editor.state(), c, context, self.exclusive());
    }
    Outcome operator()(const EnqueueCommand& c) const { return Enqueue(editor, c, context); }
    Outcome operator()(const TakeCommand& c) const { return Take(editor, c, context); }
    Outcome operator()(const FinishCommand& c) const {
      return WithCause(Finish(editor, c, context), c.claim);
    }
    Outcome operator()(const RipenCommand& c) const { return Ripen(editor, c, context); }
    Outcome operator()(const AdminCommand& c) const { return Administer(editor, c, context); }
    Outcome operator()(const ListCommand& c) const { return List(editor.state(), c); }
    Outcome operator()(const HistoryCommand&) const { return Simply(OutcomeKind::kUnsupported); }
    Outcome operator()(const WatchCommand& c) const {
      self.watching_ = c.on;
      return Simply(OutcomeKind::kDone);
    }
  };
  return std::visit(Run{*this, editor, context}, command);
}

absl::StatusOr<Outcome> LedgerAdapter::ReadHistory(const HistoryCommand& command) {
  if (!guarantees().history) {
    Outcome outcome = Simply(OutcomeKind::kUnsupported);
    outcome.message =
        absl::StrCat("the adapter ", guarantees().adapter, " keeps no history as it is configured");
    return outcome;
  }
  absl::StatusOr<std::vector<HistoryRow>> rows =
      store_->ReadHistory(command.semaphore, command.before, command.rows_max + 1);
  if (!rows.ok()) return rows.status();
  Outcome outcome = Simply(OutcomeKind::kDone);
  outcome.report = std::make_unique<Report>();
  outcome.report->more = rows->size() > command.rows_max;
  if (outcome.report->more) rows->resize(command.rows_max);
  outcome.report->history = *std::move(rows);
  return outcome;
}

EndCause LedgerAdapter::CauseOf(const Id& claim, const Transaction& transaction) const {
  for (auto row = transaction.history.rbegin(); row != transaction.history.rend(); ++row) {
    if (row->lease->id == claim) return row->cause;
  }
  return ends_.Find(claim);
}

}  // namespace semaphored::ledger
