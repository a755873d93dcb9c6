// What a worker's stream says of tickets: assignments, and answers that are sent again until they are heard. What keeps
// the leases of its tickets alive is LeaseKeeper. Without threads, sockets or a clock of its own.
//
// Invariants:
//   * a ticket is held from its assignment until its answer is heard, or its lease has ended at the daemon. That the lease
//     is lost *here* is reported, and takes it out only when it was answered: else it would stay ours as soon as there is
//     contact again;
//   * an answer keeps its sequence number, unless the daemon has forgotten it, and is sent again on every stream of its
//     session, and after an error, until the ticket's lease has ended.
#ifndef SEMAPHORED_CLIENT_SEMCTL_WORK_SESSION_H_
#define SEMAPHORED_CLIENT_SEMCTL_WORK_SESSION_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client/semaphore/clock.h"
#include "client/semaphore/lease_keeper.h"
#include "proto/semaphore/v1/semaphore.pb.h"

namespace semaphore::semctl {

struct WorkOptions {
  std::size_t endpoints = 1;  // How many.
  std::vector<std::string> semaphores;
  std::vector<std::string> prefixes;
  std::uint32_t tickets_max = 1;
  std::string holder;
  std::chrono::milliseconds ttl{0};  // 0: the daemon's default.
  // Without an answer for so long, at first and once there was one, it gives up; but never while a ticket's lease is good.
  std::chrono::milliseconds connect_timeout{5'000};
  std::chrono::milliseconds reconnect_timeout{60'000};
  std::chrono::milliseconds margin{20};
};

// Called by the session; may call it back, but for OnMessage, OnStreamEnd and Tick.
class WorkListener {
 public:
  virtual ~WorkListener() = default;
  virtual void OnAssigned(const v1::TicketAssignment& assignment,
                          const LeaseKeeper::LeasePtr& lease) = 0;
  // Once: what is done for it must end.
  virtual void OnLost(const std::string& lease_id, const std::string& why) = 0;
  // The work must end by lease->GoodUntil(). The recall is acknowledged when this returns.
  virtual void OnRecalled(const LeaseKeeper::LeasePtr& lease, const RecallNotice& notice) = 0;
  // The answer was refused a second time, and is sent again and again. Once for each.
  virtual void OnRefusedAgain(const std::string& lease_id, const absl::Status& why) = 0;
  // The answer was heard. NOT_FOUND: the lease had ended before. INVALID_ARGUMENT, PERMISSION_DENIED: it is of no use.
  virtual void OnAnswered(const std::string& lease_id, const absl::Status& status,
                          v1::TicketState state) = 0;
};

class WorkSession {
 public:
  // All outlive it.
  WorkSession(WorkOptions options, std::function<std::string()> make_client_id,
              WorkListener* listener, TimePoint now);

  // ---- the worker ----
  // `finish` has the lease id and a result; the sequence is filled in.
  void Finish(v1::FinishTicket finish);
  void SetTicketsMax(std::uint32_t tickets_max);
  // Ends the session once all answers were heard.
  void Close() { closing_ = true; }
  // Whether an answer for it is still of use.
  bool Holds(const std::string& lease_id) const { return keeper_.Find(lease_id) != nullptr; }
  bool open() const { return keeper_.phase() == Phase::kOpen; }
  bool answered() const { return answers_.empty(); }
  // Nothing more will come of it: closed; or with an error.
  bool over() const { return keeper_.phase() == Phase::kOver; }
  // REQUIRES: over().
  const absl::Status& status() const { return status_; }

  // ---- the stream ----
  // A stream to this endpoint is to be opened now.
  bool StartConnecting(std::size_t* endpoint, TimePoint now) {
    return keeper_.StartConnecting(endpoint, now);
  }
  // True: `message` is to be sent. To be asked when none is on its way.
  bool NextMessage(v1::WorkRequest* message, TimePoint now);
  void OnMessage(const v1::WorkResponse& message, TimePoint now);
  void OnStreamEnd(const absl::Status& status, TimePoint now);
  // The stream is to be cancelled, and nothing more of it to be reported. Once.
  bool TakeDrop() { return std::exchange(drop_, false); }
  void Tick(TimePoint now);
  // `can_send`: a message can be sent now; otherwise the end of the one under way is waited for
  // anyway.
  TimePoint NextDue(bool can_send) const;

 private:
  using Phase = LeaseKeeper::Phase;
  struct Answer {
    v1::FinishTicket finish;
    bool sent = false;                   // On this stream.
    std::chrono::milliseconds pause{0};  // Before it is sent again.
    int refusals = 0;
    TimePoint not_before{};
  };

  void FillOpen(v1::OpenWork* open);
  void OnOpened(const v1::SessionOpened& opened, TimePoint now);
  void OnAssignment(const v1::TicketAssignment& assignment);
  void OnResult(const v1::FinishTicketResult& result, TimePoint now);
  void AnswerAgain(Answer answer, const absl::Status& error, TimePoint now);
  void LoseSession(TimePoint now);
  void Drop(const absl::Status& why, TimePoint now);
  void End(absl::Status status);
  // Hands losses and recalls to the listener.
  void Report();

  const WorkOptions options_;
  const std::function<std::string()> make_client_id_;
  WorkListener* const listener_;

  LeaseKeeper keeper_;
  absl::Status status_;
  bool drop_ = false;
  bool closing_ = false;
  bool close_sent_ = false;

  std::string client_id_;
  std::uint64_t next_sequence_ = 1;
  std::uint32_t tickets_max_;
  bool tickets_max_said_ = true;
  std::map<std::uint64_t, Answer> answers_;
};

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_WORK_SESSION_H_
