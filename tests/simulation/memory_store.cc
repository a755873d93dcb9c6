#include "tests/simulation/memory_store.h"

#include <algorithm>
#include <utility>

#include "adapters/common/client_names.h"

namespace semaphored::simulation {

using ledger::CommitResult;
using ledger::Image;
using ledger::LeaseChange;
using ledger::SemaphoreDelta;
using ledger::SessionChange;
using ledger::SessionPtr;
using ledger::Transaction;
using ledger::WaiterChange;

namespace {

absl::Status Replaced() {
  return absl::FailedPreconditionError("memory: this node was replaced or declared dead");
}

absl::Status Unreachable() {
  return absl::UnavailableError("memory: the engine cannot be reached");
}

CommitResult Failed(absl::Status status) {
  return {CommitResult::Kind::kFailed, {}, false, {}, std::move(status)};
}

// Claims that one notification has room for.
constexpr size_t kNoticeClaimsMax = 8;
constexpr size_t kNoticesMax = 1000;

// With the tokens that the engine gave.
std::optional<ledger::ChangeDetails> SendableDetails(const Transaction& transaction,
                                                     const SemaphoreDelta& delta) {
  std::optional<ledger::DetailsAndGrants> told = DetailsOf(transaction, delta, kNoticeClaimsMax);
  if (!told) return std::nullopt;
  for (size_t i = 0; i < told->grants.size(); ++i)
    told->details.granted[i].token = told->grants[i]->token;
  return std::move(told->details);
}

CommitResult Unknown() { return {CommitResult::Kind::kUnknown, {}, false, {}, {}}; }

size_t RowsOf(const Transaction& transaction) {
  size_t rows =
      transaction.semaphores.size() + transaction.sessions.size() + transaction.requests.size();
  for (const SemaphoreDelta& delta : transaction.semaphores)
    rows += delta.leases.size() + delta.waiters.size() + delta.tickets.size();
  return rows;
}

}  // namespace

void NoticeBox::Put(ledger::ChangeNotice notice, std::optional<ledger::ChangeDetails> told) {
  if (notices.size() == kNoticesMax) {
    notices.clear();
    details.clear();
  }
  if (told) {
    notice.details = notice.semaphore + "@" + std::to_string(notice.revision);
    details[notice.details] = *std::move(told);
  }
  notices.push_back(std::move(notice));
}

std::optional<int64_t> Notifier::DelayOfNotice() {
  Random& random = world_->random();
  if (random.Chance(faults_->rates.notification_lost)) {
    faults_->Note(FaultKind::kNoticeLost);
    return std::nullopt;
  }
  int64_t delay_us = random.Between(100, 2000);
  if (random.Chance(faults_->rates.notification_late)) {
    faults_->Note(FaultKind::kNoticeLate);
    delay_us += random.Between(1, 4000) * kMillisecond;
  }
  return delay_us;
}

void Notifier::Send(const std::weak_ptr<NoticeBox>& weak, int64_t delay_us, Told told) {
  world_->After(delay_us, [weak, told = std::move(told)] {
    const std::shared_ptr<NoticeBox> notice_box = weak.lock();
    if (notice_box == nullptr) return;
    for (const auto& [notice, details] : told) notice_box->Put(notice, details);
    if (notice_box->on_notice) notice_box->on_notice();
  });
}

void Notifier::Tell(const NoticeBox* writer, const Transaction& transaction) {
  if (silent || transaction.semaphores.empty()) return;
  std::erase_if(notice_boxes_, [](const auto& each) { return each.expired(); });
  for (const std::weak_ptr<NoticeBox>& weak : notice_boxes_) {
    if (weak.lock().get() == writer) continue;
    const std::optional<int64_t> delay_us = DelayOfNotice();
    if (!delay_us) continue;
    Told told;
    for (const SemaphoreDelta& delta : transaction.semaphores) {
      told.push_back({{delta.name, delta.revision, ""}, SendableDetails(transaction, delta)});
      if (world_->random().Chance(faults_->rates.notification_lost)) told.back().second.reset();
    }
    Send(weak, *delay_us, std::move(told));
  }
}

void Notifier::TellForeign(const std::string& semaphore, uint64_t revision) {
  if (silent) return;
  std::erase_if(notice_boxes_, [](const auto& each) { return each.expired(); });
  for (const std::weak_ptr<NoticeBox>& weak : notice_boxes_) {
    if (const std::optional<int64_t> delay_us = DelayOfNotice())
      Send(weak, *delay_us, {{{semaphore, revision, ""}, std::nullopt}});
  }
}

MemoryStore::MemoryStore(EngineHandle handle, std::shared_ptr<EngineLink> link,
                         std::function<void()> on_notice, const Cell& cell)
    : cell_(cell),
      handle_(handle),
      link_(std::move(link)),
      notice_box_(std::make_shared<NoticeBox>()) {
  guarantees_.adapter = "memory";
  guarantees_.durable_tickets = true;
  guarantees_.exclusive = cell.exclusive;
  guarantees_.grants_per_commit_max = cell.grants_per_commit_max;
  guarantees_.lanes_max = std::max<uint32_t>(2, static_cast<uint32_t>(cell.lanes));
  notice_box_->on_notice = std::move(on_notice);
  handle_.notifier->Add(notice_box_);
}

// ---- clients: this connection's numbers and the engine's ----

uint32_t MemoryStore::ToEngine(uint32_t client) const {
  const auto found = names_.find(client);
  return found == names_.end() ? 0 : handle_.engine->NumberOf(found->second);
}

uint32_t MemoryStore::ToLocal(uint32_t client) {
  if (client == 0) return 0;
  const std::string& name = handle_.engine->NameOf(client);
  const auto [at, is_new] = numbers_.try_emplace(name, next_number_);
  if (is_new) names_[next_number_++] = name;
  return at->second;
}

RequestKey MemoryStore::ToEngine(const RequestKey& request) const {
  if (request.one_shot.empty()) return {ToEngine(request.client), request.sequence};
  return {handle_.engine->NumberOf(ledger::NameOfOneShot(request.one_shot)), 1};
}

RequestKey MemoryStore::ToLocal(const RequestKey& request) {
  if (request.client == 0) return request;
  if (const auto one_shot = ledger::OneShotOf(handle_.engine->NameOf(request.client)))
    return {0, 0, *one_shot};
  return {ToLocal(request.client), request.sequence};
}

Transaction MemoryStore::ForEngine(const Transaction& transaction) {
  for (const ledger::NewClient& added : transaction.new_clients) {
    names_[added.number] = added.client_id;
    numbers_[added.client_id] = added.number;
  }
  Transaction copy = DeepCopy(transaction);
  std::set<const void*> done;
  const auto translate = [&](const auto& row) {
    if (row && done.insert(row.get()).second) row->request = ToEngine(row->request);
  };
  for (SemaphoreDelta& delta : copy.semaphores) {
    for (LeaseChange& change : delta.leases) {
      translate(change.before);
      translate(change.after);
    }
    for (WaiterChange& change : delta.waiters) {
      translate(change.before);
      translate(change.after);
    }
  }
  for (HistoryRow& row : copy.history) translate(row.lease);
  for (SessionChange& change : copy.sessions) {
    if (change.after) change.after->client = ToEngine(change.after->client);
  }
  for (ledger::RequestChange& change : copy.requests)
    change.row.request = ToEngine(change.row.request);
  for (ledger::NamedRequest& absent : copy.absent_requests)
    absent.request =
        absent.request.one_shot.empty()
            ? RequestKey{handle_.engine->NumberOf(absent.client_id), absent.request.sequence}
            : ToEngine(absent.request);
  for (ledger::RequestFloor& floor : copy.request_floors) floor.client = ToEngine(floor.client);
  for (uint32_t& client : copy.forgotten_clients) client = ToEngine(client);
  return copy;
}

// ---- commits ----

CommitResult MemoryStore::Commit(Transaction& transaction, SteadyTime) {
  auto write = std::make_shared<Write>();
  write->id = handle_.engine->NewWriteId();
  write->transaction = ForEngine(transaction);
  return Send(write, &transaction, /*again=*/false);
}

// The same write once more: it lands once, and afterwards the revisions are no longer those that it
// was made for.
CommitResult MemoryStore::Settle(Transaction& transaction, SteadyTime) {
  return Send(std::exchange(in_doubt_, nullptr), &transaction, /*again=*/true);
}

CommitResult MemoryStore::Send(const std::shared_ptr<Write>& write, Transaction* transaction,
                               bool again) {
  const FaultRates& rates = link_->faults().rates;
  if (cell_.rows_per_commit_max > 0 && !again && RowsOf(*transaction) > cell_.rows_per_commit_max) {
    link_->faults().Note(FaultKind::kTooLarge);
    return Failed(absl::OutOfRangeError("memory: a commit has too many rows"));
  }
  if (!again) CheckWithheld(*transaction);
  link_->SpendTime();
  if (!link_->reachable()) {
    connected_ = false;
    link_->faults().Note(FaultKind::kUnreachable);
    link_->faults().Disturb(link_->world());
    // A first write that was never sent has failed for certain; one that was sent before stays in
    // doubt.
    if (!again && !link_->dead && link_->Strikes(0.5)) return Failed(Unreachable());
    return Lose(write);
  }
  if (!cell_.exclusive && link_->Strikes(rates.lost_race) &&
      !handle_.engine->HasLanded(write->id) && !again) {
    CommitResult lost{CommitResult::Kind::kLost, {}, false, {}, {}};
    for (const SemaphoreDelta& delta : transaction->semaphores) lost.stale.push_back(delta.name);
    return lost;
  }
  if (!cell_.exclusive && !again && !transaction->semaphores.empty() &&
      link_->Strikes(rates.busy_row, FaultKind::kBusyRow)) {
    link_->faults().Disturb(link_->world());
    CommitResult busy = Failed(absl::UnavailableError("memory: a row is locked"));
    busy.busy.push_back(transaction->semaphores.front().name);
    return busy;
  }
  if (link_->Strikes(rates.never_landed, FaultKind::kNeverLanded) ||
      link_->Strikes(rates.lands_later, FaultKind::kLandsLater))
    return Lose(write);
  const MemoryEngine::Landing landing = handle_.engine->Land(*write);
  if (landing.landed) handle_.notifier->Tell(notice_box_.get(), write->transaction);
  if (cell_.exclusive && !landing.landed && landing.status.ok())
    throw Violation{"the only writer of a store lost a commit to another"};
  link_->SpendTime();
  if (link_->dead || link_->Strikes(rates.answer_lost, FaultKind::kAnswerLost)) {
    link_->faults().Disturb(link_->world());
    in_doubt_ = write;
    return Unknown();
  }
  if (!landing.status.ok()) return Failed(landing.status);
  if (!landing.landed)
    return {CommitResult::Kind::kLost, landing.stale, landing.requests_lost, {}, {}};
  TakeBack(*write, transaction);
  return {};
}

// The write is on its way, or is gone: nobody here can tell.
CommitResult MemoryStore::Lose(const std::shared_ptr<Write>& write) {
  link_->faults().Disturb(link_->world());
  in_doubt_ = write;
  if (link_->Strikes(0.5)) LandLater(write);
  return Unknown();
}

void MemoryStore::LandLater(const std::shared_ptr<Write>& write) {
  auto late = std::make_shared<Write>(Write{write->id, DeepCopy(write->transaction)});
  World& world = link_->world();
  const int64_t delay_us = world.random().Between(1, 5000) * kMillisecond;
  world.After(delay_us, [late, handle = handle_, notice_box = notice_box_.get(),
                         faults = &link_->faults(), &world] {
    if (faults->engine_down || handle.engine->HasLanded(late->id)) return;
    if (!handle.engine->Land(*late).landed) return;
    world.Trace("a write landed after its answer was lost");
    handle.notifier->Tell(notice_box, late->transaction);
  });
}

// What the engine has given, into the writer's own rows.
void MemoryStore::TakeBack(const Write& write, Transaction* transaction) const {
  absl::flat_hash_map<Id, uint64_t> tokens;
  std::map<std::string, uint64_t> revisions;
  for (const SemaphoreDelta& delta : write.transaction.semaphores) {
    revisions[delta.name] = delta.revision;
    for (const LeaseChange& change : delta.leases) {
      if (!change.before) tokens[change.after->id] = change.after->token;
    }
  }
  for (SemaphoreDelta& delta : transaction->semaphores) delta.revision = revisions[delta.name];
  ledger::SetTokens(tokens, transaction);
}

// ---- reading ----

bool MemoryStore::Call() {
  if (!link_->Call()) {
    connected_ = false;
    return false;
  }
  Reconnect();
  return true;
}

void MemoryStore::Reconnect() {
  if (std::exchange(connected_, true) || cell_.exclusive) return;
  notice_box_->notices.clear();
  notice_box_->details.clear();
  missed_ = true;
  link_->faults().Note(FaultKind::kNoticesMissed);
}

bool MemoryStore::TakeMissedNotices() { return std::exchange(missed_, false); }

bool MemoryStore::GrantsWithheld() { return !cell_.exclusive && link_->faults().withheld; }

void MemoryStore::CheckWithheld(const Transaction& transaction) const {
  if (cell_.exclusive || !withheld_at_wait_ || !link_->faults().withheld) return;
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    for (const LeaseChange& change : delta.leases) {
      if (!change.before)
        throw Violation{delta.name + ": a lease is granted though the engine may have lost some"};
    }
  }
}

absl::Status MemoryStore::EndForeign(absl::Span<const std::string> names) {
  if (!Call()) return Unreachable();
  for (const std::string& name : names) {
    const StoredSemaphore* stored = handle_.engine->Find(name);
    if (stored == nullptr) continue;
    std::vector<Id> left_behind;
    for (const auto& [id, lease] : stored->leases) {
      if (lease.foreign && handle_.engine->IsLeftBehind(id)) left_behind.push_back(id);
    }
    for (const Id& id : left_behind) handle_.engine->ReturnForeign(name, id);
  }
  return absl::OkStatus();
}

// A store with one writer keeps no floors, but the numbers of what was removed. One that is shared keeps the floors.
uint64_t MemoryStore::HighestOf(const StoredClient& client) const {
  if (cell_.exclusive) return client.high;
  return client.requests.empty() ? 0 : client.requests.rbegin()->first;
}

void MemoryStore::AddClient(uint32_t client, Image* image) {
  if (client == 0) return;
  const StoredClient& stored = handle_.engine->clients().at(client);
  if (const auto one_shot = ledger::OneShotOf(stored.client_id)) {
    for (const auto& [sequence, row] : stored.requests) {
      if (!row.pinned()) image->one_shots.push_back(*one_shot);
    }
    return;
  }
  const uint32_t local = ToLocal(client);
  if (std::ranges::count(image->clients, local, &ledger::LoadedClient::number) > 0) return;
  image->clients.push_back({local, stored.client_id, HighestOf(stored)});
}

void MemoryStore::AddSession(const Id& id, Image* image) {
  const auto found = handle_.engine->sessions().find(id);
  if (found == handle_.engine->sessions().end()) return;
  if (std::ranges::count(image->sessions, id, [](const SessionPtr& each) { return each->id; }) > 0)
    return;
  AddClient(found->second.client, image);
  image->sessions.push_back(std::make_shared<Session>(found->second));
  image->sessions.back()->client = ToLocal(found->second.client);
}

void MemoryStore::AddSemaphore(const StoredSemaphore& stored, Image* image) {
  ledger::LoadedSemaphore& loaded = image->semaphores.emplace_back();
  loaded.row = stored.row;
  const auto prepare = [&](auto row) {
    AddClient(row->request.client, image);
    row->request = ToLocal(row->request);
    if (!row->detached()) AddSession(row->session, image);
    return row;
  };
  for (const auto& [id, lease] : stored.leases)
    loaded.leases.push_back(prepare(std::make_shared<Lease>(lease)));
  for (const auto& [id, waiter] : stored.waiters)
    loaded.waiters.push_back(prepare(std::make_shared<Waiter>(waiter)));
  for (const auto& [id, ticket] : stored.tickets)
    loaded.tickets.push_back(std::make_shared<const Ticket>(ticket));
}

absl::StatusOr<Image> MemoryStore::LoadAll() {
  if (!Call()) return Unreachable();
  Image image;
  for (const auto& [name, stored] : handle_.engine->semaphores()) AddSemaphore(stored, &image);
  for (const auto& [id, session] : handle_.engine->sessions()) AddSession(id, &image);
  // An exclusive store's lane takes a request for new if it is above all that have a row.
  for (const auto& [number, client] : handle_.engine->clients()) AddClient(number, &image);
  return image;
}

absl::StatusOr<Image> MemoryStore::Load(absl::Span<const std::string> names) {
  if (!Call()) return Unreachable();
  Image image;
  for (const std::string& name : names) {
    const StoredSemaphore* stored = handle_.engine->Find(name);
    if (stored != nullptr && handle_.engine->unreadable.contains(name)) {
      image.damaged.emplace_back(name, absl::DataLossError("memory: a record is damaged"));
    } else if (stored != nullptr) {
      AddSemaphore(*stored, &image);
    }
  }
  return image;
}

absl::StatusOr<std::vector<std::string>> MemoryStore::Changed(
    absl::Span<const SemaphoreRow* const> semaphores) {
  if (!Call()) return Unreachable();
  std::vector<std::string> changed;
  for (const SemaphoreRow* row : semaphores) {
    const StoredSemaphore* stored = handle_.engine->Find(row->name);
    if ((stored == nullptr ? 0 : stored->row.revision) != row->revision ||
        handle_.engine->unreadable.contains(row->name))
      changed.push_back(row->name);
  }
  return changed;
}

absl::StatusOr<std::vector<PayloadPtr>> MemoryStore::ReadPayloads(
    absl::Span<const TicketAt> tickets) {
  if (!Call()) return Unreachable();
  std::vector<PayloadPtr> payloads(tickets.size());
  for (size_t i = 0; i < tickets.size(); ++i) {
    const StoredSemaphore* stored = handle_.engine->Find(tickets[i].semaphore);
    if (stored == nullptr) continue;
    const auto found = stored->payloads.find(tickets[i].ticket);
    if (found != stored->payloads.end())
      payloads[i] = std::make_shared<const std::string>(found->second);
  }
  return payloads;
}

absl::StatusOr<std::vector<ledger::LedgerStore::FoundRequest>> MemoryStore::FindRequests(
    absl::Span<const ledger::NamedRequest> requests, uint64_t window) {
  if (!Call()) return Unreachable();
  std::vector<FoundRequest> found(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const RequestKey& asked = requests[i].request;
    const uint64_t sequence = asked.one_shot.empty() ? asked.sequence : 1;
    const uint32_t number = handle_.engine->NumberOf(ledger::WrittenClient(requests[i]));
    const StoredClient& client = handle_.engine->clients().at(number);
    if (const auto row = client.requests.find(sequence); row != client.requests.end()) {
      found[i].row = row->second;
      found[i].row->request = requests[i].request;
      continue;
    }
    found[i].too_old = sequence < client.floor || sequence + window <= HighestOf(client);
  }
  return found;
}

absl::StatusOr<ledger::SharedStore::SessionAt> MemoryStore::LoadSession(const Id& session) {
  if (!Call()) return Unreachable();
  SessionAt at;
  Image image;
  AddSession(session, &image);
  if (!image.sessions.empty()) at.session = image.sessions.front();
  for (const auto& [name, stored] : handle_.engine->semaphores()) {
    const auto hangs = [&](const auto& entry) { return entry.second.session == session; };
    if (std::ranges::any_of(stored.leases, hangs) || std::ranges::any_of(stored.waiters, hangs)) {
      at.semaphores.push_back(name);
    }
  }
  return at;
}

absl::StatusOr<ledger::SharedStore::Hosted> MemoryStore::HostedBy(absl::Span<const NodeRef> nodes) {
  if (!Call()) return Unreachable();
  const auto& sessions = handle_.engine->sessions();
  const auto meant = [&](const NodeRef& host) {
    return std::ranges::any_of(nodes, [&](const NodeRef& node) {
      return node.number == host.number && host.incarnation <= node.incarnation;
    });
  };
  Hosted hosted;
  Image image;
  for (const auto& [id, session] : sessions) {
    if (meant(session.host)) AddSession(id, &image);
  }
  hosted.sessions = std::move(image.sessions);
  for (const auto& [name, stored] : handle_.engine->semaphores()) {
    const auto hangs = [&](const auto& entry) {
      const auto session = sessions.find(entry.second.session);
      return meant(session == sessions.end() ? entry.second.host : session->second.host);
    };
    const auto delayed = [&](const auto& entry) {
      return entry.second.state == TicketState::kDelayed && meant(entry.second.host);
    };
    if (std::ranges::any_of(stored.leases, hangs) || std::ranges::any_of(stored.waiters, hangs) ||
        std::ranges::any_of(stored.tickets, delayed)) {
      hosted.semaphores.push_back(name);
    }
  }
  return hosted;
}

absl::StatusOr<std::vector<std::string>> MemoryStore::Names(const std::string& prefix,
                                                            const std::string& after,
                                                            uint32_t rows_max) {
  if (!Call()) return Unreachable();
  std::vector<std::string> names;
  for (const auto& [name, stored] : handle_.engine->semaphores()) {
    if (name > after && name.starts_with(prefix) && names.size() < rows_max) names.push_back(name);
  }
  return names;
}

absl::StatusOr<std::vector<HistoryRow>> MemoryStore::ReadHistory(const std::string& semaphore,
                                                                 uint64_t before,
                                                                 uint32_t rows_max) {
  if (!Call()) return Unreachable();
  std::vector<HistoryRow> rows;
  const auto& history = handle_.engine->history();
  for (auto end = history.rbegin(); end != history.rend() && rows.size() < rows_max; ++end) {
    if ((!semaphore.empty() && end->semaphore != semaphore) ||
        (before != 0 && end->number >= before))
      continue;
    auto lease = std::make_shared<Lease>(end->lease);
    lease->request = ToLocal(lease->request);
    rows.push_back(
        {end->number, end->semaphore, std::move(lease), end->ended_at_unix_ms, end->cause});
  }
  return rows;
}

// Virtual time does not pass here: the simulation runs the lane again when there are notices.
absl::StatusOr<std::vector<ledger::ChangeNotice>> MemoryStore::Wait(SteadyTime) {
  if (!link_->reachable()) {
    connected_ = false;
    return Unreachable();
  }
  Reconnect();
  withheld_at_wait_ = link_->faults().withheld;
  details_ = std::exchange(notice_box_->details, {});
  return std::exchange(notice_box_->notices, {});
}

std::optional<ledger::ChangeDetails> MemoryStore::ReadDetails(const ledger::ChangeNotice& notice) {
  const auto found = details_.find(notice.details);
  if (found == details_.end()) return std::nullopt;
  return found->second;
}

// ---- nodes ----

absl::StatusOr<NodeRef> MemoryNodeStore::Join(const std::string& node_id, const std::string& daemon,
                                              const Node* seen) {
  if (!link_->reachable()) return Unreachable();
  for (const Node& row : engine_->Nodes()) {
    if (row.node_id != node_id || seen == nullptr) continue;
    if (row.ref.incarnation != seen->ref.incarnation || row.counter != seen->counter)
      return absl::AbortedError("memory: another daemon joins or counts");
  }
  self_ = engine_->Join(node_id, daemon);
  counter_.Joined(engine_->Nodes().at(self_.number - 1).counter);
  return self_;
}

absl::Status MemoryNodeStore::Heartbeat() {
  if (!link_->Call()) return Unreachable();
  const bool counted = engine_->Heartbeat(self_, counter_);
  link_->SpendTime();
  if (!link_->reachable() || link_->Strikes(link_->faults().rates.answer_lost)) {
    counter_.Sent();
    return Unreachable();
  }
  if (!counted) return Replaced();
  counter_.Sent();
  return absl::OkStatus();
}

absl::Status MemoryNodeStore::Leave() {
  if (!link_->Call()) return Unreachable();
  return engine_->Leave(self_) ? absl::OkStatus() : Replaced();
}

absl::StatusOr<std::vector<NodeStore::Node>> MemoryNodeStore::Observe() {
  if (!link_->Call()) return Unreachable();
  std::vector<Node> nodes = engine_->Nodes();
  link_->SpendTime();
  if (!link_->reachable()) return Unreachable();
  return nodes;
}

absl::StatusOr<bool> MemoryNodeStore::DeclareDead(const Node& seen) {
  if (!link_->Call()) return Unreachable();
  return engine_->DeclareDead(seen);
}

}  // namespace semaphored::simulation
