#include "adapters/rabbitmq/in_use.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/faults.h"
#include "adapters/ledger/rules/steps.h"

namespace semaphored::rabbitmq {

using ledger::AskedRecall;
using ledger::ConcernsOneOnly;
using ledger::Context;
using ledger::Describe;
using ledger::DismissWaiters;
using ledger::Editor;
using ledger::Hint;
using ledger::Image;
using ledger::Semaphore;
using ledger::Simply;

InUse::InUse(ledger::Core* core, PermitStore* store)
    : core_(core), store_(store), swept_at_(core->options.now()) {}

absl::Status InUse::LoadAll(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (absl::Status status = Load(name); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status InUse::Hear(const absl::StatusOr<std::vector<Hint>>& hints) {
  if (!hints.ok()) return hints.status();
  std::vector<std::string> changed;
  for (const Hint& hint : *hints) {
    const Semaphore* semaphore = core_->state.Find(hint.semaphore);
    const uint64_t known = semaphore == nullptr ? 0 : semaphore->row.revision;
    if (hint.revision == 0) ServeLater(hint.semaphore);
    if (hint.revision != 0 && hint.revision != known && loaded_.contains(hint.semaphore))
      changed.push_back(hint.semaphore);
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

absl::Status InUse::Sweep() {
  const SteadyTime now = core_->options.now();
  if (now - core_->options.sweep_interval < swept_at_) return absl::OkStatus();
  swept_at_ = now;
  const std::vector<std::string> names(loaded_.begin(), loaded_.end());
  for (const std::string& name : names) {
    Semaphore* semaphore = core_->state.Find(name);
    const bool in_use =
        semaphore != nullptr &&
        (!semaphore->waiters.empty() || !semaphore->leases.empty() || semaphore->row.destroying);
    if (!in_use && store_->Unload(name)) {
      if (semaphore != nullptr) core_->state.Erase(name);
      loaded_.erase(name);
      continue;
    }
    absl::Status loaded = Load(name);
    if (ConcernsOneOnly(loaded)) continue;  // Whoever asks for it is told.
    if (!loaded.ok()) return loaded;
    semaphore = core_->state.Find(name);
    if (core_->outbox.watches(name) && semaphore != nullptr && loaded_.contains(name)) {
      if (absl::Status status = CountElsewhere(semaphore); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
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
  for (const std::string& name : names) {
    if (name.empty()) continue;
    // One that cannot be used is left out, and whoever names it is told why.
    absl::Status status = loaded_.contains(name) ? absl::OkStatus() : Load(name);
    Semaphore* semaphore =
        status.ok() && loaded_.contains(name) ? core_->state.Find(name) : nullptr;
    if (semaphore != nullptr) status = CountElsewhere(semaphore);
    if (!status.ok() && !ConcernsOneOnly(status)) return status;
    if (!status.ok() || semaphore == nullptr) continue;
    outcome.report->infos.push_back(Describe(*semaphore));
  }
  if (!core_->can.names && outcome.report->infos.empty()) {
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

}  // namespace semaphored::rabbitmq
