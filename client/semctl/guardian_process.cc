// The guardian's own process; see guardian.h.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bitset>
#include <chrono>
#include <utility>

#include "client/semaphore/clock.h"
#include "client/semctl/guardian.h"
#include "client/semctl/guardian_messages.h"
#include "client/semctl/guardian_wait.h"
#include "client/semctl/process_tree.h"

namespace semaphore::semctl {
namespace {

using std::chrono::milliseconds;
using Nanoseconds = BootClock::duration;

// How often we look whether what was killed is gone.
constexpr milliseconds kLookAgain(10);
// What could not be killed so often is not in the command's cgroup, or stays for another reason.
constexpr int kKillsMost = 20;

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
  // `setup` outlives it.
  Process(const GuardianSetup& setup, pid_t watcher) : setup_(setup), watcher_(watcher) {}

  [[noreturn]] void Run();

 private:
  void OnSignals();
  void OnOrder();
  void OnChildren();
  void OnTime();
  void Start(const GuardianPacket& packet, std::size_t length);
  [[noreturn]] void Exec(const GuardianPacket& packet, std::size_t length, int error_pipe);
  void PassOn(int signal_number);
  void Terminate();
  void Kill();
  // To whom it was sent.
  std::vector<pid_t> SendToAll(int signal_number);
  void Report(GuardianEvent::Kind kind, int value);
  TimePoint NextTime() const;
  TimePoint kill_at() const;
  TimePoint terminate_at() const;

  const GuardianSetup& setup_;
  const pid_t watcher_;
  GuardianWait wait_;
  bool is_watched_ = true;
  bool semctl_is_gone_ = false;
  // What was sent to our process group, and so to the command as well, while it is in that group.
  std::bitset<NSIG> group_got_;
  pid_t child_ = 0;
  pid_t group_ = 0;
  bool child_ended_ = false;
  int child_status_ = 0;
  Nanoseconds grace_{0};
  bool terminating_ = false;
  TimePoint kill_next_ = kNever;  // since SIGTERM was not enough
  int kills_failed_ = 0;
  bool told_of_failure_ = false;
};

void Process::Run() {
  SetProcessName("permit-guardian");
  if (setup_.own_group) setpgid(0, 0);
  // What the command leaves behind comes to us, so that we see the last of it go.
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  // When the watcher ends we look, as when a child does.
  prctl(PR_SET_PDEATHSIG, SIGCHLD, 0, 0, 0);
  while (true) {
    OnSignals();
    OnChildren();
    OnTime();
    if (wait_.Until(NextTime(), semctl_is_gone_ ? -1 : setup_.socket)) OnOrder();
  }
}

void Process::OnSignals() {
  while (const int number = wait_.NextSignal()) group_got_.set(number);
  if (!is_watched_ || getppid() == watcher_) return;
  is_watched_ = false;
  Report(GuardianEvent::Kind::kUnwatched, 0);
  if (child_ == 0) _exit(0);
  Terminate();
}

void Process::OnOrder() {
  static GuardianPacket packet;
  const ssize_t length = recv(setup_.socket, &packet, sizeof(packet), MSG_DONTWAIT);
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (length < static_cast<ssize_t>(offsetof(GuardianPacket, environment))) {
    if (child_ == 0) _exit(0);
    semctl_is_gone_ = true;
    return Terminate();
  }
  switch (packet.order.kind) {
    case GuardianOrder::Kind::kStart:
      grace_ = Nanoseconds(packet.order.grace_ns);
      return Start(packet, length - offsetof(GuardianPacket, environment));
    case GuardianOrder::Kind::kLook:
      return;
    case GuardianOrder::Kind::kSignal:
      return PassOn(packet.order.signal_number);
    case GuardianOrder::Kind::kTerminate:
      return Terminate();
    case GuardianOrder::Kind::kKill:
      Terminate();
      kill_next_ = BootClock::now();
      return;
  }
}

void Process::Start(const GuardianPacket& packet, std::size_t length) {
  // As if it had been killed at once.
  if (BootClock::now() >= kill_at()) {
    Report(GuardianEvent::Kind::kTerminating, 0);
    Report(GuardianEvent::Kind::kExited, SIGKILL);
    _exit(0);
  }
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
    if (setup_.own_group) setpgid(child_, child_);
    // Ends with 0 bytes when exec has closed the other end.
    while (read(error_pipe[0], &error, sizeof(error)) < 0 && errno == EINTR) {
    }
  }
  close(error_pipe[0]);
  if (error != 0) {
    Report(GuardianEvent::Kind::kExecFailed, error);
    _exit(0);
  }
  group_ = setup_.own_group ? child_ : getpgrp();
  // What came before, or just now, the command may not have got.
  while (wait_.NextSignal() != 0) {
  }
  group_got_.reset();
  Report(GuardianEvent::Kind::kStarted, child_);
}

// What the command was not meant to inherit: our mask. What semctl was started with is passed on, as
// that SIGHUP is ignored (`nohup`), or SIGINT (`sh -c 'semctl … &'`).
void Process::Exec(const GuardianPacket& packet, std::size_t length, int error_pipe) {
  if (setup_.own_group) setpgid(0, 0);
  setup_.group.Enter();
  std::vector<char*> variables = Variables(packet, length);
  std::vector<char*> arguments;
  for (const std::string& argument : setup_.command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
  execvpe(arguments[0], arguments.data(), variables.data());
  const int error = errno;
  const ssize_t ignored = write(error_pipe, &error, sizeof(error));
  static_cast<void>(ignored);
  _exit(127);
}

// To what the command started in its own process group. The others get it from there, if at all, as
// they would without us.
void Process::PassOn(int signal_number) {
  if (child_ == 0) return;
  OnSignals();
  // A terminal, or `kill %1`, sent it to the group: they have got it.
  if (group_got_.test(signal_number)) {
    group_got_.reset(signal_number);
    return;
  }
  for (const Descendant& descendant : DescendantsOf(getpid())) {
    if (getpgid(descendant.pid) == group_) SendSignal(descendant, signal_number);
  }
}

void Process::OnChildren() {
  int status = 0;
  pid_t ended = 0;
  while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
    if (ended != child_) continue;
    child_ended_ = true;
    child_status_ = status;
  }
  if (!child_ended_) return;
  if (ended < 0 && errno == ECHILD) {
    setup_.group.Remove();
    Report(GuardianEvent::Kind::kExited, child_status_);
    _exit(0);
  }
  // What it left behind must end too: the permits go back.
  Terminate();
}

TimePoint Process::kill_at() const {
  const TimePoint good_until = setup_.time->good_until();
  return good_until == kNever ? kNever : good_until - kGuardianKillsBefore;
}

TimePoint Process::terminate_at() const {
  return kill_at() == kNever ? kNever : kill_at() - grace_;
}

void Process::OnTime() {
  if (child_ == 0) return;
  const TimePoint now = BootClock::now();
  if (!terminating_ && now >= terminate_at()) {
    Report(GuardianEvent::Kind::kTerminating, 0);
    Terminate();
  }
  if (now >= std::min(kill_at(), kill_next_)) Kill();
}

void Process::Terminate() {
  if (terminating_ || child_ == 0) return;
  terminating_ = true;
  kill_next_ = BootClock::now() + setup_.kill_after;
  SendToAll(SIGTERM);
  SendToAll(SIGCONT);  // a stopped one could not end
}

// Without a pause as long as there are others each time: one that forks as fast as it can is caught
// only so. The rest we look after when a child ends, or a moment later.
void Process::Kill() {
  setup_.group.Kill();
  const TimePoint until = BootClock::now() + kLookAgain;
  std::vector<pid_t> killed;
  std::vector<pid_t> before;
  do {
    before = std::move(killed);
    killed = SendToAll(SIGKILL);
    OnChildren();
  } while (killed != before && BootClock::now() < until);
}

std::vector<pid_t> Process::SendToAll(int signal_number) {
  std::vector<pid_t> sent;
  for (const Descendant& descendant : DescendantsOf(getpid())) {
    sent.push_back(descendant.pid);
    if (SendSignal(descendant, signal_number) == 0 || told_of_failure_) continue;
    // What is in the command's group the kernel ends for us, soon.
    if (!setup_.group.path().empty() && (signal_number != SIGKILL || ++kills_failed_ < kKillsMost))
      continue;
    told_of_failure_ = true;
    Report(GuardianEvent::Kind::kCannotKill, descendant.pid);
  }
  return sent;
}

TimePoint Process::NextTime() const {
  if (child_ == 0) return kNever;
  const TimePoint next =
      terminating_ ? std::min(kill_at(), kill_next_) : std::min(terminate_at(), kill_at());
  const TimePoint now = BootClock::now();
  return next > now ? next : now + kLookAgain;
}

void Process::Report(GuardianEvent::Kind kind, int value) {
  const GuardianEvent event{kind, value};
  if (!semctl_is_gone_) {
    send(setup_.socket, &event, sizeof(event), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

}  // namespace

void RunGuardian(const GuardianSetup& setup, pid_t watcher) { Process(setup, watcher).Run(); }

}  // namespace semaphore::semctl
