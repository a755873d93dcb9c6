// Stores that other daemons write to as well: what is loaded, and what others have changed.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/ledger_adapter_impl.h"
#include "adapters/ledger/rules/intentions.h"

namespace semaphored::ledger {

namespace {

// Rows, when we must find out how a lease ended elsewhere.
constexpr uint32_t kHistoryLookedAt = 256;
// Leases of a semaphore whose hosts are told of a new waiter; of a wide one not all.
constexpr int kHoldersTold = 64;

}  // namespace

// Finds what a command is about and what is not in memory yet: the names of `missing` are to be
// loaded. A session that this lane knows from before it came here is read again.
absl::Status LedgerAdapter::Need(const Command& command, std::vector<std::string>* missing) {
  std::vector<std::string> names;
  const std::string_view name = SemaphoreOf(command);
  const bool history = std::holds_alternative<HistoryCommand>(command);
  if (!name.empty() && !history) names.emplace_back(name);
  const Id* session = nullptr;
  if (const auto* adopt = std::get_if<AdoptSessionCommand>(&command)) session = &adopt->session;
  if (const auto* close = std::get_if<CloseSessionCommand>(&command)) session = &close->session;
  const auto outdated = [this](const Id& id, uint32_t epoch) {
    const SessionPtr& known = state_.FindSession(id);
    return !known || known->epoch < epoch;
  };
  if (const auto* acquire = std::get_if<AcquireCommand>(&command)) {
    if (acquire->session != acquire->claim && outdated(acquire->session, acquire->epoch))
      session = &acquire->session;
  }
  if (const auto* take = std::get_if<TakeCommand>(&command)) {
    if (take->session != take->claim && outdated(take->session, take->epoch))
      session = &take->session;
  }
  LeasePtr put_back;
  if (const auto* finish = std::get_if<FinishCommand>(&command); finish && finish->epoch != 0) {
    const Semaphore* semaphore = state_.Find(finish->semaphore);
    put_back = semaphore == nullptr ? nullptr : semaphore->FindLease(finish->claim);
    if (put_back && !put_back->detached() && outdated(put_back->session, finish->epoch))
      session = &put_back->session;
  }
  if (session != nullptr) {
    absl::StatusOr<LedgerStore::SessionAt> at = store_->LoadSession(*session);
    if (!at.ok()) return at.status();
    SeeSession(*session, std::move(at->session));
    // To acquire or to work, only the session must be there. What it has elsewhere is other lanes'
    // to look after: here it would be a condition of the commit, and its end would be told twice.
    const bool moves_or_ends = std::holds_alternative<AdoptSessionCommand>(command) ||
                               std::holds_alternative<CloseSessionCommand>(command);
    if (moves_or_ends) {
      for (std::string& each : at->semaphores) names.push_back(std::move(each));
      // What is known here may have ended since without a notice: it is a condition too.
      absl::flat_hash_set<std::string_view> known;
      for (const auto& [claim, semaphore] : state_.ClaimsOf(*session)) {
        if (known.insert(semaphore->row.name).second) names.push_back(semaphore->row.name);
      }
    }
  }
  if (const auto* orphans = std::get_if<OrphansCommand>(&command)) {
    std::vector<NodeRef> dead = orphans->dead;
    dead.push_back({options_.self.number, options_.self.incarnation - 1});
    absl::StatusOr<LedgerStore::Hosted> hosted = store_->HostedBy(dead);
    if (!hosted.ok()) return hosted.status();
    for (SessionPtr& each : hosted->sessions) {
      const Id id = each->id;
      SeeSession(id, std::move(each));
    }
    // The dead write no more. So what they left is in what is read from here on, whatever others do
    // meanwhile, and need not stand still: in busy semaphores it never would.
    std::ranges::move(hosted->semaphores, std::back_inserter(*missing));
  }
  // Another daemon may know of the request, and no commit finds that out.
  const bool anew = IsOnlyIfRepeated(command) && store_->permits() == nullptr;
  for (const std::string& each : names) {
    read_.insert(each);
    if (anew || !loaded_.contains(each) || damaged_.contains(each)) missing->push_back(each);
  }
  return absl::OkStatus();
}

// Others keep these locked: for a moment nobody here tries.
bool LedgerAdapter::LeaveAlone(const std::vector<std::string>& busy) {
  const SteadyTime now = options_.now();
  bool is_new = false;
  for (const std::string& name : busy) {
    SteadyTime& until = busy_[name];
    is_new = is_new || until <= now;
    until = now + options_.busy_pause;
  }
  return is_new;
}

bool LedgerAdapter::IsBusy(std::string_view name) const {
  const auto found = busy_.find(std::string(name));
  return found != busy_.end() && options_.now() < found->second;
}

// A session's row as the engine has it; nullptr: there is none. Whoever believes to host it here is
// told if it has moved.
void LedgerAdapter::SeeSession(const Id& id, SessionPtr session) {
  const SessionPtr known = state_.FindSession(id);
  if (!known && !session) return;
  Transaction difference;
  difference.node = options_.self;
  difference.sessions.push_back({known, std::move(session)});
  const Session* now = difference.sessions.back().after.get();
  state_.Apply(difference.sessions.back());
  AppendEvents(difference, &found_events_);
  // It had been forgotten here, and moved meanwhile: whoever believes to host it is told all the
  // same.
  if (!known && now->host != options_.self)
    found_events_.push_back({Event::Kind::kMoved, EndCause::kNone, id, {}, nullptr, now->epoch});
}

// Sessions of whom this lane knows no claim are not kept: nobody tells it when they end.
void LedgerAdapter::ForgetSessions() {
  std::vector<SessionPtr> idle;
  for (const auto& [id, session] : state_.sessions()) {
    if (state_.ClaimsOf(id).empty()) idle.push_back(session);
  }
  for (SessionPtr& session : idle) state_.Apply(SessionChange{std::move(session), nullptr});
}

absl::Status LedgerAdapter::Hear(const absl::StatusOr<std::vector<Hint>>& hints) {
  if (!hints.ok()) return hints.status();
  if (store_->permits() != nullptr) return HearOfPermits(*hints);
  std::vector<std::string> stale;
  for (const Hint& hint : *hints) {
    if (!loaded_.contains(hint.semaphore)) continue;
    const Semaphore* semaphore = state_.Find(hint.semaphore);
    const uint64_t known = semaphore == nullptr ? 0 : semaphore->row.revision;
    const bool is_old = known != 0 && hint.revision != 0 && hint.revision <= known;
    if (!is_old && !Learn(hint)) stale.push_back(hint.semaphore);
  }
  return Refresh(std::move(stale));
}

// True if nothing need be read.
bool LedgerAdapter::Learn(const Hint& hint) {
  if (hint.details.empty()) return false;
  const std::optional<News> news = store_->ReadNews(hint);
  if (!news) return false;
  std::optional<SemaphoreDelta> delta = Apply(*news, &state_);
  if (!delta) return false;
  ServeLater(delta->name);
  for (const LeaseChange& change : delta->leases) {
    if (!change.after) ends_.Add(change.before->id, change.cause);
  }
  Transaction difference;
  difference.node = options_.self;
  difference.semaphores.push_back(*std::move(delta));
  AppendEvents(difference, &found_events_);
  if (watching_) AppendChanges(difference, state_, &found_changes_);
  last_.push_back(std::move(difference));
  return true;
}

void LedgerAdapter::ServeLater(const std::string& name) {
  const Semaphore* semaphore = state_.Find(name);
  if (semaphore != nullptr &&
      (!semaphore->waiters.empty() || semaphore->row.destroying || CarriesOn(*semaphore)))
    to_serve_.insert(name);
}

absl::Status LedgerAdapter::Refresh(std::vector<std::string> names) {
  if (names.empty()) return absl::OkStatus();
  if (store_->permits() != nullptr) {
    for (const std::string& name : names) {
      if (absl::Status status = LoadRow(name); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  absl::StatusOr<Image> image = store_->Load(names);
  if (!image.ok()) return image.status();
  for (const LoadedClient& client : image->clients) {
    clients_.AddStored(client.number, client.client_id, client.sequence_high, options_.now());
  }
  Transaction difference;
  difference.node = options_.self;
  for (const SessionPtr& session : image->sessions) {
    difference.sessions.push_back({state_.FindSession(session->id), session});
    state_.Apply(difference.sessions.back());
  }
  for (const std::string& name : names) damaged_.erase(name);
  for (auto& [name, why] : image->damaged) damaged_.emplace(std::move(name), std::move(why));
  for (const std::string& name : names) {
    if (damaged_.contains(name)) continue;
    const auto loaded =
        std::ranges::find(image->semaphores, name, [](const auto& each) { return each.row.name; });
    const bool known = loaded_.contains(name);
    SemaphoreDelta delta =
        ReplaceWith(loaded == image->semaphores.end() ? nullptr : &*loaded, name, &state_);
    loaded_.insert(name);
    ServeLater(name);
    if (known) difference.semaphores.push_back(std::move(delta));
  }
  std::vector<Event> events;
  AppendEvents(difference, &events);
  ExplainEnds(&events);
  for (const Event& event : events) found_events_.push_back(event);
  if (watching_) AppendChanges(difference, state_, &found_changes_);
  last_.push_back(std::move(difference));
  return absl::OkStatus();
}

// Others ended these leases: the history says how.
void LedgerAdapter::ExplainEnds(std::vector<Event>* events) {
  absl::flat_hash_map<std::string_view, std::vector<HistoryRow>> histories;
  for (Event& event : *events) {
    // Of others' claims nobody here asks how they ended.
    if (event.kind != Event::Kind::kEnded || event.cause != EndCause::kUnknown ||
        !guarantees().history || HostOf(state_, *event.lease).number != options_.self.number)
      continue;
    const auto [at, is_new] = histories.try_emplace(event.semaphore);
    if (is_new) {
      absl::StatusOr<std::vector<HistoryRow>> rows =
          store_->ReadHistory(std::string(event.semaphore), 0, kHistoryLookedAt);
      if (rows.ok()) at->second = *std::move(rows);
    }
    for (const HistoryRow& row : at->second) {
      if (row.lease->id == event.claim) event.cause = row.cause;
    }
    ends_.Add(event.claim, event.cause);
  }
}

// A push is a hint that may be lost: now and then everything that has a queue is compared with the
// engine.
absl::Status LedgerAdapter::SweepIfDue() {
  const SteadyTime now = options_.now();
  if (store_->TakeMissedHints()) {
    swept_at_ = SteadyTime::min();
    // The engine may have lost commits, and others may have made new ones since, under the same
    // revisions: these prove nothing.
    doubt_revisions_ = doubt_revisions_ || withheld_;
  }
  if (now - options_.sweep_interval < swept_at_) return absl::OkStatus();
  std::vector<const SemaphoreRow*> rows;
  std::vector<std::string> idle;
  std::vector<std::string> foreign;
  for (const std::string& name : loaded_) {
    const Semaphore* semaphore = state_.Find(name);
    // Tickets too: a queue without a worker would be dropped and loaded again with each sweep.
    const bool in_use =
        semaphore != nullptr &&
        (!semaphore->waiters.empty() || !semaphore->leases.empty() || !semaphore->tickets.empty());
    if (in_use) rows.push_back(&semaphore->row);
    if (!in_use) idle.push_back(name);
    if (in_use && !semaphore->waiters.empty() &&
        std::ranges::any_of(semaphore->leases,
                            [](const auto& each) { return each.second->foreign; }))
      foreign.push_back(name);
  }
  if (!foreign.empty()) {
    if (absl::Status status = store_->EndForeign(foreign); !status.ok()) return status;
  }
  // What nobody uses is not kept in memory: it is loaded again when it is asked for.
  for (const std::string& name : idle) {
    state_.Erase(name);
    loaded_.erase(name);
  }
  if (!rows.empty()) {
    absl::StatusOr<std::vector<std::string>> changed = std::vector<std::string>();
    if (doubt_revisions_) {
      for (const SemaphoreRow* row : rows) changed->push_back(row->name);
    } else {
      changed = store_->Changed(rows);
    }
    if (!changed.ok()) return changed.status();
    if (absl::Status status = Refresh(*std::move(changed)); !status.ok()) return status;
  }
  doubt_revisions_ = false;
  LookAtIntentions();
  ForgetSessions();
  ForgetNumbers();
  swept_at_ = now;
  return absl::OkStatus();
}

// Reads anew what a lost batch rested upon. Mostly it was a semaphore; if none has changed, it was
// a session.
absl::Status LedgerAdapter::LearnWhyLost(const Transaction& lost, const CommitResult& commit) {
  const auto changed = [&](const std::string& name, uint64_t revision) {
    const Semaphore* semaphore = state_.Find(name);
    return (semaphore == nullptr ? 0 : semaphore->row.revision) != revision;
  };
  const auto any_changed = [&] {
    return std::ranges::any_of(lost.semaphores,
                               [&](const SemaphoreDelta& delta) {
                                 return changed(delta.name,
                                                delta.before ? delta.before->revision : 0);
                               }) ||
           std::ranges::any_of(lost.reads, [&](const ReadCondition& read) {
             return changed(read.semaphore, read.revision);
           });
  };
  if (lost.attempt == 0 && !commit.requests_lost) {
    // Whoever was first may have told by now what he did.
    if (absl::Status status = Hear(store_->Wait(SteadyTime::min())); !status.ok()) return status;
    if (any_changed()) return absl::OkStatus();
  }
  if (absl::Status status = Refresh(commit.stale); !status.ok()) return status;
  if (commit.requests_lost || any_changed() || exclusive()) return absl::OkStatus();
  return RefreshSessions(lost);
}

// The store need not know any more by which number a client goes of whom nothing is known here.
void LedgerAdapter::ForgetNumbers() {
  std::optional<absl::flat_hash_set<uint32_t>> of_sessions;
  store_->ForgetClientsBut([&](uint32_t number) {
    if (!of_sessions) {
      of_sessions.emplace();
      for (const auto& [id, session] : state_.sessions()) of_sessions->insert(session->client);
    }
    return clients_.Find(number) != nullptr || state_.ClaimCountOf(number) > 0 ||
           of_sessions->contains(number);
  });
}

// A batch lost: a session that it speaks of may have moved, or be gone, without a trace in any
// semaphore.
absl::Status LedgerAdapter::RefreshSessions(const Transaction& lost) {
  std::vector<Id> ids;
  for (const EpochCondition& condition : lost.epochs) ids.push_back(condition.session);
  for (const SessionChange& change : lost.sessions) {
    ids.push_back((change.before ? change.before : change.after)->id);
  }
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  for (const Id& id : ids) {
    absl::StatusOr<LedgerStore::SessionAt> at = store_->LoadSession(id);
    if (!at.ok()) return at.status();
    SeeSession(id, std::move(at->session));
  }
  return absl::OkStatus();
}

void LedgerAdapter::LookWhetherWithheld() {
  const bool withheld = store_->GrantsWithheld();
  if (withheld_ && !withheld) to_serve_.insert(loaded_.begin(), loaded_.end());
  if (!withheld_ && withheld) {
    doubt_revisions_ = true;
    swept_at_ = SteadyTime::min();
  }
  withheld_ = withheld;
}

void LedgerAdapter::Serve(Editor& editor) {
  for (const std::string& name : to_serve_) {
    if (!Serves(name) || damaged_.contains(name)) continue;
    Semaphore* semaphore = state_.Find(name);
    if (semaphore == nullptr) continue;
    const Context context = NewContext();
    if (CarriesOn(*semaphore))
      CarryOn(editor, semaphore, Decode(semaphore->row.intentions), context, /*act=*/false);
    AfterRoom(editor, semaphore, context);
  }
}

absl::Status LedgerAdapter::LookUpRequests(absl::Span<const Submission> batch) {
  std::vector<NamedRequest> asked;
  for (const Submission& submission : batch) {
    const Requester* requester = RequesterOf(submission.command);
    if (requester == nullptr || requester->sequence == 0) continue;
    const Client* client = clients_.Find(requester->client_id);
    const uint32_t number = client == nullptr ? 0 : client->number;
    asked.push_back({{number, requester->sequence}, requester->client_id});
  }
  absl::StatusOr<std::vector<LedgerStore::FoundRequest>> found =
      store_->FindRequests(asked, options_.request_window);
  if (!found.ok()) return found.status();
  for (size_t i = 0; i < asked.size(); ++i) {
    looked_up_[{asked[i].client_id, asked[i].request.sequence}] = std::move((*found)[i]);
  }
  return absl::OkStatus();
}

void LedgerAdapter::AddConditions(Decided* decided) {
  Transaction& transaction = decided->transaction;
  absl::flat_hash_set<std::string_view> touched;
  for (const SemaphoreDelta& delta : transaction.semaphores) touched.insert(delta.name);
  for (const std::string& name : read_) {
    if (touched.contains(name) || damaged_.contains(name)) continue;
    const Semaphore* semaphore = state_.Find(name);
    transaction.reads.push_back({name, semaphore == nullptr ? 0 : semaphore->row.revision});
  }
  absl::flat_hash_set<uint32_t> concerned;  // In the semaphore at hand.
  const auto concern = [&](const SemaphoreDelta& delta, const Claim& claim) {
    const uint32_t node = HostOf(state_, claim).number;
    if (node == 0 || node == options_.self.number || !concerned.insert(node).second) return;
    transaction.concerns.emplace_back(node, delta.name);
  };
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    concerned.clear();
    for (const LeaseChange& change : delta.leases) {
      if (change.before) concern(delta, *change.before);
      if (change.after) concern(delta, *change.after);
    }
    for (const WaiterChange& change : delta.waiters) {
      if (change.before) concern(delta, *change.before);
      if (change.after) concern(delta, *change.after);
    }
    // Where somebody waits, whoever holds is the next to commit: without a word his release would
    // be decided on an older queue, and lost.
    const Semaphore* semaphore = state_.Find(delta.name);
    if (semaphore == nullptr || semaphore->waiters.empty()) continue;
    int looked_at = 0;
    for (const auto& [id, lease] : semaphore->leases) {
      if (++looked_at > kHoldersTold) break;
      concern(delta, *lease);
    }
    // Who is next hears everything, so that when he is granted he has nothing to read.
    if (!semaphore->queue.empty()) concern(delta, *semaphore->queue.begin()->second);
    if (!semaphore->offers.empty()) concern(delta, *semaphore->offers.begin()->second);
  }
  absl::flat_hash_set<std::pair<uint32_t, uint64_t>> written;
  for (const RequestChange& change : transaction.requests)
    written.insert({change.row.request.client, change.row.request.sequence});
  for (NamedRequest& asked : assumed_new_) {
    if (!written.contains({asked.request.client, asked.request.sequence}))
      transaction.absent_requests.push_back(std::move(asked));
  }
}

CommitResult LedgerAdapter::CheckConditions(const Transaction& transaction) {
  CommitResult result;
  const auto failed = [](absl::Status status) {
    return CommitResult{CommitResult::Kind::kFailed, {}, false, {}, std::move(status)};
  };
  if (!transaction.reads.empty()) {
    std::vector<SemaphoreRow> rows(transaction.reads.size());
    std::vector<const SemaphoreRow*> pointers;
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].name = transaction.reads[i].semaphore;
      rows[i].revision = transaction.reads[i].revision;
      pointers.push_back(&rows[i]);
    }
    absl::StatusOr<std::vector<std::string>> changed = store_->Changed(pointers);
    if (!changed.ok()) return failed(changed.status());
    result.stale = *std::move(changed);
  }
  if (!transaction.absent_requests.empty()) {
    absl::StatusOr<std::vector<LedgerStore::FoundRequest>> found =
        store_->FindRequests(transaction.absent_requests, options_.request_window);
    if (!found.ok()) return failed(found.status());
    for (const LedgerStore::FoundRequest& each : *found) {
      result.requests_lost = result.requests_lost || each.row.has_value() || each.too_old;
    }
  }
  if (result.requests_lost || !result.stale.empty()) result.kind = CommitResult::Kind::kLost;
  return result;
}

absl::StatusOr<Outcome> LedgerAdapter::ListNames(const ListCommand& command) {
  absl::StatusOr<std::vector<std::string>> names =
      store_->Names(command.prefix, command.after, command.rows_max + 1);
  if (!names.ok()) return names.status();
  Outcome outcome = Simply(OutcomeKind::kDone);
  outcome.report = std::make_unique<Report>();
  outcome.report->more = names->size() > command.rows_max;
  if (outcome.report->more) names->resize(command.rows_max);
  absl::StatusOr<Image> image = store_->Look(*names);
  if (!image.ok()) return image.status();
  for (const LoadedSemaphore& loaded : image->semaphores) {
    SemaphoreInfo info;
    info.row = loaded.row;
    for (const LeasePtr& lease : loaded.leases) info.held += lease->permits;
    for (const WaiterPtr& waiter : loaded.waiters) ++(waiter->works ? info.offers : info.waiting);
    for (const TicketPtr& ticket : loaded.tickets) ++CountOf(ticket->state, &info.tickets);
    outcome.report->infos.push_back(std::move(info));
  }
  std::ranges::sort(outcome.report->infos, {},
                    [](const SemaphoreInfo& info) { return info.row.name; });
  return outcome;
}

}  // namespace semaphored::ledger
