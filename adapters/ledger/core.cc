#include "adapters/ledger/core.h"

#include <algorithm>
#include <utility>

#include "adapters/ledger/quarantine.h"

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
