// Stores that other daemons write to as well: what is loaded, and what others have changed.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/ledger_adapter_impl.h"

namespace semaphored::ledger {

namespace {

// Rows, when we must find out how a lease ended elsewhere.
constexpr uint32_t kHistoryLookedAt = 256;

}  // namespace

// Loads what a command is about and what is not in memory yet.
absl::Status LedgerAdapter::Need(const Command& command) {
  std::vector<std::string> names;
  const std::string_view name = SemaphoreOf(command);
  const bool history = std::holds_alternative<HistoryCommand>(command);
  if (!name.empty() && !history) names.emplace_back(name);
  const Id* session = nullptr;
  if (const auto* adopt = std::get_if<AdoptSessionCommand>(&command)) session = &adopt->session;
  if (const auto* close = std::get_if<CloseSessionCommand>(&command)) session = &close->session;
  if (const auto* acquire = std::get_if<AcquireCommand>(&command)) {
    if (acquire->session != acquire->claim && !state_.FindSession(acquire->session))
      session = &acquire->session;
  }
  if (session != nullptr) {
    absl::StatusOr<LedgerStore::SessionAt> at = store_->LoadSession(*session);
    if (!at.ok()) return at.status();
    const SessionPtr& known = state_.FindSession(*session);
    if (at->session) {
      state_.Apply(SessionChange{known, at->session});
    } else if (known) {
      state_.Apply(SessionChange{known, nullptr});
    }
    for (std::string& each : at->semaphores) names.push_back(std::move(each));
  }
  if (const auto* orphans = std::get_if<OrphansCommand>(&command)) {
    std::vector<NodeRef> dead = orphans->dead;
    dead.push_back({options_.self.number, options_.self.incarnation - 1});
    absl::StatusOr<LedgerStore::Hosted> hosted = store_->HostedBy(dead);
    if (!hosted.ok()) return hosted.status();
    for (SessionPtr& each : hosted->sessions) {
      const SessionPtr& known = state_.FindSession(each->id);
      state_.Apply(SessionChange{known, std::move(each)});
    }
    for (std::string& each : hosted->semaphores) names.push_back(std::move(each));
  }
  std::vector<std::string> missing;
  for (const std::string& each : names) {
    read_.insert(each);
    if (!loaded_.contains(each)) missing.push_back(each);
  }
  return Refresh(std::move(missing));
}

absl::Status LedgerAdapter::Refresh(std::vector<std::string> names) {
  if (names.empty()) return absl::OkStatus();
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
  for (const std::string& name : names) {
    const auto loaded =
        std::ranges::find(image->semaphores, name, [](const auto& each) { return each.row.name; });
    const bool known = loaded_.contains(name);
    SemaphoreDelta delta =
        ReplaceWith(loaded == image->semaphores.end() ? nullptr : &*loaded, name, &state_);
    loaded_.insert(name);
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
    if (event.kind != Event::Kind::kEnded || event.cause != EndCause::kUnknown ||
        !guarantees().history)
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
  if (now < swept_at_ + options_.sweep_interval) return absl::OkStatus();
  std::vector<const SemaphoreRow*> rows;
  std::vector<std::string> idle;
  for (const std::string& name : loaded_) {
    const Semaphore* semaphore = state_.Find(name);
    const bool in_use =
        semaphore != nullptr && (!semaphore->waiters.empty() || !semaphore->leases.empty());
    if (in_use) rows.push_back(&semaphore->row);
    if (!in_use) idle.push_back(name);
  }
  // What nobody uses is not kept in memory: it is loaded again when it is asked for.
  for (const std::string& name : idle) {
    state_.Erase(name);
    loaded_.erase(name);
  }
  if (!rows.empty()) {
    absl::StatusOr<std::vector<std::string>> changed = store_->Changed(rows);
    if (!changed.ok()) return changed.status();
    if (absl::Status status = Refresh(*std::move(changed)); !status.ok()) return status;
  }
  swept_at_ = now;
  return absl::OkStatus();
}

// A batch lost: a session that it speaks of may have moved, or be gone, without a trace in any
// semaphore.
absl::Status LedgerAdapter::RefreshSessions(const Transaction& lost) {
  std::vector<Id> ids;
  for (const EpochCondition& condition : lost.epochs) ids.push_back(condition.session);
  for (const SessionChange& change : lost.sessions) {
    if (change.before) ids.push_back(change.before->id);
  }
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  Transaction difference;
  difference.node = options_.self;
  for (const Id& id : ids) {
    absl::StatusOr<LedgerStore::SessionAt> at = store_->LoadSession(id);
    if (!at.ok()) return at.status();
    const SessionPtr known = state_.FindSession(id);
    if (!known && !at->session) continue;
    difference.sessions.push_back({known, std::move(at->session)});
    state_.Apply(difference.sessions.back());
  }
  AppendEvents(difference, &found_events_);
  return absl::OkStatus();
}

absl::StatusOr<Outcome> LedgerAdapter::ListNames(const ListCommand& command) {
  absl::StatusOr<std::vector<std::string>> names =
      store_->Names(command.prefix, command.after, command.rows_max + 1);
  if (!names.ok()) return names.status();
  Outcome outcome = Simply(OutcomeKind::kDone);
  outcome.report = std::make_unique<Report>();
  outcome.report->more = names->size() > command.rows_max;
  if (outcome.report->more) names->resize(command.rows_max);
  absl::StatusOr<Image> image = store_->Load(*names);
  if (!image.ok()) return image.status();
  for (const LoadedSemaphore& loaded : image->semaphores) {
    SemaphoreInfo info;
    info.row = loaded.row;
    for (const LeasePtr& lease : loaded.leases) info.held += lease->permits;
    info.waiting = loaded.waiters.size();
    outcome.report->infos.push_back(std::move(info));
  }
  std::ranges::sort(outcome.report->infos, {},
                    [](const SemaphoreInfo& info) { return info.row.name; });
  return outcome;
}

}  // namespace semaphored::ledger
