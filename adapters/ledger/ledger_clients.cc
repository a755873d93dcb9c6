// Repeated requests, and the clients that make them.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/ledger_adapter_impl.h"

namespace semaphored::ledger {

namespace {

constexpr uint64_t kRequestsPrunedEvery = 256;  // Sequence numbers of one client.
// Other lanes and daemons carry out requests of the same client meanwhile: what one of them has not
// yet begun must not look forgotten because the others are far ahead.
constexpr uint64_t kSharedSlack = 8;
constexpr int kForgottenPerBatch = 64;

}  // namespace

// A command that is carried out in parts is one request: its last part has the request's id.
Id LedgerAdapter::Fingerprint(const Command& command) const {
  return fingerprint_of_whole_.empty() ? FingerprintOf(command) : fingerprint_of_whole_;
}

void LedgerAdapter::UsedInBatch(Client* client) const { client->batch = batch_; }

// What is known of the request here: in this batch, or as a claim that waits or stands.
std::optional<RequestRow> LedgerAdapter::FindHere(const RequestKey& request) const {
  if (const auto [semaphore, waiter] = state_.FindWaiting(request); waiter)
    return RequestOf(semaphore->row.name, *waiter, RequestRow::State::kWaiting);
  if (const auto [semaphore, lease] = state_.FindGranted(request); lease)
    return RequestOf(semaphore->row.name, *lease, RequestRow::State::kGranted);
  return std::nullopt;
}

absl::StatusOr<std::optional<Outcome>> LedgerAdapter::Replay(const Command& command, Client* client,
                                                             uint64_t sequence, Editor& editor,
                                                             const Context& context) {
  const RequestKey request{client->number, sequence};
  if (const Editor::RequestNow* now = editor.FindRequest(request)) {
    if (!now->row) return std::nullopt;  // Given up in this very batch.
    return ReplayRow(command, *now->row, editor, context);
  }
  if (const std::optional<RequestRow> here = FindHere(request))
    return ReplayRow(command, *here, editor, context);
  // Above all that has a row, it is new; but for a store with other daemons on it, which may have
  // written one: there it is taken for new until the commit says otherwise.
  const bool above = sequence > client->sequence_high;
  if (above && exclusive()) return std::nullopt;
  const NamedRequest named{request, client->client_id};
  const auto known = looked_up_.find(std::pair(client->client_id, sequence));
  // What is not carried out in any case has no commit that could say otherwise.
  const bool only_if_repeated = IsOnlyIfRepeated(command);
  if (known == looked_up_.end() && above && !only_if_repeated) {
    assumed_new_.push_back(named);
    return std::nullopt;
  }
  LedgerStore::FoundRequest found;
  if (known != looked_up_.end()) {
    found = known->second;
    if (found.row) found.row->request = request;
  } else {
    absl::StatusOr<std::vector<LedgerStore::FoundRequest>> asked =
        store_->FindRequests({&named, 1}, options_.request_window);
    if (!asked.ok()) return asked.status();
    found = std::move(asked->front());
  }
  const bool old = sequence + options_.request_window <= client->sequence_high;
  if (found.row) {
    absl::StatusOr<Outcome> outcome = ReplayRow(command, *found.row, editor, context);
    if (!outcome.ok()) return outcome.status();
    // Below the window the row of a claim that has ended may still be there, or not. (What stands in
    // an exclusive store was found here.)
    const bool stands =
        !exclusive() && found.row->pinned() && outcome->kind != OutcomeKind::kNotHeld;
    if (old && !stands) return Simply(OutcomeKind::kTooOld);
    return std::optional<Outcome>(*std::move(outcome));
  }
  if (found.too_old || old) return Simply(OutcomeKind::kTooOld);
  // Another daemon may write a row yet before we commit.
  if (!only_if_repeated) assumed_new_.push_back(named);
  return std::nullopt;
}

// The answer to a request that has a row. ABORTED: the state here is older than the row; what
// `stale_` names is to be read again, and the batch decided again.
absl::StatusOr<Outcome> LedgerAdapter::ReplayRow(const Command& command, const RequestRow& row,
                                                 Editor& editor, const Context& context) {
  if (row.fingerprint != Fingerprint(command)) return Simply(OutcomeKind::kReused);
  const auto* acquire = std::get_if<AcquireCommand>(&command);
  switch (row.state) {
    case RequestRow::State::kWaiting:
    case RequestRow::State::kGranted: {
      if (const auto damaged = damaged_.find(row.semaphore); damaged != damaged_.end()) {
        Outcome outcome = Simply(OutcomeKind::kDamaged);
        outcome.message = std::string(damaged->second.message());
        return outcome;
      }
      // The fingerprint says that it is one.
      Outcome outcome = Repeat(editor, *acquire, row.claim, context);
      if (outcome.kind != OutcomeKind::kNotHeld) return outcome;
      if (row.state == RequestRow::State::kWaiting && !exclusive()) {
        stale_.push_back(row.semaphore);
        return absl::AbortedError("a request waits that is not known here");
      }
      outcome.cause = CauseOf(row.claim, editor.transaction());
      return outcome;
    }
    case RequestRow::State::kEnded:
    case RequestRow::State::kWaitEnded: {
      const bool waited = row.state == RequestRow::State::kWaitEnded;
      Outcome outcome = Simply(waited ? OutcomeKind::kWaitEnded : OutcomeKind::kNotHeld);
      outcome.cause = row.cause;
      return outcome;
    }
    case RequestRow::State::kDone:
      break;
  }
  if (std::holds_alternative<EnqueueCommand>(command)) return ReplayEnqueue(row);
  const bool admin = std::holds_alternative<AdminCommand>(command);
  Outcome outcome = Simply(admin ? OutcomeKind::kDone : OutcomeKind::kReleased);
  if (admin) outcome.detail = Outcome::Affected{row.number};
  if (!admin) outcome.detail = Outcome::Released{row.number, row.remaining};
  outcome.changed = row.changed;
  if (admin) {
    if (const Semaphore* semaphore = state_.Find(row.semaphore)) {
      outcome.report = std::make_unique<Report>();
      outcome.report->info = Describe(*semaphore, 0);
    }
  }
  return outcome;
}

// Its ticket may be done long since: it was enqueued all the same.
Outcome LedgerAdapter::ReplayEnqueue(const RequestRow& row) const {
  Outcome outcome = Simply(OutcomeKind::kEnqueued);
  outcome.claim = row.claim;
  const Semaphore* semaphore = state_.Find(row.semaphore);
  if (const TicketPtr ticket = semaphore ? semaphore->FindTicket(row.claim) : nullptr)
    outcome.detail = Outcome::InQueue{semaphore->PositionOf(*ticket), 0};
  return outcome;
}

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
  const uint64_t kept = options_.request_window * (exclusive() ? 1 : kSharedSlack);
  for (const RequestChange& change : transaction->requests) {
    const RequestKey& request = change.row.request;
    name(request.client);
    const Client* client = clients_.Find(request.client);
    if (change.op != RequestChange::Op::kInsert || client == nullptr) continue;
    if (request.sequence < kept + client->floor + kRequestsPrunedEvery) continue;
    const uint64_t below = request.sequence - kept + 1;
    auto& floors = transaction->request_floors;
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

}  // namespace semaphored::ledger
