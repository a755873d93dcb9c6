// Inside the client: the rules of a session's commands, without threads, locks, sockets or a clock of its own. What
// keeps its leases alive is LeaseKeeper.
//
// Its driver (connection.cc; a test) calls it with the time, hands it what the stream reported,
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
//   * for as long as the daemon may hold a lease for us it is kept (LeaseKeeper), or an operation gives it back, also
//     when its caller was answered with an error. A release is sent though the lease is lost *here*. Otherwise pings
//     would keep it alive for ever.
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
#include "client/semaphore/client.h"
#include "client/semaphore/clock.h"
#include "client/semaphore/lease_keeper.h"
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
  // Leases whose loss is to be reported.
  std::vector<Closure> losses;
  // Recalls for the application's handlers; when one has run, Acknowledge is to be called.
  std::vector<LeaseKeeper::Recalled> recalls;
  // What the application gave with requests and leases that are over. Its destructors may call the client.
  std::vector<AcquireCall> dropped_calls;
  std::vector<LeaseKeeper::LeasePtr> dropped_leases;
  // The stream is given up: cancel it, and report nothing of it any more.
  bool drop_stream = false;
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
  bool closed() const { return keeper_.phase() == Phase::kOver; }
  // The application's handler of a recall has run.
  void Acknowledge(const LeaseKeeper::Recalled& recalled) { keeper_.Acknowledge(recalled); }

  // ---- the stream ----

  // True when a stream to the endpoint of this index must be opened now; it then counts as being
  // opened.
  bool StartConnecting(std::size_t* endpoint, TimePoint now) {
    return Wanted() && keeper_.StartConnecting(endpoint, now);
  }
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

  Effects TakeEffects();

 private:
  using Phase = LeaseKeeper::Phase;
  enum class Kind { kAcquire, kRelease, kCancel };

  struct Operation {
    Kind kind = Kind::kAcquire;
    v1::SessionCommand command;  // its sequence is 0 until it is sent
    TimePoint called_at{};
    TimePoint wait_end = kNever;   // by the caller's wish
    TimePoint local_end = kNever;  // when we stop to wait for the daemon's answer
    TimePoint unavailable_since = kNever;
    TimePoint retry_at = kNever;         // with the operation's number it is in retries_, or was
    std::chrono::milliseconds pause{0};  // before a release is sent again whose caller has an error
    bool queued = false;                 // the daemon said so
    bool abandoned = false;              // `done` was run; a grant that still comes is given back
    bool reissued = false;  // under a new number, since the daemon has forgotten the old one
    AcquireCall acquire;
    ReleaseDone release_done;
  };
  using Operations = std::map<std::uint64_t, Operation>;

  // session_machine.cc: the session.
  bool Wanted() const { return !operations_.empty() || !keeper_.empty(); }
  void Disconnect(const absl::Status& why, TimePoint now);
  void DropStream(const absl::Status& why, TimePoint now);
  void LoseSession(TimePoint now);
  void Finish(const absl::Status& status);
  void OnOpened(const v1::SessionOpened& opened, TimePoint now);
  void Take(const v1::SessionResponse& message, TimePoint now);
  void FillOpen(v1::SessionRequest* message, TimePoint now);

  // session_operations.cc: the operations.
  std::uint64_t Add(Operation operation);
  void Erase(Operations::iterator operation);
  void Drop(AcquireCall call);
  void ForgetSequence(std::uint64_t sequence);
  void FillCommands(v1::SessionRequest* message, TimePoint now);
  bool MayGiveSequence() const;
  void OnResult(const v1::SessionResult& result, TimePoint now);
  void OnAcquireResult(Operations::iterator operation, const v1::SessionResult& result,
                       TimePoint now);
  void OnReleaseResult(Operations::iterator operation, const v1::SessionResult& result,
                       TimePoint now);
  void OnGranted(Operations::iterator operation, const v1::Lease& granted, TimePoint now);
  bool RetryAfterError(Operations::iterator operation, const absl::Status& error, TimePoint now);
  void RetryAt(Operations::iterator operation, TimePoint at);
  void Reissue(Operations::iterator operation, TimePoint now);
  void Renumber(Operation& operation);
  void GiveBackLater(Operations::iterator operation, TimePoint now);
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

  LeaseKeeper keeper_;
  bool closing_ = false;
  bool close_sent_ = false;
  TimePoint close_deadline_ = kNever;

  std::string client_id_;
  // With `opened`, but for the last one: what comes beside a list counts once all of the list is there.
  std::vector<v1::SessionResponse> pages_;
  // Leases that a resumed session holds and we do not know: the answers to commands that are sent
  // again claim them, or they are given back.
  std::set<std::string> unclaimed_;
  std::set<std::uint64_t> claimants_;

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
