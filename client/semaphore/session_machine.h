// Inside the client: the rules of a session's stream, without threads, locks, sockets or a clock of its own: opened, resumed,
// its messages, its end. Its acquires and releases are Operations; what keeps its leases alive is LeaseKeeper.
//
// Its driver (session_driver.cc; a test) calls it with the time, hands it what the stream reported,
// asks it for the next message and carries out its effects. So every rule about deadlines, resuming
// and retrying can be tested by moving a number.
//
// REQUIRES of all functions: one thread at a time; `now` never goes back.
#ifndef SEMAPHORED_CLIENT_SEMAPHORE_SESSION_MACHINE_H_
#define SEMAPHORED_CLIENT_SEMAPHORE_SESSION_MACHINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client/semaphore/client.h"
#include "client/semaphore/clock.h"
#include "client/semaphore/lease_keeper.h"
#include "client/semaphore/operations.h"
#include "proto/semaphore/v1/semaphore.pb.h"

namespace semaphore {

class SessionMachine {
 public:
  // `options` were checked. `make_client_id` gives a new unique id at each call.
  SessionMachine(const ClientOptions& options, std::function<std::string()> make_client_id);
  SessionMachine(const SessionMachine&) = delete;
  SessionMachine& operator=(const SessionMachine&) = delete;

  // ---- operations ----

  // Returns a number for Cancel.
  std::uint64_t Acquire(AcquireCall call, TimePoint now) {
    return operations_.Acquire(std::move(call), now);
  }
  // Gives up a wait: `done` gets CANCELLED. Nothing happens if it was answered before.
  void Cancel(std::uint64_t number, TimePoint now) { operations_.Cancel(number, now); }
  void CancelAllAcquires(TimePoint now) { operations_.CancelAllAcquires(now); }
  void Release(const std::shared_ptr<LeaseState>& lease, ReleaseDone done, TimePoint now) {
    operations_.Release(lease, std::move(done), now);
  }
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

  bool Wanted() const { return !operations_.empty() || !keeper_.empty(); }
  void Disconnect(const absl::Status& why, TimePoint now);
  void DropStream(const absl::Status& why, TimePoint now);
  void ForgetSession();
  void LoseSession(TimePoint now);
  void Finish(const absl::Status& status);
  void OnOpened(const v1::SessionOpened& opened, TimePoint now);
  void Take(const v1::SessionResponse& message, TimePoint now);
  void FillOpen(v1::SessionRequest* message, TimePoint now);

  const ClientOptions options_;
  const std::function<std::string()> make_client_id_;
  Effects effects_;

  LeaseKeeper keeper_;
  Operations operations_;
  bool closing_ = false;
  bool close_sent_ = false;
  TimePoint close_deadline_ = kNever;

  std::string client_id_;
  // With `opened`, but for the last one: what comes beside a list counts once all of the list is there.
  std::vector<v1::SessionResponse> pages_;
};

}  // namespace semaphore

#endif  // SEMAPHORED_CLIENT_SEMAPHORE_SESSION_MACHINE_H_
