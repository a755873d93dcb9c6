// Administration, questions and watching.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "server/core/sessions_impl.h"

namespace semaphored {
namespace {

constexpr uint32_t kDrainRows = 100;

std::unique_ptr<Refusal> Owned(Refusal refusal) {
  return std::make_unique<Refusal>(std::move(refusal));
}

}  // namespace

void SessionsImpl::OnAdminOutcome(const std::string& semaphore, bool destroys,
                                  absl::StatusOr<Outcome> outcome, Reply<AdminAnswer> reply) {
  if (!outcome.ok()) return reply({Owned(RefusalOf(outcome.status(), semaphore)), {}});
  if (outcome->kind != OutcomeKind::kDone) {
    return reply({Owned(RefusalOf(*outcome, semaphore, host_->guarantees().adapter)), {}});
  }
  AdminAnswer answer;
  answer.changed = outcome->changed;
  answer.affected = outcome->affected();
  answer.report = outcome->report ? std::move(outcome->report) : std::make_unique<Report>();
  FillInHolders(*answer.report, &answer);
  // Holders of other clients of the engine are not ended by us: it goes with the last of them.
  answer.done = !destroys || !answer.report->info;
  if (destroys && answer.done) metrics_.Destroyed(semaphore);
  reply({nullptr, std::move(answer)});
}

void SessionsImpl::Administer(AdminCommand command, int64_t wait_ms, Reply<AdminAnswer> reply) {
  if (stopping_) return reply({Owned(ShuttingDownRefusal()), {}});
  const std::string semaphore = command.semaphore;
  const auto* destroy = std::get_if<AdminDestroy>(&command.act);
  const bool waits = destroy != nullptr && destroy->policy == DestroyPolicy::kWait;
  if (waits) NeedChanges(+1);
  const bool requeues = std::holds_alternative<AdminRequeue>(command.act);
  const auto* cancel = std::get_if<AdminCancelTicket>(&command.act);
  const Id cancelled = cancel == nullptr ? Id() : cancel->ticket;
  Submit(semaphore, std::move(command),
         [this, semaphore, waits, destroys = destroy != nullptr, requeues, cancelled, wait_ms,
          reply = std::move(reply)](absl::StatusOr<Outcome> outcome) mutable {
           if (outcome.ok() && outcome->kind == OutcomeKind::kDone) delays_.erase(cancelled);
           const bool stands = outcome.ok() && outcome->kind == OutcomeKind::kDone &&
                               outcome->report && outcome->report->info;
           if (!waits || !stands) {
             if (waits) NeedChanges(-1);
             OnAdminOutcome(semaphore, destroys, std::move(outcome), std::move(reply));
             if (requeues) OnTicketsAt(semaphore);
             return;
           }
           Drainer drainer;
           drainer.semaphore = semaphore;
           drainer.until_destroyed = true;
           drainer.until = Now() + Milliseconds(wait_ms);
           drainer.affected = outcome->affected();
           drainer.reply = std::move(reply);
           WaitFor(std::move(drainer));
         });
}

void SessionsImpl::Drain(AdminCommand pause, uint32_t held_max, int64_t wait_ms,
                         Reply<AdminAnswer> reply) {
  if (stopping_) return reply({Owned(ShuttingDownRefusal()), {}});
  const std::string semaphore = pause.semaphore;
  NeedChanges(+1);
  Submit(semaphore, std::move(pause),
         [this, semaphore, held_max, wait_ms,
          reply = std::move(reply)](absl::StatusOr<Outcome> outcome) mutable {
           const bool paused = outcome.ok() && outcome->kind == OutcomeKind::kDone &&
                               outcome->report && outcome->report->info;
           if (!paused) {
             NeedChanges(-1);
             return OnAdminOutcome(semaphore, /*destroys=*/false, std::move(outcome),
                                   std::move(reply));
           }
           Drainer drainer;
           drainer.semaphore = semaphore;
           drainer.held_max = held_max;
           drainer.until = Now() + Milliseconds(wait_ms);
           drainer.reply = std::move(reply);
           const bool done = outcome->report->info->held <= held_max;
           WaitFor(std::move(drainer));
           if (done) FinishDrain(drainers_.size() - 1, true);
         });
}

// REQUIRES: NeedChanges(+1) was called for it, before the command whose effect it waits for.
void SessionsImpl::WaitFor(Drainer drainer) {
  drainer.id = host_->NewId();
  timers_.Add(drainer.until, TimerKind::kDrain, drainer.id);
  drainers_.push_back(std::move(drainer));
}

// Answers with who holds now.
void SessionsImpl::FinishDrain(size_t index, bool done) {
  Drainer drainer = std::move(drainers_[index]);
  drainers_.erase(drainers_.begin() + static_cast<ptrdiff_t>(index));
  NeedChanges(-1);
  AdminCommand describe;
  describe.semaphore = drainer.semaphore;
  AdminDescribe holders;
  holders.rows_max = kDrainRows;
  holders.waiters = false;
  describe.act = holders;
  const std::string semaphore = drainer.semaphore;
  Submit(semaphore, std::move(describe),
         [this, drainer = std::move(drainer), done](absl::StatusOr<Outcome> outcome) mutable {
           const bool gone = outcome.ok() && outcome->kind == OutcomeKind::kNoSuchSemaphore;
           if (gone) {
             metrics_.Destroyed(drainer.semaphore);
             AdminAnswer answer;
             answer.report = std::make_unique<Report>();
             answer.done = answer.changed = true;
             answer.affected = drainer.affected;
             return drainer.reply({nullptr, std::move(answer)});
           }
           const bool described = outcome.ok() && outcome->kind == OutcomeKind::kDone;
           const bool few = described && !drainer.until_destroyed &&
                            outcome->report->info->held <= drainer.held_max;
           OnAdminOutcome(drainer.semaphore, /*destroys=*/false, std::move(outcome),
                          [&drainer, done = (done && !drainer.until_destroyed) ||
                                            few](Result<AdminAnswer> result) {
                            result.value.done = done;
                            result.value.changed = true;
                            drainer.reply(std::move(result));
                          });
         });
}

void SessionsImpl::List(ListCommand command, Reply<AdminAnswer> reply) {
  if (stopping_) return reply({Owned(ShuttingDownRefusal()), {}});
  const size_t lanes = host_->lane_count();
  struct Merging {
    size_t left;
    uint32_t rows_max;
    Result<AdminAnswer> result;
    Reply<AdminAnswer> reply;
  };
  const bool shared = !host_->guarantees().exclusive;
  auto merging = std::make_shared<Merging>(
      Merging{shared ? 1 : lanes, command.rows_max, {}, std::move(reply)});
  merging->result.value.report = std::make_unique<Report>();
  merging->result.value.done = true;
  // A shared store lists all names whoever asks it; the lanes of an exclusive one list their own.
  for (size_t lane = 0; lane < merging->left; ++lane) {
    host_->Submit(
        lane, Job{command, [this, merging](absl::StatusOr<Outcome> outcome) {
                    Report& report = *merging->result.value.report;
                    if (!outcome.ok()) {
                      merging->result.refusal = Owned(RefusalOf(outcome.status(), ""));
                    } else if (outcome->kind != OutcomeKind::kDone) {
                      merging->result.refusal =
                          Owned(RefusalOf(*outcome, "", host_->guarantees().adapter));
                    } else {
                      report.more |= outcome->report->more;
                      std::ranges::move(outcome->report->infos, std::back_inserter(report.infos));
                    }
                    if (--merging->left > 0) return;
                    std::ranges::sort(report.infos, {},
                                      [](const SemaphoreInfo& info) { return info.row.name; });
                    if (report.infos.size() > merging->rows_max) {
                      report.infos.resize(merging->rows_max);
                      report.more = true;
                    }
                    merging->reply(std::move(merging->result));
                  }});
  }
}

void SessionsImpl::History(HistoryCommand command, Reply<AdminAnswer> reply) {
  if (stopping_) return reply({Owned(ShuttingDownRefusal()), {}});
  const std::string semaphore = command.semaphore;
  Submit(semaphore, std::move(command),
         [this, semaphore, reply = std::move(reply)](absl::StatusOr<Outcome> outcome) mutable {
           OnAdminOutcome(semaphore, /*destroys=*/false, std::move(outcome), std::move(reply));
         });
}

// ---- Watching ----

void SessionsImpl::NeedChanges(int more) {
  const bool before = changes_needed_ > 0;
  changes_needed_ += more;
  const bool after = changes_needed_ > 0;
  if (before == after || stopping_) return;
  for (size_t lane = 0; lane < host_->lane_count(); ++lane) {
    host_->Submit(lane, Job{WatchCommand{after}, [](const absl::StatusOr<Outcome>&) {}});
  }
}

void SessionsImpl::Watch(std::string prefix, std::string name, WatchListener* listener) {
  if (stopping_) return listener->OnWatchRefused(ShuttingDownRefusal());
  NeedChanges(+1);
  watchers_.push_back({prefix, name, listener});
  SendSnapshot(listener, prefix, name);
}

// Changes that happen before the snapshot is taken come before it, and are in it; the revision
// tells.
void SessionsImpl::SendSnapshot(WatchListener* listener, const std::string& prefix,
                                const std::string& name) {
  ListCommand list;
  list.prefix = name.empty() ? prefix : name;
  list.rows_max = name.empty() ? options_.list_rows_max : 1;
  List(std::move(list), [this, listener, name](Result<AdminAnswer> result) {
    const bool watches = std::ranges::any_of(
        watchers_, [&](const Watcher& each) { return each.listener == listener; });
    if (!watches) return;
    if (!result.ok()) {
      Unwatch(listener);
      return listener->OnWatchRefused(std::move(*result.refusal));
    }
    std::vector<SemaphoreInfo>& infos = result.value.report->infos;
    if (!name.empty())
      std::erase_if(infos, [&](const SemaphoreInfo& info) { return info.row.name != name; });
    listener->OnSnapshot(infos);
  });
}

void SessionsImpl::Unwatch(WatchListener* listener) {
  const size_t erased =
      std::erase_if(watchers_, [&](const Watcher& each) { return each.listener == listener; });
  if (erased > 0) NeedChanges(-static_cast<int>(erased));
}

void SessionsImpl::OnChanges(const std::vector<SemaphoreChange>& changes) {
  for (const SemaphoreChange& change : changes) {
    const std::string& name = change.info.row.name;
    // A listener may unwatch within the call.
    const std::vector<Watcher> watchers = watchers_;
    for (const Watcher& watcher : watchers) {
      const bool matches =
          watcher.name.empty() ? absl::StartsWith(name, watcher.prefix) : watcher.name == name;
      const bool watches = std::ranges::any_of(
          watchers_, [&](const Watcher& each) { return each.listener == watcher.listener; });
      if (matches && watches) watcher.listener->OnChange(change);
    }
    for (size_t i = 0; i < drainers_.size();) {
      const Drainer& drainer = drainers_[i];
      const bool gone = change.kind == SemaphoreChange::Kind::kDestroyed;
      const bool few = !drainer.until_destroyed && change.info.held <= drainer.held_max;
      if (drainer.semaphore == name && (gone || few)) {
        FinishDrain(i, true);
      } else {
        ++i;
      }
    }
  }
}

}  // namespace semaphored
