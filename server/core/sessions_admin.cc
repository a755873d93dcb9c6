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
  const bool waits = destroy != nullptr && destroy->policy != DestroyPolicy::kRefuse;
  WatchedNames::Watch watch;
  if (waits) watch = host_->watched()->Add("", semaphore);
  const bool requeues = std::holds_alternative<AdminRequeue>(command.act);
  const auto* cancel = std::get_if<AdminCancelTicket>(&command.act);
  const Id cancelled = cancel == nullptr ? Id() : cancel->ticket;
  Submit(semaphore, std::move(command),
         [this, semaphore, waits, destroys = destroy != nullptr, requeues, cancelled, wait_ms,
          watch = std::move(watch),
          reply = std::move(reply)](absl::StatusOr<Outcome> outcome) mutable {
           if (outcome.ok() && outcome->kind == OutcomeKind::kDone) delays_.Forget(cancelled);
           const bool stands = outcome.ok() && outcome->kind == OutcomeKind::kDone &&
                               outcome->report && outcome->report->info;
           if (!waits || !stands) {
             OnAdminOutcome(semaphore, destroys, std::move(outcome), std::move(reply));
             if (requeues) OnTicketsAt(semaphore);
             return;
           }
           Drains::Drain drain;
           drain.semaphore = semaphore;
           drain.until_destroyed = true;
           drain.until = Now() + Milliseconds(wait_ms);
           drain.affected = outcome->affected();
           drain.reply = std::move(reply);
           drain.watch = std::move(watch);
           WaitFor(std::move(drain));
         });
}

void SessionsImpl::Drain(AdminCommand pause, uint32_t held_max, int64_t wait_ms,
                         Reply<AdminAnswer> reply) {
  if (stopping_) return reply({Owned(ShuttingDownRefusal()), {}});
  const std::string semaphore = pause.semaphore;
  Submit(semaphore, std::move(pause),
         [this, semaphore, held_max, wait_ms, watch = host_->watched()->Add("", semaphore),
          reply = std::move(reply)](absl::StatusOr<Outcome> outcome) mutable {
           const bool paused = outcome.ok() && outcome->kind == OutcomeKind::kDone &&
                               outcome->report && outcome->report->info;
           if (!paused) {
             return OnAdminOutcome(semaphore, /*destroys=*/false, std::move(outcome),
                                   std::move(reply));
           }
           Drains::Drain drain;
           drain.semaphore = semaphore;
           drain.held_max = held_max;
           drain.until = Now() + Milliseconds(wait_ms);
           drain.reply = std::move(reply);
           drain.watch = std::move(watch);
           if (drain.IsDoneAt(outcome->report->info->held))
             return FinishDrain(std::move(drain), true);
           WaitFor(std::move(drain));
         });
}

void SessionsImpl::WaitFor(Drains::Drain drain) {
  const Id id = host_->NewId();
  timers_.Add(drain.until, TimerKind::kDrain, id);
  drains_.Add(id, std::move(drain));
}

void SessionsImpl::FinishDrain(Drains::Drain drain, bool done) {
  drain.watch = {};
  AdminCommand describe;
  describe.semaphore = drain.semaphore;
  AdminDescribe holders;
  holders.rows_max = kDrainRows;
  holders.waiters = false;
  describe.act = holders;
  const std::string semaphore = drain.semaphore;
  Submit(semaphore, std::move(describe),
         [this, drain = std::move(drain), done](absl::StatusOr<Outcome> outcome) mutable {
           const bool gone = outcome.ok() && outcome->kind == OutcomeKind::kNoSuchSemaphore;
           if (gone) {
             metrics_.Destroyed(drain.semaphore);
             AdminAnswer answer;
             answer.report = std::make_unique<Report>();
             answer.done = answer.changed = true;
             answer.affected = drain.affected;
             return drain.reply({nullptr, std::move(answer)});
           }
           const bool described = outcome.ok() && outcome->kind == OutcomeKind::kDone;
           const bool few =
               described && !drain.until_destroyed && outcome->report->info->held <= drain.held_max;
           OnAdminOutcome(drain.semaphore, /*destroys=*/false, std::move(outcome),
                          [&drain, done = (done && !drain.until_destroyed) ||
                                          few](Result<AdminAnswer> result) {
                            result.value.done = done;
                            result.value.changed = true;
                            result.value.affected = drain.affected;
                            drain.reply(std::move(result));
                          });
         });
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

uint64_t SessionsImpl::Watch(std::string prefix, std::string name, WatchListener* listener) {
  if (stopping_) {
    listener->OnWatchRefused(ShuttingDownRefusal());
    return 0;
  }
  const uint64_t id = watches_.Add(std::move(prefix), std::move(name), listener);
  NextSnapshot(id);
  return id;
}

// Changes that happen before a slice is read come before it, and are in it; the revision tells.
void SessionsImpl::NextSnapshot(uint64_t watch) {
  const Watches::Snapshot* snapshot = watches_.FindSnapshot(watch);
  if (snapshot == nullptr) return;
  List(snapshot->next, [this, watch](Result<AdminAnswer> result) {
    WatchListener* listener = watches_.Find(watch);
    if (listener == nullptr) return;
    if (!result.ok()) {
      watches_.Remove(watch);
      return listener->OnWatchRefused(std::move(*result.refusal));
    }
    Watches::Snapshot& snapshot = *watches_.FindSnapshot(watch);
    std::vector<SemaphoreInfo>& infos = result.value.report->infos;
    const bool more = snapshot.name.empty() && result.value.report->more && !infos.empty();
    if (more) snapshot.next.after = infos.back().row.name;
    if (!snapshot.name.empty())
      std::erase_if(infos,
                    [&](const SemaphoreInfo& info) { return info.row.name != snapshot.name; });
    listener->OnSnapshot(infos, !more);
  });
}

void SessionsImpl::OnChanges(const std::vector<SemaphoreChange>& changes) {
  for (const SemaphoreChange& change : changes) {
    watches_.Tell(change);
    for (Drains::Drain& drain : drains_.TakeDone(change)) FinishDrain(std::move(drain), true);
  }
}

}  // namespace semaphored
