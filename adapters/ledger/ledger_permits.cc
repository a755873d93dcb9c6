// Stores that hand out permits: what must be known before a batch is decided, what the engine has
// taken back, and what such an engine cannot do.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/ledger_adapter_impl.h"

namespace semaphored::ledger {

std::optional<Outcome> LedgerAdapter::Unsupported(const Command& command) const {
  const Guarantees& can = guarantees();
  const auto refused = [&](auto... what) {
    Outcome outcome = Simply(OutcomeKind::kUnsupported);
    outcome.message = absl::StrCat("the adapter ", can.adapter, " ", what...);
    return outcome;
  };
  const auto too_many = [&](uint32_t limit) { return limit > can.limit_max; };
  if (const auto* acquire = std::get_if<AcquireCommand>(&command)) {
    if (too_many(acquire->limit)) return refused("gives at most ", can.limit_max, " permits");
    if (acquire->permits > can.permits_per_request_max)
      return refused("gives one request at most ", can.permits_per_request_max, " permits");
  }
  if (const std::string why = WhyNoSuchLimit(command); !why.empty())
    return refused("refuses: ", why);
  if (std::optional<Outcome> refusal = UnsupportedTicket(command)) return refusal;
  const auto* admin = std::get_if<AdminCommand>(&command);
  if (admin == nullptr) return std::nullopt;
  if (admin->expected_revision != 0 && !can.revisions)
    return refused("keeps no revision: expected_revision cannot be checked");
  const auto* create = std::get_if<AdminCreate>(&admin->act);
  const auto* configure = std::get_if<AdminConfigure>(&admin->act);
  const auto* resize = std::get_if<AdminResize>(&admin->act);
  if ((create != nullptr && too_many(create->limit)) ||
      (resize != nullptr && TooManyAfter(*resize, admin->semaphore)))
    return refused("gives at most ", can.limit_max, " permits");
  const Settings* settings = create != nullptr      ? &create->settings
                             : configure != nullptr ? &configure->settings
                                                    : nullptr;
  if (settings != nullptr && settings->permits_per_holder != 0 && !can.holder_cap)
    return refused("cannot keep to permits_per_holder: it does not know what others hold");
  if (settings != nullptr && *settings != Settings{} && !can.settings)
    return refused("keeps a limit and no other settings");
  if (std::holds_alternative<AdminPause>(admin->act) && !can.settings)
    return refused("keeps no pauses");
  return std::nullopt;
}

// Of a semaphore that the command would make, or make so; empty: nothing is against it.
std::string LedgerAdapter::WhyNoSuchLimit(const Command& command) const {
  const PermitSource* permits = store_->permits();
  if (permits == nullptr) return "";
  const std::string name(SemaphoreOf(command));
  if (const auto* acquire = std::get_if<AcquireCommand>(&command)) {
    const bool makes = acquire->limit != 0 && !acquire->must_exist && !loaded_.contains(name);
    return makes ? permits->Refuses(name, acquire->limit) : "";
  }
  const auto* admin = std::get_if<AdminCommand>(&command);
  if (admin == nullptr) return "";
  if (const auto* create = std::get_if<AdminCreate>(&admin->act))
    return permits->Refuses(name, create->limit);
  const auto* resize = std::get_if<AdminResize>(&admin->act);
  const Semaphore* semaphore = state_.Find(name);
  if (resize == nullptr || semaphore == nullptr) return "";
  int64_t limit = resize->amount;
  if (resize->change == AdminResize::Change::kAdd) limit += semaphore->row.limit;
  if (resize->change == AdminResize::Change::kRemove) limit = semaphore->row.limit - limit;
  // What is out of the daemon's own range is said elsewhere.
  if (limit < 0 || limit > resize->limit_max) return "";
  return permits->Refuses(name, static_cast<uint32_t>(limit));
}

bool LedgerAdapter::TooManyAfter(const AdminResize& resize, const std::string& name) const {
  if (resize.change == AdminResize::Change::kRemove) return false;
  int64_t limit = resize.amount;
  if (const Semaphore* semaphore = state_.Find(name);
      semaphore != nullptr && resize.change == AdminResize::Change::kAdd)
    limit += semaphore->row.limit;
  return limit > guarantees().limit_max && limit <= resize.limit_max;
}

namespace {

bool ChangesRow(const Command& command) {
  const auto* admin = std::get_if<AdminCommand>(&command);
  if (admin == nullptr) return false;
  return !std::holds_alternative<AdminDescribe>(admin->act) &&
         !std::holds_alternative<AdminPrune>(admin->act) &&
         !std::holds_alternative<AdminRevoke>(admin->act);
}

}  // namespace

absl::StatusOr<StepResult> LedgerAdapter::StepInParts(absl::Span<const Submission> batch,
                                                      SteadyTime deadline) {
  StepResult all;
  size_t done = 0;
  while (done < batch.size()) {
    size_t end = done;
    while (end < batch.size() && !ChangesRow(batch[end].command)) ++end;
    if (end == done) end = done + 1;
    StepResult part;
    const absl::Status status = Run(batch.subspan(done, end - done), deadline, &part);
    std::ranges::move(part.events, std::back_inserter(all.events));
    std::ranges::move(part.changes, std::back_inserter(all.changes));
    if (status.ok()) {
      std::ranges::move(part.outcomes, std::back_inserter(all.outcomes));
      done = end;
    } else if (done == 0) {
      return status;
    }
    if (status.ok() && unknown_ == nullptr) continue;
    // The rest is not done; that is told when what is unknown has been found out.
    for (size_t i = done; i < batch.size(); ++i) {
      all.outcomes.push_back(Simply(OutcomeKind::kUnknown));
      failed_later_.push_back(
          {batch[i].number,
           !status.ok() ? status
                        : absl::UnavailableError("an act before it is not settled; nothing of "
                                                 "this was done, try again")});
    }
    break;
  }
  return all;
}

absl::Status LedgerAdapter::HearOfPermits(absl::Span<const Hint> hints) {
  std::vector<std::string> changed;
  for (const Hint& hint : hints) {
    const Semaphore* semaphore = state_.Find(hint.semaphore);
    const uint64_t known = semaphore == nullptr ? 0 : semaphore->row.revision;
    if (hint.revision == 0) ServeLater(hint.semaphore);
    if (hint.revision != 0 && hint.revision != known && loaded_.contains(hint.semaphore))
      changed.push_back(hint.semaphore);
  }
  std::ranges::sort(changed);
  changed.erase(std::unique(changed.begin(), changed.end()), changed.end());
  return Refresh(std::move(changed));
}

absl::Status LedgerAdapter::LoadRow(const std::string& name) {
  absl::StatusOr<Image> image = store_->Load({&name, 1});
  if (!image.ok()) return image.status();
  Semaphore* semaphore = state_.Find(name);
  if (image->semaphores.empty()) {
    if (semaphore != nullptr) vanished_.push_back(name);
    loaded_.erase(name);
    return absl::OkStatus();
  }
  SemaphoreRow row = std::move(image->semaphores.front().row);
  loaded_.insert(name);
  if (semaphore == nullptr) {
    semaphore = state_.Insert(std::move(row));
  } else {
    row.next_order = semaphore->row.next_order;
    if (row != semaphore->row) {
      const bool closed = row.destroying && !semaphore->row.destroying;
      if (row.limit < semaphore->row.limit || closed) lowered_.push_back(name);
      state_.SetRow(semaphore, row);
      if (watching_) {
        SemaphoreChange& change = found_changes_.emplace_back();
        change.info = Describe(*semaphore, 0);
      }
    }
  }
  if (semaphore->row.destroying) {
    if (absl::Status status = CountElsewhere(semaphore); !status.ok()) return status;
  }
  ServeLater(name);
  return absl::OkStatus();
}

absl::Status LedgerAdapter::CountElsewhere(Semaphore* semaphore) {
  absl::StatusOr<uint32_t> elsewhere = store_->permits()->HeldElsewhere(semaphore->row.name);
  if (!elsewhere.ok()) return elsewhere.status();
  const bool changed = semaphore->held_elsewhere != *elsewhere;
  semaphore->held_elsewhere = *elsewhere;
  if (changed && watching_) {
    SemaphoreChange& change = found_changes_.emplace_back();
    change.info = Describe(*semaphore, 0);
  }
  return absl::OkStatus();
}

bool LedgerAdapter::NeedsEngine(const Command& command, const absl::Status& why) const {
  if (!absl::IsDeadlineExceeded(why) || !loaded_.contains(std::string(SemaphoreOf(command))))
    return true;
  const auto* acquire = std::get_if<AcquireCommand>(&command);
  return acquire != nullptr ? !acquire->wait : std::holds_alternative<AdminCommand>(command);
}

void LedgerAdapter::CollectLost() {
  for (LostPermit& lost : store_->permits()->TakeLostPermits())
    lost_permits_.push_back(std::move(lost));
  for (TakeBack& asked : store_->permits()->TakeAsked()) asked_back_.push_back(std::move(asked));
}

// Others may have changed what is in use here, without our having heard; what is not in use is
// forgotten.
absl::Status LedgerAdapter::SweepPermits() {
  const SteadyTime now = options_.now();
  if (now - options_.sweep_interval < swept_at_) return absl::OkStatus();
  swept_at_ = now;
  const std::vector<std::string> names(loaded_.begin(), loaded_.end());
  for (const std::string& name : names) {
    Semaphore* semaphore = state_.Find(name);
    const bool in_use =
        semaphore != nullptr &&
        (!semaphore->waiters.empty() || !semaphore->leases.empty() || semaphore->row.destroying);
    if (!in_use && store_->permits()->Unload(name)) {
      if (semaphore != nullptr) state_.Erase(name);
      loaded_.erase(name);
      continue;
    }
    absl::Status loaded = LoadRow(name);
    if (ConcernsOneOnly(loaded)) continue;  // Whoever asks for it is told.
    if (!loaded.ok()) return loaded;
    semaphore = state_.Find(name);
    if (watching_ && semaphore != nullptr && loaded_.contains(name)) {
      if (absl::Status status = CountElsewhere(semaphore); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::Status LedgerAdapter::PreparePermits(absl::Span<const Submission> batch) {
  // What was lost is told whether or not the engine can be reached.
  if (batch.empty() && !lost_permits_.empty()) return absl::OkStatus();
  if (absl::Status status = Hear(store_->Wait(SteadyTime::min())); !status.ok()) return status;
  CollectLost();
  if (absl::Status status = SweepPermits(); !status.ok()) return status;
  pruned_.clear();
  unusable_.clear();
  for (const Submission& submission : batch) {
    absl::Status status = PrepareOne(submission.command);
    if (status.ok()) continue;
    if (!ConcernsOneOnly(status)) return status;
    unusable_[std::string(SemaphoreOf(submission.command))] = status;
  }
  CollectLost();
  return absl::OkStatus();
}

absl::Status LedgerAdapter::PrepareOne(const Command& command) {
  const std::string name(SemaphoreOf(command));
  if (name.empty()) return absl::OkStatus();
  if (!loaded_.contains(name)) {
    if (absl::Status status = LoadRow(name); !status.ok()) return status;
  }
  if (const auto* verify = std::get_if<VerifyCommand>(&command);
      verify != nullptr && !verify->claim.empty())
    return store_->permits()->Check(name, verify->claim);
  // Who waits can do so until it answers again.
  if (const auto* acquire = std::get_if<AcquireCommand>(&command);
      acquire != nullptr && !acquire->wait) {
    if (const auto why = not_asked_.find(name); why != not_asked_.end())
      return absl::DeadlineExceededError(why->second.message());
    if (store_->permits()->Silent(name))
      return absl::DeadlineExceededError(
          absl::StrCat(guarantees().adapter, ": what keeps ", name, " does not answer now"));
  }
  const auto* admin = std::get_if<AdminCommand>(&command);
  if (admin == nullptr || !loaded_.contains(name)) return absl::OkStatus();
  if (std::holds_alternative<AdminPrune>(admin->act)) {
    absl::StatusOr<Pruned> pruned = store_->permits()->Prune(name);
    if (!pruned.ok()) return pruned.status();
    pruned_[name] = *std::move(pruned);
    if (absl::Status status = LoadRow(name); !status.ok()) return status;
  }
  Semaphore* semaphore = state_.Find(name);
  return semaphore == nullptr ? absl::OkStatus() : CountElsewhere(semaphore);
}

// Not if the request will be refused whatever the engine has: that must leave nothing behind.
absl::Status LedgerAdapter::ProvideFor(const AcquireCommand& acquire, const Editor& editor) {
  if (acquire.limit == 0 || acquire.must_exist || acquire.permits > acquire.limit)
    return absl::OkStatus();
  // What this batch has destroyed is still there, until the commit.
  if (state_.Find(acquire.semaphore) != nullptr || editor.Touched(acquire.semaphore))
    return absl::OkStatus();
  if (acquire.session != acquire.claim && !state_.FindSession(acquire.session))
    return absl::OkStatus();
  const Limits& limits = options_.limits;
  if (state_.lease_count() + state_.waiter_count() >= limits.leases_max ||
      state_.semaphore_count() >= limits.semaphores_max)
    return absl::OkStatus();
  SemaphoreRow row;
  row.name = acquire.semaphore;
  row.limit = acquire.limit;
  row.created_at_unix_ms = options_.now_unix_ms();
  if (absl::Status status = store_->permits()->Provide(row); !status.ok()) return status;
  return LoadRow(row.name);
}

absl::StatusOr<Outcome> LedgerAdapter::ListPermits(const ListCommand& command) {
  std::vector<std::string> names;
  if (guarantees().names) {
    absl::StatusOr<std::vector<std::string>> all =
        store_->Names(command.prefix, command.after, command.rows_max + 1);
    if (!all.ok()) return all.status();
    names = *std::move(all);
  } else {
    // One that is named in full can be looked for.
    names.push_back(command.prefix);
  }
  Outcome outcome = Simply(OutcomeKind::kDone);
  outcome.report = std::make_unique<Report>();
  outcome.report->more = names.size() > command.rows_max;
  if (outcome.report->more) names.resize(command.rows_max);
  for (const std::string& name : names) {
    if (name.empty()) continue;
    // One that cannot be used is left out, and whoever names it is told why.
    absl::Status status = loaded_.contains(name) ? absl::OkStatus() : LoadRow(name);
    Semaphore* semaphore = status.ok() && loaded_.contains(name) ? state_.Find(name) : nullptr;
    if (semaphore != nullptr) status = CountElsewhere(semaphore);
    if (!status.ok() && !ConcernsOneOnly(status)) return status;
    if (!status.ok() || semaphore == nullptr) continue;
    outcome.report->infos.push_back(Describe(*semaphore, 0));
  }
  if (!guarantees().names && outcome.report->infos.empty()) {
    outcome = Simply(OutcomeKind::kUnsupported);
    outcome.message = absl::StrCat("the adapter ", guarantees().adapter,
                                   " keeps no list of its semaphores; name one in full");
  }
  return outcome;
}

void LedgerAdapter::EndLost(Editor& editor) {
  const int64_t now_unix_ms = options_.now_unix_ms();
  for (const LostPermit& lost : lost_permits_) {
    Semaphore* semaphore = editor.Find(lost.semaphore);
    const LeasePtr lease = semaphore == nullptr ? nullptr : semaphore->FindLease(lost.claim);
    if (lease) editor.End(semaphore, lease, EndCause::kEngineLost, now_unix_ms);
    if (semaphore != nullptr) to_serve_.insert(lost.semaphore);
  }
  for (const std::string& name : vanished_) {
    Semaphore* semaphore = editor.Find(name);
    if (semaphore == nullptr) continue;
    std::vector<LeasePtr> leases;
    for (const auto& [id, lease] : semaphore->leases) leases.push_back(lease);
    for (const LeasePtr& lease : leases)
      editor.End(semaphore, lease, EndCause::kDestroyed, now_unix_ms);
    DismissWaiters(editor, semaphore, NewContext());
    editor.Destroy(semaphore);
  }
  for (const std::string& name : lowered_) {
    Semaphore* semaphore = editor.Find(name);
    if (semaphore == nullptr) continue;
    if (semaphore->row.destroying) DismissWaiters(editor, semaphore, NewContext());
    TellHopeless(editor, semaphore, NewContext());
  }
}

void LedgerAdapter::GiveBackAsked(Editor& editor) {
  const Context context = NewContext();
  for (const TakeBack& asked : asked_back_) {
    Semaphore* semaphore = editor.Find(asked.semaphore);
    if (semaphore == nullptr) continue;
    std::vector<LeasePtr> leases;
    for (const auto& [id, lease] : semaphore->leases) {
      const bool meant = (asked.claim.empty() || lease->id == asked.claim) &&
                         (asked.holder.empty() || lease->holder == asked.holder);
      if (meant && !lease->recall.pending()) leases.push_back(lease);
    }
    for (const LeasePtr& lease : leases)
      RecallLease(editor, semaphore, lease, asked.recall, context);
    to_serve_.insert(asked.semaphore);
  }
}

}  // namespace semaphored::ledger
