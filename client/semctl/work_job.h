// One ticket that is being carried out by a command, under a guardian of its own.
#ifndef SEMAPHORED_CLIENT_SEMCTL_WORK_JOB_H_
#define SEMAPHORED_CLIENT_SEMCTL_WORK_JOB_H_

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/semaphore/clock.h"
#include "client/semaphore/lease_keeper.h"
#include "client/semctl/guardian.h"
#include "proto/semaphore/v1/semaphore.pb.h"

namespace semaphore::semctl {

// What a command's exit code says of its ticket; others but 0 are failures as well.
inline constexpr int kExitRejected = 65;  // EX_DATAERR

// Used by one thread.
class Job {
 public:
  // Starts the command, with the payload as its standard input.
  static absl::StatusOr<Job> Start(const v1::TicketAssignment& assignment,
                                   LeaseKeeper::LeasePtr lease,
                                   const std::vector<std::string>& command,
                                   std::chrono::milliseconds kill_after);

  const std::string& lease_id() const { return lease_->lease_id; }
  // "NAME, ticket 0123abcd, attempt 2".
  const std::string& title() const { return title_; }
  // To be polled for input. -1: nothing comes any more.
  int descriptor() const { return is_killing() ? -1 : guardian_.descriptor(); }

  TimePoint overdue_at() const { return is_killing() ? kNever : guardian_.overdue_at(); }

  // Looks what has become of the command, and how long its lease is good. Where the guardian cannot, it kills what is
  // left of the command, and does so again at each call until nothing is.
  void Look();
  void Signal(int number) { guardian_.Signal(number); }
  // Ends the command; whatever it exits with, the ticket has failed for this reason.
  void CutShort(const std::string& why);
  // The same, but the lease is lost already: without mercy.
  void KillOff(const std::string& why);
  // Blocks until it is over, or for a moment.
  void WaitForEnd();

  // What people should know of it, once; empty: nothing.
  std::string TakeWarning() { return std::exchange(warning_, ""); }

  // Nothing of the command is left.
  bool over() const { return over_; }
  // It was killed long ago, and something is left.
  bool is_stuck() const;

  // ---- REQUIRES: over() ----
  bool cannot_execute() const { return exec_error_ != 0; }
  // As `semctl run` would exit.
  int exit_code() const;
  // "done", "failed: exit code 3" …
  std::string verdict() const;
  // What is to be said of the ticket.
  v1::FinishTicket Result() const;

 private:
  Job(const v1::TicketAssignment& assignment, LeaseKeeper::LeasePtr lease, Guardian guardian);
  void OnEvent(const GuardianEvent& event);
  void Feed();
  void BeginKilling(const std::string& why);
  bool is_killing() const { return killing_since_ != kNever; }
  // Why it has failed; empty: it has not.
  std::string Failure() const;

  Guardian guardian_;
  LeaseKeeper::LeasePtr lease_;
  std::string title_;
  std::string program_;  // The first word of the command.
  bool started_ = false;
  bool over_ = false;
  TimePoint killing_since_ = kNever;  // by us, without the guardian
  std::chrono::milliseconds kill_bound_;
  std::string warning_;
  std::string cut_short_;  // Why; empty: it was not.
  int exec_error_ = 0;
  int status_ = 0;  // As wait gives it.
  TimePoint fed_{};
};

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_WORK_JOB_H_
