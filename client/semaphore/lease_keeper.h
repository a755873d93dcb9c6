// Inside the client: what keeps leases alive, on a Session or a Work stream: the connection, the session on it, pings,
// for how long a daemon has vouched for the leases, recalls and losses. Without threads, sockets or a clock of its own.
//
// SessionMachine and the WorkSession of semctl own one each. They send what it asks them to send, hand it what has come, and add the
// commands of their stream.
//
// REQUIRES of all functions: one thread at a time; `now` never goes back.
//
// Invariants:
//   * a lease is kept from Keep until Forget, a loss that the daemon reports, a resume that does not list it, or the
//     loss of its session. That it is lost *here*, since its deadline has passed, is reported, and does not take it out:
//     the daemon may still hold it for this client;
//   * each session has a deadline of its own, so that what a later session is vouched for never extends a lease of an
//     earlier one;
//   * a recalled lease is never counted on beyond sent(ping) + elapsed + grace of its recall, whatever pongs say.
#ifndef SEMAPHORED_CLIENT_SEMAPHORE_LEASE_KEEPER_H_
#define SEMAPHORED_CLIENT_SEMAPHORE_LEASE_KEEPER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client/semaphore/backoff.h"
#include "client/semaphore/client.h"
#include "client/semaphore/clock.h"
#include "client/semaphore/lease_recalls.h"
#include "client/semaphore/lease_state.h"
#include "client/semaphore/pings.h"
#include "proto/semaphore/v1/semaphore.pb.h"

namespace semaphore {

// Whether what was to give a lease back, and was answered so, need not be sent again: it was given back, is not held any
// more, or this client never may. After another error the session's pings would keep alive what its program has let go.
bool EndsGivingBack(const absl::Status& answer);
// Between attempts to give a lease back the pause doubles up to this.
inline constexpr std::chrono::milliseconds kGiveBackPauseMost{10'000};

class LeaseKeeper {
 public:
  using LeasePtr = std::shared_ptr<LeaseState>;

  enum class Phase {
    kIdle,     // no stream, and none is wanted
    kWaiting,  // no stream; the next attempt is at its time
    kOpening,  // a stream, `opened` has not come
    kOpen,
    kOver,
  };
  // What a page of `opened` means.
  enum class Opening {
    kMore,    // further pages follow
    kOpened,  // the session stands, and was resumed if there was one
    kAnother,  // the daemon has opened another session than the one to resume: the stream is of no use
    kOvertaken,  // another daemon hosts the session: likewise
  };
  using Recalled = semaphore::Recalled;

  // `endpoints`: how many there are. `ttl`: 0 is the daemon's default.
  LeaseKeeper(std::size_t endpoints, std::chrono::milliseconds ttl,
              std::chrono::milliseconds margin);

  Phase phase() const { return phase_; }
  const std::string& session_id() const { return session_id_; }
  bool ever_open() const { return ever_open_; }
  // Without contact since then; of meaning while there is no open stream.
  TimePoint silent_since() const { return silent_since_; }
  const absl::Status& last_error() const { return last_error_; }

  // ---- the stream ----
  void Want(TimePoint now);
  // No stream is wanted any more. REQUIRES: kWaiting.
  void Rest() { phase_ = Phase::kIdle; }
  void End() { phase_ = Phase::kOver; }
  // True when a stream to the endpoint of this index must be opened now; it then counts as being opened.
  bool StartConnecting(std::size_t* endpoint, TimePoint now);
  // The first message of the stream, which opens the session, is to be sent; OnOpenSent when it is.
  bool open_due() const { return phase_ == Phase::kOpening && open_sent_at_ == kNever; }
  void OnOpenSent(TimePoint now);
  // REQUIRES: kOpening, and OnOpenSent was called. After kOpened the leases that the page and those before it have not
  // listed are lost.
  Opening OnOpened(const v1::SessionOpened& opened, TimePoint now);
  // Of the last kOpened: leases that the session holds and this client does not keep.
  std::set<std::string> TakeUnknown() { return std::exchange(listed_, {}); }
  // The stream is no more. True: every endpoint was tried in vain since the last one that opened.
  bool Disconnect(const absl::Status& why, TimePoint now);
  // The endpoint answers: it is tried again at once. REQUIRES: Disconnect was just called.
  void StayHere(TimePoint now);

  // ---- messages of an open stream ----
  // Adds the ping that is due, and acknowledgements. True: something was added. The caller sends the message at once.
  template <typename Request>
  bool AddTo(Request* message, TimePoint now) {
    for (auto& acknowledgement : recalls_.TakeAcknowledgements())
      *message->add_acknowledged_recalls() = std::move(acknowledgement);
    if (pings_.IsDue(now)) {
      message->mutable_ping()->set_ping_id(pings_.Send(now, PingPause()));
      shortened_ = false;
    }
    return message->has_ping() || message->acknowledged_recalls_size() > 0;
  }
  void OnPong(const v1::SessionPong& pong);
  void OnEvent(const v1::SessionEvent& event);
  // The application knows of the recall. Sent on the stream on which the recall came, or never.
  void Acknowledge(const Recalled& recalled);

  // ---- leases ----
  // A lease of the session, as the daemon grants it. `lease` is one of MakeLease.
  void Keep(const LeasePtr& lease, const v1::Lease& granted);
  LeasePtr MakeLease(const v1::Lease& granted) const;
  // Null: it is not kept.
  LeasePtr Find(const std::string& lease_id) const;
  bool empty() const { return leases_.empty(); }
  // One is kept that is not lost.
  bool has_good() const;
  // It was given back.
  void Forget(const std::string& lease_id);
  // All leases are lost, and the next stream opens a new session.
  void LoseSession(TimePoint now);
  // The next stream opens a new session. REQUIRES: no leases.
  void ForgetSession();
  // Leases that were lost since the last call, each once in its life, in order; and recalls.
  std::vector<LeasePtr> TakeLost() { return std::exchange(lost_, {}); }
  std::vector<Recalled> TakeRecalled() { return recalls_.TakeRecalled(); }
  // Leases that are kept no more, of those with functions of the application: to be let go without a lock held.
  std::vector<LeasePtr> TakeDropped() { return std::exchange(dropped_, {}); }

  // ---- time ----
  // Reports the leases whose time is over. An error: the stream has gone silent, and is to be given up for this reason.
  absl::Status Tick(TimePoint now);
  // `can_send`: a message can be sent now; otherwise the end of the one under way is waited for anyway.
  TimePoint NextDue(bool can_send) const;

 private:
  void AwaitOpened(TimePoint now);
  void DropLeasesNotListed();
  void Drop(LeasePtr lease);
  bool Extend(const v1::LeaseValidity& validity, TimePoint sent);
  void Lose(const LeasePtr& lease, LossCause cause, std::string message);
  void OnRecall(const std::string& lease_id, const v1::LeaseRecall& recall);
  // When the message was sent from whose arrival a recall counts.
  TimePoint SentAt(std::uint64_t ping_id) const;
  bool AllRecalled() const;
  std::chrono::milliseconds Pace() const;
  std::chrono::milliseconds PingPause() const;
  TimePoint ContactDeadline() const;

  const std::size_t endpoints_;
  const std::chrono::milliseconds margin_;
  Pings pings_;
  LeaseRecalls recalls_;

  // ---- the stream ----
  Phase phase_ = Phase::kIdle;
  Backoff backoff_;
  std::size_t endpoint_ = 0;
  std::size_t attempts_in_round_ = 0;
  TimePoint connect_at_ = kNever;
  TimePoint open_sent_at_ = kNever;  // kNever: `open` has not been sent on this stream
  TimePoint open_deadline_ = kNever;
  TimePoint silent_since_{};
  bool ever_open_ = false;
  absl::Status last_error_;

  // ---- the session ----
  std::string session_id_;  // empty: there is none
  std::chrono::milliseconds ttl_;
  std::chrono::milliseconds vouched_{0};  // as pings take it; 0: there was no answer
  // The last answer vouched for less than that, since all leases were recalled, and no ping was sent after it.
  bool shortened_ = false;
  std::uint64_t epoch_ = 0;
  std::shared_ptr<SharedDeadline> deadline_;
  bool deadline_told_ = true;  // no lease that is not lost hangs on deadline_
  std::unordered_map<std::string, LeasePtr> leases_;
  std::vector<LeasePtr> lost_;
  std::vector<LeasePtr> dropped_;
  std::set<std::string> listed_;  // in the pages of SessionOpened that have come so far
  std::vector<std::pair<std::string, v1::LeaseRecall>> listed_recalls_;  // likewise
};

}  // namespace semaphore

#endif  // SEMAPHORED_CLIENT_SEMAPHORE_LEASE_KEEPER_H_
