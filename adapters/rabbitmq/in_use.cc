#include "adapters/rabbitmq/in_use.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/faults.h"
#include "adapters/ledger/rules/steps.h"
#include "adapters/steady_clock.h"

namespace semaphored::rabbitmq {

using ledger::AskedRecall;
using ledger::ChangeNotice;
using ledger::ConcernsOneOnly;
using ledger::Context;
using ledger::Describe;
using ledger::DismissWaiters;
using ledger::Editor;
using ledger::Image;
using ledger::Semaphore;
using ledger::Simply;

namespace {

// After a part of a sweep, so many times as long is for commands alone.
constexpr int kRestAfterTurn = 4;
constexpr int kInTurnMin = 8;  // However slow the broker is.

}  // namespace

InUse::InUse(ledger::Core* core, PermitStore* store)
    : core_(core), store_(store), next_sweep_(core->options.now() + core->options.sweep_interval) {}

absl::Status InUse::LoadAll(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (absl::Status status = Load(name); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status InUse::Hear(const absl::StatusOr<std::vector<ChangeNotice>>& notices) {
  if (!notices.ok()) return notices.status();
  std::vector<std::string> changed;
  for (const ChangeNotice& notice : *notices) {
    const Semaphore* semaphore = core_->state.Find(notice.semaphore);
    const uint64_t known = semaphore == nullptr ? 0 : semaphore->row.revision;
    if (notice.revision == 0) ServeLater(notice.semaphore);
    if (notice.revision != 0 && notice.revision != known && loaded_.contains(notice.semaphore))
      changed.push_back(notice.semaphore);
  }
  std::ranges::sort(changed);
  changed.erase(std::unique(changed.begin(), changed.end()), changed.end());
  return LoadAll(changed);
}

absl::Status InUse::Load(const std::string& name) {
  absl::StatusOr<Image> image = store_->Load({&name, 1});
  if (!image.ok()) return image.status();
  Semaphore* semaphore = core_->state.Find(name);
  if (image->semaphores.empty()) {
    if (semaphore != nullptr) vanished_.push_back(name);
    loaded_.erase(name);
    return absl::OkStatus();
  }
  SemaphoreRow row = std::move(image->semaphores.front().row);
  loaded_.insert(name);
  if (semaphore == nullptr) {
    semaphore = core_->state.Insert(std::move(row));
  } else {
    Replace(semaphore, std::move(row));
  }
  if (semaphore->row.destroying) {
    if (absl::Status status = CountElsewhere(semaphore); !status.ok()) return status;
  }
  ServeLater(name);
  return absl::OkStatus();
}

absl::Status InUse::CountElsewhere(Semaphore* semaphore) {
  absl::StatusOr<uint32_t> elsewhere = store_->HeldElsewhere(semaphore->row.name);
  if (!elsewhere.ok()) return elsewhere.status();
  const bool changed = semaphore->held_elsewhere != *elsewhere;
  semaphore->held_elsewhere = *elsewhere;
  if (changed) ReportChange(*semaphore);
  return absl::OkStatus();
}

void InUse::Collect() {
  for (LostPermit& lost : store_->TakeLostPermits()) lost_.push_back(std::move(lost));
  for (AskedRecall& asked : store_->TakeAskedRecalls()) asked_.push_back(std::move(asked));
}

absl::Status InUse::SweepOne(const std::string& name) {
  Semaphore* semaphore = core_->state.Find(name);
  const bool in_use =
      semaphore != nullptr &&
      (!semaphore->waiters.empty() || !semaphore->leases.empty() || semaphore->row.destroying);
  if (!in_use && store_->Unload(name)) {
    if (semaphore != nullptr) core_->state.Erase(name);
    loaded_.erase(name);
    return absl::OkStatus();
  }
  absl::Status loaded = Load(name);
  if (ConcernsOneOnly(loaded)) return absl::OkStatus();  // A command about it gets this.
  if (!loaded.ok()) return loaded;
  semaphore = core_->state.Find(name);
  if (core_->outbox.watches(name) && semaphore != nullptr && loaded_.contains(name))
    return CountElsewhere(semaphore);
  return absl::OkStatus();
}

absl::Status InUse::Sweep() {
  const SteadyTime now = core_->options.now();
  if (now < next_sweep_) return absl::OkStatus();
  if (to_sweep_.empty()) {
    begun_at_ = now;
    to_sweep_.assign(loaded_.begin(), loaded_.end());
  }
  // After an error it goes on then.
  next_sweep_ = now + core_->options.sweep_interval;
  const SteadyTime begun = SteadyClock::now();
  for (int done = 0; !to_sweep_.empty(); ++done) {
    if (done >= kInTurnMin && SteadyClock::now() - begun >= kTurn) break;
    const std::string name = std::move(to_sweep_.back());
    to_sweep_.pop_back();
    if (!loaded_.contains(name)) continue;
    if (absl::Status status = SweepOne(name); !status.ok()) return status;
  }
  const auto took = SteadyClock::now() - begun;
  next_sweep_ = to_sweep_.empty() ? begun_at_ + core_->options.sweep_interval
                                  : core_->options.now() + kRestAfterTurn * took;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<SemaphoreInfo>> InUse::Show(const std::string& name) {
  if (core_->can.names && !loaded_.contains(name)) {
    absl::StatusOr<std::optional<PermitStore::Shown>> shown = store_->Look(name);
    if (!shown.ok()) return shown.status();
    if (!*shown) return std::optional<SemaphoreInfo>();
    SemaphoreInfo info;
    info.row = std::move((*shown)->row);
    info.held = (*shown)->held;
    return std::optional<SemaphoreInfo>(std::move(info));
  }
  if (!loaded_.contains(name)) {
    if (absl::Status status = Load(name); !status.ok()) return status;
  }
  Semaphore* semaphore = loaded_.contains(name) ? core_->state.Find(name) : nullptr;
  if (semaphore == nullptr) return std::optional<SemaphoreInfo>();
  if (absl::Status status = CountElsewhere(semaphore); !status.ok()) return status;
  return std::optional<SemaphoreInfo>(DescribeListed(*semaphore));
}

absl::StatusOr<Outcome> InUse::List(const ListCommand& command) {
  std::vector<std::string> names;
  if (core_->can.names) {
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
  std::vector<SemaphoreInfo>& infos = outcome.report->infos;
  const SteadyTime until = core_->options.now() + kTurn;
  for (const std::string& name : names) {
    if (name.empty()) continue;
    // The next part begins behind the last that is shown.
    if (!infos.empty() && core_->options.now() >= until) {
      outcome.report->more = true;
      break;
    }
    // One that cannot be used is left out; a command about it gets the reason.
    absl::StatusOr<std::optional<SemaphoreInfo>> info = Show(name);
    if (!info.ok() && !ConcernsOneOnly(info.status())) return info.status();
    if (info.ok() && *info) infos.push_back(**std::move(info));
  }
  if (!core_->can.names && infos.empty()) {
    outcome = Simply(OutcomeKind::kUnsupported);
    outcome.message = absl::StrCat("the adapter ", core_->can.adapter,
                                   " keeps no list of its semaphores; name one in full");
  }
  return outcome;
}

void InUse::EndLost(Editor& editor) {
  const int64_t now_unix_ms = core_->options.now_unix_ms();
  for (const LostPermit& lost : lost_) {
    Semaphore* semaphore = editor.Find(lost.semaphore);
    const LeasePtr lease = semaphore == nullptr ? nullptr : semaphore->FindLease(lost.claim);
    if (lease) editor.End(semaphore, lease, EndCause::kEngineLost, now_unix_ms);
    if (semaphore != nullptr) core_->serving.Add(lost.semaphore);
  }
  for (const std::string& name : vanished_) {
    Semaphore* semaphore = editor.Find(name);
    if (semaphore == nullptr) continue;
    std::vector<LeasePtr> leases;
    for (const auto& [id, lease] : semaphore->leases) leases.push_back(lease);
    for (const LeasePtr& lease : leases)
      editor.End(semaphore, lease, EndCause::kDestroyed, now_unix_ms);
    DismissWaiters(editor, semaphore, core_->NewContext());
    editor.Destroy(semaphore);
  }
  for (const std::string& name : lowered_) {
    Semaphore* semaphore = editor.Find(name);
    if (semaphore == nullptr) continue;
    if (semaphore->row.destroying) DismissWaiters(editor, semaphore, core_->NewContext());
    TellHopeless(editor, semaphore, core_->NewContext());
  }
}

void InUse::RecallAsked(Editor& editor) {
  const Context context = core_->NewContext();
  for (const AskedRecall& asked : asked_) {
    Semaphore* semaphore = editor.Find(asked.semaphore);
    if (semaphore == nullptr) continue;
    std::vector<LeasePtr> leases;
    for (const auto& [id, lease] : semaphore->leases) {
      const bool meant = (asked.claim.empty() || lease->id == asked.claim) &&
                         (asked.holder.empty() || lease->holder == asked.holder);
      if (meant && !ledger::IsRecalledBy(*lease, asked.recall)) leases.push_back(lease);
    }
    for (const LeasePtr& lease : leases)
      RecallLease(editor, semaphore, lease, asked.recall, context);
    core_->serving.Add(asked.semaphore);
  }
}

void InUse::Replace(Semaphore* semaphore, SemaphoreRow row) {
  row.next_order = semaphore->row.next_order;
  if (row == semaphore->row) return;
  const bool closed = row.destroying && !semaphore->row.destroying;
  if (row.limit < semaphore->row.limit || closed) lowered_.push_back(row.name);
  core_->state.SetRow(semaphore, row);
  ReportChange(*semaphore);
}

void InUse::ReportChange(const Semaphore& semaphore) {
  if (!core_->outbox.watches(semaphore.row.name)) return;
  SemaphoreChange change;
  change.info = Describe(semaphore);
  core_->outbox.Add(std::move(change));
}

void InUse::ServeLater(const std::string& name) {
  const Semaphore* semaphore = core_->state.Find(name);
  if (semaphore != nullptr && (!semaphore->waiters.empty() || semaphore->row.destroying))
    core_->serving.Add(name);
}

bool InUse::HasNews() const {
  return !lost_.empty() || !asked_.empty() || !vanished_.empty() || !lowered_.empty();
}

void InUse::CarryOut(Editor& editor) {
  EndLost(editor);
  RecallAsked(editor);
}

void InUse::Won(const ledger::Transaction& transaction) {
  // What is gone may be made again by others: it is asked for when it is next spoken of.
  for (const ledger::SemaphoreDelta& delta : transaction.semaphores) {
    if (delta.after) loaded_.insert(delta.name);
    if (!delta.after) loaded_.erase(delta.name);
  }
  lost_.clear();
  asked_.clear();
  vanished_.clear();
  lowered_.clear();
}

std::string InUse::WhyNoSuchLimit(const Command& command) const {
  const std::string name(SemaphoreOf(command));
  if (const auto* acquire = std::get_if<AcquireCommand>(&command)) {
    const bool makes = acquire->limit != 0 && !acquire->must_exist && !Has(name);
    return makes ? store_->Refuses(name, acquire->limit) : "";
  }
  const auto* admin = std::get_if<AdminCommand>(&command);
  if (admin == nullptr) return "";
  if (const auto* create = std::get_if<AdminCreate>(&admin->act))
    return store_->Refuses(name, create->limit);
  const auto* resize = std::get_if<AdminResize>(&admin->act);
  const ledger::Semaphore* semaphore = core_->state.Find(name);
  if (resize == nullptr || semaphore == nullptr) return "";
  int64_t limit = resize->amount;
  if (resize->change == AdminResize::Change::kAdd) limit += semaphore->row.limit;
  if (resize->change == AdminResize::Change::kRemove) limit = semaphore->row.limit - limit;
  // What is out of the daemon's own range is said elsewhere.
  if (limit < 0 || limit > resize->limit_max) return "";
  return store_->Refuses(name, static_cast<uint32_t>(limit));
}

bool InUse::NeedsBroker(const Command& command, const absl::Status& why) const {
  if (!absl::IsDeadlineExceeded(why) || !Has(std::string(SemaphoreOf(command)))) return true;
  const auto* acquire = std::get_if<AcquireCommand>(&command);
  return acquire != nullptr ? !acquire->wait : std::holds_alternative<AdminCommand>(command);
}

}  // namespace semaphored::rabbitmq
