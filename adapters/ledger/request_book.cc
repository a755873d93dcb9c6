#include "adapters/ledger/request_book.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "adapters/ledger/requests.h"
#include "adapters/ledger/rules/steps.h"

namespace semaphored::ledger {

namespace {

constexpr uint64_t kRequestsPrunedEvery = 256;  // Sequence numbers of one client.
// Other lanes and daemons carry out requests of the same client meanwhile: what one of them has not
// yet begun must not look forgotten because the others are far ahead.
constexpr uint64_t kSharedSlack = 8;
constexpr int kForgottenPerBatch = 64;

}  // namespace

RequestBook::RequestBook(Sources sources, const LedgerOptions& options)
    : sources_(std::move(sources)),
      now_(options.now),
      window_(options.request_window),
      clients_max_(options.clients_max),
      client_retention_(options.client_retention),
      one_shots_(options) {}

RequestBook::~RequestBook() = default;

void RequestBook::BeginRun() { looked_up_.clear(); }

void RequestBook::BeginBatch() {
  assumed_new_.clear();
  ++batch_;
  one_shots_.BeginBatch(sources_.state->ClaimCountOf(0));
}

absl::StatusOr<std::optional<Outcome>> RequestBook::Find(const Command& command, Editor& editor,
                                                         Context* context) {
  const Requester* requester = RequesterOf(command);
  context->affected_before = affected_before_;
  std::string_view client_id;
  if (requester != nullptr && requester->sequence != 0) client_id = requester->client_id;
  if (const auto* open = std::get_if<OpenSessionCommand>(&command)) client_id = open->client_id;
  if (requester != nullptr && !requester->one_shot.empty()) {
    context->fingerprint = Fingerprint(command);
    return FindOneShot(command, requester->one_shot, editor, *context);
  }
  if (client_id.empty()) return std::nullopt;
  Client* client = FindOrAdd(client_id);
  if (client == nullptr)
    return LimitReached(absl::StrCat("clients_max (", clients_max_, ") is reached"));
  client->batch = batch_;
  context->client = client->number;
  if (requester == nullptr) return std::nullopt;
  context->fingerprint = Fingerprint(command);
  const uint64_t sequence = requester->sequence;
  const Prospect prospect{sequence > client->sequence_high,
                          sequence + window_ <= client->sequence_high};
  return Replay(command, {client->number, sequence}, client->client_id, prospect, editor, *context);
}

absl::StatusOr<std::optional<Outcome>> RequestBook::FindOneShot(const Command& command,
                                                                const Id& one_shot, Editor& editor,
                                                                const Context& context) {
  // An exclusive store says at once what it has. On a shared one the commit finds rows, or the look at
  // the store in its place: also for a request that is refused here.
  const Prospect prospect{sources_.shared, false};
  absl::StatusOr<std::optional<Outcome>> outcome =
      Replay(command, {0, 0, one_shot}, "", prospect, editor, context);
  if (!outcome.ok() || outcome->has_value() || IsOnlyIfRepeated(command)) return outcome;
  if (!one_shots_.HasRoom())
    return LimitReached(
        absl::StrCat("one_shot_requests_max (", one_shots_.rows_max(), ") is reached"));
  one_shots_.AddNew();
  return std::nullopt;
}

Client* RequestBook::FindOrAdd(std::string_view client_id) {
  if (Client* client = clients_.Find(client_id); client != nullptr) return client;
  if (clients_.size() >= clients_max_) return nullptr;
  Client* added = clients_.Add(std::string(client_id), now_());
  added_.push_back(added->number);
  return added;
}

// A command that is carried out in parts is one request: its last part has the request's id.
Id RequestBook::Fingerprint(const Command& command) const {
  return of_whole_.empty() ? FingerprintOf(command) : of_whole_;
}

std::optional<RequestRow> RequestBook::FindHere(const RequestKey& request) const {
  if (const auto [semaphore, waiter] = sources_.state->FindWaiting(request); waiter)
    return RequestOf(semaphore->row.name, *waiter, RequestRow::State::kWaiting);
  if (const auto [semaphore, lease] = sources_.state->FindGranted(request); lease)
    return RequestOf(semaphore->row.name, *lease, RequestRow::State::kGranted);
  return std::nullopt;
}

RequestBook::LookedUpKey RequestBook::LookedUpKeyOf(const NamedRequest& named) {
  return {named.client_id, {0, named.request.sequence, named.request.one_shot}};
}

absl::StatusOr<RequestRows::FoundRequest> RequestBook::FindRow(const NamedRequest& named) {
  RequestRows::FoundRequest found;
  if (const auto known = looked_up_.find(LookedUpKeyOf(named)); known != looked_up_.end()) {
    found = known->second;
    if (found.row) found.row->request = named.request;
    return found;
  }
  absl::StatusOr<std::vector<RequestRows::FoundRequest>> asked =
      sources_.rows->FindRequests({&named, 1}, window_);
  if (!asked.ok()) return asked.status();
  return std::move(asked->front());
}

absl::StatusOr<std::optional<Outcome>> RequestBook::Replay(const Command& command,
                                                           const RequestKey& request,
                                                           const std::string& client_id,
                                                           Prospect prospect, Editor& editor,
                                                           const Context& context) {
  if (const Editor::RequestNow* now = editor.FindRequest(request)) {
    // Given up in this very batch. A store that has its row, and writes only what changes of one, writes another
    // one in another commit.
    if (!now->row && now->existed && sources_.shared)
      return absl::InvalidArgumentError("a request is given up and asked for again at once");
    if (!now->row) return std::nullopt;
    return ReplayRow(command, *now->row, editor, context);
  }
  const std::optional<RequestRow> here = FindHere(request);
  // That a claim waits or stands may be outdated: a refusal on its account rests on the row.
  const bool doubtful = here && sources_.shared && here->fingerprint != Fingerprint(command);
  if (here && !doubtful) return ReplayRow(command, *here, editor, context);
  // What seems new is new; but for a store with other daemons on it, which may have written a row:
  // there it is taken for new until the commit says otherwise.
  const bool seems_new = prospect.seems_new && !doubtful;
  if (seems_new && !sources_.shared) return std::nullopt;
  NamedRequest named{request, client_id};
  // What is not carried out in any case has no commit that could say otherwise.
  const bool only_if_repeated = IsOnlyIfRepeated(command);
  if (seems_new && !only_if_repeated && !looked_up_.contains(LookedUpKeyOf(named))) {
    assumed_new_.push_back(std::move(named));
    return std::nullopt;
  }
  absl::StatusOr<RequestRows::FoundRequest> found = FindRow(named);
  if (!found.ok()) return found.status();
  if (found->row) {
    absl::StatusOr<Outcome> outcome = ReplayRow(command, *found->row, editor, context);
    if (!outcome.ok()) return outcome.status();
    // Below the window the row of a claim that has ended may still be there, or not. (What stands in
    // an exclusive store was found here.)
    const bool stands =
        sources_.shared && found->row->pinned() && outcome->kind != OutcomeKind::kNotHeld;
    if (prospect.old && !stands) return Simply(OutcomeKind::kTooOld);
    return std::optional<Outcome>(*std::move(outcome));
  }
  if (doubtful) {
    // What cannot be read again may have ended, or not: the id has been used for something else, all the same.
    if (!sources_.untouchable(here->semaphore).ok()) return Simply(OutcomeKind::kReused);
    stale_.push_back(here->semaphore);
    return absl::AbortedError("a claim of this request is known here, and has ended");
  }
  if (found->too_old || prospect.old) return Simply(OutcomeKind::kTooOld);
  // Another daemon may write a row yet before we commit.
  if (!only_if_repeated) assumed_new_.push_back(std::move(named));
  return std::nullopt;
}

// The answer to a request that has a row. ABORTED: the state here is older than the row; what
// `stale_` names is to be read again, and the batch decided again.
absl::StatusOr<Outcome> RequestBook::ReplayRow(const Command& command, const RequestRow& row,
                                               Editor& editor, const Context& context) {
  if (row.fingerprint != Fingerprint(command)) return Simply(OutcomeKind::kReused);
  const auto* acquire = std::get_if<AcquireCommand>(&command);
  switch (row.state) {
    case RequestRow::State::kWaiting:
    case RequestRow::State::kGranted: {
      if (const absl::Status why = sources_.untouchable(row.semaphore); !why.ok()) {
        Outcome outcome = Simply(OutcomeKind::kDamaged);
        outcome.message = std::string(why.message());
        return outcome;
      }
      // The fingerprint says that it is one.
      Outcome outcome = Repeat(editor, *acquire, row.claim, context);
      if (outcome.kind != OutcomeKind::kNotHeld) return outcome;
      // While a row says this its claim stands, and the row was read after the state.
      if (sources_.shared) {
        stale_.push_back(row.semaphore);
        return absl::AbortedError("a claim of this request is not known here");
      }
      outcome.cause = sources_.ends->Find(row.claim, editor.transaction());
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
  // Its answer shows the semaphore as it is now.
  if (const absl::Status why = sources_.untouchable(row.semaphore); admin && !why.ok()) {
    Outcome outcome = Simply(OutcomeKind::kDamaged);
    outcome.message = std::string(why.message());
    return outcome;
  }
  Outcome outcome = Simply(admin ? OutcomeKind::kDone : OutcomeKind::kReleased);
  if (admin) outcome.detail = Outcome::Affected{row.number};
  if (!admin) outcome.detail = Outcome::Released{row.number, row.remaining, {}};
  outcome.changed = row.changed;
  if (admin) {
    if (const Semaphore* semaphore = sources_.state->Find(row.semaphore)) {
      outcome.report = std::make_unique<Report>();
      outcome.report->info = Describe(*semaphore);
    }
  }
  return outcome;
}

// Its ticket may be done long since: it was enqueued all the same.
Outcome RequestBook::ReplayEnqueue(const RequestRow& row) const {
  Outcome outcome = Simply(OutcomeKind::kEnqueued);
  outcome.claim = row.claim;
  const Semaphore* semaphore = sources_.state->Find(row.semaphore);
  if (const TicketPtr ticket = semaphore ? semaphore->FindTicket(row.claim) : nullptr)
    outcome.detail = Outcome::InQueue{semaphore->PositionOf(*ticket)};
  return outcome;
}

// The store must know the name of each client that a row of this transaction speaks of.
void RequestBook::NameClients(Transaction* transaction) {
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
  for (const RequestChange& change : transaction->requests) {
    name(change.row.request.client);
    // Its claim has ended just now: the end is remembered as long as any other answer.
    if (Client* client = clients_.Find(change.row.request.client)) client->batch = batch_;
    if (change.op == RequestChange::Op::kInsert) RaiseFloor(change.row.request, transaction);
  }
}

void RequestBook::RaiseFloor(const RequestKey& request, Transaction* transaction) {
  const uint64_t kept = window_ * (sources_.shared ? kSharedSlack : 1);
  const Client* client = clients_.Find(request.client);
  if (client == nullptr || request.sequence < kept + client->floor + kRequestsPrunedEvery) return;
  const uint64_t below = request.sequence - kept + 1;
  auto& floors = transaction->request_floors;
  if (!floors.empty() && floors.back().client == client->number) {
    floors.back().below = std::max(floors.back().below, below);
  } else {
    floors.push_back({client->number, below});
  }
}

void RequestBook::ForgetClients(Transaction* transaction) {
  // At the limit also with a batch that writes nothing: a new client is refused, and would be for
  // ever.
  if (transaction->empty() && clients_.size() < clients_max_) return;
  const SteadyTime now = now_();
  for (int i = 0; i < kForgottenPerBatch; ++i) {
    Client* oldest = clients_.Oldest();
    if (oldest == nullptr || now < oldest->used_at + client_retention_) return;
    // It holds or waits, or speaks just now: looked at again when as much time has passed.
    if (sources_.state->ClaimCountOf(oldest->number) > 0 || oldest->batch == batch_) {
      clients_.Use(oldest, now);
      continue;
    }
    if (!oldest->stored) {  // Of a batch that has failed: the store has nothing to forget.
      clients_.Forget(oldest->number);
      continue;
    }
    transaction->forgotten_clients.push_back(oldest->number);
    clients_.Use(oldest, now);  // Forgotten for good when the commit has won.
  }
}

void RequestBook::Finish(Transaction* transaction) {
  NameClients(transaction);
  ForgetClients(transaction);
  one_shots_.Forget(transaction);
}

void RequestBook::Won(const Transaction& transaction) {
  const SteadyTime now = now_();
  for (const NewClient& added : transaction.new_clients) clients_.Find(added.number)->stored = true;
  for (const RequestChange& change : transaction.requests) {
    Client* client = clients_.Find(change.row.request.client);
    if (client == nullptr) continue;
    client->sequence_high = std::max(client->sequence_high, change.row.request.sequence);
    clients_.Use(client, now);
  }
  for (const RequestFloor& floor : transaction.request_floors)
    clients_.Find(floor.client)->floor = floor.below;
  for (uint32_t number : transaction.forgotten_clients) clients_.Forget(number);
  // Those of whom no row speaks now are nothing to remember, and shut out no one. (Before the commit has won, another
  // attempt needs their numbers.)
  for (const uint32_t number : std::exchange(added_, {})) {
    const Client* client = clients_.Find(number);
    if (client != nullptr && !client->stored) clients_.Forget(number);
  }
  one_shots_.Won(transaction);
}

void RequestBook::RolledBack(const Transaction& transaction) {
  for (uint32_t number : transaction.forgotten_clients) clients_.SetOverdue(number);
}

absl::Status RequestBook::LookUp(absl::Span<const Submission> batch) {
  looked_up_.clear();
  std::vector<NamedRequest> asked;
  for (const Submission& submission : batch) {
    const Requester* requester = RequesterOf(submission.command);
    if (requester == nullptr || !requester->remembered()) continue;
    const Client* client = clients_.Find(requester->client_id);
    const uint32_t number = client == nullptr ? 0 : client->number;
    asked.push_back({{number, requester->sequence, requester->one_shot}, requester->client_id});
  }
  absl::StatusOr<std::vector<RequestRows::FoundRequest>> found =
      sources_.rows->FindRequests(asked, window_);
  if (!found.ok()) return found.status();
  for (size_t i = 0; i < asked.size(); ++i)
    looked_up_[LookedUpKeyOf(asked[i])] = std::move((*found)[i]);
  return absl::OkStatus();
}

std::optional<uint64_t> RequestBook::SequenceHigh(std::string_view client_id) const {
  const Client* client = clients_.Find(client_id);
  return client == nullptr ? std::nullopt : std::optional(client->sequence_high);
}

void RequestBook::AddStored(uint32_t number, std::string client_id, uint64_t sequence_high) {
  clients_.AddStored(number, std::move(client_id), sequence_high, now_());
}

}  // namespace semaphored::ledger
