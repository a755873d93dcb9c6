#include "adapters/ledger/state/transaction.h"

namespace semaphored::ledger {
namespace {

// The client receives an answer of its own; what it gave up itself it may ask for again.
bool IsAnswered(EndCause cause) {
  return cause == EndCause::kWaitExpired || cause == EndCause::kExceedsLimit ||
         cause == EndCause::kDestroyed;
}

}  // namespace

RequestRow RequestOf(const std::string& semaphore, const Claim& claim, RequestRow::State state,
                     EndCause cause) {
  RequestRow row;
  row.request = claim.request;
  row.fingerprint = claim.fingerprint;
  row.state = state;
  row.semaphore = semaphore;
  row.claim = claim.id;
  row.cause = cause;
  return row;
}

Editor::Editor(LedgerState* state, Transaction* transaction, size_t commands)
    : state_(state), transaction_(transaction) {
  // Most commands write one request and touch one semaphore.
  transaction_->semaphores.reserve(commands);
  index_.reserve(commands);
  requests_index_.reserve(commands);
  requests_.reserve(commands);
}

SemaphoreDelta& Editor::DeltaOf(Semaphore* semaphore) {
  if (semaphore == last_) return transaction_->semaphores[last_index_];
  const auto [at, is_new] =
      index_.try_emplace(semaphore->row.name, transaction_->semaphores.size());
  if (is_new) {
    SemaphoreDelta& delta = transaction_->semaphores.emplace_back();
    delta.name = semaphore->row.name;
    delta.before = semaphore->row;
  }
  last_ = semaphore;
  last_index_ = at->second;
  return transaction_->semaphores[last_index_];
}

bool Editor::Touched(const std::string& name) const { return index_.contains(name); }

Semaphore* Editor::Create(SemaphoreRow row) {
  Semaphore* semaphore = state_->Insert(std::move(row));
  // Destroyed and made again in one batch is one delta: the row before is the old one's.
  const auto [at, is_new] =
      index_.try_emplace(semaphore->row.name, transaction_->semaphores.size());
  if (is_new) {
    transaction_->semaphores.emplace_back().name = semaphore->row.name;
  } else if (const auto& before = transaction_->semaphores[at->second].before) {
    semaphore->row.revision = before->revision;
  }
  last_ = semaphore;
  last_index_ = at->second;
  return semaphore;
}

void Editor::Destroy(Semaphore* semaphore) {
  DeltaOf(semaphore);
  last_ = nullptr;
  const std::string name = semaphore->row.name;
  state_->Erase(name);
}

void Editor::SetRow(Semaphore* semaphore, const SemaphoreRow& row) {
  DeltaOf(semaphore);
  state_->SetRow(semaphore, row);
}

uint64_t Editor::TakeOrder(Semaphore* semaphore) {
  DeltaOf(semaphore);
  return semaphore->row.next_order++;
}

void Editor::Grant(Semaphore* semaphore, LeasePtr lease) {
  if (lease->request.remembered())
    SetRequest(lease->request, /*existed=*/false,
               RequestOf(semaphore->row.name, *lease, RequestRow::State::kGranted));
  auto& change = DeltaOf(semaphore).leases.emplace_back();
  change.after = std::move(lease);
  state_->Apply(semaphore, change);
}

void Editor::Replace(Semaphore* semaphore, const LeasePtr& before, LeasePtr after) {
  auto& changes = DeltaOf(semaphore).leases;
  changes.push_back({before, std::move(after), EndCause::kNone});
  state_->Apply(semaphore, changes.back());
}

void Editor::End(Semaphore* semaphore, const LeasePtr& lease, EndCause cause, int64_t now_unix_ms) {
  transaction_->history.push_back({0, semaphore->row.name, lease, now_unix_ms, cause});
  auto& changes = DeltaOf(semaphore).leases;
  changes.push_back({lease, nullptr, cause});
  state_->Apply(semaphore, changes.back());
  if (lease->request.remembered())
    SetRequest(lease->request, /*existed=*/true,
               RequestOf(semaphore->row.name, *lease, RequestRow::State::kEnded, cause));
}

void Editor::Enqueue(Semaphore* semaphore, WaiterPtr waiter) {
  if (waiter->request.remembered())
    SetRequest(waiter->request, /*existed=*/false,
               RequestOf(semaphore->row.name, *waiter, RequestRow::State::kWaiting));
  auto& change = DeltaOf(semaphore).waiters.emplace_back();
  change.after = std::move(waiter);
  state_->Apply(semaphore, change);
}

void Editor::Replace(Semaphore* semaphore, const WaiterPtr& before, WaiterPtr after) {
  auto& changes = DeltaOf(semaphore).waiters;
  changes.push_back({before, std::move(after), EndCause::kNone});
  state_->Apply(semaphore, changes.back());
}

void Editor::Leave(Semaphore* semaphore, const WaiterPtr& waiter, EndCause cause) {
  if (cause == EndCause::kNone) ++let_in_;
  if (waiter->request.remembered()) {
    const bool granted = cause == EndCause::kNone;
    const auto state = granted ? RequestRow::State::kGranted : RequestRow::State::kWaitEnded;
    std::optional<RequestRow> row;
    if (granted || IsAnswered(cause)) row = RequestOf(semaphore->row.name, *waiter, state, cause);
    SetRequest(waiter->request, /*existed=*/true, std::move(row));
  }
  auto& changes = DeltaOf(semaphore).waiters;
  changes.push_back({waiter, nullptr, cause});
  state_->Apply(semaphore, changes.back());
}

void Editor::Add(Semaphore* semaphore, TicketPtr ticket, PayloadPtr payload) {
  auto& changes = DeltaOf(semaphore).tickets;
  changes.push_back({nullptr, std::move(ticket), std::move(payload)});
  state_->Apply(semaphore, changes.back());
}

void Editor::Replace(Semaphore* semaphore, const TicketPtr& before, TicketPtr after) {
  auto& changes = DeltaOf(semaphore).tickets;
  changes.push_back({before, std::move(after), nullptr});
  state_->Apply(semaphore, changes.back());
}

void Editor::Remove(Semaphore* semaphore, const TicketPtr& ticket) {
  Replace(semaphore, ticket, TicketPtr());
}

void Editor::ChangeSession(SessionPtr before, SessionPtr after) {
  transaction_->sessions.push_back({std::move(before), std::move(after)});
  state_->Apply(transaction_->sessions.back());
}

void Editor::RequireEpoch(const Claim& claim) {
  if (claim.detached())
    return;  // The claim's own row has the epoch, and the revision guards the row.
  if (const SessionPtr& session = state_->FindSession(claim.session)) {
    transaction_->epochs.push_back({session->id, session->epoch});
  }
}

void Editor::Remember(RequestRow row) {
  const RequestKey request = row.request;
  if (request.remembered()) SetRequest(request, /*existed=*/false, std::move(row));
}

void Editor::SetRequest(const RequestKey& request, bool existed, std::optional<RequestRow> row) {
  const auto [at, is_new] = requests_index_.try_emplace(request, requests_.size());
  if (is_new) requests_.emplace_back().existed = existed;
  RequestNow& now = requests_[at->second];
  if (!row) {
    if (now.row) now.before = *std::move(now.row);
    now.before.request = request;
  }
  now.row = std::move(row);
}

const Editor::RequestNow* Editor::FindRequest(const RequestKey& request) const {
  const auto found = requests_index_.find(request);
  return found == requests_index_.end() ? nullptr : &requests_[found->second];
}

void Editor::Finish() {
  for (SemaphoreDelta& delta : transaction_->semaphores) {
    if (const Semaphore* semaphore = state_->Find(delta.name)) {
      delta.after = semaphore->row;
    } else {
      delta.after.reset();
    }
  }
  // Made for a request that was then refused.
  std::erase_if(transaction_->semaphores, [](const SemaphoreDelta& delta) {
    return !delta.before && !delta.after && delta.leases.empty() && delta.waiters.empty() &&
           delta.tickets.empty();
  });
  transaction_->requests.reserve(requests_.size());
  for (RequestNow& now : requests_) {
    if (now.row) {
      const auto op = now.existed ? RequestChange::Op::kUpdate : RequestChange::Op::kInsert;
      transaction_->requests.push_back({op, *std::move(now.row)});
    } else if (now.existed) {
      transaction_->requests.push_back({RequestChange::Op::kRemove, std::move(now.before)});
    }
  }
}

void ApplyAtOnce(const SemaphoreDelta& delta, Semaphore* semaphore, LedgerState* state) {
  for (const WaiterChange& change : delta.waiters) {
    if (change.before)
      state->Apply(semaphore, WaiterChange{change.before, nullptr, EndCause::kNone});
  }
  for (const LeaseChange& change : delta.leases) {
    if (change.before)
      state->Apply(semaphore, LeaseChange{change.before, nullptr, EndCause::kNone});
  }
  for (const LeaseChange& change : delta.leases) {
    if (!change.after) continue;
    // (A row that another daemon has written does not know where lists here show the lease.)
    if (change.before && change.before->listed_at() != change.after->listed_at())
      change.after->listed_slot = change.before->listed_at();
    state->Apply(semaphore, LeaseChange{nullptr, change.after, EndCause::kNone});
  }
  for (const WaiterChange& change : delta.waiters) {
    if (change.after) state->Apply(semaphore, WaiterChange{nullptr, change.after, EndCause::kNone});
  }
  for (const TicketChange& change : delta.tickets) {
    if (change.before) state->Apply(semaphore, TicketChange{change.before, nullptr, nullptr});
  }
  for (const TicketChange& change : delta.tickets) {
    if (change.after) state->Apply(semaphore, TicketChange{nullptr, change.after, nullptr});
  }
}

void SetTokens(const absl::flat_hash_map<Id, uint64_t>& tokens, Transaction* transaction) {
  const auto set = [&](const LeasePtr& lease) {
    if (!lease || lease->token != 0) return;
    if (const auto found = tokens.find(lease->id); found != tokens.end())
      lease->token = found->second;
  };
  for (const SemaphoreDelta& delta : transaction->semaphores) {
    for (const LeaseChange& change : delta.leases) {
      set(change.before);
      set(change.after);
    }
  }
  for (const HistoryRow& row : transaction->history) set(row.lease);
}

void Revert(const Transaction& transaction, LedgerState* state) {
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    Semaphore* semaphore = state->Find(delta.name);
    // Made and destroyed again in this batch: there is nothing to take back but what it held
    // meanwhile, which is gone.
    if (semaphore == nullptr && !delta.before) continue;
    if (semaphore == nullptr) semaphore = state->Insert(*delta.before);
    for (auto change = delta.leases.rbegin(); change != delta.leases.rend(); ++change) {
      state->Apply(semaphore, LeaseChange{change->after, change->before, EndCause::kNone});
    }
    for (auto change = delta.waiters.rbegin(); change != delta.waiters.rend(); ++change) {
      state->Apply(semaphore, WaiterChange{change->after, change->before, EndCause::kNone});
    }
    for (auto change = delta.tickets.rbegin(); change != delta.tickets.rend(); ++change) {
      state->Apply(semaphore, TicketChange{change->after, change->before, nullptr});
    }
    if (delta.before) {
      state->SetRow(semaphore, *delta.before);
    } else {
      state->Erase(delta.name);
    }
  }
  for (auto change = transaction.sessions.rbegin(); change != transaction.sessions.rend();
       ++change) {
    state->Apply(SessionChange{change->after, change->before});
  }
}

}  // namespace semaphored::ledger
