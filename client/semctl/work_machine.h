// The rules of a worker's stream, without threads, sockets or a clock of its own: connecting,
// resuming, pings, the deadline of what it has, and answers that are sent again until they are
// heard. As semaphore::SessionMachine is for leases, but much smaller, since a worker asks nothing.
//
// Invariants:
//   * a ticket is in `held_` from its assignment until its answer is heard, or the daemon says that
//     it is lost. That it is lost *here*, since no daemon vouched for it up to its deadline, is
//     reported, and takes it out only when it was answered: else it would stay ours as soon as
//     there is contact again;
//   * an answer keeps its sequence number, and is sent again on every stream of its session until
//     it is heard.
#ifndef SEMAPHORED_CLIENT_SEMCTL_WORK_MACHINE_H_
#define SEMAPHORED_CLIENT_SEMCTL_WORK_MACHINE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client/semaphore/backoff.h"
#include "client/semaphore/clock.h"
#include "proto/semaphore/v1/semaphore.pb.h"

namespace semaphore::semctl {

struct WorkOptions {
  std::size_t endpoints = 1;  // How many.
  std::vector<std::string> semaphores;
  std::vector<std::string> prefixes;
  std::uint32_t tickets_max = 1;
  std::string holder;
  std::chrono::milliseconds ttl{0};  // 0: the daemon's default.
  // Without an answer for so long, at first and once there was one, it gives up.
  std::chrono::milliseconds connect_timeout{5'000};
  std::chrono::milliseconds reconnect_timeout{60'000};
  std::chrono::milliseconds margin{20};
};

// Told by the machine; may call it back, but for OnMessage, OnStreamEnd and Tick.
class WorkListener {
 public:
  virtual ~WorkListener() = default;
  virtual void OnAssigned(const v1::TicketAssignment& assignment) = 0;
  // Once: what is done for it must end.
  virtual void OnLost(const std::string& lease_id, const std::string& why) = 0;
  virtual void OnRecalled(const std::string& lease_id, std::chrono::milliseconds grace,
                          const std::string& reason) = 0;
  // The answer was heard. NOT_FOUND: the lease had ended before.
  virtual void OnAnswered(const std::string& lease_id, const absl::Status& status,
                          v1::TicketState state) = 0;
};

class WorkMachine {
 public:
  // All outlive it.
  WorkMachine(WorkOptions options, std::function<std::string()> make_client_id,
              WorkListener* listener, TimePoint now);

  // ---- the worker ----
  // `finish` has the lease id and a result; the sequence is filled in.
  void Finish(v1::FinishTicket finish);
  void SetTicketsMax(std::uint32_t tickets_max);
  // Ends the session once all answers were heard.
  void Close() { closing_ = true; }
  // Whether an answer for it is still of use.
  bool Holds(const std::string& lease_id) const { return held_.contains(lease_id); }
  // Until when what it has can be relied on, if nothing more is heard.
  TimePoint good_until() const { return good_until_; }
  bool open() const { return phase_ == Phase::kOpen; }
  bool answered() const { return answers_.empty(); }
  // Nothing more will come of it: closed; or with an error.
  bool over() const { return phase_ == Phase::kOver; }
  const absl::Status& status() const { return status_; }

  // ---- the stream ----
  // A stream to this endpoint is to be opened now.
  bool StartConnecting(std::size_t* endpoint, TimePoint now);
  // True: `message` is to be sent. To be asked when none is on its way.
  bool NextMessage(v1::WorkRequest* message, TimePoint now);
  void OnMessage(const v1::WorkResponse& message, TimePoint now);
  void OnStreamEnd(const absl::Status& status, TimePoint now);
  // The stream is to be cancelled, and nothing more of it to be told. Once.
  bool TakeDrop() { return std::exchange(drop_, false); }
  void Tick(TimePoint now);
  // `can_send`: a message can be sent now; otherwise the end of the one under way is waited for
  // anyway.
  TimePoint NextDue(bool can_send) const;

 private:
  enum class Phase { kWaiting, kOpening, kOpen, kOver };
  struct Answer {
    v1::FinishTicket finish;
    bool sent = false;  // On this stream.
    TimePoint not_before{};
  };

  void FillOpen(v1::OpenWork* open);
  void OnOpened(const v1::SessionOpened& opened, TimePoint now);
  void OnAssignment(const v1::TicketAssignment& assignment);
  void OnResult(const v1::FinishTicketResult& result, TimePoint now);
  void OnEvent(const v1::SessionEvent& event);
  void OnPong(const v1::SessionPong& pong);
  bool Extend(const v1::LeaseValidity& validity, TimePoint sent);
  void Lose(const std::string& lease_id, const std::string& why);
  void LoseSession();
  void Disconnect(const absl::Status& why, TimePoint now);
  void Drop(const absl::Status& why, TimePoint now);
  void End(absl::Status status);
  std::chrono::milliseconds Pace() const;
  TimePoint ContactDeadline() const;

  const WorkOptions options_;
  const std::function<std::string()> make_client_id_;
  WorkListener* const listener_;

  Phase phase_ = Phase::kWaiting;
  absl::Status status_;
  Backoff backoff_;
  std::size_t endpoint_ = 0;
  std::size_t attempts_ = 0;  // In this round.
  TimePoint connect_at_;
  TimePoint open_deadline_ = kNever;
  TimePoint open_sent_at_ = kNever;
  TimePoint silent_since_;
  bool ever_open_ = false;
  bool drop_ = false;
  bool closing_ = false;
  bool close_sent_ = false;

  std::string client_id_;
  std::string session_id_;
  std::uint64_t epoch_ = 0;
  std::uint64_t next_sequence_ = 1;
  std::chrono::milliseconds ttl_;
  std::chrono::milliseconds vouched_{0};
  TimePoint good_until_ = TimePoint::min();
  std::uint32_t tickets_max_;
  bool tickets_max_said_ = true;
  std::map<std::string, bool> held_;  // By lease id; whether its loss has been told.
  std::map<std::uint64_t, Answer> answers_;

  std::uint64_t last_ping_id_ = 0;
  std::deque<std::pair<std::uint64_t, TimePoint>> pings_;
  TimePoint ping_due_ = kNever;
};

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_WORK_MACHINE_H_
