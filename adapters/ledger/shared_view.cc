// A store that other daemons write to as well: a lane keeps in memory what its claims are about, hears
// of changes, and commits under the condition that nothing else has changed.
#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "adapters/ledger/conditions.h"
#include "adapters/ledger/mirror.h"
#include "adapters/ledger/orphan_pages.h"
#include "adapters/ledger/requests.h"
#include "adapters/ledger/rules/steps.h"
#include "adapters/ledger/view.h"

namespace semaphored::ledger {
namespace {

class SharedView : public View {
 public:
  SharedView(Core* core, SharedStore* store)
      : core_(core),
        store_(store),
        mirror_(core, store),
        orphan_pages_(store, core->options.self),
        conditions_(core, store, &mirror_) {}

  absl::Status Start() override;
  void BeginRun() override { mirror_.BeginRun(); }
  absl::Status Prepare(absl::Span<const Submission> batch) override;
  void AddConditions(Transaction* transaction) override { conditions_.AddTo(transaction); }
  CommitResult Check(const Transaction& transaction) override {
    return conditions_.Check(transaction);
  }
  void Complete(Decided* decided) override;
  absl::Status Listen(SteadyTime deadline) override;
  absl::StatusOr<std::optional<Outcome>> Answer(const Command& command) override;
  bool CarriesOn(const SemaphoreRow& row) const override { return mirror_.CarriesOn(row); }
  const Mirror* mirror() const override { return &mirror_; }
  bool DecidesAgain() const override { return true; }
  absl::Status LearnWhyLost(const Transaction& lost, const CommitResult& commit) override;
  absl::Status Refresh(std::vector<std::string> names) override {
    return mirror_.Refresh(std::move(names));
  }

 private:
  absl::Status Need(const Command& command, std::vector<std::string>* missing);
  void NeedToAdopt(const Id& session, std::vector<std::string> names,
                   std::vector<std::string>* missing);
  absl::Status NeedOrphans(const OrphansCommand& command, std::vector<std::string>* missing);
  // The session whose row must be read before the command is decided; nullopt: none must.
  std::optional<Id> SessionToRead(const Command& command) const;
  // Puts right in the engine what the batch asks to prune, before it is decided; it is to be loaded.
  absl::Status Repair(absl::Span<const Submission> batch, std::vector<std::string>* changed);
  // Likewise what it asks to adopt.
  absl::Status AdoptAll(absl::Span<const Submission> batch, std::vector<std::string>* changed);
  std::optional<Outcome> WhyUnusable(const Command& command) const;
  absl::StatusOr<Outcome> ListNames(const ListCommand& command);
  absl::Status SweepIfDue();
  absl::Status RefreshSessions(const Transaction& lost);
  // Reads again the semaphores of a session that has moved here, but for those that the commit wrote.
  absl::Status ReadAfterMove(const Id& session, const Transaction& moved);
  void LookWhetherWithheld();

  Core* const core_;
  SharedStore* const store_;
  Mirror mirror_;
  OrphanPages orphan_pages_;
  Conditions conditions_;
  absl::flat_hash_set<Id> read_in_part_;  // Sessions of which this batch has not read all.
  bool doubt_revisions_ = false;          // Until all that is in use here was read again.
  SteadyTime swept_at_{};
};

absl::Status SharedView::Start() {
  swept_at_ = core_->options.now();
  return absl::OkStatus();
}

absl::Status SharedView::Prepare(absl::Span<const Submission> batch) {
  conditions_.Clear();
  read_in_part_.clear();
  core_->with_claims.clear();
  core_->orphans.clear();
  if (absl::Status status = mirror_.Hear(store_->Wait(SteadyTime::min())); !status.ok())
    return status;
  LookWhetherWithheld();
  // Also under load: how old our knowledge may be bounds for how long we vouch.
  if (absl::Status status = SweepIfDue(); !status.ok()) return status;
  // All that the batch needs is loaded before anything is changed, so that a reload never meets a
  // half-made batch.
  std::vector<std::string> missing;
  if (absl::Status status = Repair(batch, &missing); !status.ok()) return status;
  if (absl::Status status = AdoptAll(batch, &missing); !status.ok()) return status;
  for (const Submission& submission : batch) {
    if (absl::Status status = Need(submission.command, &missing); !status.ok()) return status;
  }
  return mirror_.Refresh(std::move(missing));
}

// A claim may have landed under a session's former epoch after the session was read, and before it moved
// here. From the move on none can, so that what is read now is complete.
void SharedView::Complete(Decided* decided) {
  for (Outcome& outcome : decided->outcomes) {
    if (!outcome.report || !outcome.report->session) continue;
    Report& report = *outcome.report;
    const Id session = report.session->id;
    if (outcome.changed) {
      report.unread = !ReadAfterMove(session, decided->transaction).ok();
      report.claims = ClaimsOf(core_->state, session);
    }
    const std::vector<std::string>& names = core_->with_claims[session];
    report.unread = report.unread || std::ranges::any_of(names, [this](const std::string& name) {
                      return core_->damaged.contains(name);
                    });
  }
}

absl::Status SharedView::ReadAfterMove(const Id& session, const Transaction& moved) {
  absl::StatusOr<SharedStore::SessionAt> at = store_->LoadSession(session);
  if (!at.ok()) return at.status();
  absl::flat_hash_set<std::string_view> written;
  for (const SemaphoreDelta& delta : moved.semaphores) written.insert(delta.name);
  std::vector<std::string> stale;
  std::vector<const SemaphoreRow*> known;
  std::vector<std::string> touched;
  for (const std::string& name : at->semaphores) {
    if (written.contains(name)) continue;
    // The former host may know of no other semaphore of the session.
    touched.push_back(name);
    const Semaphore* semaphore = core_->state.Find(name);
    if (semaphore != nullptr && mirror_.IsLoaded(name) && !core_->damaged.contains(name)) {
      known.push_back(&semaphore->row);
      continue;
    }
    stale.push_back(name);
  }
  core_->serving.TouchInTurn(std::move(touched));
  // What is loaded may be older than the move, since it is no condition of it.
  if (!known.empty()) {
    absl::StatusOr<std::vector<std::string>> changed = store_->Changed(known);
    if (!changed.ok()) return changed.status();
    std::ranges::move(*changed, std::back_inserter(stale));
  }
  if (absl::Status status = mirror_.Refresh(std::move(stale)); !status.ok()) return status;
  mirror_.SeeSession(session, std::move(at->session));
  core_->with_claims[session] = std::move(at->semaphores);
  return absl::OkStatus();
}

absl::Status SharedView::Listen(SteadyTime deadline) {
  deadline = std::min(deadline, swept_at_ + core_->options.sweep_interval);
  if (absl::Status status = mirror_.Hear(store_->Wait(deadline)); !status.ok()) return status;
  LookWhetherWithheld();
  return SweepIfDue();
}

absl::StatusOr<std::optional<Outcome>> SharedView::Answer(const Command& command) {
  if (std::optional<Outcome> refusal = WhyUnusable(command)) return refusal;
  const auto* adopt = std::get_if<AdoptSessionCommand>(&command);
  if (adopt != nullptr && read_in_part_.contains(adopt->session))
    return Simply(OutcomeKind::kReading);
  const auto* list = std::get_if<ListCommand>(&command);
  if (list == nullptr) return std::nullopt;
  absl::StatusOr<Outcome> outcome = ListNames(*list);
  if (!outcome.ok()) return outcome.status();
  return std::optional<Outcome>(*std::move(outcome));
}

// Finds what a command is about and what is not in memory yet: the names of `missing` are to be
// loaded. A session that this lane knows from before it came here is read again.
absl::Status SharedView::Need(const Command& command, std::vector<std::string>* missing) {
  std::vector<std::string> names;
  const std::string_view name = SemaphoreOf(command);
  const bool history = std::holds_alternative<HistoryCommand>(command);
  if (!name.empty() && !history) names.emplace_back(name);
  if (const std::optional<Id> session = SessionToRead(command)) {
    absl::StatusOr<SharedStore::SessionAt> at = store_->LoadSession(*session);
    if (!at.ok()) return at.status();
    mirror_.SeeSession(*session, std::move(at->session));
    // To acquire or to work, only the session must be there. Other lanes look after its claims
    // elsewhere: here these would be conditions of the commit, and their ends be reported twice.
    const auto* close = std::get_if<CloseSessionCommand>(&command);
    const bool moves_or_ends = std::holds_alternative<AdoptSessionCommand>(command) ||
                               (close != nullptr && !close->marks_only);
    if (moves_or_ends) {
      core_->with_claims[*session] = at->semaphores;
      std::vector<std::string> there = std::move(at->semaphores);
      // What is known here may have ended since without a notice: it is a condition too.
      absl::flat_hash_set<std::string_view> known;
      for (const auto& [claim, semaphore] : core_->state.ClaimsOf(*session)) {
        if (known.insert(semaphore->row.name).second) there.push_back(semaphore->row.name);
      }
      if (std::holds_alternative<AdoptSessionCommand>(command)) {
        NeedToAdopt(*session, std::move(there), missing);
      } else if (const SessionPtr& row = core_->state.FindSession(*session);
                 row != nullptr && row->closing) {
        // All that landed under its former epochs is in what is read from here on.
        std::ranges::move(there, std::back_inserter(*missing));
      } else {
        std::ranges::move(there, std::back_inserter(names));
      }
    }
  }
  if (const auto* orphans = std::get_if<OrphansCommand>(&command)) {
    if (absl::Status status = NeedOrphans(*orphans, missing); !status.ok()) return status;
  }
  // Another daemon may know of the request, and no commit finds that out.
  const bool again = IsOnlyIfRepeated(command);
  for (const std::string& each : names) {
    conditions_.LookedAt(each, !IsReadOnly(command));
    if (again || !mirror_.IsLoaded(each) || core_->damaged.contains(each)) missing->push_back(each);
  }
  return absl::OkStatus();
}

std::optional<Id> SharedView::SessionToRead(const Command& command) const {
  const auto outdated = [this](const Id& id, uint32_t epoch) {
    const SessionPtr& known = core_->state.FindSession(id);
    return !known || known->epoch < epoch ? std::optional<Id>(id) : std::nullopt;
  };
  if (const auto* adopt = std::get_if<AdoptSessionCommand>(&command)) return adopt->session;
  if (const auto* close = std::get_if<CloseSessionCommand>(&command)) return close->session;
  if (const auto* acquire = std::get_if<AcquireCommand>(&command)) {
    return acquire->session == acquire->claim ? std::nullopt
                                              : outdated(acquire->session, acquire->epoch);
  }
  if (const auto* take = std::get_if<TakeCommand>(&command)) {
    return take->session == take->claim ? std::nullopt : outdated(take->session, take->epoch);
  }
  const auto* finish = std::get_if<FinishCommand>(&command);
  if (finish == nullptr || finish->epoch == 0) return std::nullopt;
  const Semaphore* semaphore = core_->state.Find(finish->semaphore);
  if (semaphore == nullptr) return std::nullopt;
  const auto lease = semaphore->leases.find(finish->claim);
  if (lease == semaphore->leases.end() || lease->second->detached()) return std::nullopt;
  return outdated(lease->second->session, finish->epoch);
}

// What is loaded for it stays loaded, since it has claims, until the last part has been read.
void SharedView::NeedToAdopt(const Id& session, std::vector<std::string> names,
                             std::vector<std::string>* missing) {
  std::vector<std::string> unread;
  for (const std::string& name : names) {
    if (!mirror_.IsLoaded(name) && !core_->damaged.contains(name)) unread.push_back(name);
  }
  if (unread.size() > core_->options.read_to_adopt_max) {
    unread.resize(core_->options.read_to_adopt_max);
    read_in_part_.insert(session);
  } else {
    for (const std::string& name : names) {
      if (core_->damaged.contains(name)) unread.push_back(name);
    }
    conditions_.LookedAtToAdopt(session, std::move(names));
  }
  std::ranges::move(unread, std::back_inserter(*missing));
}

absl::Status SharedView::NeedOrphans(const OrphansCommand& command,
                                     std::vector<std::string>* missing) {
  absl::StatusOr<OrphansPage> page = orphan_pages_.Read(command);
  if (!page.ok()) return page.status();
  for (const SessionPtr& listed : page->sessions) {
    const SessionPtr known = core_->state.FindSession(listed->id);
    if (known && known->epoch < listed->epoch) mirror_.SeeSession(listed->id, listed);
  }
  // The dead nodes write no more. So what they left is in what is read from here on, whatever other
  // daemons do meanwhile, and need not stand still: in busy semaphores it never would.
  std::ranges::copy(page->semaphores, std::back_inserter(*missing));
  core_->orphans[&command] = *std::move(page);
  return absl::OkStatus();
}

// A push is a notice that may be lost: now and then everything that has a queue is compared with the
// engine.
absl::Status SharedView::SweepIfDue() {
  const SteadyTime now = core_->options.now();
  if (store_->TakeMissedNotices()) {
    swept_at_ = SteadyTime::min();
    // The engine may have lost commits, and others may have made new ones since, under the same
    // revisions: these prove nothing.
    doubt_revisions_ = doubt_revisions_ || core_->withheld;
  }
  if (now - core_->options.sweep_interval < swept_at_) return absl::OkStatus();
  std::vector<const SemaphoreRow*> rows;
  std::vector<std::string> idle;
  std::vector<std::string> foreign;
  for (const std::string& name : mirror_.loaded()) {
    const Semaphore* semaphore = core_->state.Find(name);
    // Tickets too: a queue without a worker would be dropped and loaded again with each sweep.
    const bool in_use =
        semaphore != nullptr &&
        (!semaphore->waiters.empty() || !semaphore->leases.empty() || !semaphore->tickets.empty());
    if (in_use && !core_->damaged.contains(name)) rows.push_back(&semaphore->row);
    if (!in_use) idle.push_back(name);
    if (in_use && !semaphore->waiters.empty() &&
        std::ranges::any_of(semaphore->leases,
                            [](const auto& each) { return each.second->foreign; }))
      foreign.push_back(name);
  }
  if (!foreign.empty()) {
    if (absl::Status status = store_->EndForeign(foreign); !status.ok()) return status;
  }
  // A semaphore that is not in use is not kept in memory: the next command on it loads it again.
  for (const std::string& name : idle) mirror_.Forget(name);
  if (!rows.empty()) {
    absl::StatusOr<std::vector<std::string>> changed = std::vector<std::string>();
    if (doubt_revisions_) {
      for (const SemaphoreRow* row : rows) changed->push_back(row->name);
    } else {
      changed = store_->Changed(rows);
    }
    if (!changed.ok()) return changed.status();
    if (absl::Status status = mirror_.Refresh(*std::move(changed)); !status.ok()) return status;
  }
  doubt_revisions_ = false;
  std::vector<std::string> damaged;
  for (const auto& [name, why] : core_->damaged) damaged.push_back(name);
  if (absl::Status status = mirror_.Refresh(std::move(damaged)); !status.ok()) return status;
  mirror_.LookAtIntentions();
  mirror_.ForgetSessions();
  mirror_.ForgetNumbers();
  swept_at_ = now;
  return absl::OkStatus();
}

// Re-reads what a lost batch rested upon. Mostly it was a semaphore; if none has changed, it was
// a session.
absl::Status SharedView::LearnWhyLost(const Transaction& lost, const CommitResult& commit) {
  const auto changed = [&](const std::string& name, uint64_t revision) {
    const Semaphore* semaphore = core_->state.Find(name);
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
    // The change notice of the daemon that was first may have arrived by now.
    if (absl::Status status = mirror_.Hear(store_->Wait(SteadyTime::min())); !status.ok())
      return status;
    if (any_changed()) return absl::OkStatus();
  }
  if (absl::Status status = mirror_.Refresh(commit.stale); !status.ok()) return status;
  if (commit.requests_lost || any_changed()) return absl::OkStatus();
  return RefreshSessions(lost);
}

// A batch lost: a session that it speaks of may have moved, or be gone, without a trace in any
// semaphore.
absl::Status SharedView::RefreshSessions(const Transaction& lost) {
  std::vector<Id> ids;
  for (const EpochCondition& condition : lost.epochs) ids.push_back(condition.session);
  for (const SessionChange& change : lost.sessions) {
    ids.push_back((change.before ? change.before : change.after)->id);
  }
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  for (const Id& id : ids) {
    absl::StatusOr<SharedStore::SessionAt> at = store_->LoadSession(id);
    if (!at.ok()) return at.status();
    mirror_.SeeSession(id, std::move(at->session));
  }
  return absl::OkStatus();
}

void SharedView::LookWhetherWithheld() {
  const bool withheld = store_->GrantsWithheld();
  if (core_->withheld && !withheld) core_->serving.AddAll(mirror_.loaded());
  if (!core_->withheld && withheld) {
    doubt_revisions_ = true;
    swept_at_ = SteadyTime::min();
  }
  core_->withheld = withheld;
}

namespace {

// Null: none waits, or the store has counted the waiters without reading them.
WaiterPtr LongestOf(const std::vector<WaiterPtr>& waiters) {
  WaiterPtr longest;
  for (const WaiterPtr& waiter : waiters) {
    if (!waiter->works && (longest == nullptr || waiter->order < longest->order)) longest = waiter;
  }
  return longest;
}

}  // namespace

absl::StatusOr<Outcome> SharedView::ListNames(const ListCommand& command) {
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
    const SemaphoreCounts counts =
        loaded.counts.value_or(CountsOf(loaded.leases, loaded.waiters, loaded.tickets));
    info.held = counts.held;
    info.waiting = counts.waiting;
    info.offers = counts.offers;
    info.tickets = counts.tickets;
    if (WaiterPtr longest = LongestOf(loaded.waiters))
      info.waiters.push_back({0, std::move(longest)});
    outcome.report->infos.push_back(std::move(info));
  }
  std::ranges::sort(outcome.report->infos, {},
                    [](const SemaphoreInfo& info) { return info.row.name; });
  return outcome;
}

// Where the engine's things are in disorder, no permit is given, and no semaphore is made or made
// larger. What is missing on that account is not reported as merely absent.
std::optional<Outcome> SharedView::WhyUnusable(const Command& command) const {
  const auto* admin = std::get_if<AdminCommand>(&command);
  const bool acquires = std::holds_alternative<AcquireCommand>(command) ||
                        std::holds_alternative<EnqueueCommand>(command) ||
                        std::holds_alternative<TakeCommand>(command);
  if (!acquires && admin == nullptr) return std::nullopt;
  const std::string name(SemaphoreOf(command));
  const absl::Status status = store_->WhyUnusable(name);
  if (status.ok()) return std::nullopt;
  if (!acquires) {
    const bool resizes = std::holds_alternative<AdminResize>(admin->act);
    const bool prunes = std::holds_alternative<AdminPrune>(admin->act) ||
                        std::holds_alternative<AdminAdopt>(admin->act);
    const bool refused = std::holds_alternative<AdminCreate>(admin->act) ||
                         (resizes && absl::IsDataLoss(status)) ||
                         (!prunes && core_->state.Find(name) == nullptr);
    if (!refused) return std::nullopt;
  }
  Outcome outcome = Simply(OutcomeKind::kUnusable);
  outcome.message = std::string(status.message());
  return outcome;
}

absl::Status SharedView::Repair(absl::Span<const Submission> batch,
                                std::vector<std::string>* changed) {
  core_->pruned.clear();
  for (const Submission& submission : batch) {
    const auto* admin = std::get_if<AdminCommand>(&submission.command);
    if (admin == nullptr || !std::holds_alternative<AdminPrune>(admin->act)) continue;
    absl::StatusOr<std::optional<Pruned>> pruned = store_->Repair(admin->semaphore);
    if (!pruned.ok()) return pruned.status();
    if (!pruned->has_value()) continue;
    core_->pruned[admin->semaphore] = **std::move(pruned);
    changed->push_back(admin->semaphore);
  }
  return absl::OkStatus();
}

absl::Status SharedView::AdoptAll(absl::Span<const Submission> batch,
                                  std::vector<std::string>* changed) {
  core_->adoptable.clear();
  for (const Submission& submission : batch) {
    const auto* admin = std::get_if<AdminCommand>(&submission.command);
    const auto* adopt = admin == nullptr ? nullptr : std::get_if<AdminAdopt>(&admin->act);
    if (adopt == nullptr || core_->state.Find(admin->semaphore) != nullptr) continue;
    absl::StatusOr<std::optional<Adoptable>> found = store_->Adopt(admin->semaphore, adopt->limit);
    if (!found.ok()) return found.status();
    if (!found->has_value()) continue;
    core_->adoptable[adopt] = **std::move(found);
    changed->push_back(admin->semaphore);
  }
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<View> MakeSharedView(Core* core, SharedStore* store) {
  return std::make_unique<SharedView>(core, store);
}

}  // namespace semaphored::ledger
