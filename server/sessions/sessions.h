// Which sessions are alive, and which claims they have: turns requests into commands for the lanes, outcomes and events
// into answers, and keeps the timers (TTL, wait, recall, longest hold). It knows no transport and has no rules of a
// semaphore.
//
// Everything here runs on one thread, the reactor's; nothing blocks. Callbacks and listeners are
// called on that thread, possibly before the call that caused them returns, and may call back into
// Sessions.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "adapters/adapter.h"
#include "adapters/watched_names.h"
#include "server/access/tenant.h"
#include "server/base/clock.h"
#include "server/base/reason.h"
#include "server/base/spans.h"
#include "server/base/trace.h"
#include "server/figures/metrics.h"
#include "server/lanes/lane.h"

namespace semaphored {

class SessionBook;

// A recall of a lease, as this daemon counts it.
struct RecallNotice {
  uint64_t id = 0;  // Of the lease's recalls each has its own. 0: the lease is not recalled.
  Recall::Reason reason = Recall::Reason::kNone;
  int64_t grace_ms = 0;  // What is left of it; not negative.
};

// How long an answer about a lease can be relied on, from when it is made.
struct Vouch {
  int64_t valid_for_ms = 0;
  uint64_t epoch = 0;
  RecallNotice recall = {};  // Of the one lease that the answer is about.
  // Of a session: all its leases are recalled. The session continues, even with valid_for_ms 0.
  bool recalled = false;

  bool none() const { return valid_for_ms == 0 && !recalled; }
};

// Receives the states of claims. The calls for each claim, in order: any number of OnQueued, then OnGranted or OnRefused;
// after OnGranted any number of OnRecalled, then at most one OnEnded.
class ClaimListener {
 public:
  virtual ~ClaimListener() = default;
  // `reason`: why it waits at this moment. expected_wait_ms -1: not known yet.
  virtual void OnQueued(uint64_t tag, uint64_t position, WaitReason reason,
                        int64_t expected_wait_ms) = 0;
  virtual void OnGranted(uint64_t tag, const LeasePtr& lease, const std::string& semaphore,
                         Vouch vouch) = 0;
  virtual void OnRefused(uint64_t tag, Refusal refusal) = 0;
  // Before anything is vouched for that would be longer without the recall.
  virtual void OnRecalled(uint64_t tag, const Id& claim, const std::string& semaphore,
                          const RecallNotice& recall) = 0;
  // Also with kReleased: another call of its holder has released it.
  virtual void OnEnded(uint64_t tag, const Id& claim, const std::string& semaphore,
                       EndCause cause) = 0;
};

// A ticket that a worker is to carry out, for as long as it has the lease.
struct Assignment {
  LeasePtr lease;
  std::string semaphore;
  TicketPtr ticket;
  PayloadPtr payload;  // Null: it is empty.
  RecallNotice recall;
};

struct HeldLease {
  LeasePtr lease;
  std::string semaphore;
  RecallNotice recall;
};

class SessionListener : public ClaimListener {
 public:
  // The daemon does not read what the client sends, for lack of room of its own: the session's TTL
  // does not run meanwhile.
  virtual bool unread() const { return false; }
  // `held`: all that the session holds, when resumed; of a worker, the leases of its tickets.
  virtual void OnOpened(const Id& session, int64_t ttl_ms, Vouch vouch, bool resumed,
                        const std::vector<HeldLease>& held) = 0;
  // The session is no more (expired, or moved to another daemon or stream); the listener is not
  // called again.
  virtual void OnSessionEnded(Refusal refusal) = 0;
  // The access rules have changed; the claims that they no longer allow have been dealt with (Recheck). The
  // listener may end its session within the call.
  virtual void OnRulesChanged() {}
  // For workers: a ticket is assigned to it; after the OnOpened of a resumed session, also each ticket that it still has.
  // OnRecalled and OnEnded of the ticket's lease have the tag 0. The end by the worker's own FinishIn is not reported.
  virtual void OnAssigned(const Assignment& /*assignment*/) {}
};

// The form (names, lengths, ranges) of all requests below has been checked. Each is the lane's command, with the fields of
// the request that only Sessions needs.

// Sessions fills in claim, session, epoch, owner, quotas, wait, only_if_repeated and the fields about a move; within a
// session also ttl_ms and the client id. An empty holder: that of the session, or one made of a new id.
struct AcquireParams : AcquireCommand {
  int64_t wait_ms = 0;  // Negative: for ever.
  TraceContext trace;   // For the log. Within a session, if empty: the session's.
  // The identity that it belongs to, with its part of that identity's quotas; kept until the claim ends. Null: it belongs
  // to none.
  ChargePtr charge;
  // Set: a request that was made before is answered with its present state, and counted; a new one with this refusal.
  // Needs a request id, and a charge.
  std::shared_ptr<const Refusal> unless_repeated;
};

// What a worker works for.
struct WorkParams {
  std::vector<std::string> semaphores;  // By name, and …
  std::vector<std::string> prefixes;    // … all that begin so.
  uint32_t tickets_max = 1;             // At once.
};

// Sessions fills in session and owner.
struct OpenParams : OpenSessionCommand {
  Id resume;  // Empty: a new one. Otherwise ttl_ms, holder and release_on_disconnect are those that the session has.
  // Set: a worker. On resume it replaces the former one.
  std::shared_ptr<const WorkParams> work;
  TraceContext trace;  // Of the stream, for the log.
  // As in AcquireParams, for as long as the session is known here; on resume it replaces the one
  // before. Claims that come with a session from another daemon are counted to the same tenant.
  ChargePtr charge;
};

struct RenewParams : AdoptCommand {
  uint64_t acknowledged_recall = 0;  // As in AcknowledgeRecall; 0: none.
  // A lease that belongs to none counts to this one from now on. May be null.
  TenantPtr tenant = {};
};

struct EnqueueAnswer {
  Id ticket;
  uint64_t position = 0;  // 0: it is not in the queue.
};

struct FinishAnswer {
  // The ticket's new state; nullopt: it is removed, or no longer known.
  std::optional<TicketState> state;
};

struct RenewAnswer {
  LeasePtr lease;
  std::string semaphore;
  Vouch vouch;
};

struct ReleaseAnswer {
  uint32_t released = 0;
  uint32_t remaining = 0;
  EndCause ended = EndCause::kNone;
  std::string owner;  // Outcome::Released::owner.
};

struct VerifyAnswer {
  bool held = false;
  EndCause ended = EndCause::kNone;
  LeasePtr lease;  // Set when held.
  std::string semaphore;
  Vouch vouch;
  uint64_t slot_token = 0;
};

struct AdminAnswer {
  std::unique_ptr<Report> report;
  bool done = false;
  bool changed = false;
  uint32_t affected = 0;
  std::string message;  // Outcome::message.
  // The holders of assigned tickets in the report, as far as this daemon knows them.
  std::map<Id, std::string> ticket_holders;
};

// Either an answer or a refusal.
template <typename T>
struct Result {
  std::unique_ptr<Refusal> refusal;  // nullptr: `value` is the answer.
  T value{};
  bool ok() const { return refusal == nullptr; }
};
template <typename T>
using Reply = absl::AnyInvocable<void(Result<T>)>;

class WatchListener {
 public:
  virtual ~WatchListener() = default;
  // A slice of the semaphores that exist at the start, in the order of names; NextSnapshot asks for the next one. After
  // the last one only OnChange follows.
  virtual void OnSnapshot(const std::vector<SemaphoreInfo>& infos, bool is_last) = 0;
  // In order, all those that match.
  virtual void OnChange(const SemaphoreChange& change) = 0;
  virtual void OnWatchRefused(Refusal refusal) = 0;
};

struct SessionsOptions {
  // A session whose stream broke keeps its waiters' places for this long. If it is resumed by then, they stay.
  int64_t resume_grace_ms = 1000;
  // For so long another daemon may not know that a session or a lease has moved: see vouch_until. Without effect on an
  // exclusive engine.
  int64_t node_ttl_ms = 10'000;
  int64_t sweep_interval_ms = 5000;
  // For how long after a semaphore was read its leases are vouched for: the node TTL less the margin.
  int64_t read_vouch_ms = 9000;
  uint32_t limit_max = 1'000'000;
  // The interval at which the daemon looks for tickets that no push has announced to workers.
  int64_t work_sweep_ms = 1000;
  // A semaphore that was made by its first use, and is idle for so long, is destroyed. 0: never.
  int64_t idle_destroy_after_ms = 0;
  // Semaphores that are counted by themselves. 0: nothing is counted.
  uint32_t metrics_semaphores_max = 0;
  // The engine is asked for a list of its semaphores at most so often. 0: never.
  int64_t metrics_list_interval_ms = 15'000;
  // Grants (level debug) and lost leases (warn) are logged.
  bool log_leases = false;
  // Receives the spans of claims; outlives Sessions. Null: there are no spans.
  SpanSink* spans = nullptr;
};

// What Sessions needs of the outside. Outlives it.
class SessionsHost {
 public:
  virtual ~SessionsHost() = default;
  virtual const Clock& clock() const = 0;
  virtual size_t lane_count() const = 0;
  virtual const Guarantees& guarantees() const = 0;
  // Hands the job to a lane; its completion later runs on the reactor's thread.
  virtual void Submit(size_t lane, Job job) = 0;
  // Hands the command to the lane of the semaphore, which answers in order.
  void SubmitAt(std::string_view semaphore, Command command, Completion done) {
    Submit(LaneOf(semaphore, lane_count()), Job{std::move(command), std::move(done)});
  }
  // Until when this daemon may vouch for leases (time of the last good heartbeat + node TTL −
  // margin; on a shared engine also the time at which the last good Step of each lane began + node
  // TTL − margin: what has moved to other daemons is known by then, but for a sweep interval).
  virtual SteadyTime vouch_until() const = 0;
  virtual Id NewId() = 0;
  // What the lanes ask for names whose changes they report.
  virtual std::shared_ptr<WatchedNames> watched() = 0;
};

class Sessions {
 public:
  virtual ~Sessions() = default;

  // ---- detached claims (Acquire, Hold) ----
  // The claim's id, for the calls below. The listener must stay until OnRefused, OnEnded, Detach or
  // Abandon.
  virtual Id Acquire(AcquireParams params, ClaimListener* listener, uint64_t tag) = 0;
  // The listener is not called again. A lease stays for its TTL.
  virtual void Detach(const Id& claim) = 0;
  // The client has disconnected: a waiting claim leaves the queue immediately. A lease stays for its TTL; it is ended
  // immediately if `end_lease`, or if no client can know of it (its grant was not reported, and the request had no id).
  // The listener is not called again.
  virtual void Abandon(const Id& claim, bool end_lease) = 0;
  // A sign of life of a detached claim: its TTL begins again. Returns what this daemon vouches for
  // from now on; valid_for_ms 0: nothing.
  virtual Vouch Touch(const Id& claim) = 0;

  // ---- sessions ----
  // OnOpened or OnSessionEnded follows. A stream that resumes a session takes it from an older
  // stream.
  virtual void Open(OpenParams params, SessionListener* listener) = 0;
  // A sign of life. REQUIRES (here and below): opened by this listener and not ended. Vouch::none():
  // nothing is vouched for.
  virtual Vouch TouchSession(const Id& session) = 0;
  virtual void AcquireIn(const Id& session, AcquireParams params, uint64_t tag,
                         bool report_queued) = 0;
  // Gives up the wait of the acquire with this tag (its sequence number); that acquire then gets
  // OnRefused, WAIT_CANCELLED, unless it was granted first. False: no such wait.
  virtual bool CancelIn(const Id& session, uint64_t tag) = 0;
  // The session's client knows of this recall of its lease, and stops by the end of the grace. Ignored if
  // the lease is not the session's, or the recall not its latest.
  virtual void AcknowledgeRecall(const Id& session, const Id& claim, uint64_t recall) = 0;
  // The stream has ended: the TTL counts from the last sign of life. May be called before OnOpened.
  virtual void DetachSession(SessionListener* listener) = 0;
  // A clean end: releases all claims, and puts a worker's tickets back. `done` runs when that is durable.
  virtual void CloseSession(const Id& session, absl::AnyInvocable<void()> done) = 0;

  // ---- tickets ----
  // `command.ticket` is filled in here.
  virtual void Enqueue(EnqueueCommand command, Reply<EnqueueAnswer> reply) = 0;
  // A worker reports the result of a ticket of this session. The hand that had the ticket is free with the call.
  // `command.requester` has the sequence number; the client is the session's.
  virtual void FinishIn(const Id& session, FinishCommand command, Reply<FinishAnswer> reply) = 0;
  // The worker takes at most so many tickets at the same time from now on. 0: none.
  virtual void SetTicketsMax(const Id& session, uint32_t tickets_max) = 0;

  // ---- by lease ----
  virtual void Renew(RenewParams params, Reply<RenewAnswer> reply) = 0;
  virtual void Release(ReleaseCommand command, Reply<ReleaseAnswer> reply) = 0;
  virtual void Verify(VerifyCommand command, Reply<VerifyAnswer> reply) = 0;

  // ---- administration ----
  // wait_ms: for destroy with policy wait. The wait's id, for EndWait; empty: it does not wait.
  virtual Id Administer(AdminCommand command, int64_t wait_ms, Reply<AdminAnswer> reply) = 0;
  virtual Id Drain(AdminCommand pause, uint32_t held_max, int64_t wait_ms,
                   Reply<AdminAnswer> reply) = 0;
  // The client has disconnected: the act is carried out, and answered without the rest of its wait. Without effect if it
  // has been answered, or does not wait.
  virtual void EndWait(const Id& wait) = 0;
  // As Lists::Add.
  virtual void List(ListCommand command, Reply<AdminAnswer> reply) = 0;
  virtual void History(HistoryCommand command, Reply<AdminAnswer> reply) = 0;
  // Watches the semaphore `name`, or if that is empty all whose names begin with `prefix`. OnSnapshot follows, and OnChange
  // before it and after it, until Unwatch or OnWatchRefused. Returns the argument for Unwatch; 0: it was refused.
  virtual uint64_t Watch(std::string prefix, std::string name, WatchListener* listener) = 0;
  // After an OnSnapshot that was not the last.
  virtual void NextSnapshot(uint64_t watch) = 0;
  // The listener receives nothing more of this watch, nor, if the same listener watches again, of an earlier one.
  virtual void Unwatch(uint64_t watch) = 0;

  // ---- driven by the reactor ----
  // Reads what dead nodes left behind (at the start: the earlier life of this node), page by page: between two pages the
  // lanes carry out other commands. `ready` runs when everything is read, or with the error of a lane; what was read by
  // then stays, and another TakeOver reads everything again.
  virtual void TakeOver(const std::vector<NodeRef>& dead,
                        absl::AnyInvocable<void(absl::Status)> ready) = 0;
  // Pages that all calls of TakeOver have received so far. Any thread.
  virtual uint64_t pages_taken_over() const = 0;
  // The results of a lane, in order.
  virtual void OnLaneResults(size_t lane, LaneResults results) = 0;
  // Runs the timers that are due. Returns the time of the next one.
  virtual SteadyTime OnTimer() = 0;
  // Vouching has ended or begun again: listeners of leases are refused with NOT_VOUCHED when it has
  // ended.
  virtual void OnVouchChange() = 0;
  // From now on new requests are refused with SHUTTING_DOWN; nothing more is submitted for waits
  // and TTLs, so that claims keep their places for the next start. Listeners get OnRefused or
  // OnSessionEnded.
  virtual void Shutdown() = 0;

  // ---- access ----
  // The access rules no longer allow the claim. If it waits, its wait ends, and its listener receives OnRefused
  // with PERMISSION_DENIED. A lease of a session is recalled with the session's TTL as its grace, so that what
  // keeps the rest of the session does not keep it. A detached lease is left alone: its own calls are refused.
  virtual void Deny(const Id& claim) = 0;
  // False: the rules no longer allow `owner` the semaphore; `held`: a lease of it, else a wait for it.
  using Allows =
      absl::FunctionRef<bool(std::string_view owner, const std::string& semaphore, bool held)>;
  // The access rules have changed: denies each claim of a known owner that `allows` refuses (a worker's offers are its
  // listener's), then calls OnRulesChanged of all sessions' listeners.
  virtual void Recheck(Allows allows) = 0;

  // The name of the identity that it belongs to. Empty: it is not known here, or belongs to none. Valid until the
  // next call.
  virtual std::string_view OwnerOfClaim(const Id& claim) const = 0;
  virtual const Charge* ChargeOfSession(const Id& session) const = 0;

  struct Counts {
    size_t sessions = 0;  // On streams.
    size_t leases = 0;
    size_t waiters = 0;
  };
  virtual Counts counts() const = 0;
  // For session_list.h.
  virtual const SessionBook& session_book() const = 0;

  // ---- metrics: without metrics_semaphores_max, nothing to see ----
  virtual void Figures(SessionsFigures* out) = 0;
  // Lists the engine's semaphores, at most ten thousand, if the last list began longer than metrics_list_interval_ms ago.
  // `done` runs when the list has ended, with success or without; immediately if no list is due.
  virtual void RefreshFigures(absl::AnyInvocable<void()> done) = 0;
};

// The host outlives it.
std::unique_ptr<Sessions> MakeSessions(SessionsHost* host, SessionsOptions options);

}  // namespace semaphored
