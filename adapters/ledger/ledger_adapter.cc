#include "adapters/ledger/ledger_adapter.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "adapters/ledger/clients.h"
#include "adapters/ledger/ends.h"
#include "adapters/ledger/events.h"
#include "adapters/ledger/rules_internal.h"

namespace semaphored::ledger {
namespace {

constexpr size_t kRecentEndsMax = 65'536;
constexpr uint32_t kHistoryLookedAt =
    256;  // Rows, when we must find out how a lease ended elsewhere.
constexpr uint64_t kAnswersPrunedEvery = 256;  // Sequence numbers of one client.
constexpr int kForgottenPerBatch = 64;

const Requester* RequesterOf(const Command& command) {
  if (const auto* acquire = std::get_if<AcquireCommand>(&command)) return &acquire->requester;
  if (const auto* release = std::get_if<ReleaseCommand>(&command)) return &release->requester;
  const auto* admin = std::get_if<AdminCommand>(&command);
  return admin != nullptr && !std::holds_alternative<AdminDescribe>(admin->act) ? &admin->requester
                                                                                : nullptr;
}

class LedgerAdapter : public Adapter {
 public:
  LedgerAdapter(std::unique_ptr<LedgerStore> store, LedgerOptions options)
      : store_(std::move(store)), options_(std::move(options)), ends_(kRecentEndsMax) {}

  absl::Status Start();

  const Guarantees& guarantees() const override { return store_->guarantees(); }
  absl::StatusOr<StepResult> Step(absl::Span<const Submission> batch, SteadyTime deadline) override;
  void Wake() override { store_->Wake(); }

 private:
  // A batch that has been decided and carried out in state_, on its way to the store.
  struct Decided {
    Transaction transaction;
    std::vector<Outcome> outcomes;
    std::vector<uint64_t> tickets;  // Only when its fate is unknown.
  };

  bool exclusive() const { return store_->guarantees().exclusive; }

  absl::StatusOr<StepResult> WaitForEvents(SteadyTime deadline);
  absl::StatusOr<StepResult> SettleUnknown(SteadyTime deadline);
  absl::Status Decide(absl::Span<const Submission> batch, int attempt, Decided* decided);
  absl::Status DecideOne(const Command& command, Editor& editor, Decided* decided);
  Outcome Execute(const Command& command, Editor& editor, const Context& context);
  absl::StatusOr<Outcome> ReadHistory(const HistoryCommand& command);
  absl::StatusOr<Outcome> ListNames(const ListCommand& command);

  // nullopt: it has not been answered before.
  absl::StatusOr<std::optional<Outcome>> Replay(const Command& command, Client* client,
                                                uint64_t sequence, Editor& editor,
                                                const Context& context);
  Outcome ReplayAnswer(const Command& command, const Answer& answer, Editor& editor,
                       const Context& context);
  Outcome ReplayAcquire(const Answer& answer, Editor& editor, const Context& context);
  const Answer* FindPending(const RequestKey& request, const Transaction& transaction) const;
  // This batch speaks of the client: it is not forgotten before the batch has ended.
  void UsedInBatch(Client* client) const;

  absl::Status Need(const Command& command);
  absl::Status Refresh(std::vector<std::string> names);
  absl::Status SweepIfDue();
  void ForgetClients(Transaction* transaction);
  void NameClients(Transaction* transaction);
  EndCause CauseOf(const Id& claim, const Transaction& transaction) const;
  void ExplainEnds(std::vector<Event>* events);

  void Win(Decided* decided, StepResult* result);
  void Undo(const Transaction& transaction);

  std::unique_ptr<LedgerStore> store_;
  LedgerOptions options_;
  LedgerState state_;
  Clients clients_;
  RecentEnds ends_;
  bool watching_ = false;
  uint64_t batch_ = 0;  // Counts batches.
  std::unique_ptr<Decided> unknown_;
  // Names that the delta string views in events point to, until the next Step.
  std::vector<Transaction> last_;
  // Shared stores only. What other daemons changed, found while reading, to be told with the next
  // result.
  std::vector<Event> found_events_;
  std::vector<SemaphoreChange> found_changes_;
  absl::flat_hash_set<std::string> loaded_;  // Names whose state is cached, existing or not.
  absl::flat_hash_set<std::string> read_;    // Names that this batch has looked at.
  SteadyTime swept_at_{};
};

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

// ---- A step ----

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

// A push is a hint that may be lost: now and then everything that has a queue is compared with the
// engine.
absl::Status LedgerAdapter::SweepIfDue() {
  const SteadyTime now = options_.now();
  if (now < swept_at_ + options_.sweep_interval) return absl::OkStatus();
  swept_at_ = now;
  std::vector<const SemaphoreRow*> rows;
  std::vector<std::string> idle;
  for (const std::string& name : loaded_) {
    const Semaphore* semaphore = state_.Find(name);
    const bool in_use =
        semaphore != nullptr && (!semaphore->waiters.empty() || !semaphore->leases.empty());
    if (in_use) rows.push_back(&semaphore->row);
    if (!in_use) idle.push_back(name);
  }
  // What nobody uses is not kept in memory: it is loaded again when it is asked for.
  for (const std::string& name : idle) {
    state_.Erase(name);
    loaded_.erase(name);
  }
  if (rows.empty()) return absl::OkStatus();
  absl::StatusOr<std::vector<std::string>> changed = store_->Changed(rows);
  if (!changed.ok()) return changed.status();
  return Refresh(*std::move(changed));
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

void LedgerAdapter::Undo(const Transaction& transaction) { Revert(transaction, &state_); }

// ---- Deciding ----

absl::Status LedgerAdapter::Decide(absl::Span<const Submission> batch, int attempt,
                                   Decided* decided) {
  decided->transaction.node = options_.self;
  decided->transaction.attempt = attempt;
  decided->outcomes.reserve(batch.size());
  read_.clear();
  ++batch_;
  if (!exclusive()) {
    absl::StatusOr<std::vector<std::string>> hints = store_->Wait(SteadyTime::min());
    if (!hints.ok()) return hints.status();
    std::erase_if(*hints, [&](const std::string& name) { return !loaded_.contains(name); });
    if (absl::Status status = Refresh(*std::move(hints)); !status.ok()) return status;
    // All that the batch needs is loaded before anything is changed, so that a reload never meets a
    // half-made batch.
    for (const Submission& submission : batch) {
      if (absl::Status status = Need(submission.command); !status.ok()) return status;
    }
    std::vector<const SemaphoreRow*> rows;
    std::vector<SemaphoreRow> absent;
    absent.reserve(read_.size());
    for (const std::string& name : read_) {
      const Semaphore* semaphore = state_.Find(name);
      if (semaphore == nullptr) absent.emplace_back().name = name;
      rows.push_back(semaphore != nullptr ? &semaphore->row : &absent.back());
    }
    absl::StatusOr<std::vector<std::string>> changed = store_->Changed(rows);
    if (!changed.ok()) return changed.status();
    if (absl::Status status = Refresh(*std::move(changed)); !status.ok()) return status;
  }
  Editor editor(&state_, &decided->transaction);
  for (const Submission& submission : batch) {
    if (absl::Status status = DecideOne(submission.command, editor, decided); !status.ok()) {
      editor.Finish();
      return status;
    }
  }
  editor.Finish();
  NameClients(&decided->transaction);
  ForgetClients(&decided->transaction);
  return absl::OkStatus();
}

// Loads what a command is about and what is not in memory yet.
absl::Status LedgerAdapter::Need(const Command& command) {
  std::vector<std::string> names;
  const std::string_view name = SemaphoreOf(command);
  const bool history = std::holds_alternative<HistoryCommand>(command);
  if (!name.empty() && !history) names.emplace_back(name);
  const Id* session = nullptr;
  if (const auto* adopt = std::get_if<AdoptSessionCommand>(&command)) session = &adopt->session;
  if (const auto* close = std::get_if<CloseSessionCommand>(&command)) session = &close->session;
  if (const auto* acquire = std::get_if<AcquireCommand>(&command)) {
    if (acquire->session != acquire->claim && !state_.FindSession(acquire->session))
      session = &acquire->session;
  }
  if (session != nullptr) {
    absl::StatusOr<LedgerStore::SessionAt> at = store_->LoadSession(*session);
    if (!at.ok()) return at.status();
    const SessionPtr& known = state_.FindSession(*session);
    if (at->session) {
      state_.Apply(SessionChange{known, at->session});
    } else if (known) {
      state_.Apply(SessionChange{known, nullptr});
    }
    for (std::string& each : at->semaphores) names.push_back(std::move(each));
  }
  if (const auto* orphans = std::get_if<OrphansCommand>(&command)) {
    std::vector<NodeRef> dead = orphans->dead;
    for (uint32_t incarnation = 1; incarnation < options_.self.incarnation; ++incarnation) {
      dead.push_back({options_.self.number, incarnation});
    }
    absl::StatusOr<std::vector<std::string>> hosted = store_->SemaphoresHostedBy(dead);
    if (!hosted.ok()) return hosted.status();
    for (std::string& each : *hosted) names.push_back(std::move(each));
  }
  std::vector<std::string> missing;
  for (const std::string& each : names) {
    read_.insert(each);
    if (!loaded_.contains(each)) missing.push_back(each);
  }
  return Refresh(std::move(missing));
}

absl::Status LedgerAdapter::DecideOne(const Command& command, Editor& editor, Decided* decided) {
  Context context;
  context.self = options_.self;
  context.limits = options_.limits;
  context.now_unix_ms = options_.now_unix_ms();

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
  if (const auto* history = std::get_if<HistoryCommand>(&command)) {
    absl::StatusOr<Outcome> outcome = ReadHistory(*history);
    if (!outcome.ok()) return outcome.status();
    decided->outcomes.push_back(*std::move(outcome));
    return absl::OkStatus();
  }
  if (const auto* list = std::get_if<ListCommand>(&command); list != nullptr && !exclusive()) {
    absl::StatusOr<Outcome> outcome = ListNames(*list);
    if (!outcome.ok()) return outcome.status();
    decided->outcomes.push_back(*std::move(outcome));
    return absl::OkStatus();
  }
  const std::vector<Answer>& answers = decided->transaction.answers;
  const size_t answered = answers.size();
  decided->outcomes.push_back(Execute(command, editor, context));
  // Whoever was answered now (others who waited, too) may repeat the request within this very
  // batch.
  for (size_t i = answered; i < answers.size(); ++i) {
    Client* asker = clients_.Find(answers[i].request.client);
    if (asker == nullptr) continue;
    UsedInBatch(asker);
    asker->batch_high = std::max(asker->batch_high, answers[i].request.sequence);
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

absl::StatusOr<Outcome> LedgerAdapter::ListNames(const ListCommand& command) {
  absl::StatusOr<std::vector<std::string>> names =
      store_->Names(command.prefix, command.after, command.rows_max + 1);
  if (!names.ok()) return names.status();
  Outcome outcome = Simply(OutcomeKind::kDone);
  outcome.report = std::make_unique<Report>();
  outcome.report->more = names->size() > command.rows_max;
  if (outcome.report->more) names->resize(command.rows_max);
  absl::StatusOr<Image> image = store_->Load(*names);
  if (!image.ok()) return image.status();
  for (const LoadedSemaphore& loaded : image->semaphores) {
    SemaphoreInfo info;
    info.row = loaded.row;
    for (const LeasePtr& lease : loaded.leases) info.held += lease->permits;
    info.waiting = loaded.waiters.size();
    outcome.report->infos.push_back(std::move(info));
  }
  std::ranges::sort(outcome.report->infos, {},
                    [](const SemaphoreInfo& info) { return info.row.name; });
  return outcome;
}

EndCause LedgerAdapter::CauseOf(const Id& claim, const Transaction& transaction) const {
  for (auto row = transaction.history.rbegin(); row != transaction.history.rend(); ++row) {
    if (row->lease->id == claim) return row->cause;
  }
  return ends_.Find(claim);
}

// ---- Repeated requests ----

void LedgerAdapter::UsedInBatch(Client* client) const {
  if (client->batch != batch_) client->batch_high = 0;
  client->batch = batch_;
}

const Answer* LedgerAdapter::FindPending(const RequestKey& request,
                                         const Transaction& transaction) const {
  for (auto answer = transaction.answers.rbegin(); answer != transaction.answers.rend(); ++answer) {
    if (answer->request == request) return &*answer;
  }
  return nullptr;
}

absl::StatusOr<std::optional<Outcome>> LedgerAdapter::Replay(const Command& command, Client* client,
                                                             uint64_t sequence, Editor& editor,
                                                             const Context& context) {
  const RequestKey request{client->number, sequence};
  const auto [semaphore, waiter] = state_.FindWaiting(request);
  if (waiter) {
    const auto* acquire = std::get_if<AcquireCommand>(&command);
    if (acquire == nullptr || acquire->semaphore != semaphore->row.name)
      return Simply(OutcomeKind::kReused);
    Outcome outcome = Simply(OutcomeKind::kQueued);
    outcome.claim = waiter->id;
    outcome.position = semaphore->PositionOf(*waiter);
    AdoptCommand adopt;
    adopt.semaphore = semaphore->row.name;
    adopt.claim = waiter->id;
    if (waiter->detached()) outcome.number = Adopt(editor, adopt, context).number;
    return outcome;
  }
  if (client->batch == batch_ && sequence <= client->batch_high) {
    if (const Answer* answer = FindPending(request, editor.transaction())) {
      return ReplayAnswer(command, *answer, editor, context);
    }
  }
  if (sequence + options_.request_window <= client->sequence_high)
    return Simply(OutcomeKind::kTooOld);
  // Above everything answered, it is new; but for a store with other daemons on it, which may have
  // answered.
  if (sequence > client->sequence_high && exclusive()) return std::nullopt;
  absl::StatusOr<std::optional<Answer>> answer = store_->FindAnswer(request, client->client_id);
  if (!answer.ok()) return answer.status();
  if (!answer->has_value()) return std::nullopt;
  return ReplayAnswer(command, **answer, editor, context);
}

Outcome LedgerAdapter::ReplayAnswer(const Command& command, const Answer& answer, Editor& editor,
                                    const Context& context) {
  const bool acquire = std::holds_alternative<AcquireCommand>(command);
  const bool release = std::holds_alternative<ReleaseCommand>(command);
  const bool kind_fits =
      acquire   ? answer.kind == Answer::Kind::kGranted || answer.kind == Answer::Kind::kWaitEnded
      : release ? answer.kind == Answer::Kind::kReleased
                : answer.kind == Answer::Kind::kAdmin;
  if (!kind_fits || answer.semaphore != SemaphoreOf(command)) return Simply(OutcomeKind::kReused);
  if (release && std::get<ReleaseCommand>(command).claim != answer.claim) {
    return Simply(OutcomeKind::kReused);
  }
  if (acquire) return ReplayAcquire(answer, editor, context);
  Outcome outcome = Simply(release ? OutcomeKind::kReleased : OutcomeKind::kDone);
  outcome.number = answer.number;
  outcome.remaining = answer.remaining;
  outcome.changed = answer.changed;
  if (!release) {
    if (const Semaphore* semaphore = state_.Find(answer.semaphore)) {
      outcome.report = std::make_unique<Report>();
      outcome.report->info = Describe(*semaphore, 0);
    }
  }
  return outcome;
}

// The lease of a repeated acquire, if it still stands. If it does not, saying "granted" again would
// let a holder work without a permit.
Outcome LedgerAdapter::ReplayAcquire(const Answer& answer, Editor& editor, const Context& context) {
  if (answer.kind == Answer::Kind::kWaitEnded) {
    Outcome outcome = Simply(OutcomeKind::kWaitEnded);
    outcome.cause = answer.cause;
    return outcome;
  }
  AdoptCommand adopt;
  adopt.semaphore = answer.semaphore;
  adopt.claim = answer.claim;
  Outcome outcome = Adopt(editor, adopt, context);
  if (outcome.kind == OutcomeKind::kHeld || outcome.kind == OutcomeKind::kBelongsToSession) {
    outcome.kind = OutcomeKind::kGranted;
    return outcome;
  }
  outcome = Simply(OutcomeKind::kNotHeld);
  outcome.cause = CauseOf(answer.claim, editor.transaction());
  return outcome;
}

// ---- Clients ----

// The store must know the name of each client that a row of this transaction speaks of.
void LedgerAdapter::NameClients(Transaction* transaction) {
  absl::flat_hash_set<uint32_t> seen;
  const auto name = [&](uint32_t number) {
    if (number == 0 || !seen.insert(number).second) return;
    const Client* client = clients_.Find(number);
    if (client != nullptr && !client->stored)
      transaction->new_clients.push_back({number, client->client_id});
  };
  for (const SemaphoreDelta& delta : transaction->semaphores) {
    for (const LeaseChange& change : delta.leases) {
      if (change.after) name(change.after->request.client);
    }
    for (const WaiterChange& change : delta.waiters) {
      if (change.after) name(change.after->request.client);
    }
  }
  for (const SessionChange& change : transaction->sessions) {
    if (change.after) name(change.after->client);
  }
  for (const Answer& answer : transaction->answers) {
    name(answer.request.client);
    const Client* client = clients_.Find(answer.request.client);
    const uint64_t sequence = answer.request.sequence;
    if (sequence < options_.request_window + client->floor + kAnswersPrunedEvery) continue;
    const uint64_t below = sequence - options_.request_window + 1;
    auto& floors = transaction->answer_floors;
    if (!floors.empty() && floors.back().client == client->number) {
      floors.back().below = std::max(floors.back().below, below);
    } else {
      floors.push_back({client->number, below});
    }
  }
}

void LedgerAdapter::ForgetClients(Transaction* transaction) {
  // At the limit also with a batch that writes nothing: a new client is refused, and would be for
  // ever.
  if (transaction->empty() && clients_.size() < options_.clients_max) return;
  const SteadyTime now = options_.now();
  for (int i = 0; i < kForgottenPerBatch; ++i) {
    Client* oldest = clients_.Oldest();
    if (oldest == nullptr || now < oldest->used_at + options_.client_retention) return;
    // It holds or waits, or speaks just now: looked at again when as much time has passed.
    if (state_.ClaimCountOf(oldest->number) > 0 || oldest->batch == batch_) {
      clients_.Use(oldest, now);
      continue;
    }
    if (!oldest->stored) {
      clients_.Forget(oldest->number);
      continue;
    }
    transaction->forgotten_clients.push_back(oldest->number);
    clients_.Use(oldest, now);  // Forgotten for good when the commit has won.
  }
}

// ---- Shared stores ----

absl::Status LedgerAdapter::Refresh(std::vector<std::string> names) {
  if (names.empty()) return absl::OkStatus();
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  absl::StatusOr<Image> image = store_->Load(names);
  if (!image.ok()) return image.status();
  for (const LoadedClient& client : image->clients) {
    clients_.AddStored(client.number, client.client_id, client.sequence_high, options_.now());
  }
  Transaction difference;
  difference.node = options_.self;
  for (const SessionPtr& session : image->sessions) {
    difference.sessions.push_back({state_.FindSession(session->id), session});
    state_.Apply(difference.sessions.back());
  }
  for (const std::string& name : names) {
    const auto loaded =
        std::ranges::find(image->semaphores, name, [](const auto& each) { return each.row.name; });
    const bool known = loaded_.contains(name);
    SemaphoreDelta delta =
        ReplaceWith(loaded == image->semaphores.end() ? nullptr : &*loaded, name, &state_);
    loaded_.insert(name);
    if (known) difference.semaphores.push_back(std::move(delta));
  }
  std::vector<Event> events;
  AppendEvents(difference, &events);
  ExplainEnds(&events);
  for (const Event& event : events) found_events_.push_back(event);
  if (watching_) AppendChanges(difference, state_, &found_changes_);
  last_.push_back(std::move(difference));
  return absl::OkStatus();
}

// Others ended these leases: the history says how.
void LedgerAdapter::ExplainEnds(std::vector<Event>* events) {
  absl::flat_hash_map<std::string_view, std::vector<HistoryRow>> histories;
  for (Event& event : *events) {
    if (event.kind != Event::Kind::kEnded || event.cause != EndCause::kUnknown ||
        !guarantees().history)
      continue;
    const auto [at, is_new] = histories.try_emplace(event.semaphore);
    if (is_new) {
      absl::StatusOr<std::vector<HistoryRow>> rows =
          store_->ReadHistory(std::string(event.semaphore), 0, kHistoryLookedAt);
      if (rows.ok()) at->second = *std::move(rows);
    }
    for (const HistoryRow& row : at->second) {
      if (row.lease->id == event.claim) event.cause = row.cause;
    }
    ends_.Add(event.claim, event.cause);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Adapter>> MakeLedgerAdapter(std::unique_ptr<LedgerStore> store,
                                                           LedgerOptions options) {
  auto adapter = std::make_unique<LedgerAdapter>(std::move(store), std::move(options));
  if (absl::Status status = adapter->Start(); !status.ok()) return status;
  return adapter;
}

}  // namespace semaphored::ledger
