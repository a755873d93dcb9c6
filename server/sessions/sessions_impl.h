// Puts the rooms of Sessions together: each is a class of its own, which says what it does. What is left here are the calls of
// streams (opened, resumed, detached), of leases by their ids, and of take-over.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "server/base/timers.h"
#include "server/figures/queue_paces.h"
#include "server/figures/semaphore_metrics.h"
#include "server/sessions/administration.h"
#include "server/sessions/adoptions.h"
#include "server/sessions/claim_book.h"
#include "server/sessions/claim_ends.h"
#include "server/sessions/claim_events.h"
#include "server/sessions/dead_nodes.h"
#include "server/sessions/deadlines.h"
#include "server/sessions/end_marks.h"
#include "server/sessions/figures_list.h"
#include "server/sessions/grants.h"
#include "server/sessions/idle_semaphores.h"
#include "server/sessions/lease_log.h"
#include "server/sessions/lists.h"
#include "server/sessions/moves.h"
#include "server/sessions/read_again_queue.h"
#include "server/sessions/recalls.h"
#include "server/sessions/records.h"
#include "server/sessions/refusals.h"
#include "server/sessions/session_book.h"
#include "server/sessions/session_closings.h"
#include "server/sessions/session_ends.h"
#include "server/sessions/sessions.h"
#include "server/sessions/submit.h"
#include "server/sessions/ticket_delays.h"
#include "server/sessions/unread_semaphores.h"
#include "server/sessions/vouching.h"
#include "server/sessions/work_desk.h"

namespace semaphored {

class SessionsImpl final : public Sessions {
 public:
  SessionsImpl(SessionsHost* host, SessionsOptions options);

  Id Acquire(AcquireParams params, ClaimListener* listener, uint64_t tag) override;
  void Detach(const Id& claim) override;
  void Abandon(const Id& claim, bool end_lease) override;
  Vouch Touch(const Id& claim) override;

  void Open(OpenParams params, SessionListener* listener) override;
  Vouch TouchSession(const Id& session) override;
  void AcquireIn(const Id& session, AcquireParams params, uint64_t tag,
                 bool report_queued) override;
  bool CancelIn(const Id& session, uint64_t tag) override;
  void Enqueue(EnqueueCommand command, Reply<EnqueueAnswer> reply) override;
  void FinishIn(const Id& session, FinishCommand command, Reply<FinishAnswer> reply) override {
    work_.FinishIn(session, std::move(command), std::move(reply));
  }
  void SetTicketsMax(const Id& session, uint32_t tickets_max) override {
    work_.SetTicketsMax(session, tickets_max);
  }
  void DetachSession(SessionListener* listener) override;
  void CloseSession(const Id& session, absl::AnyInvocable<void()> done) override;

  void AcknowledgeRecall(const Id& session, const Id& claim, uint64_t recall) override;
  void Renew(RenewParams params, Reply<RenewAnswer> reply) override;
  void Release(ReleaseCommand command, Reply<ReleaseAnswer> reply) override;
  void Verify(VerifyCommand command, Reply<VerifyAnswer> reply) override;

  Id Administer(AdminCommand command, int64_t wait_ms, Reply<AdminAnswer> reply) override {
    return administration_.Administer(std::move(command), wait_ms, std::move(reply));
  }
  Id Drain(AdminCommand pause, uint32_t held_max, int64_t wait_ms,
           Reply<AdminAnswer> reply) override {
    return administration_.Drain(std::move(pause), held_max, wait_ms, std::move(reply));
  }
  void EndWait(const Id& wait) override { administration_.EndWait(wait); }
  void List(ListCommand command, Reply<AdminAnswer> reply) override {
    lists_.Add(std::move(command), std::move(reply));
  }
  void History(HistoryCommand command, Reply<AdminAnswer> reply) override {
    administration_.History(std::move(command), std::move(reply));
  }
  uint64_t Watch(std::string prefix, std::string name, WatchListener* listener) override {
    return administration_.Watch(std::move(prefix), std::move(name), listener);
  }
  void NextSnapshot(uint64_t watch) override { administration_.NextSnapshot(watch); }
  void Unwatch(uint64_t watch) override { administration_.Unwatch(watch); }

  void TakeOver(const std::vector<NodeRef>& dead,
                absl::AnyInvocable<void(absl::Status)> ready) override {
    idle_.Arm();
    dead_nodes_.TakeOver(dead, std::move(ready));
  }
  uint64_t pages_taken_over() const override { return dead_nodes_.pages(); }
  void OnLaneResults(size_t lane, LaneResults results) override;
  SteadyTime OnTimer() override;
  void OnVouchChange() override;
  void Shutdown() override;
  void Deny(const Id& claim) override;
  void Recheck(Allows allows) override;
  std::string_view OwnerOfClaim(const Id& claim) const override;
  const Charge* ChargeOfSession(const Id& session) const override;
  Counts counts() const override;
  void Figures(SessionsFigures* out) override;
  void RefreshFigures(absl::AnyInvocable<void()> done) override {
    figures_list_.Refresh(std::move(done));
  }

 private:
  SteadyTime Now() const { return host_->clock().Now(); }
  bool exclusive() const { return host_->guarantees().exclusive; }
  void Submit(const std::string& semaphore, Command command, Completion done) {
    semaphored::Submit(host_, semaphore, std::move(command), std::move(done));
  }

  // ---- sessions.cc ----
  bool TimerAlive(const Timer& timer) const;
  void OnTimerDue(const Timer& timer);
  void TellEndOfLeases();

  // ---- sessions_take_over.cc ----
  // Goes on with what a dead daemon has left, until its client comes or its TTL is over.
  void Absorb(const Orphan& orphan);
  void AbsorbSession(const Orphan& orphan, const Liveness& life);
  void AbsorbDetached(const Orphan& orphan, const Liveness& life);

  // ---- sessions_quarantine.cc ----
  void OnQuarantines(const std::vector<Quarantine>& quarantines, SteadyTime read_at);
  void OnReadAgainDue();
  void ReadAgain(const Id& session);
  void OnReadAgain(const Id& session, uint32_t epoch, absl::StatusOr<Outcome> outcome);

  // ---- sessions_streams.cc ----
  void OpenNew(OpenParams params, SessionListener* listener);
  // `work`: null, or what the worker works for.
  void Attach(SessionRecord* record, SessionListener* listener, const WorkParams* work,
              bool resumed);
  void OnGraceOver(SessionRecord* record);
  // The stream that has the session, if one does, learns that it has moved. The record; null: it is gone.
  SessionRecord* SendAway(SessionRecord* record);
  void Unlisten(SessionRecord* record);

  // ---- sessions_resume.cc ----
  void Resume(OpenParams params, SessionListener* listener);
  // For an identity to which it does not belong, it is not there.
  static bool BelongsToAnother(const SessionRecord* record, const OpenParams& params);
  // `known`: what of it was known here, and answered, when it was asked for.
  // Moves the session here; its claims in `known` were here before.
  void Adopt(const Id& id, OpenParams params, SessionListener* listener, absl::btree_set<Id> known);
  void OnAdopted(const Id& id, const OpenParams& params, SessionListener* listener,
                 const absl::btree_set<Id>& known, absl::StatusOr<Outcome> outcome);
  // Forgets what of `known` is not among the claims that the session has: it ended elsewhere.
  void DropOthers(SessionRecord* record, const absl::btree_set<Id>& known,
                  const Adoptions::Changes& changes, const std::vector<ClaimInfo>& claims);
  // Adds what was not known, and says of the rest what it is now.
  void AddClaims(SessionRecord* record, const std::vector<ClaimInfo>& claims);

  SessionsHost* host_;
  SessionsOptions options_;
  // In the order in which they use each other: each uses some above it.
  Timers timers_;
  ClaimBook claims_;
  SessionBook sessions_;
  SemaphoreMetrics metrics_;
  LeaseLog lease_log_;
  Lists lists_;
  UnreadSemaphores unread_;
  Vouching vouching_;
  Moves moves_;
  Recalls recalls_;
  WorkDesk work_;
  Deadlines deadlines_;
  ClaimEnds ends_;
  SessionEnds session_ends_;
  TicketDelays delays_;
  Administration administration_;
  IdleSemaphores idle_;
  FiguresList figures_list_;
  QueuePaces paces_;
  EndMarks marks_;
  Grants grants_;
  SessionClosings closings_;
  Adoptions adoptions_;
  ClaimEvents events_;
  ReadAgainQueue read_again_;
  DeadNodes dead_nodes_;
  bool stopping_ = false;
};

}  // namespace semaphored
