// The guardian's own process; see guardian.h. Only system calls, no allocation once the command
// runs.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "client/semaphore/clock.h"
#include "client/semctl/guardian.h"
#include "client/semctl/guardian_messages.h"

namespace semaphore::semctl {
namespace {

using std::chrono::milliseconds;
using Nanoseconds = BootClock::duration;

// SIGKILL is sent this long before the permits' deadline, so that the command is really dead at it.
constexpr milliseconds kKillBefore(50);
// How often we look whether the group is empty, once its leader is gone.
constexpr milliseconds kLookAgain(10);

// Our own environment with the packet's variables in place of those of the same name. The pointers
// are the packet's and the environment's own.
std::vector<char*> Variables(const GuardianPacket& packet, std::size_t length) {
  std::vector<char*> added;
  for (std::size_t at = 0; at < length;) {
    added.push_back(const_cast<char*>(packet.environment + at));
    at += strnlen(packet.environment + at, length - at) + 1;
  }
  std::vector<char*> variables = added;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const bool replaced = std::any_of(added.begin(), added.end(), [&](const char* other) {
      const std::size_t name = strcspn(other, "=") + 1;
      return strncmp(*variable, other, name) == 0;
    });
    if (!replaced) variables.push_back(*variable);
  }
  variables.push_back(nullptr);
  return variables;
}

class Process {
 public:
  Process(int socket, std::vector<std::string> command, milliseconds kill_after)
      : socket_(socket), command_(std::move(command)), kill_after_(kill_after) {}

  [[noreturn]] void Run();

 private:
  void OnOrder();
  void OnChildren();
  void OnTime(TimePoint now);
  void Start(const GuardianPacket& packet, std::size_t length);
  [[noreturn]] void Exec(const GuardianPacket& packet, std::size_t length, int error_pipe);
  void Terminate(TimePoint now);
  bool GroupIsEmpty() const { return kill(-child_, 0) != 0 && errno == ESRCH; }
  void Report(GuardianEvent::Kind kind, int value);
  void ArmTimer(TimePoint at) const;
  TimePoint NextTime() const;
  // When the command is asked to end if no new deadline comes: it gets `kill_after`, but at most a
  // third of what is left.
  void SetDeadline(TimePoint good_until, TimePoint now);

  const int socket_;
  const std::vector<std::string> command_;
  const milliseconds kill_after_;
  int timer_ = -1;
  int signals_ = -1;
  pid_t child_ = 0;
  bool child_ended_ = false;
  int child_status_ = 0;
  bool semctl_is_gone_ = false;
  bool terminating_ = false;
  TimePoint terminate_at_ = kNever;
  TimePoint kill_at_ = kNever;    // since the permits end
  TimePoint kill_next_ = kNever;  // since SIGTERM was not enough
};

void Process::Run() {
  // Only SIGKILL and SIGSTOP shall reach us: what a terminal sends to everybody is semctl's to pass
  // on.
  setpgid(0, 0);
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  signals_ = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
  timer_ = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
  // What the command leaves behind comes to us, so that we see the last of its group go.
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  while (true) {
    ArmTimer(NextTime());
    pollfd polled[] = {{signals_, POLLIN, 0}, {timer_, POLLIN, 0}, {socket_, POLLIN, 0}};
    poll(polled, semctl_is_gone_ ? 2 : 3, -1);
    char drained[sizeof(signalfd_siginfo)];
    while (read(signals_, drained, sizeof(drained)) > 0) {
    }
    while (read(timer_, drained, sizeof(std::uint64_t)) > 0) {
    }
    if (!semctl_is_gone_ && polled[2].revents != 0) OnOrder();
    OnChildren();
    OnTime(BootClock::now());
  }
}

void Process::OnOrder() {
  static GuardianPacket packet;
  const ssize_t length = recv(socket_, &packet, sizeof(packet), MSG_DONTWAIT);
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
  const TimePoint now = BootClock::now();
  if (length < static_cast<ssize_t>(offsetof(GuardianPacket, environment))) {
    if (child_ == 0) _exit(0);
    semctl_is_gone_ = true;
    Terminate(now);
    return;
  }
  const TimePoint good_until{Nanoseconds(packet.order.good_until_ns)};
  switch (packet.order.kind) {
    case GuardianOrder::Kind::kStart:
      SetDeadline(good_until, now);
      Start(packet, length - offsetof(GuardianPacket, environment));
      break;
    case GuardianOrder::Kind::kExtend:
      SetDeadline(good_until, now);
      break;
    case GuardianOrder::Kind::kSignal:
      if (child_ != 0) kill(-child_, packet.order.signal_number);
      break;
    case GuardianOrder::Kind::kTerminate:
      Terminate(now);
      break;
  }
}

void Process::SetDeadline(TimePoint good_until, TimePoint now) {
  if (good_until == kNever) return;
  kill_at_ = good_until - kKillBefore;
  const Nanoseconds left = std::max(kill_at_ - now, Nanoseconds(0));
  terminate_at_ = kill_at_ - std::min<Nanoseconds>(kill_after_, left / 3);
}

void Process::Start(const GuardianPacket& packet, std::size_t length) {
  int error_pipe[2];
  if (pipe2(error_pipe, O_CLOEXEC) != 0) {
    Report(GuardianEvent::Kind::kExecFailed, errno);
    _exit(0);
  }
  const pid_t guardian = getpid();
  child_ = fork();
  if (child_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != guardian) _exit(127);  // it died before prctl
    Exec(packet, length, error_pipe[1]);
  }
  int error = child_ < 0 ? errno : 0;
  close(error_pipe[1]);
  if (child_ > 0) {
    setpgid(child_, child_);
    // Ends with 0 bytes when exec has closed the other end.
    while (read(error_pipe[0], &error, sizeof(error)) < 0 && errno == EINTR) {
    }
  }
  close(error_pipe[0]);
  if (error != 0) {
    Report(GuardianEvent::Kind::kExecFailed, error);
    _exit(0);
  }
  Report(GuardianEvent::Kind::kStarted, child_);
}

void Process::Exec(const GuardianPacket& packet, std::size_t length, int error_pipe) {
  setpgid(0, 0);
  std::vector<char*> variables = Variables(packet, length);
  std::vector<char*> arguments;
  for (const std::string& argument : command_) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGCHLD, SIGTTOU, SIGTTIN,
                           SIGTSTP, SIGUSR1, SIGUSR2}) {
    signal(number, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
  execvpe(arguments[0], arguments.data(), variables.data());
  const int error = errno;
  const ssize_t ignored = write(error_pipe, &error, sizeof(error));
  static_cast<void>(ignored);
  _exit(127);
}

void Process::OnChildren() {
  int status = 0;
  pid_t ended = 0;
  while ((ended = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
    if (ended != child_) continue;
    if (WIFSTOPPED(status)) {
      Report(GuardianEvent::Kind::kStopped, WSTOPSIG(status));
      continue;
    }
    child_ended_ = true;
    child_status_ = status;
    // What it left behind must end too: the permits go back.
    if (!GroupIsEmpty()) Terminate(BootClock::now());
  }
  if (child_ended_ && GroupIsEmpty()) {
    Report(GuardianEvent::Kind::kExited, child_status_);
    _exit(0);
  }
}

void Process::OnTime(TimePoint now) {
  if (child_ == 0) return;
  if (!terminating_ && now >= terminate_at_) {
    Report(GuardianEvent::Kind::kTerminating, 0);
    Terminate(now);
  }
  if (now >= std::min(kill_at_, kill_next_)) kill(-child_, SIGKILL);
}

void Process::Terminate(TimePoint now) {
  if (terminating_ || child_ == 0) return;
  terminating_ = true;
  kill_next_ = now + kill_after_;
  kill(-child_, SIGTERM);
  kill(-child_, SIGCONT);  // a stopped one could not end
}

TimePoint Process::NextTime() const {
  if (child_ == 0) return kNever;
  const TimePoint now = BootClock::now();
  TimePoint next =
      terminating_ ? std::min(kill_at_, kill_next_) : std::min(terminate_at_, kill_at_);
  if (child_ended_ || next <= now) next = std::min(std::max(next, now), now) + kLookAgain;
  return next;
}

void Process::ArmTimer(TimePoint at) const {
  itimerspec spec{};
  if (at != kNever) {
    const Nanoseconds since_boot = at.time_since_epoch();
    spec.it_value.tv_sec = since_boot.count() / 1'000'000'000;
    spec.it_value.tv_nsec = std::max<long>(since_boot.count() % 1'000'000'000, 1);
  }
  timerfd_settime(timer_, TFD_TIMER_ABSTIME, &spec, nullptr);
}

void Process::Report(GuardianEvent::Kind kind, int value) {
  const GuardianEvent event{kind, value};
  if (!semctl_is_gone_) send(socket_, &event, sizeof(event), MSG_NOSIGNAL);
}

}  // namespace

void RunGuardian(int socket, std::vector<std::string> command, milliseconds kill_after) {
  Process(socket, std::move(command), kill_after).Run();
}

}  // namespace semaphore::semctl
