// Inside the client: the acquires and releases of a session, from their call to their last answer: sent, sent again,
// answered, given up. Without threads, locks, sockets or a clock of its own. SessionMachine owns it, and REQUIRES the same:
// one thread at a time; `now` never goes back.
//
// Invariants:
//   * an operation is kept from its call until its last answer; its `done` is run exactly once;
//   * a sequence number is given out when a command is first sent, and the command is sent again
//     with the same number and the same content until it is answered, or its session is lost;
//   * for as long as the daemon may hold a lease for us it is kept (LeaseKeeper), or an operation gives it back, also
//     when its caller was answered with an error. A release is sent though the lease is lost *here*. Otherwise pings
//     would keep it alive for ever.
#ifndef SEMAPHORED_CLIENT_SEMAPHORE_OPERATIONS_H_
#define SEMAPHORED_CLIENT_SEMAPHORE_OPERATIONS_H_

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

class Operations {
 public:
  // `keeper` and `effects` outlive it. `options` were checked.
  Operations(const ClientOptions& options, LeaseKeeper* keeper, Effects* effects)
      : options_(options), keeper_(*keeper), effects_(*effects) {}
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;

  // ---- calls: as SessionMachine's ----
  std::uint64_t Acquire(AcquireCall call, TimePoint now);
  void Cancel(std::uint64_t number, TimePoint now);
  void CancelAllAcquires(TimePoint now);
  void Release(const std::shared_ptr<LeaseState>& lease, ReleaseDone done, TimePoint now);
  // The client is being destroyed: from now on acquires are answered with CANCELLED.
  void Close();
  bool empty() const { return operations_.empty(); }

  // ---- the stream ----
  // The session stands; the daemon holds `unknown` for it, which this client does not keep. What is unanswered is sent
  // again, in the old order.
  void OnOpened(std::set<std::string> unknown, TimePoint now);
  // Adds what is to be sent.
  void AddTo(v1::SessionRequest* message, TimePoint now);
  // Nothing waits to be sent.
  bool all_sent() const { return to_send_.empty(); }
  void OnResult(const v1::SessionResult& result, TimePoint now);
  // The daemon has reported the end of this lease.
  void OnLost(const std::string& lease_id) { unclaimed_.erase(lease_id); }
  // The next session is another client to the daemon. Acquires are new requests to it; the rest has
  // no meaning any more.
  void ForgetSession();

  // ---- the end, and what must not wait longer ----
  void FailAcquires(const absl::Status& status);
  // Releases are answered, and everything is dropped. Acquires were failed before.
  void Finish(const absl::Status& status);
  void GiveUpUnreachable(TimePoint now);
  // After a round in which no endpoint was reached: what must not wait does not.
  void GiveUpNotWaiting(TimePoint now);
  // Does what is due at its time. To be called at NextDue().
  void Tick(TimePoint now);
  TimePoint NextDue() const;

 private:
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
  using Table = std::map<std::uint64_t, Operation>;

  using Phase = LeaseKeeper::Phase;

  std::uint64_t Add(Operation operation);
  void Erase(Table::iterator operation);
  void Drop(AcquireCall call);
  void ForgetSequence(std::uint64_t sequence);
  bool MayGiveSequence() const;
  void OnAcquireResult(Table::iterator operation, const v1::SessionResult& result, TimePoint now);
  void OnReleaseResult(Table::iterator operation, const v1::SessionResult& result, TimePoint now);
  void OnGranted(Table::iterator operation, const v1::Lease& granted, TimePoint now);
  bool RetryAfterError(Table::iterator operation, const absl::Status& error, TimePoint now);
  void RetryAt(Table::iterator operation, TimePoint at);
  void Reissue(Table::iterator operation, TimePoint now);
  void Renumber(Operation& operation);
  void GiveBackLater(Table::iterator operation, TimePoint now);
  void GiveBack(const std::string& lease_id, TimePoint now);
  void GiveBackUnclaimed(TimePoint now);
  void Abandon(Table::iterator operation, const absl::Status& status, TimePoint now);
  void FinishAcquire(Operation& operation, absl::StatusOr<std::shared_ptr<LeaseState>> result);
  void FinishRelease(Operation& operation, absl::Status status);
  void ResendAll();
  absl::Status Unreachable() const;
  TimePoint GiveUpAt(const Operation& operation) const;

  const ClientOptions& options_;
  LeaseKeeper& keeper_;
  Effects& effects_;
  bool closing_ = false;

  // Leases that a resumed session holds and we do not know: the answers to commands that are sent
  // again claim them, or they are given back.
  std::set<std::string> unclaimed_;
  std::set<std::uint64_t> claimants_;

  std::uint64_t next_operation_ = 1;
  std::uint64_t next_sequence_ = 1;
  Table operations_;
  std::deque<std::uint64_t> to_send_;  // of operations; may name some that are gone
  std::unordered_map<std::uint64_t, std::uint64_t> by_sequence_;
  // Sent, and neither answered nor reported as queued: the daemon's window must reach back to the
  // first of them.
  std::set<std::uint64_t> in_flight_;
  std::set<std::pair<TimePoint, std::uint64_t>> local_ends_;
  std::set<std::pair<TimePoint, std::uint64_t>> retries_;
};

}  // namespace semaphore

#endif  // SEMAPHORED_CLIENT_SEMAPHORE_OPERATIONS_H_
