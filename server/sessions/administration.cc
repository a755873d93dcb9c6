#include "server/sessions/administration.h"

#include <memory>
#include <utility>

#include "server/sessions/refusals.h"

namespace semaphored {
namespace {

constexpr uint32_t kDrainRows = 100;

std::unique_ptr<Refusal> Owned(Refusal refusal) {
  return std::make_unique<Refusal>(std::move(refusal));
}

}  // namespace

void Administration::Submit(const std::string& semaphore, Command command, Completion done) {
  parts_.host->SubmitAt(semaphore, std::move(command), std::move(done));
}

void Administration::OnOutcome(const std::string& semaphore, bool destroys,
                               absl::StatusOr<Outcome> outcome, Reply<AdminAnswer> reply) {
  if (!outcome.ok()) return reply({Owned(RefusalOf(outcome.status(), semaphore)), {}});
  if (outcome->kind != OutcomeKind::kDone) {
    return reply({Owned(RefusalOf(*outcome, semaphore, parts_.host->guarantees().adapter)), {}});
  }
  AdminAnswer answer;
  answer.changed = outcome->changed;
  answer.affected = outcome->affected();
  answer.message = std::move(outcome->message);
  answer.report = outcome->report ? std::move(outcome->report) : std::make_unique<Report>();
  FillInHolders(*answer.report, &answer);
  // Holders of other clients of the engine are not ended by us: it goes with the last of them.
  answer.done = !destroys || !answer.report->info;
  if (destroys && answer.done) parts_.metrics->Destroyed(semaphore);
  reply({nullptr, std::move(answer)});
}

void Administration::FillInHolders(const Report& report, AdminAnswer* answer) const {
  for (const TicketInfo& info : report.tickets) {
    if (info.ticket == nullptr || info.ticket->state != TicketState::kAssigned) continue;
    const ClaimRecord* claim = parts_.claims->Find(info.ticket->lease);
    if (claim != nullptr && claim->lease != nullptr)
      answer->ticket_holders[info.ticket->id] = claim->lease->holder;
  }
}

Id Administration::Administer(AdminCommand command, int64_t wait_ms, Reply<AdminAnswer> reply) {
  if (stopping_) {
    reply({Owned(ShuttingDownRefusal()), {}});
    return {};
  }
  const std::string semaphore = command.semaphore;
  const auto* destroy = std::get_if<AdminDestroy>(&command.act);
  const bool waits = destroy != nullptr && destroy->policy != DestroyPolicy::kRefuse;
  WatchedNames::Watch watch;
  if (waits) watch = parts_.host->watched()->Add("", semaphore);
  const Id wait = waits ? BeginWait() : Id();
  const bool requeues = std::holds_alternative<AdminRequeue>(command.act);
  const auto* cancel = std::get_if<AdminCancelTicket>(&command.act);
  const Id cancelled = cancel == nullptr ? Id() : cancel->ticket;
  const bool forces = destroy != nullptr && destroy->policy == DestroyPolicy::kForce;
  Submit(semaphore, std::move(command),
         [this, semaphore, waits, destroys = destroy != nullptr, forces, requeues, cancelled, wait,
          wait_ms, watch = std::move(watch),
          reply = std::move(reply)](absl::StatusOr<Outcome> outcome) mutable {
           const Milliseconds left = LeftOfWait(wait, wait_ms);
           const bool done = outcome.ok() && outcome->kind == OutcomeKind::kDone;
           const bool stands = done && outcome->report && outcome->report->info;
           if (done) parts_.delays->Forget(cancelled);
           // After a repeated request a later semaphore of this name may stand.
           if (done && forces && (!stands || outcome->report->info->row.destroying))
             parts_.delays->ForgetAt(semaphore);
           if (!waits || !stands) {
             OnOutcome(semaphore, destroys, std::move(outcome), std::move(reply));
             if (requeues) requeued_(semaphore);
             return;
           }
           Drains::Drain drain;
           drain.semaphore = semaphore;
           drain.until_destroyed = true;
           drain.until = Now() + left;
           drain.affected = outcome->affected();
           drain.reply = std::move(reply);
           drain.watch = std::move(watch);
           WaitFor(wait, std::move(drain));
         });
  return wait;
}

Id Administration::Drain(AdminCommand pause, uint32_t held_max, int64_t wait_ms,
                         Reply<AdminAnswer> reply) {
  if (stopping_) {
    reply({Owned(ShuttingDownRefusal()), {}});
    return {};
  }
  const std::string semaphore = pause.semaphore;
  // Where no pause can be kept it only waits, for instance for the holders of slots that were removed.
  if (!parts_.host->guarantees().settings && pause.expected_revision == 0)
    pause.act = AdminDescribe{.rows_max = 1};
  const Id wait = BeginWait();
  Submit(
      semaphore, std::move(pause),
      [this, semaphore, held_max, wait, wait_ms, watch = parts_.host->watched()->Add("", semaphore),
       reply = std::move(reply)](absl::StatusOr<Outcome> outcome) mutable {
        const Milliseconds left = LeftOfWait(wait, wait_ms);
        const bool paused = outcome.ok() && outcome->kind == OutcomeKind::kDone &&
                            outcome->report && outcome->report->info;
        if (!paused) {
          return OnOutcome(semaphore, /*destroys=*/false, std::move(outcome), std::move(reply));
        }
        Drains::Drain drain;
        drain.semaphore = semaphore;
        drain.held_max = held_max;
        drain.until = Now() + left;
        drain.reply = std::move(reply);
        drain.watch = std::move(watch);
        if (drain.IsDoneAt(outcome->report->info->held)) return Finish(std::move(drain), true);
        WaitFor(wait, std::move(drain));
      });
  return wait;
}

Id Administration::BeginWait() {
  const Id wait = parts_.host->NewId();
  begun_.insert(wait);
  return wait;
}

Milliseconds Administration::LeftOfWait(const Id& wait, int64_t wait_ms) {
  return Milliseconds(begun_.erase(wait) > 0 ? wait_ms : 0);
}

void Administration::WaitFor(const Id& wait, Drains::Drain drain) {
  parts_.timers->Add(drain.until, TimerKind::kDrain, wait);
  drains_.Add(wait, std::move(drain));
}

void Administration::EndWait(const Id& wait) {
  if (begun_.erase(wait) == 0) OnWaitOver(wait);
}

void Administration::Finish(Drains::Drain drain, bool done) {
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
             parts_.metrics->Destroyed(drain.semaphore);
             AdminAnswer answer;
             answer.report = std::make_unique<Report>();
             answer.done = answer.changed = true;
             answer.affected = drain.affected;
             return drain.reply({nullptr, std::move(answer)});
           }
           const bool described = outcome.ok() && outcome->kind == OutcomeKind::kDone;
           const bool few =
               described && !drain.until_destroyed && outcome->report->info->held <= drain.held_max;
           OnOutcome(drain.semaphore, /*destroys=*/false, std::move(outcome),
                     [&drain,
                      done = (done && !drain.until_destroyed) || few](Result<AdminAnswer> result) {
                       result.value.done = done;
                       result.value.changed = true;
                       result.value.affected = drain.affected;
                       drain.reply(std::move(result));
                     });
         });
}

void Administration::History(HistoryCommand command, Reply<AdminAnswer> reply) {
  if (stopping_) return reply({Owned(ShuttingDownRefusal()), {}});
  const std::string semaphore = command.semaphore;
  Submit(semaphore, std::move(command),
         [this, semaphore, reply = std::move(reply)](absl::StatusOr<Outcome> outcome) mutable {
           OnOutcome(semaphore, /*destroys=*/false, std::move(outcome), std::move(reply));
         });
}

// ---- Watching ----

uint64_t Administration::Watch(std::string prefix, std::string name, WatchListener* listener) {
  if (stopping_) {
    listener->OnWatchRefused(ShuttingDownRefusal());
    return 0;
  }
  const uint64_t id = watches_.Add(std::move(prefix), std::move(name), listener);
  NextSnapshot(id);
  return id;
}

// Changes that happen before a slice is read come before it, and are in it; the revision tells.
void Administration::NextSnapshot(uint64_t watch) {
  const Watches::Snapshot* snapshot = watches_.FindSnapshot(watch);
  if (snapshot == nullptr) return;
  parts_.lists->Add(snapshot->next, [this, watch](Result<AdminAnswer> result) {
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

void Administration::OnChanges(const std::vector<SemaphoreChange>& changes) {
  for (const SemaphoreChange& change : changes) {
    watches_.Tell(change);
    for (Drains::Drain& drain : drains_.TakeDone(change)) Finish(std::move(drain), true);
  }
}

// ---- The ends of waits ----

void Administration::OnWaitOver(const Id& id) {
  if (auto drain = drains_.Take(id)) Finish(*std::move(drain), false);
}

void Administration::RefuseAll() {
  for (WatchListener* listener : watches_.TakeAll())
    listener->OnWatchRefused(ShuttingDownRefusal());
  for (Drains::Drain& drain : drains_.TakeAll()) drain.reply({Owned(ShuttingDownRefusal()), {}});
}

}  // namespace semaphored
