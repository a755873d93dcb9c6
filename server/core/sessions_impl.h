// The parts of Sessions. Each claim that this daemon knows of has one record here, and each
// session; everything else hangs on them. Records are found by id, so that an answer that comes
// late finds none and is dropped.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "server/core/adoptions.h"
#include "server/core/drains.h"
#include "server/core/end_marks.h"
#include "server/core/figures_list.h"
#include "server/core/idle_semaphores.h"
#include "server/core/lease_log.h"
#include "server/core/lists.h"
#include "server/core/queue_paces.h"
#include "server/core/refusals.h"
#include "server/core/semaphore_metrics.h"
#include "server/core/sessions.h"
#include "server/core/submit.h"
#include "server/core/ticket_delays.h"
#include "server/core/timers.h"
#include "server/core/watches.h"
#include "server/core/worker.h"

namespace semaphored {

// Liveness of a session, or of a detached claim, which is a session of its own.
struct Liveness {
  int64_t ttl_ms = 0;
  uint32_t epoch = 1;
  SteadyTime expires_at = SteadyTime::max();
  // Never ended before: until then the daemon that it came from may still vouch for it.
  SteadyTime keep_until = SteadyTime::min();
  // The latest time until which a client may count on it: by the validity that this daemon has
  // reported, and by the validity that the former host may have reported.
  SteadyTime vouched_until = SteadyTime::min();
  // False: it was left behind by a dead node. Its client may still come, and is adopted then.
  bool hosted = true;
  // The command that ends it is under way: nothing is vouched for any more.
  bool expiring = false;
  bool armed = false;  // There is a timer that will look at it.
  // Nothing is vouched for beyond: a semaphore of it cannot be read.
  SteadyTime vouch_max = SteadyTime::max();
  // All its leases are recalled, and end until then.
  SteadyTime recalled_until = SteadyTime::max();
};

// Of one lease a later recall has a shorter grace, or it is none: see IsRecalledBy of the ledger's rules.
inline uint64_t RecallIdOf(const Recall& recall) {
  return (static_cast<uint64_t>(recall.grace_ms) << 8) | static_cast<uint64_t>(recall.reason);
}

// The recalls of a lease, as far as this daemon knows them.
struct RecallState {
  uint64_t id = 0;  // Of the latest one; 0: none.
  // The earliest end of a grace.
  SteadyTime grace_until = SteadyTime::max();
  // The lease is ended then: at the end of the grace; while the client has not acknowledged the recall, not
  // before the client may count on the lease no longer.
  SteadyTime end_at = SteadyTime::max();
};

struct SessionRecord {
  Id id;
  Liveness life;
  SessionListener* listener = nullptr;
  bool opened = false;
  bool closing = false;
  // Of a close that waits until leases have moved, or semaphores can be changed: it is not resumed.
  EndCause end_cause = EndCause::kNone;
  bool release_on_disconnect = false;
  bool has_recalls = false;      // A lease of it was recalled.
  bool recalls_changed = false;  // Its life's recalled_until is to be computed again.
  SteadyTime grace_until;        // Without a listener: waiters keep their places until then.
  std::string client_id;
  std::string holder;
  std::string owner;                         // The identity that it belongs to; empty: none.
  TraceContext trace;                        // Of its stream.
  absl::btree_set<Id> claims;                // Ordered, so that a simulation replays.
  absl::flat_hash_map<uint64_t, Id> by_tag;  // Claims that were asked for and not granted yet.
  std::unique_ptr<Worker> worker;            // Of a stream that works, as long as it stands.
  ChargePtr charge;
};

// The move of a lease from another session, or from a detached call, to the one that has repeated
// the request. It lasts as long as a former holder may count on the lease.
struct Move {
  SteadyTime over_at;
  // The request. Without an id: this daemon has not received it yet.
  Requester requester;
};

struct ClaimRecord {
  enum class State : uint8_t {
    kAsked,
    kWaiting,
    kMoving,  // A lease with `move`: the daemon has reported no grant and vouches for nothing.
    kHeld,
  };
  Id id;
  std::string semaphore;
  State state = State::kAsked;
  bool remembered = false;  // Asked with a request id: the client can find it again.
  bool abandoned = false;   // Its client went away before it was granted.
  bool end_lease = false;   // … and wants no lease.
  bool cancel_asked = false;
  bool denied =
      false;  // The rules changed before it was granted, and no longer allow it: see Deny.
  // Its wait is being ended since its session's client was away for too long. If the client comes
  // back meanwhile it asks again, and what becomes of that is the answer: the end is told to
  // nobody.
  bool given_up = false;
  // Its semaphore could not be read for too long: its holder has lost the lease, which is ended once
  // the semaphore can be changed again. Until then its permits stay held.
  bool lost = false;
  bool report_queued = true;
  bool wait_armed = false;           // There is a timer that will look at wait_until.
  SessionRecord* session = nullptr;  // nullptr: detached.
  // Of a detached claim. Of every claim `epoch`: Claim::epoch, which rises with each move.
  Liveness life;
  std::unique_ptr<Move> move;
  ClaimListener* listener = nullptr;
  uint64_t tag = 0;
  LeasePtr lease;  // When held.
  SteadyTime wait_until = SteadyTime::max();
  RecallState recall;
  TraceContext trace;  // Of the call that asked for it.
  ClaimFigures figures;
  ChargePtr charge;  // Of what it holds or waits for. A worker's offers have none.
  // AcquireParams::unless_repeated, until it is answered.
  std::shared_ptr<const Refusal> unless_repeated;
  // A repeated request was answered with an earlier one's claim: that one's id. The record only
  // leads there.
  Id leads_to;
  Id led_from;

  // ---- of a worker's offers, and of the tickets that came to them ----
  bool offers = false;     // It has no listener and no tag of its own: its session's hears of it.
  TicketPtr ticket;        // When held; null if it has ended again.
  bool told = false;       // The worker knows of its ticket.
  bool listed = false;     // It works on this: its stream was opened with it.
  bool finishing = false;  // The worker has said what became of it: its end is no news.
  bool put_back = false;   // It is given back by us; the worker never had it.

  bool has_lease() const { return state == State::kHeld || state == State::kMoving; }
  // The session that the claim belongs to, as Claim::session.
  Id owner() const { return session != nullptr ? session->id : id; }
};

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
  void FinishIn(const Id& session, FinishCommand command, Reply<FinishAnswer> reply) override;
  void SetTicketsMax(const Id& session, uint32_t tickets_max) override;
  void DetachSession(SessionListener* listener) override;
  void CloseSession(const Id& session, absl::AnyInvocable<void()> done) override;

  void AcknowledgeRecall(const Id& session, const Id& claim, uint64_t recall) override;
  void Renew(RenewParams params, Reply<RenewAnswer> reply) override;
  void Release(ReleaseCommand command, Reply<ReleaseAnswer> reply) override;
  void Verify(VerifyCommand command, Reply<VerifyAnswer> reply) override;

  void Administer(AdminCommand command, int64_t wait_ms, Reply<AdminAnswer> reply) override;
  void Drain(AdminCommand pause, uint32_t held_max, int64_t wait_ms,
             Reply<AdminAnswer> reply) override;
  void List(ListCommand command, Reply<AdminAnswer> reply) override {
    lists_.Add(std::move(command), std::move(reply));
  }
  void History(HistoryCommand command, Reply<AdminAnswer> reply) override;
  uint64_t Watch(std::string prefix, std::string name, WatchListener* listener) override;
  void NextSnapshot(uint64_t watch) override;
  void Unwatch(uint64_t watch) override { watches_.Remove(watch); }

  void TakeOver(std::vector<NodeRef> dead, absl::AnyInvocable<void(absl::Status)> ready) override;
  uint64_t pages_taken_over() const override { return pages_taken_over_; }
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
  void TellEndOfLeases();
  // A semaphore that cannot be read.
  struct Unread {
    SteadyTime disown_at;      // Its leases are lost to their holders from then on, …
    SteadyTime vouched_until;  // … and vouched for no longer than this.
  };

  // ---- sessions_take_over.cc ----
  struct Gathering;
  // Asks a lane for a page, and when it has come for the next one.
  void Gather(std::shared_ptr<Gathering> gathering, OrphansCommand page);
  // Goes on with what a dead daemon has left, until its client comes or its TTL is over.
  void Absorb(const Orphan& orphan);
  void AbsorbSession(const Orphan& orphan, const Liveness& life);
  void AbsorbDetached(const Orphan& orphan, const Liveness& life);

  // ---- sessions.cc ----
  SteadyTime Now() const { return host_->clock().Now(); }
  bool TimerAlive(const Timer& timer) const;
  void OnTimerDue(const Timer& timer);
  void OnTtl(ClaimRecord* record);
  void OnSessionTtl(SessionRecord* record);
  void OnWaitOver(ClaimRecord* record);
  void OnGraceOver(SessionRecord* record);
  // The client may count on the result from now on.
  Vouch VouchFor(Liveness* life) const;
  Vouch VouchFor(ClaimRecord* record);
  Vouch VouchFor(SessionRecord* session);
  static Liveness* LifeOf(ClaimRecord* record) {
    return record->session != nullptr ? &record->session->life : &record->life;
  }
  void Revive(Liveness* life) const;
  // It was moved here from another daemon, which perhaps does not know it yet.
  void KeepAfterMove(Liveness* life, int64_t ttl_ms) const;
  bool exclusive() const { return host_->guarantees().exclusive; }
  void ArmTtl(Liveness* life, TimerKind kind, const Id& id);
  void ArmWait(ClaimRecord* record);

  // ---- sessions_lanes.cc ----
  size_t LaneOf(const std::string& semaphore) const {
    return semaphored::LaneOf(semaphore, host_->lane_count());
  }
  void Submit(const std::string& semaphore, Command command, Completion done) {
    semaphored::Submit(host_, semaphore, std::move(command), std::move(done));
  }
  // An event of a claim whose semaphore belongs to another lane.
  void OnElsewhere(const Event& event);
  // Reads the claim in its own lane. From then on that lane has the semaphore loaded, and reports
  // what happens to the claim.
  void Probe(const ClaimRecord& record);
  void OnProbed(const Id& id, const Id& owner, absl::StatusOr<Outcome> outcome);
  void OnFoundGranted(ClaimRecord* record, const LeasePtr& lease);
  // A claim has ended. If its own lane reports a grant of it after that, the request fails.
  void MarkEnded(const Event& event);

  // ---- sessions_quarantine.cc ----
  void OnQuarantines(const std::vector<Quarantine>& quarantines, SteadyTime read_at);
  std::vector<Id> ClaimsAt(const std::string& semaphore) const;
  // For no longer than the semaphores allow that its owner has leases of.
  void BoundVouching(ClaimRecord* record);
  void BoundVouching(SessionRecord* session);
  SteadyTime VouchedUntil(const ClaimRecord& claim) const;
  void OnDisownDue();
  // Of each dead node the last life that was taken over.
  void NoteDead(const std::vector<NodeRef>& dead);
  // A semaphore can be read again: what dead nodes left in it was in no take-over since.
  void TakeOverAgain();
  // The session moved here, and may have claims in semaphores that could not be read. It is read again
  // until they can be. The resume did not list these claims, so they are ended then.
  void ReadAgainLater(const Id& session);
  void OnReadAgainDue();
  void ReadAgain(const Id& session);
  void OnReadAgain(const Id& session, uint32_t epoch, absl::StatusOr<Outcome> outcome);
  void EndUntold(ClaimRecord* record);
  // The holder loses the lease.
  void Disown(ClaimRecord* record);
  // The request of a lease that its holder has lost was repeated before the lease is ended.
  void RefuseLost(ClaimRecord* record);
  // Ends a lease that its holder has lost.
  void EndLost(ClaimRecord* record);

  // ---- sessions_claims.cc ----
  ClaimRecord* FindClaim(const Id& id);
  const ClaimRecord* FindClaim(const Id& id) const;
  ClaimRecord* AddClaim(const Id& id, const std::string& semaphore, SessionRecord* session);
  void Drop(ClaimRecord* record);
  void SubmitAcquire(ClaimRecord* record, AcquireParams params);
  // The part of a request that its answer needs.
  struct Asked {
    uint32_t permits = 0;
    Requester requester;  // In a session without client_id: the session has it.
  };
  void OnAcquireOutcome(const Id& id, const Asked& asked, absl::StatusOr<Outcome> outcome);
  ClaimRecord* LeadTo(ClaimRecord* record, const Id& real, uint32_t epoch);
  void BecomeWaiting(ClaimRecord* record, uint64_t position, WaitReason reason);
  // True: its client has cancelled its wait, or has been away for too long. The wait is ended.
  bool EndUnwanted(ClaimRecord* record);
  void BecomeHeld(ClaimRecord* record, LeasePtr lease);
  void TellGranted(ClaimRecord* record);
  void Refuse(ClaimRecord* record, Refusal refusal);
  // Its lease has ended; whoever listens is told, and forgets it.
  void TellEnded(ClaimRecord* record, EndCause cause);
  // What was to be ended here is gone already: a lease has ended, anything else is refused.
  void TellGone(ClaimRecord* record, EndCause cause);
  void EndClaim(ClaimRecord* record, EndCause cause, bool only_waiting);
  void EndAbandoned(ClaimRecord* record);
  // Granted to a client that the rules no longer allow it: the lease ends, and the client learns why.
  void EndDenied(ClaimRecord* record);
  // Asks the engine to recall a lease; tried again, as `again` says, while the engine cannot be asked.
  void RecallLease(ClaimRecord* record, Recall recall, TimerKind again);
  void OnEvent(const Event& event);
  void OnGrantEvent(ClaimRecord* record, const Event& event);
  // Counts what the claim is now: a lease's permits, or a wait. `tenant`: whose it is, if it has no
  // charge yet; null: then it is not counted.
  static void Count(ClaimRecord* record, const TenantPtr& tenant);

  // ---- sessions_recalls.cc ----
  // Starts the grace of its lease's recall, if one is pending whose grace ends sooner than what it has.
  void ArmRecall(ClaimRecord* record);
  // The lease was hosted elsewhere since: what this daemon knew of its recall is void, and the grace
  // begins again.
  static void ForgetRecall(ClaimRecord* record);
  void OnRecalled(ClaimRecord* record, const LeasePtr& lease);
  void Acknowledge(ClaimRecord* record, uint64_t recall);
  void OnRecallOver(ClaimRecord* record);
  void OnLongestHold(ClaimRecord* record);
  RecallNotice NoticeOf(const ClaimRecord& record) const;
  // What is vouched for from now on is bound by the recalls of what it holds.
  void BoundByRecalls(SessionRecord* session);

  // ---- sessions_moves.cc ----
  // The claim belongs to another session now, or to none. Removes the record without ending the
  // claim; the listener hears that the claim is lost.
  void Leave(ClaimRecord* record);
  // The request of `record` is a repeated one, and its lease moves here.
  void OnMoving(ClaimRecord* record, const Asked& asked, const LeasePtr& lease);
  // Makes the record one of a lease that moves.
  void BecomeMoving(ClaimRecord* record, LeasePtr lease, SteadyTime over_at);
  // The move is over, or the record goes.
  void EndMove(ClaimRecord* record);
  void KeepUntil(Liveness* life, TimerKind kind, const Id& id, SteadyTime until);
  // Move::over_at of a lease of which only the row is known here.
  SteadyTime MoveOverAt(const Lease& lease) const;
  void FillInMove(const ClaimRecord& record, AcquireCommand* command) const;
  Refusal MovingRefusalOf(const ClaimRecord& record) const;
  // Of claims that are adopted with a session: removes the records that other owners have of them.
  void LeaveOthers(const Id& session, const std::vector<ClaimInfo>& claims);
  // The latest Move::over_at of the session's claims; the past: none of them moves.
  SteadyTime MovesOverAt(const SessionRecord& record) const;
  // Ends all claims but those that move, which end with the session's row at `at`.
  void EndSessionLater(SessionRecord* record, EndCause cause, SteadyTime at,
                       absl::AnyInvocable<void()> done);
  void OnSessionEnd(SessionRecord* record);

  // ---- sessions_streams.cc ----
  // The command ends the claim only if it still has this owner with this epoch.
  static EndCommand EndOf(const ClaimRecord& record, EndCause cause);
  static EndCommand EndWithSession(const ClaimRecord& record, EndCause cause);
  std::vector<EndCommand> EndsOfAsked(const SessionRecord& record, EndCause cause);
  // Runs `done` when all of them have an outcome or an error; at once if there are none.
  void SubmitEnds(std::vector<EndCommand> ends, absl::AnyInvocable<void()> done);
  // Ends claims of a session page by page. Runs `done` when the last page has its outcomes, or earlier if
  // the session is gone, or has another epoch.
  struct Ending {
    Id session;
    uint32_t epoch = 0;
    EndCause cause = EndCause::kNone;
    std::vector<Id> claims;  // In this order.
    size_t submitted = 0;
    absl::AnyInvocable<void()> done;
  };
  void SubmitEndsInPages(Ending ending);
  SessionRecord* FindSession(const Id& id);
  void OpenNew(OpenParams params, SessionListener* listener);
  // `work`: null, or what the worker works for.
  void Attach(SessionRecord* record, SessionListener* listener, const WorkParams* work,
              bool resumed);
  // Ends all claims, then the session's row. The record goes when that has been done.
  void EndSession(SessionRecord* record, EndCause cause, absl::AnyInvocable<void()> done);
  void CloseRow(const Id& session, uint32_t epoch, EndCause cause, absl::AnyInvocable<void()> done);
  void OnPartlyClosed(SessionRecord* record, const Outcome& outcome);
  void DropSession(SessionRecord* record, Refusal refusal);
  // The stream that has the session, if one does, is told that it has moved. The record; null: it
  // is gone.
  SessionRecord* SendAway(SessionRecord* record);
  void Unlisten(SessionRecord* record);

  // ---- sessions_resume.cc ----
  void Resume(OpenParams params, SessionListener* listener);
  // For an identity to which it does not belong, it is not there.
  static bool BelongsToAnother(const SessionRecord* record, const OpenParams& params);
  // `known`: what of it was known here, and answered, when it was asked for.
  void OnAdopted(const Id& id, const OpenParams& params, SessionListener* listener,
                 const absl::btree_set<Id>& known, absl::StatusOr<Outcome> outcome);
  // Forgets what of `known` is not among the claims that the session has: it ended elsewhere.
  void DropOthers(SessionRecord* record, const absl::btree_set<Id>& known,
                  const Adoptions::Changes& changes, const std::vector<ClaimInfo>& claims);
  // Adds what was not known, and says of the rest what it is now.
  void AddClaims(SessionRecord* record, const std::vector<ClaimInfo>& claims);

  // ---- sessions_work.cc ----
  // Makes the worker of a session whose stream has just been told that it is open.
  void StartWork(SessionRecord* record, const WorkParams& work);
  // The stream has gone: no hand is free any more. Its tickets keep their leases.
  void StopWork(SessionRecord* record);
  Worker* WorkerOf(const ClaimRecord& record) const;
  SessionListener* ListenerOfOffer(const ClaimRecord& record) const;
  Id Offer(const Id& session, const std::string& semaphore, OfferKept keep);
  void OnOfferOutcome(const Id& id, absl::StatusOr<Outcome> outcome);
  void OnStrayOffer(const Event& event);
  void OnAssigned(ClaimRecord* record, LeasePtr lease, TicketPtr ticket, PayloadPtr payload);
  // The offer has ended without a ticket, or its ticket's lease has ended.
  void DropOffer(ClaimRecord* record);
  void EndAssignment(ClaimRecord* record, EndCause cause);
  void PutBack(ClaimRecord* record);
  // Before a session that works is closed: nothing counts as an attempt.
  void PutAllBack(SessionRecord* record);
  void TellAssigned(ClaimRecord* record, PayloadPtr payload);
  // Reads the payload first.
  void TellAssignedLater(ClaimRecord* record);
  void Fill(const Id& session);

  // ---- sessions_work_places.cc ----
  void ArmWork();
  void OnWorkSweep();
  // Tells what it could not be told before, and lets it try again.
  void SweepWorker(SessionRecord* record);
  // The indexes keep no session that works no more.
  void ForgetWorkers();
  void LookUp(const std::string& prefix, const std::string& after);
  void OnLookedUp(const std::string& prefix, const Report& report);
  // There are tickets at this semaphore, which may be new.
  void OnTicketsAt(const std::string& semaphore);

  // ---- sessions_tickets.cc ----
  void FillInHolders(const Report& report, AdminAnswer* answer) const;

  // ---- sessions_figures.cc ----
  // How a claim that was found in the engine stands now.
  void CountFound(ClaimRecord* record);
  void CountEnd(ClaimRecord* record, EndCause cause);

  // ---- sessions_admin.cc ----
  void OnAdminOutcome(const std::string& semaphore, bool destroys, absl::StatusOr<Outcome> outcome,
                      Reply<AdminAnswer> reply);
  void WaitFor(Drains::Drain drain);
  // Answers with who holds now.
  void FinishDrain(Drains::Drain drain, bool done);
  void OnChanges(const std::vector<SemaphoreChange>& changes);

  SessionsHost* host_;
  SessionsOptions options_;
  Timers timers_;
  SemaphoreMetrics metrics_;
  LeaseLog lease_log_;
  Lists lists_;
  FiguresList figures_list_;
  QueuePaces paces_;
  EndMarks marks_;
  Adoptions adoptions_;
  TicketDelays delays_;
  IdleSemaphores idle_;
  Drains drains_;
  Watches watches_;
  absl::flat_hash_map<Id, std::unique_ptr<ClaimRecord>> claims_;
  absl::flat_hash_map<Id, std::unique_ptr<SessionRecord>> sessions_;
  absl::flat_hash_map<SessionListener*, Id> by_listener_;
  // Streams whose session is being opened or adopted, and which may go away meanwhile.
  absl::flat_hash_map<SessionListener*, Id> opening_;
  absl::btree_map<std::string, Unread> unread_;  // By semaphore.
  std::vector<NodeRef> dead_;                    // See NoteDead.
  absl::btree_set<Id> unread_sessions_;          // See ReadAgainLater.
  Id read_again_after_;                          // The one of them that was read last.
  bool read_again_armed_ = false;
  // The claims that move, by client id and sequence number of the request.
  absl::flat_hash_map<Requester, Id> moving_;
  size_t moves_ = 0;  // Records with `move`.

  // ---- workers ----
  // Sessions that work; and by what they named. May name some that have ended.
  absl::btree_set<Id> workers_;
  absl::btree_map<std::string, absl::btree_set<Id>> workers_by_name_;
  absl::btree_map<std::string, absl::btree_set<Id>> workers_by_prefix_;
  absl::btree_set<std::string> looking_up_;  // Prefixes.
  absl::btree_set<Id> to_put_back_;          // Claims for which that has failed.
  bool work_armed_ = false;

  bool stopping_ = false;
  std::atomic<uint64_t> pages_taken_over_ = 0;
};

}  // namespace semaphored
