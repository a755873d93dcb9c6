// semctl's side of the guardian. The guardian itself is in guardian_process.cc.
#include "client/semctl/guardian.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "client/semctl/guardian_messages.h"

namespace semaphore::semctl {
namespace {

// No command of semctl's is called so.
constexpr char kGuardianMode[] = "__guardian";
constexpr int kGuardianSocket = 3;

std::int64_t ToNs(TimePoint at) { return at.time_since_epoch().count(); }

void SendOrder(int socket, const GuardianOrder& order) {
  // A guardian that is gone is told by Next().
  send(socket, &order, sizeof(order), MSG_NOSIGNAL);
}

void ReapAll() {
  while (waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

}  // namespace

void ReapOrphans(const std::vector<pid_t>& guardians) {
  while (true) {
    siginfo_t ended{};
    if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0) return;
    // Soon it is reaped, and the rest with the next call.
    if (std::find(guardians.begin(), guardians.end(), ended.si_pid) != guardians.end()) return;
    waitpid(ended.si_pid, nullptr, WNOHANG);
  }
}

absl::StatusOr<Guardian> Guardian::Fork(std::vector<std::string> command,
                                        std::chrono::milliseconds kill_after) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
    return absl::ErrnoToStatus(errno, "socketpair");
  }
  // Orphans come to us, so that we can see the last of them go.
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  const pid_t child = fork();
  if (child < 0) {
    const int error = errno;
    close(sockets[0]);
    close(sockets[1]);
    return absl::ErrnoToStatus(error, "fork");
  }
  if (child == 0) {
    close(sockets[0]);
    RunGuardian(sockets[1], std::move(command), kill_after);
  }
  close(sockets[1]);
  return Guardian(sockets[0], child);
}

absl::StatusOr<Guardian> Guardian::Spawn(const std::vector<std::string>& command,
                                         std::chrono::milliseconds kill_after, int input) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
    return absl::ErrnoToStatus(errno, "socketpair");
  }
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  std::vector<std::string> arguments = {"semctl", kGuardianMode,
                                        std::to_string(kill_after.count())};
  arguments.insert(arguments.end(), command.begin(), command.end());
  std::vector<char*> pointers;
  pointers.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  // Out of the way of the numbers that they get.
  const int theirs = fcntl(sockets[1], F_DUPFD_CLOEXEC, kGuardianSocket + 1);
  const int stdin_file = fcntl(input, F_DUPFD_CLOEXEC, kGuardianSocket + 1);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, stdin_file, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, theirs, kGuardianSocket);
  pid_t child = 0;
  const int error =
      posix_spawn(&child, "/proc/self/exe", &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  for (const int file : {sockets[1], theirs, stdin_file}) close(file);
  if (error != 0) {
    close(sockets[0]);
    return absl::ErrnoToStatus(error, "cannot execute the guardian");
  }
  return Guardian(sockets[0], child);
}

std::optional<int> GuardianMain(int argc, char** argv) {
  if (argc < 4 || strcmp(argv[1], kGuardianMode) != 0) return std::nullopt;
  // Inherited on purpose, but not by the command.
  if (fcntl(kGuardianSocket, F_SETFD, FD_CLOEXEC) != 0) return EXIT_FAILURE;
  RunGuardian(kGuardianSocket, std::vector<std::string>(argv + 3, argv + argc),
              std::chrono::milliseconds(std::strtoll(argv[2], nullptr, 10)));
}

Guardian::Guardian(Guardian&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)),
      guardian_(std::exchange(other.guardian_, 0)),
      group_(std::exchange(other.group_, 0)) {}

Guardian::~Guardian() {
  if (socket_ < 0) return;
  close(socket_);
  if (guardian_ > 0) waitpid(guardian_, nullptr, 0);
}

bool Guardian::Start(const std::vector<std::string>& environment, TimePoint good_until) {
  GuardianPacket packet;
  packet.order = {GuardianOrder::Kind::kStart, 0, ToNs(good_until)};
  std::size_t used = 0;
  for (const std::string& variable : environment) {
    if (used + variable.size() + 1 > kEnvironmentBytesMax) return false;
    memcpy(packet.environment + used, variable.c_str(), variable.size() + 1);
    used += variable.size() + 1;
  }
  return send(socket_, &packet, offsetof(GuardianPacket, environment) + used, MSG_NOSIGNAL) > 0;
}

void Guardian::Extend(TimePoint good_until) {
  SendOrder(socket_, {GuardianOrder::Kind::kExtend, 0, ToNs(good_until)});
}

void Guardian::Signal(int signal_number) {
  SendOrder(socket_, {GuardianOrder::Kind::kSignal, signal_number, 0});
}

void Guardian::Terminate() { SendOrder(socket_, {GuardianOrder::Kind::kTerminate, 0, 0}); }

std::optional<GuardianEvent> Guardian::Next() {
  GuardianEvent event{};
  ssize_t length = 0;
  // A guardian that has ended with an order unread resets the connection; that is told once, before
  // what it had to say at last.
  do {
    length = recv(socket_, &event, sizeof(event), MSG_DONTWAIT);
  } while (length < 0 && (errno == EINTR || errno == ECONNRESET));
  if (length < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::nullopt;
  if (length != static_cast<ssize_t>(sizeof(event))) {
    return GuardianEvent{GuardianEvent::Kind::kGone, 0};
  }
  if (event.kind == GuardianEvent::Kind::kStarted) group_ = event.value;
  return event;
}

bool Guardian::KillAll(std::chrono::milliseconds bound) {
  if (guardian_ > 0) {
    kill(guardian_, SIGKILL);
    waitpid(guardian_, nullptr, 0);
    guardian_ = 0;
  }
  if (group_ == 0) return true;
  const TimePoint end = BootClock::now() + bound;
  while (BootClock::now() < end) {
    ReapAll();
    if (kill(-group_, SIGKILL) != 0 && errno == ESRCH) return true;
    const timespec pause{0, 5'000'000};
    nanosleep(&pause, nullptr);
  }
  return false;
}

}  // namespace semaphore::semctl
