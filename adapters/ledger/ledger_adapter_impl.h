// The parts of the ledger adapter: a step (ledger_adapter.cc), what one batch becomes
// (ledger_deciding.cc), repeated requests and the clients that make them (ledger_clients.cc), what
// other daemons on the same store have changed (ledger_shared.cc), and the payloads of tickets
// (ledger_tickets.cc).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_set.h"
#include "adapters/ledger/clients.h"
#include "adapters/ledger/ends.h"
#include "adapters/ledger/events.h"
#include "adapters/ledger/ledger_adapter.h"
#include "adapters/ledger/requests.h"
#include "adapters/ledger/rules/steps.h"

namespace semaphored::ledger {

// What is wrong with one semaphore's things in the engine, and with no other's.
inline bool ConcernsOneOnly(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsUnimplemented(status) || absl::IsInternal(status) ||
         absl::IsOutOfRange(status) || absl::IsDeadlineExceeded(status);
}

// A commit failed, and would fail each time: the reason is in what it was to write, or in the rows that
// it was to change. Not an outage, a full disk, a deadline, nor that this node must not go on.
inline bool LiesInData(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsInternal(status) || absl::IsInvalidArgument(status) ||
         absl::IsOutOfRange(status) || absl::IsUnimplemented(status);
}

class LedgerAdapter final : public Adapter {
  friend struct LedgerProbe;  // tests/worlds: reads what a lane knows.

 public:
  LedgerAdapter(std::unique_ptr<LedgerStore> store, LedgerOptions options)
      : store_(std::move(store)), options_(std::move(options)) {}

  absl::Status Start();

  const Guarantees& guarantees() const override { return store_->guarantees(); }
  absl::StatusOr<StepResult> Step(absl::Span<const Submission> batch, SteadyTime deadline) override;
  void Wake() override { store_->Wake(); }

 private:
  struct PayloadWanted {
    size_t outcome = 0;
    std::string semaphore;
  };
  // A batch that has been decided and carried out in state_, on its way to the store.
  struct Decided {
    Transaction transaction;
    std::vector<Outcome> outcomes;
    // Outcomes that show a ticket with its payload, which is read when the batch has won.
    std::vector<PayloadWanted> payloads_wanted;
    // Only when its fate is unknown.
    std::vector<Submission> batch;
  };

  bool exclusive() const { return store_->owns_state(); }

  absl::StatusOr<StepResult> WaitForEvents(SteadyTime deadline);
  // There may be room for waiters, and the next serving commit looks there.
  bool Serves(const std::string& name) const;
  bool ServesSomebody() const;
  void ForgetServed();
  // This lane is to do what is left of acts on the semaphore.
  bool CarriesOn(const Semaphore& semaphore) const;
  bool CarriesOnSomewhere() const;
  // Shared stores: takes over intentions that their host does not carry on.
  void LookAtIntentions();
  // The engine does not take as much. False: it is no less if acts are carried on in smaller steps.
  bool TakeSmallerSteps();
  absl::Status ServeOnce(SteadyTime deadline, StepResult* result);
  // The events of a commit without commands go out with the next result.
  void KeepForLater(StepResult* result);
  void Quarantine(const std::string& name, const absl::Status& why);
  bool IsQuarantined(const std::string& name) const;
  // Decides a batch, writes it, and decides it anew as often as another daemon was first.
  absl::Status Run(absl::Span<const Submission> batch, SteadyTime deadline, StepResult* result);
  absl::StatusOr<StepResult> SettleUnknown(SteadyTime deadline);
  // The same of a commit without commands, for which no client waits. UNAVAILABLE: it is not found out
  // yet.
  absl::Status SettleOwn(SteadyTime deadline);
  absl::Status Decide(absl::Span<const Submission> batch, int attempt, Decided* decided);
  absl::Status DecideOne(const Command& command, Editor& editor, Decided* decided);
  Context NewContext() const;
  // Shared stores: asks the store, and serves everybody when it is over.
  void LookWhetherWithheld();
  // Grants to those for whom others have made room.
  void Serve(Editor& editor);
  absl::StatusOr<std::optional<Outcome>> AskStore(const Command& command, Editor& editor);
  Outcome Execute(const Command& command, Editor& editor, const Context& context);
  // What the guarantees exclude; nullopt: nothing of that is in the command.
  std::optional<Outcome> Unsupported(const Command& command) const;
  std::optional<Outcome> UnsupportedTicket(const Command& command) const;
  std::string WhyNoSuchLimit(const Command& command) const;
  // More than the engine gives; what is more than the daemon gives is refused as on every engine.
  bool TooManyAfter(const AdminResize& resize, const std::string& name) const;
  absl::StatusOr<Outcome> ReadHistory(const HistoryCommand& command);
  absl::StatusOr<Outcome> ListNames(const ListCommand& command);

  // nullopt: it is a new request.
  absl::StatusOr<std::optional<Outcome>> Replay(const Command& command, Client* client,
                                                uint64_t sequence, Editor& editor,
                                                const Context& context);
  absl::StatusOr<Outcome> ReplayRow(const Command& command, const RequestRow& row, Editor& editor,
                                    const Context& context);
  Id Fingerprint(const Command& command) const;
  Outcome ReplayEnqueue(const RequestRow& row) const;
  std::optional<RequestRow> FindHere(const RequestKey& request) const;
  // This batch speaks of the client: it is not forgotten before the batch has ended.
  void UsedInBatch(Client* client) const;

  // Shared stores: looks up all requests of the batch, since some of them have rows.
  absl::Status LookUpRequests(absl::Span<const Submission> batch);
  // Shared stores: what the batch rests upon and does not write, as conditions of its transaction.
  void AddConditions(Decided* decided);
  // The same, looked at, since there is nothing to write.
  CommitResult CheckConditions(const Transaction& transaction);
  // Shared stores: prunes what the batch asks to, before it is decided; it is to be loaded.
  absl::Status PruneShared(absl::Span<const Submission> batch, std::vector<std::string>* changed);
  std::optional<Outcome> WhyUnusable(const Command& command) const;
  absl::Status Need(const Command& command, std::vector<std::string>* missing);
  // True if one of them was not known to be busy.
  bool LeaveAlone(const std::vector<std::string>& busy);
  bool IsBusy(std::string_view name) const;
  void ForgetSessions();
  void ForgetNumbers();
  void SeeSession(const Id& id, SessionPtr session);
  // What others have changed: carried out where the hint says it, otherwise read.
  absl::Status Hear(const absl::StatusOr<std::vector<Hint>>& hints);
  bool Learn(const Hint& hint);
  absl::Status Refresh(std::vector<std::string> names);
  // Stores that hand out permits: what must be known before a batch is decided, and what the engine
  // has taken back.
  // Changes of rows are written one by one, with no transaction over them: an act that changes one
  // is a batch of its own, so that none is done again because another was lost.
  absl::StatusOr<StepResult> StepInParts(absl::Span<const Submission> batch, SteadyTime deadline);
  // An engine takes so much at once: a batch is carried out in parts that it takes. A command that
  // is too large by itself is refused, and the others go on.
  struct Parts {
    std::vector<Command> before;
    Command last;
  };
  Parts PartsOf(const CloseSessionCommand& command) const;
  Parts PartsOf(const AdminCommand& command) const;
  template <typename Act>
  static Parts PartsOfAll(const AdminCommand& command, const Semaphore& semaphore);
  // How many leases were affected.
  absl::StatusOr<uint32_t> RunParts(const std::vector<Command>& parts, SteadyTime deadline,
                                    StepResult* result);
  // A command that is more than the engine takes at once, claim by claim. OUT_OF_RANGE: it has no
  // parts, and nothing was done, or one of them is too large.
  absl::Status RunLarge(const Submission& submission, SteadyTime deadline, StepResult* result);
  absl::StatusOr<StepResult> StepInSizes(absl::Span<const Submission> batch, SteadyTime deadline);
  void FailLater(absl::Span<const Submission> rest, const absl::Status& status, StepResult* result);
  absl::Status PreparePermits(absl::Span<const Submission> batch);
  absl::Status PrepareOne(const Command& command);
  // A semaphore that the acquire makes must be in the engine before a permit is taken of it.
  absl::Status ProvideFor(const AcquireCommand& acquire, const Editor& editor);
  absl::Status SweepPermits();
  absl::Status HearOfPermits(absl::Span<const Hint> hints);
  absl::Status LoadRow(const std::string& name);
  absl::Status CountElsewhere(Semaphore* semaphore);
  absl::StatusOr<Outcome> ListPermits(const ListCommand& command);
  // While an engine does not answer for a semaphore that is known, claims can wait, and end.
  bool NeedsEngine(const Command& command, const absl::Status& why) const;
  void CollectLost();
  void EndLost(Editor& editor);
  // What other daemons have asked for.
  void GiveBackAsked(Editor& editor);
  // Where somebody waits there may be room now.
  void ServeLater(const std::string& name);
  absl::Status SweepIfDue();
  absl::Status LearnWhyLost(const Transaction& lost, const CommitResult& commit);
  absl::Status RefreshSessions(const Transaction& lost);
  void ForgetClients(Transaction* transaction);
  void NameClients(Transaction* transaction);
  EndCause CauseOf(const Id& claim, const Transaction& transaction) const;
  void ExplainEnds(std::vector<Event>* events);

  static bool WantsPayload(const Command& command, const Outcome& outcome);
  // What those who got a ticket, or asked for one, are to be told of it.
  void TellTickets(const std::vector<PayloadWanted>& wanted, StepResult* result);
  // Null where it cannot be read; `why` then says so, if it is not that it is gone.
  std::vector<PayloadPtr> ReadPayloads(const std::vector<LedgerStore::TicketAt>& tickets,
                                       absl::Status* why);

  void Win(Decided* decided, StepResult* result);
  void Undo(const Transaction& transaction);

  std::unique_ptr<LedgerStore> store_;
  LedgerOptions options_;
  LedgerState state_;
  Clients clients_;
  RecentEnds ends_{65'536};
  bool watching_ = false;
  uint64_t batch_ = 0;  // Counts batches.
  std::unique_ptr<Decided> unknown_;
  // Names that the delta string views in events point to, until the next Step.
  std::vector<Transaction> last_;
  // Shared stores only. What other daemons changed, found while reading, to be told with the next
  // result.
  std::vector<Event> found_events_;
  std::vector<SemaphoreChange> found_changes_;
  std::vector<DelayedTicket> found_delayed_;
  absl::flat_hash_set<std::string> loaded_;  // Names whose state is cached, existing or not.
  absl::btree_set<std::string> read_;        // Names that this batch has looked at.
  // Requests that this batch took for new without asking the store.
  std::vector<NamedRequest> assumed_new_;
  // What the store said of requests, if it was asked, by client id and sequence number.
  absl::flat_hash_map<std::pair<std::string, uint64_t>, LedgerStore::FoundRequest> looked_up_;
  // Semaphores of which the store has shown, while the batch was decided, that they have changed.
  std::vector<std::string> stale_;
  // Changed by others: there may be room for somebody who waits. (Daemons leave none; SQL clients
  // and other foreign holders do.)
  absl::btree_set<std::string> to_serve_;
  // Not empty: the batch under way, or the one that is unknown, is the last part of a larger command.
  Id fingerprint_of_whole_;
  std::string serves_only_;  // Not empty: of to_serve_ only this one, in the commit under way.
  absl::flat_hash_map<std::string, SteadyTime> busy_;
  // Semaphores for which not even a commit of their own succeeds: left alone for a while, then tried
  // again.
  struct Quarantined {
    absl::Status why;
    SteadyTime until{};
    std::chrono::milliseconds pause{0};
  };
  absl::flat_hash_map<std::string, Quarantined> quarantined_;
  bool withheld_ = false;
  bool doubt_revisions_ = false;  // Until all that is in use here was read anew.
  // Of how many commands a batch may be, as far as is known; see StepInSizes.
  size_t part_max_ = SIZE_MAX;
  // Of how many rows a commit may change for acts that are carried on, as far as is known.
  uint32_t changes_max_ = options_.changes_per_commit_max;
  // Shared stores: the revisions of semaphores whose intentions another daemon is to carry on, when
  // they were last looked at; and those that have stood still since.
  absl::flat_hash_map<std::string, uint64_t> others_intentions_;
  absl::flat_hash_set<std::string> stood_still_;
  // Commands of a batch in parts, after the part that failed; told with the next Step.
  std::vector<Settled> failed_later_;
  // Semaphores whose things in the engine cannot be used, and why; for this batch.
  absl::flat_hash_map<std::string, absl::Status> unusable_;
  // See Image::damaged. Looked at again whenever somebody asks.
  absl::flat_hash_map<std::string, absl::Status> damaged_;
  std::map<std::string, absl::Status> not_asked_;  // PermitSource::TakeNotAsked, for this batch.
  std::vector<LostPermit> lost_permits_;
  std::vector<TakeBack> asked_back_;
  std::vector<std::string> vanished_;  // Semaphores that are not in the engine any more.
  std::vector<std::string> lowered_;   // Whose limit others have lowered, or that they destroy.
  absl::flat_hash_map<std::string, Pruned> pruned_;  // For this batch.
  SteadyTime swept_at_{};
};

}  // namespace semaphored::ledger
