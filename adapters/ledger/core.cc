#include "adapters/ledger/core.h"

#include <algorithm>
#include <utility>

#include "adapters/ledger/quarantine.h"

namespace semaphored::ledger {

namespace {

LedgerOptions Bounded(LedgerOptions options, const Guarantees& can) {
  options.one_shot_requests_max =
      std::min(options.one_shot_requests_max, can.one_shot_requests_max);
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

Context Core::NewContext() const {
  Context context;
  context.self = options.self;
  context.limits = options.limits;
  context.shared = shared;
  context.withheld = withheld;
  context.tells_others = !can.shares_claims && can.administers_all;
  context.longest_hold_max_ms = can.longest_hold_max_ms;
  context.vouch_max_ms = can.vouch_max_ms;
  context.grants_max = can.grants_per_commit_max;
  context.now_unix_ms = options.now_unix_ms();
  return context;
}

bool Core::GrantsNothing(const std::string& semaphore) const {
  return withheld || serving.IsBusy(semaphore) || serving.IsQuarantined(semaphore);
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

}  // namespace semaphored::ledger
