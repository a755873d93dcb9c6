// Repeated requests, and the clients that make them.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/ledger_adapter_impl.h"

namespace semaphored::ledger {

namespace {

constexpr uint64_t kAnswersPrunedEvery = 256;  // Sequence numbers of one client.
// Other lanes and daemons answer requests of the same client meanwhile: what one of them has not
// yet begun must not look forgotten because the others are far ahead.
constexpr uint64_t kSharedSlack = 8;
constexpr int kForgottenPerBatch = 64;

// The answer is one to this command; otherwise the id was used for another request.
bool IsAnswerTo(const Command& command, const Answer& answer) {
  if (answer.semaphore != SemaphoreOf(command)) return false;
  switch (answer.kind) {
    case Answer::Kind::kGranted:
    case Answer::Kind::kWaitEnded:
      return std::holds_alternative<AcquireCommand>(command);
    case Answer::Kind::kReleased: {
      const auto* release = std::get_if<ReleaseCommand>(&command);
      return release != nullptr && answer.IsAbout(release->claim);
    }
    case Answer::Kind::kAdmin:
      return std::holds_alternative<AdminCommand>(command);
    case Answer::Kind::kEnqueued:
      return std::holds_alternative<EnqueueCommand>(command);
    case Answer::Kind::kFinished: {
      const auto* finish = std::get_if<FinishCommand>(&command);
      return finish != nullptr && answer.IsAbout(finish->claim);
    }
  }
  return false;
}

}  // namespace

bool IsOnlyIfRepeated(const Command& command) {
  const auto* acquire = std::get_if<AcquireCommand>(&command);
  return acquire != nullptr && acquire->only_if_repeated;
}

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
  if (store_->leases_answer()) {
    if (const auto [of, lease] = state_.FindGranted(request); lease) {
      Answer granted;
      granted.kind = Answer::Kind::kGranted;
      granted.semaphore = of->row.name;
      granted.claim = lease->id;
      return ReplayAnswer(command, granted, editor, context);
    }
  }
  // Above everything answered, it is new; but for a store with other daemons on it, which may have
  // answered: there it is taken for new until the commit says otherwise.
  if (sequence > client->sequence_high && exclusive()) return std::nullopt;
  const auto known = asked_.find(std::pair(client->client_id, sequence));
  // What is not carried out in any case has no commit that could say otherwise.
  const bool only_if_repeated = IsOnlyIfRepeated(command);
  if (known == asked_.end() && sequence > client->sequence_high && !only_if_repeated) {
    assumed_new_.push_back({request, client->client_id});
    return std::nullopt;
  }
  LedgerStore::Found found;
  if (known != asked_.end()) {
    found = known->second;
    if (found.answer) found.answer->request = request;
  } else {
    absl::StatusOr<std::optional<Answer>> answer = store_->FindAnswer(request, client->client_id);
    if (!answer.ok()) return answer.status();
    found.answer = *std::move(answer);
  }
  if (found.too_old) return Simply(OutcomeKind::kTooOld);
  if (found.answer) return ReplayAnswer(command, *found.answer, editor, context);
  // Another daemon may answer it yet before we commit.
  if (!only_if_repeated) assumed_new_.push_back({request, client->client_id});
  return std::nullopt;
}

Outcome LedgerAdapter::ReplayAnswer(const Command& command, const Answer& answer, Editor& editor,
                                    const Context& context) {
  if (!IsAnswerTo(command, answer)) return Simply(OutcomeKind::kReused);
  switch (answer.kind) {
    case Answer::Kind::kGranted:
    case Answer::Kind::kWaitEnded:
      return ReplayAcquire(answer, editor, context);
    case Answer::Kind::kEnqueued:
      return ReplayEnqueue(answer);
    default:
      break;
  }
  const bool admin = answer.kind == Answer::Kind::kAdmin;
  Outcome outcome = Simply(admin ? OutcomeKind::kDone : OutcomeKind::kReleased);
  outcome.number = answer.number;
  outcome.remaining = answer.remaining;
  outcome.changed = answer.changed;
  if (admin) {
    if (const Semaphore* semaphore = state_.Find(answer.semaphore)) {
      outcome.report = std::make_unique<Report>();
      outcome.report->info = Describe(*semaphore, 0);
    }
  }
  return outcome;
}

// Its ticket may be done long since: it was enqueued all the same.
Outcome LedgerAdapter::ReplayEnqueue(const Answer& answer) const {
  Outcome outcome = Simply(OutcomeKind::kEnqueued);
  outcome.claim = answer.claim;
  const Semaphore* semaphore = state_.Find(answer.semaphore);
  if (const TicketPtr ticket = semaphore ? semaphore->FindTicket(answer.claim) : nullptr)
    outcome.position = semaphore->PositionOf(*ticket);
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
  if (answer.cause != EndCause::kNone) {
    Outcome outcome = Simply(OutcomeKind::kNotHeld);
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
  for (const Answer& answer : transaction->answers) {
    name(answer.request.client);
    const Client* client = clients_.Find(answer.request.client);
    const uint64_t sequence = answer.request.sequence;
    if (sequence < kept + client->floor + kAnswersPrunedEvery) continue;
    const uint64_t below = sequence - kept + 1;
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

}  // namespace semaphored::ledger
