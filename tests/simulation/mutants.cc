#include "tests/simulation/mutants.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace semaphored::simulation {
namespace {

using ledger::CommitResult;
using ledger::Image;
using ledger::LoadedSemaphore;

class MutantStore : public ledger::SharedStore {
 public:
  MutantStore(Mutant mutant, std::unique_ptr<SharedStore> store)
      : mutant_(mutant), store_(std::move(store)) {}

  const Guarantees& guarantees() const override { return store_->guarantees(); }
  absl::StatusOr<Image> LoadAll() override { return store_->LoadAll(); }
  absl::StatusOr<Image> Load(absl::Span<const std::string> names) override {
    absl::StatusOr<Image> image = store_->Load(names);
    if (!image.ok()) return image;
    for (LoadedSemaphore& semaphore : image->semaphores) {
      Spoil(&semaphore.waiters);
      if (mutant_ == Mutant::kTicketTwice) GiveAgain(&semaphore.tickets);
      if (mutant_ == Mutant::kCapIgnored) semaphore.row.settings.permits_per_holder = 0;
      for (const LeasePtr& lease : semaphore.leases) {
        if (mutant_ == Mutant::kForeignIsOurs) lease->foreign = false;
      }
    }
    SpoilDamage(&*image);
    return image;
  }
  absl::StatusOr<std::vector<std::string>> Changed(
      absl::Span<const SemaphoreRow* const> semaphores) override {
    if (mutant_ == Mutant::kStaleReads) return std::vector<std::string>();
    return store_->Changed(semaphores);
  }
  CommitResult Commit(ledger::Transaction& transaction, SteadyTime deadline) override {
    for (ledger::RequestChange& change : transaction.requests) {
      const bool act = change.row.claim.empty() && change.op == ledger::RequestChange::Op::kInsert;
      if (mutant_ == Mutant::kAffectedStoredWrong && act) ++change.row.number;
    }
    return store_->Commit(transaction, deadline);
  }
  CommitResult Settle(ledger::Transaction& transaction, SteadyTime deadline) override {
    return store_->Settle(transaction, deadline);
  }
  absl::StatusOr<std::vector<PayloadPtr>> ReadPayloads(
      absl::Span<const TicketAt> tickets) override {
    return store_->ReadPayloads(tickets);
  }
  absl::StatusOr<std::vector<FoundRequest>> FindRequests(
      absl::Span<const ledger::NamedRequest> requests, uint64_t window) override {
    if (mutant_ == Mutant::kLoseRequests) return std::vector<FoundRequest>(requests.size());
    return store_->FindRequests(requests, window);
  }
  absl::StatusOr<SessionAt> LoadSession(const Id& session) override {
    return store_->LoadSession(session);
  }
  absl::StatusOr<Hosted> HostedBy(absl::Span<const NodeRef> nodes) override {
    return store_->HostedBy(nodes);
  }
  absl::StatusOr<std::vector<std::string>> Names(const std::string& prefix,
                                                 const std::string& after,
                                                 uint32_t rows_max) override {
    return store_->Names(prefix, after, rows_max);
  }
  absl::StatusOr<std::vector<HistoryRow>> ReadHistory(const std::string& semaphore, uint64_t before,
                                                      uint32_t rows_max) override {
    return store_->ReadHistory(semaphore, before, rows_max);
  }
  absl::StatusOr<std::vector<ledger::ChangeNotice>> Wait(SteadyTime deadline) override {
    return store_->Wait(deadline);
  }
  std::optional<ledger::ChangeDetails> ReadDetails(const ledger::ChangeNotice& notice) override {
    std::optional<ledger::ChangeDetails> details = store_->ReadDetails(notice);
    if (mutant_ == Mutant::kHalfNotices && details) details->granted.clear();
    return details;
  }
  bool TakeMissedNotices() override { return store_->TakeMissedNotices(); }
  absl::Status EndForeign(absl::Span<const std::string> names) override {
    return mutant_ == Mutant::kForeignStays ? absl::OkStatus() : store_->EndForeign(names);
  }
  bool GrantsWithheld() override {
    return mutant_ != Mutant::kWithheldIgnored && store_->GrantsWithheld();
  }
  void Wake() override { store_->Wake(); }

 private:
  void SpoilDamage(Image* image) {
    if (image->damaged.empty() && damaged_.empty()) return;
    const auto damage = [&](const std::string& name) {
      image->damaged.emplace_back(name, absl::DataLossError("it is said to be damaged"));
    };
    if (mutant_ == Mutant::kDamageSpreads) {
      for (const LoadedSemaphore& semaphore : std::exchange(image->semaphores, {}))
        damage(semaphore.row.name);
    }
    if (mutant_ != Mutant::kDamageStays) return;
    for (const auto& [name, why] : image->damaged) damaged_.insert(name);
    std::erase_if(image->semaphores, [&](const LoadedSemaphore& semaphore) {
      const bool stays = damaged_.contains(semaphore.row.name);
      if (stays) damage(semaphore.row.name);
      return stays;
    });
  }

  void Spoil(std::vector<WaiterPtr>* waiters) const {
    if (mutant_ == Mutant::kForgetWaiters && waiters->size() > 1) waiters->pop_back();
    if (mutant_ == Mutant::kOneHolderEach) {
      for (const WaiterPtr& waiter : *waiters) waiter->holder += waiter->id.Hex();
    }
    if (mutant_ != Mutant::kReverseQueue) return;
    std::ranges::sort(*waiters, {}, [](const WaiterPtr& waiter) { return waiter->order; });
    for (size_t i = 0; i < waiters->size() / 2; ++i) {
      std::swap((*waiters)[i]->order, (*waiters)[waiters->size() - 1 - i]->order);
    }
  }

  static void GiveAgain(std::vector<TicketPtr>* tickets) {
    for (TicketPtr& ticket : *tickets) {
      if (ticket->state != TicketState::kAssigned) continue;
      auto again = std::make_shared<Ticket>(*ticket);
      again->state = TicketState::kQueued;
      again->lease = Id();
      ticket = std::move(again);
    }
  }

  const Mutant mutant_;
  std::unique_ptr<SharedStore> store_;
  std::set<std::string> damaged_;  // Once.
};

class MutantAdapter : public Adapter {
 public:
  MutantAdapter(Mutant mutant, std::unique_ptr<Adapter> adapter)
      : mutant_(mutant), adapter_(std::move(adapter)) {}

  const Guarantees& guarantees() const override { return adapter_->guarantees(); }
  void Wake() override { adapter_->Wake(); }

  absl::StatusOr<StepResult> Step(absl::Span<const Submission> batch,
                                  SteadyTime deadline) override {
    std::vector<Submission> spoiled(batch.begin(), batch.end());
    for (Submission& submission : spoiled) SpoilCommand(&submission.command);
    absl::StatusOr<StepResult> result = adapter_->Step(spoiled, deadline);
    if (!result.ok()) return result;
    for (size_t i = 0; i < result->outcomes.size(); ++i) {
      SpoilOutcome(spoiled[i].command, &result->outcomes[i]);
      if (!ClosesBesideDamage(batch[i].command)) continue;
      result->outcomes[i].kind = OutcomeKind::kDamaged;
      result->outcomes[i].detail =
          Outcome::Closing{std::get<CloseSessionCommand>(batch[i].command).epoch};
    }
    if (mutant_ == Mutant::kDelaysCutShort) CutShort(&result->delayed);
    for (const Quarantine& quarantine : result->quarantines) {
      if (quarantine.why.ok()) quarantined_.erase(quarantine.semaphore);
      if (!quarantine.why.ok()) quarantined_.insert(quarantine.semaphore);
    }
    return result;
  }

 private:
  bool ClosesBesideDamage(const Command& command) const {
    return mutant_ == Mutant::kCloseStopsAtDamage && !quarantined_.empty() &&
           std::holds_alternative<CloseSessionCommand>(command);
  }

  void SpoilCommand(Command* command) const {
    // An epoch that no session has: nothing is done.
    constexpr uint32_t kNoEpoch = 1u << 30;
    if (ClosesBesideDamage(*command)) std::get<CloseSessionCommand>(*command).epoch = kNoEpoch;
    auto* end = std::get_if<EndCommand>(command);
    auto* close = std::get_if<CloseSessionCommand>(command);
    if (mutant_ == Mutant::kEndIgnoresEpoch) {
      if (end != nullptr) end->epoch = 0;
      if (close != nullptr) close->epoch = 0;
    }
    SpoilWork(command);
    if (mutant_ != Mutant::kNeverExpire) return;
    if (end != nullptr && end->cause == EndCause::kExpired) end->epoch = kNoEpoch;
    if (close != nullptr && close->cause == EndCause::kExpired) close->epoch = kNoEpoch;
  }

  void SpoilWork(Command* command) const {
    auto* take = std::get_if<TakeCommand>(command);
    auto* finish = std::get_if<FinishCommand>(command);
    if (mutant_ == Mutant::kWorkIgnoresEpoch) {
      if (take != nullptr) take->epoch = 0;
      if (finish != nullptr) finish->epoch = 0;
    }
    using Result = FinishCommand::Result;
    if (finish == nullptr) return;
    const bool done = mutant_ == Mutant::kDoneStays && finish->result == Result::kDone;
    const bool failed = mutant_ == Mutant::kFailureNotCounted && finish->result == Result::kFailed;
    if (done || failed) finish->result = Result::kPutBack;
  }

  static void CutShort(std::vector<DelayedTicket>* delayed) {
    for (DelayedTicket& each : *delayed) {
      auto sooner = std::make_shared<Ticket>(*each.ticket);
      sooner->delay_ms = sooner->delay_ms / 3 + 1;
      each.ticket = std::move(sooner);
    }
  }

  void SpoilNumbers(const Command& command, Outcome* outcome) const {
    if (mutant_ == Mutant::kAffectedOffByOne && outcome->kind == OutcomeKind::kDone &&
        std::holds_alternative<AdminCommand>(command))
      outcome->detail = Outcome::Affected{outcome->affected() + 1};
    if (mutant_ == Mutant::kRemainingOffByOne && outcome->kind == OutcomeKind::kReleased)
      outcome->detail = Outcome::Released{outcome->released(), outcome->remaining() + 1, {}};
  }

  void SpoilOutcome(const Command& command, Outcome* outcome) const {
    SpoilNumbers(command, outcome);
    const bool full = mutant_ == Mutant::kGrantWhenFull && outcome->kind == OutcomeKind::kFull;
    const bool in_doubt =
        mutant_ == Mutant::kAnswerBeforeSettled && outcome->kind == OutcomeKind::kUnknown;
    const auto* acquire = std::get_if<AcquireCommand>(&command);
    if (acquire != nullptr && (full || in_doubt)) {
      outcome->kind = OutcomeKind::kGranted;
      outcome->lease = std::make_shared<Lease>();
      outcome->lease->id = acquire->claim;
      outcome->lease->session = acquire->session;
      outcome->lease->permits = acquire->permits;
      outcome->lease->ttl_ms = acquire->ttl_ms;
      outcome->lease->slots.Append({1, acquire->permits});
    }
    if (mutant_ == Mutant::kDelaysForgotten && outcome->report) outcome->report->delayed.clear();
    if (mutant_ == Mutant::kTakeOverAtOnce && outcome->report) {
      for (Orphan& orphan : outcome->report->orphans) {
        orphan.ttl_ms = 0;
        orphan.replaced = false;
      }
    }
  }

  const Mutant mutant_;
  std::unique_ptr<Adapter> adapter_;
  std::set<std::string> quarantined_;
};

class HastyNodes : public NodeStore {
 public:
  explicit HastyNodes(std::unique_ptr<NodeStore> nodes) : nodes_(std::move(nodes)) {}

  absl::StatusOr<NodeRef> Join(const std::string& node_id, const std::string& daemon,
                               const Node* seen) override {
    absl::StatusOr<NodeRef> self = nodes_->Join(node_id, daemon, seen);
    if (self.ok()) self_ = *self;
    return self;
  }
  absl::Status Heartbeat() override { return nodes_->Heartbeat(); }
  absl::Status Leave() override { return nodes_->Leave(); }
  absl::StatusOr<std::vector<Node>> Observe() override {
    absl::StatusOr<std::vector<Node>> seen = nodes_->Observe();
    if (!seen.ok()) return seen;
    for (const Node& node : *seen) {
      if (node.ref.number == self_.number || node.dead) continue;
      const auto [at, is_new] = counters_.try_emplace(node.ref.number, node.counter);
      const bool stands_still = !is_new && at->second == node.counter;
      at->second = node.counter;
      if (stands_still) nodes_->DeclareDead(node).IgnoreError();
    }
    return seen;
  }
  absl::StatusOr<bool> DeclareDead(const Node& seen) override { return nodes_->DeclareDead(seen); }

 private:
  std::unique_ptr<NodeStore> nodes_;
  NodeRef self_;
  std::map<uint32_t, uint64_t> counters_;
};

}  // namespace

const std::vector<MutantName>& AllMutants() {
  static const std::vector<MutantName> all = {
      {Mutant::kIgnoreRevision, "commits ignore the revision"},
      {Mutant::kIgnoreIncarnation, "commits and heartbeats ignore the incarnation"},
      {Mutant::kTokensRepeat, "tokens begin anew with each semaphore"},
      {Mutant::kLifo, "who comes last is filed first"},
      {Mutant::kLoseRequests, "requests are not remembered"},
      {Mutant::kStaleReads, "what has changed in the engine is not seen"},
      {Mutant::kForgetWaiters, "a waiter is forgotten when a semaphore is loaded"},
      {Mutant::kReverseQueue, "a queue is turned round when a semaphore is loaded"},
      {Mutant::kNoNotices, "no notifications and no sweep"},
      {Mutant::kHalfNotices, "notices of others report half of the details"},
      {Mutant::kGrantWhenFull, "granted though it is full"},
      {Mutant::kAnswerBeforeSettled, "answered before the commit is settled"},
      {Mutant::kEndIgnoresEpoch, "a TTL ends what has moved meanwhile"},
      {Mutant::kNeverExpire, "nothing expires"},
      {Mutant::kTakeOverAtOnce, "a take-over leaves no time to come back"},
      {Mutant::kTicketTwice, "a ticket that somebody has is given to another"},
      {Mutant::kDoneStays, "a ticket that is done stays"},
      {Mutant::kFailureNotCounted, "an attempt that failed is not counted"},
      {Mutant::kDelaysCutShort, "a delay ends too soon"},
      {Mutant::kDelaysForgotten, "a delay ends with the daemon that counted it"},
      {Mutant::kWorkIgnoresEpoch, "a daemon works for a worker that has left it"},
      {Mutant::kVouchForEver, "vouching without the engine"},
      {Mutant::kNoGraceAfterMove, "the last host's vouching is not waited for"},
      {Mutant::kFastClock, "a daemon's clock runs half as fast again"},
      {Mutant::kDeclareDeadAtOnce, "dead at the second look"},
      {Mutant::kAffectedStoredWrong, "an act is remembered with another number"},
      {Mutant::kForeignIsOurs, "a foreign holder's lease is taken for ours"},
      {Mutant::kForeignStays, "what foreign holders leave behind stays"},
      {Mutant::kCapIgnored, "a holder's cap is not kept to"},
      {Mutant::kOneHolderEach, "a holder's later requests do not stand behind its earlier ones"},
      {Mutant::kDamageSpreads, "damage of one semaphore spreads to others"},
      {Mutant::kDamageStays, "a semaphore that is mended stays in quarantine"},
      {Mutant::kWithheldIgnored, "grants are not withheld"},
      {Mutant::kAffectedOffByOne, "an act's answer is off by one"},
      {Mutant::kRemainingOffByOne, "what a release leaves is off by one"},
      {Mutant::kCloseStopsAtDamage, "a session with a damaged semaphore keeps all others"},
      {Mutant::kForgetAtOnce, "requesters are forgotten at once"},
      {Mutant::kForgetTimeSent, "a client counts from when the answer came"},
  };
  return all;
}

void MutateEngine(Mutant mutant, MemoryEngine* engine) {
  engine->conditions.revision = mutant != Mutant::kIgnoreRevision;
  engine->conditions.incarnation = mutant != Mutant::kIgnoreIncarnation;
  engine->conditions.request = mutant != Mutant::kLoseRequests;
  engine->tokens_repeat = mutant == Mutant::kTokensRepeat;
  engine->lifo = mutant == Mutant::kLifo;
}

std::unique_ptr<ledger::SharedStore> MutateStore(Mutant mutant,
                                                 std::unique_ptr<ledger::SharedStore> store) {
  // Those from the first store mutant on up to the adapter's.
  const bool here = mutant >= Mutant::kLoseRequests && mutant < Mutant::kAffectedOffByOne;
  if (here) return std::make_unique<MutantStore>(mutant, std::move(store));
  return store;
}

std::unique_ptr<Adapter> MutateAdapter(Mutant mutant, std::unique_ptr<Adapter> adapter) {
  const bool here = mutant >= Mutant::kAffectedOffByOne && mutant < Mutant::kVouchForEver;
  if (here) return std::make_unique<MutantAdapter>(mutant, std::move(adapter));
  return adapter;
}

std::unique_ptr<NodeStore> MutateNodes(Mutant mutant, std::unique_ptr<NodeStore> nodes) {
  const bool here = mutant == Mutant::kDeclareDeadAtOnce;
  if (here) return std::make_unique<HastyNodes>(std::move(nodes));
  return nodes;
}

}  // namespace semaphored::simulation
