// semctl's side of the guardian. The guardian itself is in guardian_process.cc, the watcher in
// guardian_watcher.cc.
#include "client/semctl/guardian.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/semctl/guardian_messages.h"
#include "client/semctl/process_tree.h"
#include "client/semctl/program.h"

namespace semaphore::semctl {
namespace {

// No command of semctl's is called so.
constexpr char kGuardianMode[] = "__guardian";
constexpr int kSocketFile = 3;
constexpr int kTimeFile = 4;

constexpr std::chrono::seconds kKillAfterDefault(10);

std::chrono::milliseconds OrDefault(std::chrono::milliseconds kill_after) {
  return kill_after < std::chrono::milliseconds(0) ? kKillAfterDefault : kill_after;
}

// How long the command gets to end when no daemon vouches for the lease any more: the longer, the
// shorter the outage that it survives.
BootClock::duration GraceWithin(BootClock::duration left, std::chrono::milliseconds kill_after) {
  left = std::max(left, BootClock::duration(0));
  const bool asked_for = kill_after >= std::chrono::milliseconds(0);
  return std::min<BootClock::duration>(OrDefault(kill_after), asked_for ? left / 3 : left / 12);
}

// The children of this process. All others were left to it by their parents' end.
struct Children {
  // It had them before it ran any command.
  std::vector<pid_t> inherited = ScannedChildren(getpid());
  // Each Guardian reaps its own.
  std::vector<pid_t> watchers;

  bool IsWatcher(pid_t pid) const {
    return std::find(watchers.begin(), watchers.end(), pid) != watchers.end();
  }
};

Children& OwnChildren() {
  static Children children;
  return children;
}

// argv, from its first byte to its last.
struct Title {
  char* begin = nullptr;
  std::size_t bytes = 0;
};
Title title;

// What is not said to a guardian that stands still it cannot miss: its deadline passes.
void SendOrder(int socket, const GuardianOrder& order) {
  send(socket, &order, sizeof(order), MSG_NOSIGNAL | MSG_DONTWAIT);
}

// What the processes have in common, as files that are closed on exec.
struct Files {
  int semctl_socket = -1;
  int guardian_socket = -1;
  int time = -1;

  void Close() const {
    for (const int file : {semctl_socket, guardian_socket, time}) {
      if (file >= 0) close(file);
    }
  }
};

GuardedTime* Map(int file) {
  void* const page =
      mmap(nullptr, sizeof(GuardedTime), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return page == MAP_FAILED ? nullptr : static_cast<GuardedTime*>(page);
}

absl::StatusOr<Files> MakeFiles() {
  if (!ShowsOwnProcesses("/proc")) {
    return absl::FailedPreconditionError(
        "/proc is missing, or another PID namespace's, so that the command could not be ended with "
        "its lease; mount one (with unshare: --mount-proc)");
  }
  Files files;
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
    return absl::ErrnoToStatus(errno, "socketpair");
  }
  files.semctl_socket = sockets[0];
  files.guardian_socket = sockets[1];
  files.time = memfd_create("guarded", MFD_CLOEXEC);
  if (files.time < 0 || ftruncate(files.time, sizeof(GuardedTime)) != 0) {
    const int error = errno;
    files.Close();
    return absl::ErrnoToStatus(error, "memfd_create");
  }
  // What the command leaves behind when the guardian and the watcher are killed comes to us.
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  OwnChildren();  // those that it has now
  return files;
}

}  // namespace

void SetProcessName(const char* name) {
  prctl(PR_SET_NAME, name, 0, 0, 0);
  if (title.bytes == 0) return;
  memset(title.begin, 0, title.bytes);
  memcpy(title.begin, name, std::min(strlen(name), title.bytes - 1));
}

void ReapOrphans() {
  Children& children = OwnChildren();
  while (true) {
    siginfo_t ended{};
    if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0) return;
    // Soon it is reaped, and the rest with the next call.
    if (children.IsWatcher(ended.si_pid)) return;
    std::erase(children.inherited, ended.si_pid);
    waitpid(ended.si_pid, nullptr, WNOHANG);
  }
}

absl::StatusOr<Guardian> Guardian::Fork(std::vector<std::string> command,
                                        std::chrono::milliseconds kill_after) {
  const absl::StatusOr<Files> files = MakeFiles();
  if (!files.ok()) return files.status();
  GuardedTime* const time = Map(files->time);
  const CommandGroup group = CommandGroup::Make();
  const pid_t child = time == nullptr ? -1 : fork();
  if (child < 0) {
    const int error = errno;
    files->Close();
    group.Remove();
    return absl::ErrnoToStatus(error, "fork");
  }
  if (child == 0) {
    close(files->semctl_socket);
    RunWatcher(
        {files->guardian_socket, time, std::move(command), OrDefault(kill_after), false, group});
  }
  close(files->guardian_socket);
  close(files->time);
  return Guardian(files->semctl_socket, child, time, kill_after, group);
}

absl::StatusOr<Guardian> Guardian::Spawn(const std::vector<std::string>& command,
                                         std::chrono::milliseconds kill_after, int input) {
  const absl::StatusOr<Files> files = MakeFiles();
  if (!files.ok()) return files.status();
  const CommandGroup group = CommandGroup::Make();
  std::vector<std::string> arguments = {
      "permit-watcher", kGuardianMode, std::to_string(OrDefault(kill_after).count()), group.path()};
  arguments.insert(arguments.end(), command.begin(), command.end());
  std::vector<char*> pointers;
  pointers.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  // Out of the way of the numbers that they get.
  const int theirs = fcntl(files->guardian_socket, F_DUPFD_CLOEXEC, kTimeFile + 1);
  const int page = fcntl(files->time, F_DUPFD_CLOEXEC, kTimeFile + 1);
  const int stdin_file = fcntl(input, F_DUPFD_CLOEXEC, kTimeFile + 1);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, stdin_file, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, theirs, kSocketFile);
  posix_spawn_file_actions_adddup2(&actions, page, kTimeFile);
  // gRPC may have ignored it.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  GuardedTime* const time = Map(files->time);
  pid_t child = 0;
  const int error = time == nullptr ? ENOMEM
                                    : posix_spawn(&child, "/proc/self/exe", &actions, &attributes,
                                                  pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  for (const int file : {files->guardian_socket, files->time, theirs, page, stdin_file})
    close(file);
  if (error != 0) {
    close(files->semctl_socket);
    group.Remove();
    return absl::ErrnoToStatus(error, "cannot execute the guardian");
  }
  return Guardian(files->semctl_socket, child, time, kill_after, group);
}

std::optional<std::string> CannotKillWarning(const std::string& command) {
  const std::optional<std::string> file = SetUserIdFile(command);
  if (!file.has_value()) return std::nullopt;
  return absl::StrCat(
      *file,
      " runs as another user (set-user-ID): semctl may not be allowed to end it, and it "
      "may go on after the lease has ended; run semctl as that user instead");
}

std::string CannotKillText(pid_t pid) {
  return absl::StrCat("CANNOT KILL process ", pid, " (", NameOf(pid),
                      "), which runs as another user: it may go on after the lease has ended");
}

std::optional<int> GuardianMain(int argc, char** argv) {
  if (argc < 1) return std::nullopt;
  title = {argv[0], static_cast<std::size_t>(argv[argc - 1] + strlen(argv[argc - 1]) - argv[0])};
  if (argc < 5 || strcmp(argv[1], kGuardianMode) != 0) return std::nullopt;
  // Inherited on purpose, but not by the command.
  for (const int file : {kSocketFile, kTimeFile}) {
    if (fcntl(file, F_SETFD, FD_CLOEXEC) != 0) return EXIT_FAILURE;
  }
  const GuardedTime* const time = Map(kTimeFile);
  if (time == nullptr) return EXIT_FAILURE;
  RunWatcher({kSocketFile, time, std::vector<std::string>(argv + 4, argv + argc),
              std::chrono::milliseconds(std::strtoll(argv[2], nullptr, 10)), true,
              CommandGroup(argv[3])});
}

Guardian::Guardian(int socket, pid_t watcher, GuardedTime* time,
                   std::chrono::milliseconds kill_after, CommandGroup group)
    : socket_(socket),
      watcher_(watcher),
      time_(time),
      kill_after_(kill_after),
      group_(std::move(group)) {
  OwnChildren().watchers.push_back(watcher);
}

Guardian::Guardian(Guardian&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)),
      watcher_(other.watcher_.exchange(0)),
      time_(std::exchange(other.time_, nullptr)),
      kill_after_(other.kill_after_),
      group_(std::move(other.group_)) {}

Guardian::~Guardian() {
  if (socket_ < 0) return;
  close(socket_);
  if (watcher_ > 0) {
    // As a rule both are about to end, but they may have been stopped.
    group_.Kill();
    for (const Descendant& guardian : DescendantsOf(watcher_)) SendSignal(guardian, SIGKILL);
    kill(watcher_, SIGKILL);
    waitpid(watcher_, nullptr, 0);
    std::erase(OwnChildren().watchers, watcher_.load());
  }
  group_.Remove();
  munmap(time_, sizeof(GuardedTime));
}

bool Guardian::Start(const std::vector<std::string>& environment, TimePoint good_until) {
  GuardianPacket packet;
  packet.order = {GuardianOrder::Kind::kStart, 0,
                  GraceWithin(good_until - BootClock::now(), kill_after_).count()};
  std::size_t used = 0;
  for (const std::string& variable : environment) {
    if (used + variable.size() + 1 > kEnvironmentBytesMax) return false;
    memcpy(packet.environment + used, variable.c_str(), variable.size() + 1);
    used += variable.size() + 1;
  }
  Extend(good_until);
  return send(socket_, &packet, offsetof(GuardianPacket, environment) + used,
              MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
}

void Guardian::Extend(TimePoint good_until) {
  const std::int64_t now = good_until.time_since_epoch().count();
  const std::int64_t before = time_->good_until_ns.exchange(now);
  if (before == 0 || now < before) HaveThemLook();
}

void Guardian::Shorten(TimePoint good_until) {
  const std::int64_t bound = good_until.time_since_epoch().count();
  std::int64_t before = time_->bound_ns.load();
  do {
    if (before != 0 && before <= bound) return;
  } while (!time_->bound_ns.compare_exchange_weak(before, bound));
  HaveThemLook();
}

void Guardian::HaveThemLook() {
  SendOrder(socket_, {GuardianOrder::Kind::kLook});
  // The watcher looks when a child ends, as it may have.
  if (const pid_t watcher = watcher_; watcher > 0) kill(watcher, SIGCHLD);
}

TimePoint Guardian::overdue_at() const {
  const TimePoint good_until = time_->good_until();
  const bool ends = good_until != TimePoint() && good_until != kNever;
  return ends ? good_until - kSemctlKillsBefore : kNever;
}

void Guardian::Signal(int signal_number) {
  SendOrder(socket_, {GuardianOrder::Kind::kSignal, signal_number});
}

void Guardian::Terminate() { SendOrder(socket_, {GuardianOrder::Kind::kTerminate}); }

// The order first: a guardian that sees the time first would say that it ends the command by itself.
void Guardian::Kill() {
  SendOrder(socket_, {GuardianOrder::Kind::kKill});
  Shorten(BootClock::now() + kGuardianKillsBefore);
}

std::optional<GuardianEvent> Guardian::Next() {
  GuardianEvent event{};
  ssize_t length = 0;
  // A guardian that has ended with an order unread resets the connection; that comes once, before
  // what it had to say at last.
  do {
    length = recv(socket_, &event, sizeof(event), MSG_DONTWAIT);
  } while (length < 0 && (errno == EINTR || errno == ECONNRESET));
  if (length < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::nullopt;
  if (length != static_cast<ssize_t>(sizeof(event))) {
    return GuardianEvent{GuardianEvent::Kind::kGone, 0};
  }
  return event;
}

// The watcher is killed, too, as it may be stopped: what it has left comes to us.
bool Guardian::KillAll(std::chrono::milliseconds bound) {
  Children& children = OwnChildren();
  std::erase(children.watchers, watcher_.exchange(0));
  std::vector<pid_t> spared = children.inherited;
  spared.insert(spared.end(), children.watchers.begin(), children.watchers.end());
  group_.Kill();
  if (!KillDescendants(spared, BootClock::now() + bound)) return false;
  group_.Remove();
  return true;
}

}  // namespace semaphore::semctl
