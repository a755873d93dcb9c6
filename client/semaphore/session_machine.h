// Inside the client: the rules of a session, without threads, locks, sockets or a clock of its own.
//
// Whoever drives it (connection.cc; a test) calls it with the time, hands it what the stream said,
// asks it for the next message and carries out its effects. So every rule about deadlines, resuming
// and retrying can be tested by moving a number.
//
// REQUIRES of all functions: one thread at a time; `now` never goes back.
//
// Invariants:
//   * an operation is in `operations_` from its call until its last answer; its `done` is run
//     exactly once;
//   * a sequence number is given out when a command is first sent, and the command is sent again
//     with the same number and the same content until it is answered, or its session is lost;
//   * a lease in `leases_` is one that the daemon may still hold for us: only an answered release,
//     a `lost` event, a resume that does not list it or the loss of the session takes it out. That
//     it is lost *here* (the deadline passed) does not: its release must still be sent, or we would
//     keep it alive for ever.
#ifndef SEMAPHORED_CLIENT_SEMAPHORE_SESSION_MACHINE_H_
#define SEMAPHORED_CLIENT_SEMAPHORE_SESSION_MACHINE_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/semaphore/backoff.h"
#include "client/semaphore/client.h"
#include "client/semaphore/clock.h"
#include "client/semaphore/lease_state.h"
#include "proto/semaphore/v1/semaphore.pb.h"

namespace semaphore {

using Closure = absl::AnyInvocable<void()>;
using AcquireDone = absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<LeaseState>>)>;
using ReleaseDone = absl::AnyInvocable<void(absl::Status)>;

struct AcquireCall {
  // `wait_ms` is filled in when the command is sent.
  v1::SessionAcquire request;
  // Negative: for ever.
  std::chrono::milliseconds wait{-1};
  std::function<void(const QueuePlace&)> on_queued;
  std::function<void(const Loss&)> on_lost;
  std::function<void(const RecallNotice&)> on_recall;
  AcquireDone done;
};

// What is to be done outside, without a lock held.
struct Effects {
  // Answers, in order.
  std::vector<Closure> results;
  // Leases whose loss must be told, and recalls.
  std::vector<Closure> losses;
  // The stream is given up: cancel it, and report nothing of it any more.
  bool drop_stream = false;

  bool empty() const { return results.empty() && losses.empty() && !drop_stream; }
};

class SessionMachine {
 public:
  // `options` were checked. `make_client_id` gives a new unique id at each call.
  SessionMachine(const ClientOptions& options, std::function<std::string()> make_client_id);

  // ---- operations ----

  // Returns a number for Cancel.
  std::uint64_t Acquire(AcquireCall call, TimePoint now);
  // Gives up a wait: `done` gets CANCELLED. Nothing happens if it was answered before.
  void Cancel(std::uint64_t number, TimePoint now);
  void CancelAllAcquires(TimePoint now);
  void Release(const std::shared_ptr<LeaseState>& lease, ReleaseDone done, TimePoint now);
  // Ends the session cleanly, as far as the daemon can be reached within `release_timeout`.
  void Close(TimePoint now);
  bool closed() const { return phase_ == Phase::kClosed; }

  // ---- the stream ----

  // True when a stream to the endpoint of this index must be opened now; it then counts as being
  // opened.
  bool StartConnecting(std::size_t* endpoint, TimePoint now);
  // Fills in the next message, if there is one. The caller sends it at once: `now` counts as the
  // time sent.
  bool NextMessage(v1::SessionRequest* message, TimePoint now);
  void OnMessage(const v1::SessionResponse& message, TimePoint now);
  void OnStreamEnd(const absl::Status& status, TimePoint now);

  // ---- time ----

  // Does what is due. To be called at NextDue(), and may be called at any time.
  void Tick(TimePoint now);
  // `can_send`: a message can be sent now; otherwise the end of the one under way is waited for
  // anyway.
  TimePoint NextDue(bool can_send) const;

  Effects TakeEffects() { return std::exchange(effects_, Effects{}); }

 private:
  enum class Phase {
    kIdle,     // no stream, and none is wanted
    kWaiting,  // no stream; the next attempt is at connect_at_
    kOpening,  // a stream, `opened` has not come
    kOpen,
    kClosed,
  };
  enum class Kind { kAcquire, kRelease, kCancel };

  struct Operation {
    Kind kind = Kind::kAcquire;
    v1::SessionCommand command;  // its sequence is 0 until it is sent
    TimePoint called_at{};
    TimePoint wait_end = kNever;   // by the caller's wish
    TimePoint local_end = kNever;  // when we stop to wait for the daemon's answer
    TimePoint unavailable_since = kNever;
    bool queued = false;     // the daemon said so
    bool abandoned = false;  // `done` was run; a grant that still comes is given back
    bool reissued = false;   // under a new number, since the daemon has forgotten the old one
    AcquireCall acquire;
    ReleaseDone release_done;
    std::shared_ptr<LeaseState> lease;
  };
  using Operations = std::map<std::uint64_t, Operation>;

  // session_machine.cc: the session.
  void WantStream(TimePoint now);
  // Gives the daemon its time for `opened`, or for the next page of it.
  void AwaitOpened(TimePoint now);
  bool Wanted() const { return !operations_.empty() || !leases_.empty(); }
  void Disconnect(const absl::Status& why, TimePoint now);
  void DropStream(const absl::Status& why, TimePoint now);
  void LoseSession(TimePoint now);
  void Finish(const absl::Status& status);
  void OnOpened(const v1::SessionOpened& opened, TimePoint now);
  void DropLeasesNotListed();
  void OnPong(const v1::SessionPong& pong);
  void OnEvent(const v1::SessionEvent& event, TimePoint now);
  bool Extend(const v1::LeaseValidity& validity, TimePoint sent);
  void Lose(const std::shared_ptr<LeaseState>& lease, LossCause cause, std::string message);
  void CheckDeadlines(TimePoint now);
  std::chrono::milliseconds Pace() const;
  TimePoint ContactDeadline() const;
  void FillOpen(v1::SessionRequest* message, TimePoint now);

  // session_operations.cc: the operations.
  std::uint64_t Add(Operation operation);
  void Erase(Operations::iterator operation);
  void FillCommands(v1::SessionRequest* message, TimePoint now);
  bool MayGiveSequence() const;
  void OnResult(const v1::SessionResult& result, TimePoint now);
  void OnAcquireResult(Operations::iterator operation, const v1::SessionResult& result,
                       TimePoint now);
  void OnReleaseResult(Operations::iterator operation, const v1::SessionResult& result,
                       TimePoint now);
  void OnGranted(Operations::iterator operation, const v1::Lease& granted, TimePoint now);
  bool RetryAfterError(Operations::iterator operation, const absl::Status& error, TimePoint now);
  void Reissue(Operations::iterator operation, TimePoint now);
  void GiveBack(const std::string& lease_id, TimePoint now);
  void GiveBackUnclaimed(TimePoint now);
  void Abandon(Operations::iterator operation, const absl::Status& status, TimePoint now);
  void FinishAcquire(Operation& operation, absl::StatusOr<std::shared_ptr<LeaseState>> result);
  void FinishRelease(Operation& operation, absl::Status status);
  void FailAcquires(const absl::Status& status);
  void ResendAll();
  void ForgetSession();
  void GiveUpUnreachable(TimePoint now);
  // After a round in which no endpoint was reached: what must not wait does not.
  void GiveUpNotWaiting(TimePoint now);
  absl::Status Unreachable() const;
  TimePoint GiveUpAt(const Operation& operation) const;
  void CheckOperations(TimePoint now);

  const ClientOptions options_;
  const std::function<std::string()> make_client_id_;
  Effects effects_;

  // ---- the stream ----
  Phase phase_ = Phase::kIdle;
  Backoff backoff_;
  std::size_t endpoint_ = 0;
  std::size_t attempts_in_round_ = 0;
  TimePoint connect_at_ = kNever;
  TimePoint open_sent_at_ = kNever;  // kNever: `open` has not been sent on this stream
  TimePoint open_deadline_ = kNever;
  TimePoint disconnected_since_{};
  bool ever_connected_ = false;
  absl::Status last_error_;
  bool closing_ = false;
  bool close_sent_ = false;
  TimePoint close_deadline_ = kNever;

  // ---- the session ----
  std::string client_id_;
  std::string session_id_;  // empty: there is none
  std::chrono::milliseconds ttl_;
  std::chrono::milliseconds vouched_{0};  // By the last answer; 0: there was none.
  std::uint64_t epoch_ = 0;
  std::shared_ptr<SharedDeadline> deadline_;
  std::unordered_map<std::string, std::shared_ptr<LeaseState>> leases_;
  std::multimap<TimePoint, std::weak_ptr<LeaseState>> recalls_;
  bool deadline_told_ = true;  // no lease that is not lost hangs on deadline_
  // Leases that a resumed session holds and we do not know: the answers to commands that are sent
  // again claim them, or they are given back.
  std::set<std::string> unclaimed_;
  // Leases in the pages of SessionOpened that have come so far.
  std::set<std::string> listed_;
  std::set<std::uint64_t> claimants_;

  // ---- pings ----
  std::uint64_t last_ping_id_ = 0;
  std::deque<std::pair<std::uint64_t, TimePoint>> pings_;  // sent and not answered
  TimePoint ping_due_ = kNever;

  // ---- operations ----
  std::uint64_t next_operation_ = 1;
  std::uint64_t next_sequence_ = 1;
  Operations operations_;
  std::deque<std::uint64_t> to_send_;  // of operations; may name some that are gone
  std::unordered_map<std::uint64_t, std::uint64_t> by_sequence_;
  // Sent, and neither answered nor reported as queued: the daemon's window must reach back to the
  // first of them.
  std::set<std::uint64_t> in_flight_;
  std::set<std::pair<TimePoint, std::uint64_t>> local_ends_;
  std::set<std::pair<TimePoint, std::uint64_t>> retries_;
};

}  // namespace semaphore

#endif  // SEMAPHORED_CLIENT_SEMAPHORE_SESSION_MACHINE_H_
