#include "client/semctl/work_job.h"

#include <errno.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/semaphore/lease_state.h"
#include "client/semctl/exit_codes.h"
#include "client/semctl/program.h"

namespace semaphore::semctl {
namespace {

using std::chrono::milliseconds;

// For what is killed to end, while no other job is looked after. Later it is only looked at.
constexpr milliseconds kKillBound(20);
constexpr milliseconds kStuckAfter(10'000);
constexpr milliseconds kMoment(250);
constexpr std::size_t kTicketShown = 8;  // Digits of its id.

// A file in memory: semctl would have to feed a pipe while the command reads.
absl::StatusOr<int> FileWith(const std::string& payload) {
  const int file = memfd_create("payload", MFD_CLOEXEC);
  if (file < 0) return absl::ErrnoToStatus(errno, "memfd_create");
  for (std::size_t written = 0; written < payload.size();) {
    const ssize_t some = write(file, payload.data() + written, payload.size() - written);
    if (some < 0 && errno != EINTR) {
      const int error = errno;
      close(file);
      return absl::ErrnoToStatus(error, "cannot keep the payload in memory");
    }
    written += some > 0 ? static_cast<std::size_t>(some) : 0;
  }
  lseek(file, 0, SEEK_SET);
  return file;
}

std::vector<std::string> Environment(const v1::TicketAssignment& assignment) {
  const v1::Lease& lease = assignment.lease();
  return {absl::StrCat("SEMAPHORE_NAME=", lease.semaphore()),
          absl::StrCat("SEMAPHORE_TICKET=", assignment.ticket_id()),
          absl::StrCat("SEMAPHORE_ATTEMPT=", assignment.attempt()),
          absl::StrCat("SEMAPHORE_MAX_ATTEMPTS=", assignment.max_attempts()),
          absl::StrCat("SEMAPHORE_CONTENT_TYPE=", assignment.content_type()),
          absl::StrCat("SEMAPHORE_SLOT=", absl::StrJoin(SlotsOf(lease.slots()), ",")),
          absl::StrCat("SEMAPHORE_TOKEN=", lease.token()),
          absl::StrCat("SEMAPHORE_LEASE=", lease.lease_id()),
          absl::StrCat("TRACEPARENT=", assignment.traceparent())};
}

}  // namespace

absl::StatusOr<Job> Job::Start(const v1::TicketAssignment& assignment, LeaseKeeper::LeasePtr lease,
                               const std::vector<std::string>& command, milliseconds kill_after) {
  const absl::StatusOr<int> input = FileWith(assignment.payload());
  if (!input.ok()) return input.status();
  absl::StatusOr<Guardian> guardian = Guardian::Spawn(command, kill_after, *input);
  close(*input);
  if (!guardian.ok()) return guardian.status();
  Job job(assignment, std::move(lease), *std::move(guardian));
  job.program_ = command.front();
  job.fed_ = job.lease_->GoodUntil();
  if (!job.guardian_.Start(Environment(assignment), job.fed_))
    return absl::InternalError("the guardian process is gone");
  return job;
}

Job::Job(const v1::TicketAssignment& assignment, LeaseKeeper::LeasePtr lease, Guardian guardian)
    : guardian_(std::move(guardian)),
      lease_(std::move(lease)),
      title_(absl::StrCat(assignment.lease().semaphore(), ", ticket ",
                          assignment.ticket_id().substr(0, kTicketShown), ", attempt ",
                          assignment.attempt())),
      kill_bound_(kKillBound) {}

void Job::CutShort(const std::string& why) {
  if (over_ || !cut_short_.empty()) return;
  cut_short_ = why;
  // Before it is started it could not be.
  if (started_) guardian_.Terminate();
}

void Job::KillOff(const std::string& why) {
  if (over_) return;
  CutShort(why);
  guardian_.Kill();
}

void Job::BeginKilling(const std::string& why) {
  if (cut_short_.empty()) cut_short_ = why;
  killing_since_ = BootClock::now();
}

bool Job::is_stuck() const {
  return !over_ && is_killing() && BootClock::now() - killing_since_ >= kStuckAfter;
}

void Job::OnEvent(const GuardianEvent& event) {
  switch (event.kind) {
    case GuardianEvent::Kind::kStarted:
      started_ = true;
      if (!cut_short_.empty()) guardian_.Terminate();
      return;
    case GuardianEvent::Kind::kExecFailed:
      exec_error_ = event.value;
      over_ = true;
      return;
    case GuardianEvent::Kind::kExited:
      status_ = event.value;
      over_ = true;
      return;
    case GuardianEvent::Kind::kTerminating:
      if (cut_short_.empty()) cut_short_ = "no daemon vouched for its lease any more";
      return;
    case GuardianEvent::Kind::kUnwatched:
      if (cut_short_.empty()) cut_short_ = "its watcher process was killed";
      return;
    case GuardianEvent::Kind::kCannotKill:
      warning_ = CannotKillText(event.value);
      return;
    case GuardianEvent::Kind::kGone:
      return BeginKilling("its guardian process was killed");
  }
}

void Job::Look() {
  while (!over_ && !is_killing()) {
    const auto event = guardian_.Next();
    if (!event.has_value()) break;
    OnEvent(*event);
  }
  if (over_) return;
  if (!is_killing()) Feed();
  if (is_killing()) over_ = guardian_.KillAll(std::exchange(kill_bound_, milliseconds(0)));
}

void Job::Feed() {
  if (const TimePoint good_until = lease_->GoodUntil(); good_until != fed_) {
    fed_ = good_until;
    guardian_.Extend(good_until);
  }
  if (BootClock::now() >= overdue_at())
    BeginKilling("its lease ended, and its guardian stood still");
}

void Job::WaitForEnd() {
  if (over_) return;
  pollfd polled = {descriptor(), POLLIN, 0};
  poll(&polled, 1, static_cast<int>(kMoment.count()));
  Look();
}

int Job::exit_code() const {
  if (exec_error_ != 0) return exec_error_ == ENOENT ? kNotFound : kCannotExecute;
  if (!cut_short_.empty()) return kLost;
  return WIFSIGNALED(status_) ? kSignalled + WTERMSIG(status_) : WEXITSTATUS(status_);
}

std::string Job::Failure() const {
  if (!cut_short_.empty()) return cut_short_;
  if (WIFSIGNALED(status_)) return absl::StrCat("killed by signal ", WTERMSIG(status_));
  if (WEXITSTATUS(status_) != 0) return absl::StrCat("exit code ", WEXITSTATUS(status_));
  return "";
}

std::string Job::verdict() const {
  if (exec_error_ != 0) {
    return absl::StrCat("put back, since the command cannot be executed: ",
                        ExecErrorText(program_, exec_error_));
  }
  const std::string failure = Failure();
  if (failure.empty()) return "done";
  return absl::StrCat(Result().has_rejected() ? "rejected: " : "failed: ", failure);
}

v1::FinishTicket Job::Result() const {
  v1::FinishTicket finish;
  finish.set_lease_id(lease_->lease_id);
  const std::string failure = Failure();
  if (exec_error_ != 0) {
    finish.mutable_put_back();
  } else if (failure.empty()) {
    finish.mutable_done();
  } else if (cut_short_.empty() && WIFEXITED(status_) && WEXITSTATUS(status_) == kExitRejected) {
    finish.mutable_rejected()->set_reason(failure);
  } else {
    finish.mutable_failed()->set_reason(failure);
    // No fault of the command's: the ticket keeps its place, as when the worker had died.
    if (!cut_short_.empty()) finish.mutable_failed()->set_retry_after_ms(0);
  }
  return finish;
}

}  // namespace semaphore::semctl
