#include "adapters/ledger/core.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "adapters/ledger/quarantine.h"
#include "adapters/ledger/rules/steps.h"

namespace semaphored::ledger {

namespace {

// 0: no bound.
uint32_t LowerBound(uint32_t a, uint32_t b) {
  return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
}

LedgerOptions Bounded(LedgerOptions options, const Guarantees& can) {
  options.one_shot_requests_max =
      std::min(options.one_shot_requests_max, can.one_shot_requests_max);
  options.grants_per_commit_max =
      LowerBound(options.grants_per_commit_max, can.grants_per_commit_max);
  return options;
}

// One command, by the rule that it stands for.
struct Rules {
  Editor& editor;
  const Context& context;
  const RecentEnds& ends;
  // What is not held has ended somehow: say how, if it was of late.
  Outcome WithCause(Outcome outcome, const Id& claim) const {
    if (outcome.kind == OutcomeKind::kNotHeld && outcome.cause == EndCause::kNone &&
        !claim.empty()) {
      outcome.cause = ends.Find(claim, editor.transaction());
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
    return WithCause(RecallLease(editor, c, context), c.claim);
  }
  Outcome operator()(const AdoptCommand& c) const {
    return WithCause(Adopt(editor, c, context), c.claim);
  }
  Outcome operator()(const OpenSessionCommand& c) const { return OpenSession(editor, c, context); }
  Outcome operator()(const AdoptSessionCommand& c) const {
    return AdoptSession(editor, c, context);
  }
  Outcome operator()(const CloseSessionCommand& c) const {
    return CloseSession(editor, c, context);
  }
  Outcome operator()(const OrphansCommand& c) const {
    return Orphans(editor.state(), c, context, !context.shared);
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
  Outcome operator()(const FlushCommand&) const { return Simply(OutcomeKind::kDone); }
};

}  // namespace

Core::Core(const Guarantees& guarantees, RequestRows* rows, bool is_shared, LedgerOptions with)
    : can(guarantees),
      shared(is_shared),
      options(Bounded(std::move(with), guarantees)),
      outbox(options.watched),
      serving(options),
      requests({rows, &state, &ends, is_shared,
                [this](const std::string& name) { return WhyUntouchable(*this, name); }},
               options) {}

Core::~Core() = default;

Context Core::NewContext() const {
  Context context;
  context.self = options.self;
  context.limits = options.limits;
  context.shared = shared;
  context.withheld = withheld;
  context.tells_others = !can.shares_claims && can.administers_all;
  context.longest_hold_max_ms = can.longest_hold_max_ms;
  context.vouch_max_ms = can.vouch_max_ms;
  context.grants_max = options.grants_per_commit_max;
  context.now_unix_ms = options.now_unix_ms();
  return context;
}

bool Core::GrantsNothing(const std::string& semaphore) const {
  return withheld || serving.IsBusy(semaphore) || serving.IsQuarantined(semaphore);
}

const Adoptable* Core::AdoptableFor(const Command& command) const {
  const auto* admin = std::get_if<AdminCommand>(&command);
  const auto* adopt = admin == nullptr ? nullptr : std::get_if<AdminAdopt>(&admin->act);
  const auto found = adoptable.find(adopt);
  return found == adoptable.end() ? nullptr : &found->second;
}

Outcome Core::Execute(const Command& command, Editor& editor, const Context& context) const {
  return std::visit(Rules{editor, context, ends}, command);
}

void Core::Win(Decided* decided, StepResult* result) {
  Transaction& transaction = decided->transaction;
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    Semaphore* semaphore = state.Find(delta.name);
    if (semaphore == nullptr) continue;
    const uint64_t next = delta.before ? delta.before->revision + 1 : 1;
    semaphore->row.revision = delta.revision != 0 ? delta.revision : next;
  }
  requests.Won(transaction);
  serving.AddAll(transaction.to_advance);
  for (const HistoryRow& row : transaction.history) ends.Add(row.lease->id, row.cause);
  for (Outcome& outcome : decided->outcomes) {
    if (!outcome.report || !outcome.report->info) continue;
    SemaphoreRow& row = outcome.report->info->row;
    if (const Semaphore* semaphore = state.Find(row.name)) row.revision = semaphore->row.revision;
  }
  result->outcomes = std::move(decided->outcomes);
  outbox.Send(std::move(transaction), can.durable_tickets, state, result);
}

void Core::RollBack(const Transaction& transaction) {
  Revert(transaction, &state);
  requests.RolledBack(transaction);
}

void Core::ShowUse() const {
  if (options.use == nullptr) return;
  const Limits& limits = options.limits;
  using Limit = StandingLimit;
  LimitUse& use = *options.use;
  use.Set(Limit::kSemaphores, state.semaphore_count(), limits.semaphores_max);
  use.Set(Limit::kLeases, state.lease_count() + state.waiter_count(), limits.leases_max);
  use.Set(Limit::kWaiters, state.waiter_count(), limits.waiters_max);
  use.Set(Limit::kSessions, state.session_count(), limits.sessions_max);
  use.Set(Limit::kTickets, state.ticket_count(), limits.tickets_max);
  use.Set(Limit::kClients, requests.client_count(), options.clients_max);
  use.Set(Limit::kOneShotRequests, requests.one_shot_count(), requests.one_shots_max());
  use.Set(Limit::kWaitersPerSemaphore, 0, limits.waiters_per_semaphore_max);
  use.Set(Limit::kTicketsPerSemaphore, 0, limits.tickets_per_semaphore_max);
  use.Set(Limit::kDeadLettersPerSemaphore, 0, limits.dead_letters_per_semaphore_max);
}

}  // namespace semaphored::ledger
