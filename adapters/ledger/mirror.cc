#include "adapters/ledger/mirror.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "adapters/ledger/events.h"
#include "adapters/ledger/rules/intentions.h"
#include "adapters/ledger/rules/steps.h"

namespace semaphored::ledger {
namespace {

// Rows, when we must find out how a lease ended elsewhere.
constexpr uint32_t kHistoryLookedAt = 256;

}  // namespace

void Mirror::SeeSession(const Id& id, SessionPtr session) {
  const SessionPtr known = core_->state.FindSession(id);
  if (!known && !session) return;
  Transaction difference;
  difference.node = core_->options.self;
  difference.sessions.push_back({known, std::move(session)});
  const Session* now = difference.sessions.back().after.get();
  core_->state.Apply(difference.sessions.back());
  std::vector<Event> events;
  AppendEvents(difference, &events);
  // This lane had forgotten the session, and the session has moved meanwhile. The server may still
  // believe that this node hosts it, so it gets the event all the same.
  if (!known && now->host != core_->options.self)
    events.push_back({Event::Kind::kMoved, EndCause::kNone, id, {}, nullptr, now->epoch});
  for (Event& event : events) core_->outbox.Add(std::move(event));
}

void Mirror::ForgetSessions() {
  std::vector<SessionPtr> idle;
  for (const auto& [id, session] : core_->state.sessions()) {
    if (core_->state.ClaimsOf(id).empty()) idle.push_back(session);
  }
  for (SessionPtr& session : idle) core_->state.Apply(SessionChange{std::move(session), nullptr});
}

void Mirror::ForgetNumbers() {
  std::optional<absl::flat_hash_set<uint32_t>> of_sessions;
  store_->ForgetClientsBut([&](uint32_t number) {
    if (!of_sessions) {
      of_sessions.emplace();
      for (const auto& [id, session] : core_->state.sessions())
        of_sessions->insert(session->client);
    }
    return core_->requests.Knows(number) || core_->state.ClaimCountOf(number) > 0 ||
           of_sessions->contains(number);
  });
}

absl::Status Mirror::Hear(const absl::StatusOr<std::vector<ChangeNotice>>& notices) {
  if (!notices.ok()) return notices.status();
  std::vector<std::string> stale;
  for (const ChangeNotice& notice : *notices) {
    if (!loaded_.contains(notice.semaphore)) continue;
    const Semaphore* semaphore = core_->state.Find(notice.semaphore);
    const uint64_t known = semaphore == nullptr ? 0 : semaphore->row.revision;
    const bool is_old = known != 0 && notice.revision != 0 && notice.revision <= known;
    if (!is_old && !Learn(notice)) stale.push_back(notice.semaphore);
  }
  return Refresh(std::move(stale));
}

bool Mirror::Learn(const ChangeNotice& notice) {
  if (notice.details.empty()) return false;
  const std::optional<ChangeDetails> details = store_->ReadDetails(notice);
  if (!details) return false;
  std::optional<SemaphoreDelta> delta = Apply(*details, &core_->state);
  if (!delta) return false;
  ServeLater(delta->name);
  for (const LeaseChange& change : delta->leases) {
    if (!change.after) core_->ends.Add(change.before->id, change.cause);
  }
  Transaction difference;
  difference.node = core_->options.self;
  difference.semaphores.push_back(*std::move(delta));
  std::vector<Event> events;
  AppendEvents(difference, &events);
  core_->outbox.AddDifference(std::move(difference), events, core_->state);
  return true;
}

void Mirror::ServeLater(const std::string& name) {
  const Semaphore* semaphore = core_->state.Find(name);
  if (semaphore != nullptr && (!semaphore->waiters.empty() || semaphore->row.destroying ||
                               (!semaphore->row.intentions.empty() && CarriesOn(semaphore->row))))
    core_->serving.Add(name);
}

absl::Status Mirror::Refresh(std::vector<std::string> names) {
  if (names.empty()) return absl::OkStatus();
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  absl::StatusOr<Image> image = store_->Load(names);
  if (!image.ok()) return image.status();
  for (LoadedClient& client : image->clients)
    core_->requests.AddStored(client.number, std::move(client.client_id), client.sequence_high);
  Transaction difference;
  difference.node = core_->options.self;
  for (const SessionPtr& session : image->sessions) {
    difference.sessions.push_back({core_->state.FindSession(session->id), session});
    core_->state.Apply(difference.sessions.back());
  }
  for (const std::string& name : names) core_->damaged.erase(name);
  for (auto& [name, why] : image->damaged) core_->damaged.emplace(std::move(name), std::move(why));
  absl::flat_hash_map<std::string_view, LoadedSemaphore*> by_name;
  for (LoadedSemaphore& loaded : image->semaphores) by_name[loaded.row.name] = &loaded;
  for (const std::string& name : names) {
    if (core_->damaged.contains(name)) continue;
    const auto loaded = by_name.find(name);
    const bool known = loaded_.contains(name);
    SemaphoreDelta delta =
        ReplaceWith(loaded == by_name.end() ? nullptr : loaded->second, name, &core_->state);
    loaded_.insert(name);
    read_in_run_.insert(name);
    ServeLater(name);
    if (known) difference.semaphores.push_back(std::move(delta));
  }
  std::vector<Event> events;
  AppendEvents(difference, &events);
  ExplainEnds(&events);
  core_->outbox.AddDifference(std::move(difference), events, core_->state);
  return absl::OkStatus();
}

// Others ended these leases: the history says how.
void Mirror::ExplainEnds(std::vector<Event>* events) {
  absl::flat_hash_map<std::string_view, std::vector<HistoryRow>> histories;
  for (Event& event : *events) {
    // No client of this daemon asks how the claims of other daemons ended.
    if (event.kind != Event::Kind::kEnded || event.cause != EndCause::kUnknown ||
        !core_->can.history ||
        HostOf(core_->state, *event.lease).number != core_->options.self.number)
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
    core_->ends.Add(event.claim, event.cause);
  }
}

void Mirror::LookAtIntentions() {
  absl::flat_hash_map<std::string, uint64_t> seen;
  stood_still_.clear();
  for (const auto& [name, semaphore] : core_->state) {
    const SemaphoreRow& row = semaphore->row;
    if (row.intentions.empty()) continue;
    const auto before = seen_intentions_.find(name);
    if (before != seen_intentions_.end() && before->second == row.revision) {
      stood_still_.insert(name);
      core_->serving.Add(name);
    }
    seen.emplace(name, row.revision);
  }
  seen_intentions_ = std::move(seen);
}

void Mirror::Forget(const std::string& name) {
  core_->state.Erase(name);
  loaded_.erase(name);
}

bool Mirror::CarriesOn(const SemaphoreRow& row) const {
  return stood_still_.contains(row.name) ||
         Decode(row.intentions).host.number == core_->options.self.number;
}

}  // namespace semaphored::ledger
